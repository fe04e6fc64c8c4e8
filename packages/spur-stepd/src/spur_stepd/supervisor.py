"""One supervisor: carries out what the machine decides and tells it what happens.

Everything here is a system call or the way to one.  The order of steps is the machine's.
"""

from __future__ import annotations

import errno
import os
import resource
import time

from spur_core import faults
from spur_core.lean import partial, signal
from spur_core.linux import cgroup, fsync, prctl, private_dir, procfs
from spur_proto_lite import control, exits, notify, unixsock
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.journal import (
    ACKNOWLEDGED,
    EPILOG_RESULT,
    EXIT_OBSERVED,
    PREPARED,
    SIGNALLED,
    STARTED,
    JournalWriter,
)
from spur_proto_lite.paths import SessionPaths, StatePaths
from spur_stepd import actions as act
from spur_stepd import describe, digest, ending, launch, spec_file, task_epilog, words
from spur_stepd import machine as m
from spur_stepd.attachments import Attachments
from spur_stepd.execs import Execs
from spur_stepd.hooks import Hooks
from spur_stepd.lifetime import Lifetime
from spur_stepd.log import say
from spur_stepd.loop import READ, Loop
from spur_stepd.notifier import Notifier
from spur_stepd.oom import OomWatch
from spur_stepd.prepare import StartFailure
from spur_stepd.privileges import Privileges
from spur_stepd.progress import Progress
from spur_stepd.requests import Requests
from spur_stepd.server import Server
from spur_stepd.targets import Targets
from spur_stepd.timers import Timers

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_stepd.pmi_server import Server as PmiServer
    from spur_stepd.task import Status

#: Seconds that answers and output get to leave before the supervisor ends.
LINGER = 5.0


class Supervisor:
    """See the module.  `prepare` makes it ready, `run` serves until the end."""

    def __init__(self, session_dir: str) -> None:
        """Verify and read the session.

        Raises:
            SpurError, OSError: it cannot be used.
        """
        self.paths = SessionPaths(session_dir)
        self.state_paths = StatePaths.of_session(session_dir)
        self.directory = private_dir.open_verified(session_dir)
        self.spec, raw = spec_file.read(self.directory, self.paths)
        self._digest = digest.hexdigest(raw)
        self.privileges = Privileges(self.spec.uid, self.spec.gid, self.spec.groups)
        self.loop = Loop()
        self.timers = Timers()
        self.oom = OomWatch(self.loop, self._on_memory_short)
        self.targets = Targets()
        self.machine = m.Machine(
            tuple(task.rank for task in self.spec.task_list()),
            self.spec.start_timeout_secs,
            float(self.spec.kill_wait_secs),
            hangs_up=self.spec.pty,
            slow_exec=bool(self.spec.task_prolog.paths),
            task_epilog=bool(self.spec.task_epilog.paths),
            job_lifetime=self.spec.job_lifetime,
            has_epilog=bool(self.spec.epilog.paths),
        )
        self.notifier = Notifier(self.loop, self.state_paths.notify_sock, self.privileges, self._on_pushed)
        self.attachments = Attachments(self.loop, self.directory, self.spec, self.privileges, self.timers)
        self.attachments.on_signal = self._deliver_for_client
        self.attachments.on_teardown = self._on_detached
        self.pmi: PmiServer | None = None
        self.requests = Requests(self)
        self.execs = Execs(self)
        self.launched: launch.Launched | None = None
        self.start_reply = control.StartReply()
        self.exit: exits.ExitRecord | None = None
        self.progress = Progress()
        self.cleaned = False
        self.boot_id = procfs.boot_id()
        self.start_ticks = 0
        #: Children that are no tasks: pid -> called with the wait status once it has ended.
        self.children: dict[int, Callable[[int], None]] = {}
        self.epilog: exits.EpilogRecord | None = None
        self.hooks = Hooks(self.loop, self.timers, self.children, self.privileges)
        self.lifetime = Lifetime(self.spec, self.state_paths, self.directory, self.hooks)
        self._created_at = time.time()
        self._started_at = 0.0
        self._kill_ordered = False
        self._quit_code: int | None = None
        self._quit_at = 0.0
        self._do: dict[type, Callable[[act.Action], list[act.Action] | None]] = {
            act.Launch: self._launch,
            act.RecordStart: self._record_start,
            act.OpenGate: self._open_gate,
            act.AnswerStart: lambda _: self.requests.answer_starts(self.start_reply),
            act.AbortTasks: self._abort_tasks,
            act.Record: self._record,
            act.Acknowledge: self._acknowledge,
            act.Deliver: self._deliver,
            act.KillAll: self._kill_all,
            act.CheckOom: self._check_oom,
            act.CheckHeld: self._check_held,
            act.Freeze: self._freeze,
            act.Thaw: self._thaw,
            act.LastWords: self._last_words,
            act.ObserveExit: self._observe_exit,
            act.AnswerWaits: self._answer_waits,
            act.Push: self._push,
            act.KillLeftovers: self._kill_leftovers,
            act.Cleanup: self._cleanup,
            act.RunTaskEpilog: self._run_task_epilog,
            act.EndOthers: self._end_others,
            act.RunEpilog: self._run_epilog,
            act.WriteEpilog: self._write_epilog,
            act.CheckSession: self._check_session,
            act.Quit: self._quit,
        }

    # -- life --------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Everything up to readiness: attributes, signals, journal, descriptor, control socket.

        Raises:
            SpurError, OSError: it cannot get ready; nothing but files in the session directory is left.
        """
        self.start_ticks = procfs.start_ticks(os.getpid()) or 0
        prctl.set_child_subreaper()
        prctl.set_not_dumpable()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.journal = JournalWriter(f"/proc/self/fd/{self.directory}/{SessionPaths.JOURNAL}")
        if self.journal.entries:
            raise BadDocument(f"{self.paths.dir}: this session has been used already")
        first = self._descriptor()
        digests: dict[str, object] = {
            "spec_sha256": self._digest,
            "descriptor_sha256": digest.hexdigest(first),
        }
        self.journal.append(PREPARED, self._created_at, digests)
        self._write_descriptor(first)
        faults.before("ready")
        listener = unixsock.bind(self.paths.control)
        owner = os.fstat(self.directory).st_uid
        self.server = Server(self.loop, listener, owner, self.requests.on_message, self.requests.on_close)
        self._catch_signals()
        self.privileges.begin()
        self._carry_out(self.machine.ready(time.monotonic()))
        faults.after("ready")

    def _catch_signals(self) -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._wakeup = read
        self.loop.watch(read, READ, self._on_signal, late=True)

    def run(self) -> int:
        """Serve until acknowledged, given up or refused; the program's exit code."""
        while True:
            now = time.monotonic()
            self._carry_out(self.machine.tick(now))
            self.requests.expire_waits(now)
            self.timers.run(now)
            if self._quit_code is not None and (self._all_out() or now >= self._quit_at):
                return self._quit_code
            self.loop.turn(self._pause(now))

    def _pause(self, now: float) -> float | None:
        deadlines = [self.machine.next_deadline(), self.requests.next_deadline(), self.timers.next_deadline()]
        if self._quit_code is not None:
            deadlines.append(self._quit_at)
        soonest = min((at for at in deadlines if at is not None), default=None)
        return None if soonest is None else max(0.0, soonest - now)

    def _all_out(self) -> bool:
        """Whether every answer has left and every attached client has had everything."""
        return not any(c.waiting or (c.is_attached and not c.is_finished) for c in self.server.connections)

    def _carry_out(self, actions: list[act.Action]) -> None:
        queue = list(actions)
        while queue:
            action = queue.pop(0)
            following = self._do[type(action)](action)
            if following:
                # What an action has led to comes before what was planned after it.
                queue[:0] = following

    def tell(self, actions: list[act.Action]) -> None:
        """Carry out what the machine answered to an event from a request."""
        self._carry_out(actions)

    def deliver(self, number: int, scope: str = control.ALL) -> control.SignalReply:
        """Send a signal to the step on somebody's behalf.

        Raises:
            IllegalTransition: nothing runs.
        """
        self._carry_out(self.machine.before_signal(number))
        with self.privileges.root():
            kill = number == signal.SIGKILL and scope == control.ALL
            self._kill_ordered |= number == signal.SIGKILL
            sent = self.targets.kill() if kill else self.targets.send(number, scope)
        self._journal(SIGNALLED, {"signal": number, "count": sent.reached, "path": sent.path, "scope": scope})
        return control.SignalReply(count=sent.reached, path=sent.path)

    def _deliver_for_client(self, number: int) -> None:
        """Send a signal for an attached client: at a terminal, to whoever is in its foreground."""
        terminal = self.attachments.terminal
        if terminal is None:
            self.deliver(number)
            return
        self._carry_out(self.machine.before_signal(number))
        with self.privileges.root():
            reached = terminal.signal(number)
        self._journal(SIGNALLED, {"signal": number, "count": reached, "path": "foreground"})

    def _on_mpi_abort(self, rank: int, code: int, text: str) -> None:
        """A rank has called for the end of all: they are killed, as with Slurm."""
        self._tell_user(words.mpi_abort(self.spec.rid, self.spec.node, rank, code, text))
        if self.machine.state in m.ALIVE:
            self.deliver(signal.SIGKILL)

    def _on_detached(self, reason: str) -> None:
        self._carry_out(self.machine.teardown(reason, "terminal", 0.0, time.monotonic()))

    # -- files -------------------------------------------------------------------------------------

    def _descriptor(self) -> bytes:
        return describe.descriptor(
            self.spec,
            self._digest,
            self.start_ticks,
            self.boot_id,
            self._created_at,
            self.targets,
            self.start_reply,
        ).encode()

    def _write_descriptor(self, data: bytes) -> None:
        with self.privileges.root():
            fsync.write_whole(SessionPaths.DESCRIPTOR, data, directory=self.directory)

    def _journal(self, event: str, data: dict[str, object]) -> int:
        """Append where a failure changes nothing: 0 when the disk refused it."""
        try:
            return self.journal.append(event, time.time(), data)
        except OSError as error:
            say("journal_failed", record=event, error=error)
            return 0

    def _record(self, action: act.Action) -> None:
        assert isinstance(action, act.Record)
        self._journal(action.event, action.data)

    def _acknowledge(self, action: act.Action) -> list[act.Action]:
        assert isinstance(action, act.Acknowledge)
        written = self._journal(ACKNOWLEDGED, {"by": action.by})
        return self.machine.ack_written() if written else self.machine.ack_not_written(time.monotonic())

    # -- start -------------------------------------------------------------------------------------

    def _launch(self, _action: act.Action) -> list[act.Action]:
        try:
            faults.before("forked")
            self.pmi = launch.mpi_server(self.spec, self.loop, self._on_mpi_abort)
            where = self.state_paths
            self.launched = launch.launch(self.spec, where, self.privileges, self.attachments, self.pmi)
        except StartFailure as error:
            return self._fail(error.kind, str(error), error.errno)
        except OSError as error:
            return self._fail(control.FAIL_NODE, f"cannot start the tasks: {error}", error.errno or 0)
        launched = self.launched
        self.targets.groups = launched.groups
        self.targets.pgid = launched.pgid
        self.progress.begin(launched.tasks)
        for task in launched.tasks:
            self.targets.tasks[task.pid] = procfs.start_ticks(task.pid) or 0
            self.loop.watch(task.status, READ, partial(self._on_status, task))
        return [] if launched.tasks else self.machine.tasks_ready()

    def _fail(self, kind: str, text: str, number: int = 0) -> list[act.Action]:
        say("start_failed", kind=kind, text=text)
        self.start_reply = control.StartReply(failure_kind=kind, text=text, failure_errno=number)
        return self.machine.start_failed()

    def _on_status(self, task: launch.Forked, _events: int) -> None:
        data = os.read(task.status, 4096)
        failed = self.progress.heard(task.rank, data)
        if not data:
            self.loop.forget(task.status)
            os.close(task.status)
        if self.machine.state == m.STARTING:
            if failed or not data:
                self._carry_out(self._not_prepared(task.rank, failed))
            elif self.progress.all_ready:
                faults.after("forked")
                self._carry_out(self.machine.tasks_ready())
        elif not data:
            if self.progress.closed(task.rank):
                self._all_execed()
            self._report_ended()

    def _not_prepared(self, rank: int, failed: Status | None) -> list[act.Action]:
        stage, number = (failed.stage, failed.errno) if failed else ("setup", 0)
        kind = control.FAIL_NODE if stage in ("setup", "cgroup", "user") else control.FAIL_JOB
        why = os.strerror(number) if number else "it ended before it was started"
        return self._fail(kind, f"cannot prepare task {rank} ({stage}): {why}", number)

    def _record_start(self, _action: act.Action) -> list[act.Action]:
        launched = self.launched
        assert launched is not None
        self._started_at = time.time()
        first = launched.tasks[0].pid if launched.tasks else None
        self.start_reply = control.StartReply(
            task_pid=first,
            task_pids=tuple(task.pid for task in launched.tasks),
            pgid=launched.pgid or None,
            stdout_path=launched.stdout_path,
            stderr_path=launched.stderr_path,
            stdin_path=launched.stdin_path,
            work_dir=launched.work_dir.path,
            cgroup=launched.groups,
            started_at=self._started_at,
            warnings=launched.warnings,
        )
        try:
            self.journal.append(
                STARTED,
                self._started_at,
                {
                    "task_pid": first,
                    "task_pids": list(self.start_reply.task_pids),
                    "task_start_ticks": None if first is None else self.targets.tasks[first],
                    "pgid": self.start_reply.pgid,
                    "cgroup": list(launched.groups),
                },
            )
            self._write_descriptor(self._descriptor())
        except OSError as error:
            return self._fail(
                control.FAIL_NODE, f"cannot write below {self.paths.dir}: {error.strerror}", error.errno or 0
            )
        return self.machine.start_recorded()

    def _open_gate(self, _action: act.Action) -> None:
        assert self.launched is not None
        if self.launched.work_dir.warning:
            self._tell_user(self.launched.work_dir.warning)
        with self.privileges.root():
            self.oom.begin(self.targets.groups)
        faults.before("gate")
        if self.launched.tasks:
            try:
                os.write(self.launched.gate, b"g" * len(self.launched.tasks))
            except BrokenPipeError:
                pass  # all have been killed at the gate: they have ended, and count as started
        self._close_gate()
        self.attachments.begin()
        faults.after("gate")

    def _close_gate(self) -> None:
        if self.launched is not None and self.launched.gate >= 0:
            os.close(self.launched.gate)
            self.launched = self.launched._replace(gate=-1)

    def _all_execed(self) -> None:
        assert self.launched is not None
        errnos = tuple(self.progress.exec_errno.get(task.rank, 0) for task in self.launched.tasks)
        self.start_reply = self.start_reply.replace(exec_errnos=errnos)
        self._carry_out(self.machine.execed())

    def _abort_tasks(self, _action: act.Action) -> None:
        """End tasks that wait at the gate; they hold nothing of the user's."""
        if self.launched is None:
            return
        if not self.start_reply.failure_kind:
            self.start_reply = control.StartReply(
                failure_kind=control.FAIL_JOB, text="the step was ended while it was being started"
            )
        self._close_gate()
        with self.privileges.root():
            for task in self.launched.tasks:
                if not self.progress.is_reaped(task.pid):
                    os.kill(task.pid, signal.SIGKILL)
                    os.waitpid(task.pid, 0)
                    self.progress.reaped(task.pid, 0)
        self.targets.tasks.clear()

    # -- signals and children ----------------------------------------------------------------------

    def _on_signal(self, _events: int) -> None:
        numbers = os.read(self._wakeup, 512)
        if signal.SIGTERM in numbers:
            self._carry_out(self.machine.teardown("stopped", "SIGTERM", None, time.monotonic()))
        self._reap()

    def _reap(self) -> None:
        """Collect every child that has ended, tasks and adopted orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            other = self.children.pop(pid, None)
            if other is not None:
                other(status)
                continue
            if self.targets.tasks.pop(pid, None) is not None:
                self.progress.reaped(pid, status)
        self._report_ended()

    def _report_ended(self) -> None:
        """Tell the machine of tasks that have ended."""
        if self.machine.state != m.STARTING:
            for ended in self.progress.newly_ended(time.time()):
                self.attachments.task_ended(ended)
                self._carry_out(self.machine.task_ended(ended.rank))

    def _deliver(self, action: act.Action) -> None:
        assert isinstance(action, act.Deliver)
        with self.privileges.root():
            sent = self.targets.send(action.signal)
        self._journal(SIGNALLED, {"signal": action.signal, "count": sent.reached, "path": sent.path})

    def _kill_all(self, _action: act.Action) -> None:
        self._kill_ordered = True
        with self.privileges.root():
            sent = self.targets.kill()
        self._journal(SIGNALLED, {"signal": signal.SIGKILL, "count": sent.reached, "path": sent.path})

    def _freeze(self, _action: act.Action) -> None:
        with self.privileges.root():
            self.targets.freeze()

    def _thaw(self, _action: act.Action) -> None:
        with self.privileges.root():
            self.targets.thaw()

    def _last_words(self, action: act.Action) -> None:
        assert isinstance(action, act.LastWords)
        line = words.cancelled(self.spec.rid, self.spec.node, action.reason, time.time())
        if line:
            self._tell_user(line)

    def _tell_user(self, line: str) -> None:
        """Write into the first task's stderr, if that does not make us wait."""
        if self.launched is not None and self.launched.tasks:
            self.attachments.write_error(self.launched.tasks[0].rank, self.launched.stderr, words.raw(line))

    def _on_memory_short(self) -> None:
        self._carry_out(self.machine.memory_short(time.monotonic()))

    def _check_oom(self, _action: act.Action) -> list[act.Action]:
        with self.privileges.root():
            killed = self.oom.killed()
        return self.machine.oom_checked(killed, time.monotonic())

    def _check_held(self, _action: act.Action) -> list[act.Action]:
        with self.privileges.root():
            count = self.targets.count()
        return self.machine.held(count, time.monotonic())

    # -- exit --------------------------------------------------------------------------------------

    def _observe_exit(self, _action: act.Action) -> list[act.Action]:
        if self.exit is None:
            self.exit = self._make_exit()
        try:
            seq = self.journal.append(EXIT_OBSERVED, time.time(), {"exit": self.exit.to_json()})
        except OSError as error:
            say("exit_not_written", error=error)
            return self.machine.exit_not_written(time.monotonic())
        return self.machine.exit_written(seq, time.monotonic())

    def _make_exit(self) -> exits.ExitRecord:
        ends = self.progress.ends()
        with self.privileges.root():
            killed = self.oom.killed_among(ends, self._kill_ordered)
        if killed:
            self._tell_user(words.oom_killed(self.spec.rid, killed))
        return ending.record(ends, killed > 0, self.machine.teardown_reason, self._started_at)

    def _answer_waits(self, _action: act.Action) -> None:
        assert self.exit is not None
        self.requests.answer_waits()

    def _push(self, _action: act.Action) -> None:
        assert self.exit is not None
        try:
            faults.before("push")
        except OSError:
            return self._on_pushed(None)
        return self.notifier.push(
            notify.Notification(
                rid=self.spec.rid, seq=self.machine.exit_seq, exit=self.exit, epilog=self.epilog
            )
        )

    def _on_pushed(self, answer: str | None) -> None:
        faults.after("push")
        self._carry_out(self.machine.pushed(answer, time.monotonic()))

    def _kill_leftovers(self, _action: act.Action) -> list[act.Action]:
        with self.privileges.root():
            groups = self.targets.groups
            if not groups or cgroup.is_populated(groups) or self.targets.members()[0]:
                self.targets.kill()
            # A second look: what has died is not there any more.
            left = self.targets.count()
            if not left and groups and cgroup.is_populated(groups):
                left = 1  # on its way out
        return self.machine.leftovers(left, time.monotonic())

    def _cleanup(self, action: act.Action) -> list[act.Action]:
        assert isinstance(action, act.Cleanup)
        left_groups = launch.clean(self.launched, self.privileges)
        self.oom.close()
        if self.pmi is not None:
            self.pmi.close()
        if self.exit is None:
            return []
        self.cleaned = True
        self._journal(
            "CleanupDone",
            {"cgroup": not left_groups, "left_groups": left_groups, "left_processes": action.left},
        )
        self.attachments.finish(self.exit)
        return self.machine.cleaned(time.monotonic())

    def _run_task_epilog(self, action: act.Action) -> None:
        assert isinstance(action, act.RunTaskEpilog)
        assert self.launched is not None
        rank = action.rank

        def done(_result: exits.EpilogRecord) -> None:
            self._carry_out(self.machine.task_epilog_ended(rank, time.monotonic()))

        task_epilog.start(self.spec, self.launched, rank, self.hooks, time.monotonic(), done)

    def _end_others(self, _action: act.Action) -> None:
        self.lifetime.end_others(
            self.targets.groups,
            self.machine.teardown_reason,
            time.monotonic(),
            lambda: self._carry_out(self.machine.others_ended()),
        )

    def _run_epilog(self, _action: act.Action) -> None:
        self.lifetime.run_epilog(self.start_reply.work_dir, time.monotonic(), self._on_epilog)

    def _on_epilog(self, result: exits.EpilogRecord) -> None:
        self.epilog = result
        self._carry_out(self.machine.epilog_ended())

    def _write_epilog(self, _action: act.Action) -> list[act.Action]:
        assert self.epilog is not None
        written = self._journal(EPILOG_RESULT, self.epilog.to_json())
        return self.machine.epilog_written() if written else self.machine.epilog_not_written(time.monotonic())

    def _check_session(self, _action: act.Action) -> list[act.Action]:
        exists = os.fstat(self.directory).st_nlink > 0
        return self.machine.session_checked(exists, time.monotonic())

    def _quit(self, action: act.Action) -> None:
        assert isinstance(action, act.Quit)
        self.notifier.close()
        self._quit_code = action.code
        self._quit_at = time.monotonic() + LINGER


def errno_of(error: BaseException) -> int:
    """The errno of whatever kept a supervisor from getting ready."""
    return (error.errno if isinstance(error, OSError) else None) or errno.EINVAL

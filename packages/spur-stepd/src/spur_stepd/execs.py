"""Commands that run inside a step's context, each for the connection that has asked for it.

A command is in the step's groups and has its rights, limits, environment and directory, but is none of its
tasks: its end says nothing about the step's.  It ends with its connection, and with the step.  What it has
started ends with it.  A command that cannot be executed ends with 127 when it was not found, else with 126,
as a shell would report it.
"""

from __future__ import annotations

import errno
import os
import time

from spur_core.lean import partial, signal
from spur_core.linux import cgroup, procfs
from spur_proto_lite import control, exits, framing, jsontext
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.launch_spec import HookSpec, TaskSpec
from spur_stepd import machine, task
from spur_stepd.inflow import Inflow
from spur_stepd.inlet import Inlet
from spur_stepd.log import say
from spur_stepd.loop import READ
from spur_stepd.terminal import EndTeller, Terminal, send_group

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_proto_lite.control import Request
    from spur_proto_lite.launch_spec import LaunchSpec
    from spur_stepd.server import Connection
    from spur_stepd.supervisor import Supervisor

    Refuse = Callable[[Connection, Request, str, str], None]

#: Commands that may run in one step at a time.
MOST = 64
#: Seconds between the hang-up of a command whose client is gone and its kill.
HANG_UP_PAUSE = 2.0
_FIRST_LOOK = 0.005
_LONGEST_LOOK = 0.2
#: Seconds in which what a command has left must die.
_PATIENCE = 10.0
_READ_SIZE = 1 << 15
NOT_FOUND, NOT_EXECUTABLE = 127, 126
#: Variable by which what a command has started is known where there are no groups.
_MARK = "SPUR_EXEC"
_LARGEST_ENVIRONMENT = 1 << 21


class Execs:
    """The commands of one step."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._running: set[Exec] = set()
        self._count = 0

    def begin(self, connection: Connection, request: Request, refuse: Refuse) -> None:
        """Run a command.  The answer comes once it is about to be executed.

        Args:
            refuse: called with an error word and a text when it does not come to that.

        Raises:
            BadDocument: malformed.
            OSError: no process or no terminal can be had.
        """
        own = self._supervisor
        args = control.ExecArgs.from_json(request.args)
        if not args.argv or not args.argv[0]:
            raise BadDocument("exec: a command is needed")
        spec = own.spec.replace(
            argv=args.argv,
            tasks=(TaskSpec(rank=0, local_rank=0, env=args.env),),
            task_prolog=HookSpec(),
            cpu_bind_verbose=False,
        )
        if "\0" in args.work_dir:
            raise BadDocument("exec: work_dir holds a zero byte")
        if problem := task.check_texts(spec):
            raise BadDocument(f"exec: {problem}")
        if own.launched is None or own.machine.state != machine.RUNNING:
            refuse(connection, request, control.BAD_STATE, f"the step is {own.machine.state}")
            return
        if len(self._running) >= MOST:
            text = f"{MOST} commands run in this step already; try again when one has ended"
            refuse(connection, request, control.BAD_STATE, text)
            return
        self._count += 1
        plan = task.Plan(
            argv=args.argv,
            interpreter="",
            work_dir=args.work_dir or own.launched.work_dir.path,
            cgroup=own.launched.groups,
        )
        command = Exec(own, connection, request, refuse, self._running.discard)
        command.begin(spec, plan, args, f"exec_{self._count}")
        self._running.add(command)


class Exec:
    """One command, and the channel of its connection."""

    def __init__(
        self,
        supervisor: Supervisor,
        connection: Connection,
        request: Request,
        refuse: Refuse,
        gone: Callable[[Exec], None],
    ) -> None:
        """
        Args:
            gone: called when nothing of it is left.
        """
        self._loop = supervisor.loop
        self._timers = supervisor.timers
        self._children = supervisor.children
        self._privileges = supervisor.privileges
        self._connection: Connection | None = connection
        self._request = request
        self._refuse = refuse
        self._gone = gone
        self._pid = 0
        #: The group that holds it and all it has started; "" where there is none.
        self._group = ""
        #: What its processes have in their environment instead.
        self._mark = b""
        self._heard = bytearray()
        self._status = -1
        self._work_dir = ""
        self._answered = False
        self._exec_errno = 0
        self._wait_status: int | None = None
        self._terminal: Terminal | None = None
        self._teller: EndTeller | None = None
        #: Stream -> what is read from.
        self._outputs: dict[int, int] = {}
        self._offsets = {framing.DATA_OUT: 0, framing.DATA_ERR: 0}
        self._inlet = Inlet(self._loop, self._on_input_moved)
        self._inflow = Inflow()
        self._confirmed = 0
        #: No process of it is left.
        self._empty = False
        self._swept_since = 0.0
        self._pause = _FIRST_LOOK

    # -- begin -------------------------------------------------------------------------------------

    def begin(self, spec: LaunchSpec, plan: task.Plan, args: control.ExecArgs, name: str) -> None:
        """Fork it.

        Raises:
            OSError: no process or no terminal can be had; nothing is left.
        """
        self._work_dir = plan.work_dir
        fds: tuple[int, int, int] = (-1, -1, -1)
        try:
            fds = self._open_terminal(args) if args.pty else self._open_pipes()
            with self._privileges.root():
                groups, self._group = cgroup.branch(plan.cgroup, name)
                own = spec.tasks[0]
                if not self._group:
                    self._mark = f"{_MARK}={name}".encode()
                    own = own.replace(env={**own.env, _MARK: name})
                self._fork(spec, own, plan._replace(cgroup=groups), fds, args.pty)
        except OSError:
            self._close_all()
            self._remove_group()
            raise
        finally:
            for fd in set(fds):
                if fd >= 0:
                    os.close(fd)
        self._children[self._pid] = self._on_ended
        self._loop.watch(self._status, READ, self._on_status)
        self._inlet.begin()
        assert self._connection is not None
        self._connection.attach(self)

    def _open_terminal(self, args: control.ExecArgs) -> tuple[int, int, int]:
        self._terminal = terminal = Terminal(self._privileges, args.rows, args.cols)
        self._teller = EndTeller(terminal, self._timers)
        os.set_blocking(terminal.control, False)
        self._outputs[framing.DATA_OUT] = terminal.output
        self._inlet.add(os.dup(terminal.control))
        slave = os.dup(terminal.slave)
        return slave, slave, slave

    def _open_pipes(self) -> tuple[int, int, int]:
        theirs = []
        for stream in (framing.DATA_OUT, framing.DATA_ERR):
            self._outputs[stream], write = os.pipe2(os.O_CLOEXEC)
            theirs.append(write)
        source, ours = os.pipe2(os.O_CLOEXEC)
        self._inlet.add(ours)
        return source, theirs[0], theirs[1]

    def _fork(
        self, spec: LaunchSpec, own: TaskSpec, plan: task.Plan, fds: tuple[int, int, int], pty: bool
    ) -> None:
        gate = os.pipe2(os.O_CLOEXEC)
        try:
            os.write(gate[1], b"g")  # it need not wait for anybody
            leads = task.TERMINAL if pty else task.SESSION
            self._pid, self._status = task.fork(spec, own, plan, self._privileges, fds, gate, 0, leads)
        finally:
            os.close(gate[0])
            os.close(gate[1])

    def _on_status(self, _events: int) -> None:
        data = os.read(self._status, 4096)
        self._heard += data
        for record in task.decode_status(bytes(self._heard)):
            if record.stage == task.READY_STAGE:
                self._answer()
            elif record.stage == task.EXEC_STAGE:
                self._exec_errno = record.errno
            elif record.stage == "chdir":
                self._fail(control.BAD_REQUEST, f"cannot enter {self._work_dir}: {os.strerror(record.errno)}")
            else:
                self._fail(
                    control.INTERNAL, f"cannot prepare it ({record.stage}): {os.strerror(record.errno)}"
                )
        if not data:
            self._loop.forget(self._status)
            os.close(self._status)
            self._status = -1
            self._fail(control.INTERNAL, "it ended before it was executed")
            self._check_end()

    def _answer(self) -> None:
        if self._answered:
            return
        self._answered = True
        assert self._connection is not None
        self._connection.send(control.encode_reply(self._request, control.ExecReply(pid=self._pid)))
        for fd in self._outputs.values():
            os.set_blocking(fd, False)
        self._watch_outputs()

    def _fail(self, word: str, text: str) -> None:
        """It has not come to the command: the connection speaks messages again."""
        if self._answered:
            return
        self._answered = True
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            connection.detach()
            self._refuse(connection, self._request, word, text)
        self._close_all()

    # -- output ------------------------------------------------------------------------------------

    def _watch_outputs(self) -> None:
        for stream, fd in self._outputs.items():
            self._loop.watch(fd, READ, partial(self._on_output, stream))

    def _on_output(self, stream: int, _events: int) -> None:
        self._pump(stream)
        self._check_end()

    def _pump(self, stream: int) -> bool:
        """Take what is there, if the client takes it; whether there may be more.  Without a client it is
        dropped: what is being hung up may still say something without dying of that."""
        connection = self._connection
        if stream not in self._outputs:
            return False
        if connection is not None and not connection.has_room:
            for fd in self._outputs.values():
                self._loop.forget(fd)
            connection.set_wants_room(True)
            return False
        fd = self._outputs[stream]
        try:
            data = os.read(fd, _READ_SIZE)
        except BlockingIOError:
            if self._empty:
                self._close_output(stream)  # whoever still has it open is none of ours
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""  # a terminal that nobody has open any more
        if not data:
            self._close_output(stream)
            return False
        offset = self._offsets[stream]
        self._offsets[stream] = offset + len(data)
        if connection is not None:
            connection.put(framing.encode_data(stream, 0, offset, data))
        return stream in self._outputs

    def _close_output(self, stream: int) -> None:
        fd = self._outputs.pop(stream)
        self._loop.forget(fd)
        os.close(fd)

    def on_room(self, _connection: Connection) -> None:
        """The client takes more."""
        self._confirm()
        self._watch_outputs()
        self._check_end()

    # -- input and orders --------------------------------------------------------------------------

    def on_frame(self, connection: Connection, frame: framing.Frame) -> None:
        """A frame from the client.

        Raises:
            BadDocument: malformed.
        """
        if frame.kind == framing.STDIN:
            fresh = self._inflow.take(*framing.decode_stdin(frame.payload))
            if fresh and self._teller is not None:
                self._teller.cancel()
            if fresh and not self._inlet.feed(fresh):
                connection.close()
        elif frame.kind == framing.STDIN_EOF:
            if self._inflow.end(framing.decode_stdin_eof(frame.payload)):
                if self._terminal is None:
                    self._inlet.end()
                else:
                    self._on_input_moved()
        elif frame.kind == framing.SIGNAL:
            self._send(framing.decode_signal(frame.payload))
        elif frame.kind == framing.RESIZE:
            window = framing.decode_resize(frame.payload)
            if self._terminal is not None and self._terminal.slave >= 0:
                self._terminal.resize(*window)

    def after_frames(self, _connection: Connection) -> None:
        """Everything that has arrived was taken."""
        self._confirm()

    def _on_input_moved(self) -> None:
        if self._teller is not None and self._inflow.ended and self._inlet.is_empty:
            self._teller.begin()
        self._confirm()

    def _confirm(self) -> None:
        connection, offset = self._connection, self._inflow.offset
        if connection is None:
            return
        connection.set_reading(not self._inlet.is_flooded)
        if offset > self._confirmed and self._inlet.is_low and connection.has_room:
            self._confirmed = offset
            connection.put(framing.encode_credit(framing.INPUT, 0, offset))

    def _send(self, number: int) -> None:
        """A signal to the command's group, or to whoever is in the foreground of its terminal."""
        if self._wait_status is None:
            with self._privileges.root():
                if self._terminal is None or not self._terminal.signal(number):
                    send_group(self._pid, number)

    # -- the end -----------------------------------------------------------------------------------

    def on_close(self, _connection: Connection) -> None:
        """The client is gone: hang up, and kill what does not go by that."""
        self._connection = None
        self._answered = True
        self._inlet.close()
        if self._wait_status is None:
            for fd in self._outputs.values():
                os.set_blocking(fd, False)
            self._watch_outputs()
            self._send(signal.SIGHUP)
            self._send(signal.SIGCONT)
            self._timers.at(self, time.monotonic() + HANG_UP_PAUSE, self._sweep)
        else:
            self._close_all()
        self._check_end()

    def _on_ended(self, status: int) -> None:
        self._wait_status = status
        if self._teller is not None:
            self._teller.cancel()
        self._sweep(time.monotonic())

    def _members(self) -> list[int]:
        """Its processes that are alive.  Within a root section."""
        if self._group:
            found = cgroup.procs((self._group,))
        else:
            found = [pid for pid in procfs.descendants(os.getpid()) if self._is_member(pid)]
        return [pid for pid in found if procfs.start_ticks(pid) is not None]

    def _is_member(self, pid: int) -> bool:
        """Whether a process belongs to it, where no group says so: by its session, its process group, or the
        mark that it has inherited."""
        who = procfs.stat(pid)
        if who is None or self._pid in (who.session, who.pgrp):
            return who is not None
        try:
            fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return self._mark in os.read(fd, _LARGEST_ENVIRONMENT).split(b"\0")
        except OSError:
            return False  # it has just ended
        finally:
            os.close(fd)

    def _sweep(self, now: float) -> None:
        """Kill what there is of it, until nothing is."""
        self._swept_since = self._swept_since or now
        with self._privileges.root():
            members = self._members()
            if members and self._group:
                cgroup.kill((self._group,))
            for pid in members:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if members and now < self._swept_since + _PATIENCE:
            self._timers.at(self, now + self._pause, self._sweep)
            self._pause = min(2 * self._pause, _LONGEST_LOOK)
            return
        if members:
            say("command_left", pids=members)
        self._empty = True
        self._timers.cancel(self)
        self._inlet.close()
        if self._terminal is not None:
            self._terminal.close()
        self._remove_group()
        self._check_end()

    def _check_end(self) -> None:
        """Once it is over: the last of its output, its exit, and no more."""
        if self._empty and self._answered:
            for stream in list(self._outputs):
                while self._pump(stream):
                    pass
        if not self._empty or self._wait_status is None or self._status >= 0:
            return
        connection = self._connection
        if connection is not None:
            if self._outputs:
                return  # its client has yet to take them
            self._connection = None
            payload = jsontext.encode(self._exit().to_json())
            connection.put(framing.encode_frame(framing.EXIT, payload))
            connection.finish()
        self._close_all()
        self._gone(self)

    def _exit(self) -> exits.ExitRecord:
        status = self._wait_status
        assert status is not None
        code, number = (os.WEXITSTATUS(status), 0) if os.WIFEXITED(status) else (0, os.WTERMSIG(status))
        if self._exec_errno:
            missing = self._exec_errno in (errno.ENOENT, errno.ENOTDIR)
            code = NOT_FOUND if missing else NOT_EXECUTABLE
        own = exits.TaskExit(
            rank=0,
            code=code,
            signal=number,
            core=bool(number) and os.WCOREDUMP(status),
            exec_errno=self._exec_errno,
            ended_at=time.time(),
        )
        return exits.combine((own,), ended_at=own.ended_at)

    def _close_all(self) -> None:
        """Close everything but the status pipe."""
        for stream in list(self._outputs):
            self._close_output(stream)
        self._inlet.close()
        if self._teller is not None:
            self._teller.cancel()
        if self._terminal is not None:
            self._terminal.close()

    def _remove_group(self) -> None:
        if self._group:
            with self._privileges.root():
                cgroup.remove((self._group,))

"""`spurstepd --spawner`: makes supervisors by fork, with everything imported already.

Single-threaded.  It talks on its standard input, a stream socket to the agent, and ends at end-of-file;
the supervisors it has made do not notice.  It never holds anything but names of directories.
"""

from __future__ import annotations

import errno
import gc
import os
import stat
import sys

from spur_core.errors import SpurError
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_core.lean import partial, signal
from spur_core.linux import procfs
from spur_proto_lite import control, framing, spawn
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.exits import TaskExit, combine
from spur_proto_lite.launch_spec import LaunchSpec
from spur_proto_lite.paths import SessionPaths
from spur_stepd import __version__, detach, run
from spur_stepd.loop import READ, Loop
from spur_stepd.machine import Machine

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_IN = spawn.SPAWNER_FD


class Spawner:
    """Serves spawn requests, several at a time."""

    def __init__(self) -> None:
        self._loop = Loop()
        self._buffer = framing.MessageBuffer()
        self._pipes: dict[int, tuple[spawn.SpawnRequest, bytearray]] = {}
        self._joined: set[str] = set()
        self._ended = False

    def serve(self) -> None:
        """Until the agent closes the socket."""
        self._send(spawn.SpawnerReady(pid=os.getpid(), program_version=__version__).to_json())
        self._loop.watch(_IN, READ, self._on_request)
        while not self._ended or self._pipes:
            self._loop.turn(None)

    def _send(self, document: dict[str, object]) -> None:
        try:
            os.write(_IN, framing.encode_message(document))
        except OSError:
            self._ended = True

    def _on_request(self, _events: int) -> None:
        try:
            data = os.read(_IN, 1 << 16)
        except ConnectionResetError:  # the agent died with something unread
            data = b""
        if not data:
            self._ended = True
            self._loop.forget(_IN)
            return
        self._buffer.feed(data)
        while (message := self._buffer.take()) is not None:
            self._spawn(message)

    def _spawn(self, message: dict[str, object]) -> None:
        try:
            request = spawn.SpawnRequest.from_json(message)
        except SpurError as error:
            number = message.get("id")
            self._send(
                spawn.SpawnReply(
                    id=number if isinstance(number, int) else 0,
                    errno=errno.EINVAL,
                    stage=spawn.STAGE_REQUEST,
                    detail=str(error),
                ).to_json()
            )
            return
        if request.cgroup_root not in self._joined:
            self._joined.add(request.cgroup_root)
            run.join_supervisors(request.cgroup_root)
        try:
            pipe = self._fork_twice(request)
        except OSError as error:
            reply = spawn.SpawnReply(
                id=request.id, errno=error.errno or errno.EIO, stage=spawn.STAGE_FORK, detail=str(error)
            )
            self._send(reply.to_json())
            return
        self._pipes[pipe] = (request, bytearray())
        self._loop.watch(pipe, READ, partial(self._on_record, pipe))

    def _fork_twice(self, request: spawn.SpawnRequest) -> int:
        """Read end of the pipe on which the new supervisor reports."""
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            child = os.fork()
        except OSError:
            os.close(read)
            os.close(write)
            raise
        if child == 0:
            try:
                _be_between(request, write)
            finally:
                os._exit(127)
        os.close(write)
        os.waitpid(child, 0)
        return read

    def _on_record(self, pipe: int, _events: int) -> None:
        request, buffer = self._pipes[pipe]
        data = os.read(pipe, 64)
        buffer += data
        if data:
            return
        self._loop.forget(pipe)
        os.close(pipe)
        del self._pipes[pipe]
        self._send(_reply(request, bytes(buffer)).to_json())


def _reply(request: spawn.SpawnRequest, records: bytes) -> spawn.SpawnReply:
    """What the records of a finished spawn amount to."""
    pid, number = spawn.decode_records(records)
    log = SessionPaths(request.session).log
    if not pid:
        return spawn.SpawnReply(
            id=request.id, errno=errno.EAGAIN, stage=spawn.STAGE_FORK, detail="the second fork failed"
        )
    if number:
        detail = f"{os.strerror(number)} (see {log})"
        return spawn.SpawnReply(id=request.id, errno=number, stage=spawn.STAGE_SESSION, detail=detail)
    ticks = procfs.start_ticks(pid)
    if ticks is None:
        detail = f"the supervisor ended at once (see {log})"
        return spawn.SpawnReply(id=request.id, errno=errno.ESRCH, stage=spawn.STAGE_SESSION, detail=detail)
    return spawn.SpawnReply(id=request.id, pid=pid, start_ticks=ticks)


def _be_between(request: spawn.SpawnRequest, pipe: int) -> NoReturn:
    """The intermediate child: fork the supervisor and end, so that it is nobody's child."""
    if os.fork():
        os._exit(0)
    detach.detach()
    detach.std_streams(SessionPaths(request.session).log)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, 1 << 20)
    os.write(pipe, spawn.pid_record(os.getpid()))
    code = 127
    try:
        code = run.supervise(request.session, pipe, alone=False)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # into the session's log; raising it would wake the spawner's code
    finally:
        os._exit(code)


def _rehearse() -> None:
    """Do the pure part of what every supervisor does, often enough for the interpreter to adapt its code.

    The adapted code is written once, here, and shared; else each supervisor would write its own copy.
    """
    rid = RuntimeId(1, 1, STEP_BATCH)
    for _ in range(20):
        spec = LaunchSpec.decode(LaunchSpec(rid=rid, argv=("true",), env={"A": "b"}).encode())
        Descriptor(rid=rid, stepd_pid=1, stepd_start_ticks=1, boot_id="").encode()
        request = control.decode_request(
            framing.decode_body(framing.encode_message(control.encode_request(1, control.START, rid, {}))[4:])
        )
        ended = combine(tuple(TaskExit(rank=task.rank) for task in spec.task_list()))
        for body in (
            control.HelloReply(rid=rid, state="", stepd_pid=1, stepd_start_ticks=1, boot_id=""),
            control.StartReply(),
            control.QueryReply(state="", exit=ended),
            control.WaitReply(exit=ended),
        ):
            framing.encode_message(control.encode_reply(request, body))
        machine = Machine((0,), 60.0, 5.0)
        machine.ready(0.0)
        machine.next_deadline()
        machine.tick(0.0)


def run_spawner() -> int:
    """Serve; the exit code."""
    if not stat.S_ISSOCK(os.fstat(_IN).st_mode):
        sys.stderr.write("spurstepd: --spawner needs a socket as standard input; the node agent starts it\n")
        return 2
    os.set_inheritable(_IN, False)
    os.chdir("/")
    os.umask(0o077)
    detach.default_signals()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    _rehearse()
    gc.collect()
    run.settle()
    Spawner().serve()
    return 0

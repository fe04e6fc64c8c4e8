"""Getting supervisors that are not our children.

A spawner is a process of the supervisor program that forks one supervisor per request.  It is started by
`posix_spawn`, which is safe beside gRPC's threads, once before anything else of the agent exists and again
whenever it is gone or the program's file was replaced.  With `[agent] spawn = "exec"` each supervisor is a
fresh start of the program instead.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from spur_agent import program
from spur_agent.link import read_message
from spur_agent.logs import value
from spur_core.errors import StateError, Unreachable
from spur_core.linux import procfs
from spur_proto_lite import framing, spawn
from spur_proto_lite.errors import BadDocument

log = logging.getLogger(__name__)

_READY_SECS = 10.0
_REPLY_SECS = 10.0


class SpawnFailed(StateError):
    """No supervisor could be started; the text says why.  Nothing runs."""

    code = "spawn_failed"


class Supervisor(NamedTuple):
    """A supervisor process: not ready yet, but there."""

    pid: int
    start_ticks: int


class SupervisorSource(Protocol):
    """Starts supervisors for prepared session directories."""

    async def spawn(self, session_dir: str) -> Supervisor:
        """A supervisor for that session.

        Raises:
            ProgramUnusable, SpawnFailed: there is none.
        """
        ...

    async def close(self) -> None:
        """Give up what is needed for spawning; supervisors go on."""
        ...


#: In a test the faults that are to strike supervisors come the same way.
_FAULTS: Final = ("SPUR_TEST_FAULTS", "SPUR_FAULT", "SPUR_FAULT_ONCE")


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a supervisor or spawner may see of the agent's environment."""
    names: tuple[str, ...] = spawn.ENVIRONMENT
    if environ.get("SPUR_TEST_FAULTS") == "1":
        names = (*names, *_FAULTS)
    return {name: environ[name] for name in names if name in environ}


class SpawnerProcess(NamedTuple):
    """A started spawner: its pid, our end of the socketpair, and which file it was started from."""

    pid: int
    sock: socket.socket
    signature: program.Signature


def start_process(path: str, environ: Mapping[str, str]) -> SpawnerProcess:
    """Start a spawner; it is not waited for.

    Raises:
        ProgramUnusable: the program cannot be started.
    """
    signature = program.check(path)
    ours, theirs = socket.socketpair()
    try:
        pid = os.posix_spawn(
            path,
            [path, "--spawner"],
            child_environment(environ),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), spawn.SPAWNER_FD),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM),
        )
    except OSError as error:
        ours.close()
        raise program.ProgramUnusable(f"supervisor program {path}: {error.strerror}") from None
    finally:
        theirs.close()
    return SpawnerProcess(pid, ours, signature)


class Spawner:
    """Asks a spawner process, replacing it when needed.  Requests go one after the other.

    Args:
        first: a process started before the event loop; None = the first request starts one.
    """

    def __init__(
        self, path: str, cgroup_root: str, environ: Mapping[str, str], first: SpawnerProcess | None
    ) -> None:
        self._path = path
        self._cgroup_root = cgroup_root
        self._environ = environ
        self._process = first
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()
        self._next_id = 1

    @property
    def pid(self) -> int | None:
        """The spawner's pid, None when none was started or it is known to be gone."""
        return self._process.pid if self._process is not None else None

    async def spawn(self, session_dir: str) -> Supervisor:
        async with self._lock:
            signature = program.check(self._path)
            if self._process is not None and self._process.signature != signature:
                log.info("spawner_replaced why=program_changed program=%s", value(self._path))
                await self._drop()
            try:
                return await self._ask(session_dir)
            except (Unreachable, BadDocument) as error:
                # It may have died before or after forking; in the second case the supervisor finds no
                # agent that sends `start` to it, and the caller gives the session up.
                log.warning("spawner_lost error=%s", value(error))
                await self._drop()
            try:
                return await self._ask(session_dir)
            except (Unreachable, BadDocument) as error:
                await self._drop()
                raise SpawnFailed(f"{self._path} --spawner: {error}") from None

    async def _ask(self, session_dir: str) -> Supervisor:
        reader, writer = await self._connected()
        request = spawn.SpawnRequest(id=self._next_id, session=session_dir, cgroup_root=self._cgroup_root)
        self._next_id += 1
        try:
            async with asyncio.timeout(_REPLY_SECS):
                writer.write(framing.encode_message(request.to_json()))
                await writer.drain()
                reply = spawn.SpawnReply.from_json(await read_message(reader))
        except (TimeoutError, OSError) as error:
            raise Unreachable(f"no answer: {error or 'time-out'}") from None
        if reply.id != request.id:
            raise BadDocument(f"it answered request {reply.id} instead of {request.id}")
        if reply.errno:
            raise SpawnFailed(f"{self._path}: {reply.detail or os.strerror(reply.errno)} ({reply.stage})")
        return Supervisor(reply.pid, reply.start_ticks)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None:
            return self._streams
        if self._process is None:
            self._process = start_process(self._path, self._environ)
        self._process.sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=self._process.sock)
        self._streams = (reader, writer)
        try:
            async with asyncio.timeout(_READY_SECS):
                ready = spawn.SpawnerReady.from_json(await read_message(reader))
        except TimeoutError:
            raise Unreachable(f"not ready within {_READY_SECS:g} s") from None
        log.info("spawner_ready pid=%d version=%s", ready.pid, ready.program_version)
        return self._streams

    async def _drop(self) -> None:
        """Let the spawner go: it ends at the end of its socket."""
        if self._streams is not None:
            self._streams[1].close()
        elif self._process is not None:
            self._process.sock.close()
        if self._process is not None:
            await reap(self._process.pid)
        self._streams = self._process = None

    async def warm(self) -> None:
        """Have a spawner ready before the first launch; a failure is left to that launch."""
        async with self._lock:
            try:
                await self._connected()
            except (Unreachable, BadDocument, program.ProgramUnusable) as error:
                log.error("spawner_failed program=%s error=%s", value(self._path), value(error))
                await self._drop()

    async def close(self) -> None:
        async with self._lock:
            await self._drop()


class ExecSource:
    """Each supervisor is a fresh start of the program, which detaches itself and tells its pid."""

    def __init__(self, path: str, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = environ

    async def spawn(self, session_dir: str) -> Supervisor:
        program.check(self._path)
        read_end, write_end = os.pipe()
        try:
            first = os.posix_spawn(  # noqa: ASYNC221 - returns at once
                self._path,
                [self._path, "--session", session_dir],
                child_environment(self._environ),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, write_end, 1),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM),
            )
        except OSError as error:
            os.close(read_end)
            raise program.ProgramUnusable(f"supervisor program {self._path}: {error.strerror}") from None
        finally:
            os.close(write_end)
        try:
            data = await _read_records(read_end)
        finally:
            await reap(first)
        try:
            pid, errno = spawn.decode_records(data)
        except BadDocument as error:
            raise SpawnFailed(f"{self._path} --session: {error}") from None
        if errno:
            raise SpawnFailed(f"{self._path} --session: {os.strerror(errno)}")
        if not pid:
            raise SpawnFailed(f"{self._path} --session: it ended without a word")
        ticks = procfs.start_ticks(pid)
        if ticks is None:
            raise SpawnFailed(f"{self._path} --session: the supervisor ended at once")
        return Supervisor(pid, ticks)

    async def close(self) -> None:
        return


async def _read_records(read_end: int) -> bytes:
    """Everything from the pipe until its end; the descriptor is used up."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    try:
        async with asyncio.timeout(_READY_SECS):
            return await reader.read()
    except TimeoutError:
        raise SpawnFailed(f"the supervisor was not detached within {_READY_SECS:g} s") from None
    finally:
        transport.close()


async def reap(pid: int, timeout: float = 5.0) -> None:
    """Collect a child of ours that is ending; one that does not end in time is killed."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        async with asyncio.timeout(timeout):
            await ended.wait()
    except TimeoutError:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    finally:
        loop.remove_reader(fd)
        try:
            os.waitid(os.P_PIDFD, fd, os.WEXITED)  # noqa: ASYNC222 - it has ended, or was killed
        except ChildProcessError:
            pass
        os.close(fd)

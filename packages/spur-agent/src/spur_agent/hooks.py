"""The administrator's scripts: which files they are, whether they may be run, and running them.

A setting names one file, a directory or a pattern; of several files all run, in reverse alphabetical order,
until one fails.  Only what root or the agent's own user owns and nobody else can write is run.
"""

import asyncio
import glob
import logging
import os
import signal
import stat
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from spur_agent.logs import value
from spur_core.config import Config
from spur_core.errors import StateError

log = logging.getLogger(__name__)

#: Where a script runs whose directory cannot be entered.
_SPARE_DIR: Final = "/tmp"  # noqa: S108
#: A child of a script may hold its stderr open for ever; so long is waited for its last words.
_LAST_WORDS_SECS: Final = 0.2
_MOST_STDERR: Final = 64 << 10
_WILD: Final = frozenset("*?[")


class BrokenHook(StateError):
    """A configured script cannot be run; the text names it and the mend."""

    code = "broken_hook"


class HookFailed(StateError):
    """A script ended badly, or not in time."""

    code = "hook_failed"


class Hooks(NamedTuple):
    """The settings of one node, empty = none; time limits are for each single script, seconds."""

    prolog: str = ""
    epilog: str = ""
    task_prolog: str = ""
    task_epilog: str = ""
    timeout_secs: float = 600.0
    epilog_timeout_secs: float = 600.0


class HookFiles(NamedTuple):
    """The scripts of one launch: absolute paths, in the order in which they run."""

    prolog: tuple[str, ...] = ()
    epilog: tuple[str, ...] = ()
    task_prolog: tuple[str, ...] = ()
    task_epilog: tuple[str, ...] = ()


def configured(config: Config) -> Hooks:
    """What `[hooks]` says."""
    section = config.hooks
    return Hooks(
        prolog=section.prolog,
        epilog=section.epilog,
        task_prolog=section.task_prolog,
        task_epilog=section.task_epilog,
        timeout_secs=float(section.timeout_secs),
        epilog_timeout_secs=float(config.agent.epilog_timeout_secs),
    )


def find_all(hooks: Hooks) -> HookFiles:
    """The scripts that the settings mean now.

    Raises:
        BrokenHook: the text names the setting, too.
    """
    found = []
    for name in HookFiles._fields:
        try:
            found.append(find(getattr(hooks, name)))
        except BrokenHook as error:
            raise BrokenHook(f"[hooks] {name}: {error.text}") from None
    return HookFiles(*found)


def find(setting: str, owners: frozenset[int] | None = None) -> tuple[str, ...]:
    """The scripts that a setting means, in the order in which they run.

    A directory without files and a pattern without matches mean none.

    Args:
        owners: uids whose files are trusted; None = root and our own.

    Raises:
        BrokenHook: one of them is not there, not executable, or somebody else could change it.
    """
    if not setting:
        return ()
    trusted = frozenset({0, os.geteuid()}) if owners is None else owners
    if _WILD.isdisjoint(setting):
        if not os.path.isdir(setting):  # noqa: PTH112
            _check_file(setting, trusted)
            return (setting,)
        folder, names = setting, [f"{setting}/{name}" for name in _names(setting)]
    else:
        folder, names = os.path.dirname(setting), glob.glob(setting)  # noqa: PTH120, PTH207
    if not names:
        return ()
    if _WILD.isdisjoint(folder):
        _check(folder, os.stat(folder), trusted)  # noqa: PTH116
    for name in names:
        _check_file(name, trusted)
    return tuple(sorted(names, reverse=True))


def _names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]  # noqa: PTH208
    except OSError as error:
        raise BrokenHook(f"{folder}: {error.strerror}") from None


def _check_file(path: str, trusted: frozenset[int]) -> None:
    try:
        link = os.lstat(path)
        found = os.stat(path)  # noqa: PTH116
    except OSError as error:
        raise BrokenHook(f"{path}: {error.strerror}") from None
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in trusted:
        raise BrokenHook(f"{path}: a link of uid {link.st_uid}; it must belong to root or to spurd's user")
    for folder in {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}:  # noqa: PTH120
        _check_folder(folder, trusted)
    if not stat.S_ISREG(found.st_mode):
        raise BrokenHook(f"{path}: not a regular file")
    if not found.st_mode & stat.S_IXUSR:
        raise BrokenHook(f"{path}: not executable (chmod +x it, or take it away)")
    _check(path, found, trusted)


def _check_folder(folder: str, trusted: frozenset[int]) -> None:
    """Whoever may write to the folder of a script may put another one in its place."""
    found = os.stat(folder)  # noqa: PTH116
    if not found.st_mode & stat.S_ISVTX or found.st_uid not in trusted:
        _check(folder, found, trusted)


def _check(path: str, found: os.stat_result, trusted: frozenset[int]) -> None:
    if found.st_uid not in trusted:
        raise BrokenHook(f"{path}: belongs to uid {found.st_uid}; it must belong to root or to spurd's user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BrokenHook(f"{path}: must not be writable for group or others (chmod go-w it)")


#: Told the pid of a script that has been started.
Started = Callable[[int], Awaitable[None]]


async def run(
    paths: Sequence[str],
    env: Mapping[str, str],
    work_dir: str,
    timeout: float,
    started: Started | None = None,
) -> None:
    """Run scripts one after the other, as ourselves; return when all have ended with 0.

    Each has a session of its own; stdout is discarded, stderr goes to the log line by line.

    Args:
        work_dir: where they run; /tmp when that cannot be entered.
        timeout: seconds that each may take.
        started: told the pid of each; the script is killed when that raises something.

    Raises:
        HookFailed: the first that failed; those after it were not run.
    """
    for path in paths:
        await _run_one(path, env, work_dir, timeout, started)


async def _run_one(
    path: str, env: Mapping[str, str], work_dir: str, timeout: float, started: Started | None
) -> None:
    read_end, write_end = os.pipe()
    try:
        process = _start(path, env, work_dir, write_end)
    except OSError as error:
        os.close(read_end)
        raise HookFailed(f"{path}: {error.strerror}") from None
    finally:
        os.close(write_end)
    listener = _Stderr(path)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: listener, os.fdopen(read_end, "rb", buffering=0)
    )
    try:
        try:
            if started is not None:
                await started(process.pid)
            async with asyncio.timeout(timeout):
                await _ended(process.pid)
        except BaseException:
            # Also when the agent stops: nobody would know its result.
            os.killpg(process.pid, signal.SIGKILL)
            # A script that hangs in the kernel dies late; nothing else on the node may wait for that.
            await _ended(process.pid)
            process.wait()
            raise
        status = process.wait()
        try:
            async with asyncio.timeout(_LAST_WORDS_SECS):
                await listener.closed.wait()
        except TimeoutError:
            pass
    except TimeoutError:
        raise HookFailed(f"{path}: killed after {timeout:g} s") from None
    finally:
        transport.close()
        listener.flush()
    if status < 0:
        raise HookFailed(f"{path}: killed by signal {-status}")
    if status:
        raise HookFailed(f"{path}: exit status {status}")


def _start(path: str, env: Mapping[str, str], work_dir: str, stderr: int) -> "subprocess.Popen[bytes]":
    """Without a hook of Python's in the child, so that it is a vfork, which is safe beside gRPC's threads."""
    for place in (work_dir or _SPARE_DIR, _SPARE_DIR):
        try:
            return subprocess.Popen(
                [path],
                cwd=place,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            if place == _SPARE_DIR or error.filename != place:
                raise
            log.info(
                "hook_elsewhere path=%s directory=%s error=%s", value(path), value(place), error.strerror
            )
    raise AssertionError("the last place either serves or raises")


async def _ended(pid: int) -> None:
    """Wait until a child of ours has ended; it is not collected."""
    fd = os.pidfd_open(pid)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


class _Stderr(asyncio.Protocol):
    """Logs what a script says, up to a limit; beyond it is read and dropped, so that it never blocks."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._rest = b""
        self._room = _MOST_STDERR
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        taken = data[: self._room]
        self._room -= len(taken)
        *lines, self._rest = (self._rest + taken).split(b"\n")
        for line in lines:
            self._say(line)

    def flush(self) -> None:
        """Log an unfinished last line."""
        if self._rest:
            self._say(self._rest)
            self._rest = b""

    def _say(self, line: bytes) -> None:
        log.info("hook_stderr path=%s line=%s", value(self._path), value(line.decode(errors="replace")))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

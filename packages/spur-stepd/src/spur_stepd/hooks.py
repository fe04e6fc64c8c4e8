"""The site's scripts around jobs and tasks: run one after the other while the loop goes on.

A script's standard output is dropped, its standard error goes into the supervisor's log line by line, and
its exit status decides.  Each runs in a process group of its own, which is killed when its time is over
and again when the script itself has ended.
"""

from __future__ import annotations

import errno
import os

from spur_core.lean import signal
from spur_core.linux import prctl
from spur_proto_lite.exits import EpilogRecord
from spur_stepd import detach, words
from spur_stepd.log import say
from spur_stepd.loop import READ

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from spur_proto_lite.launch_spec import HookSpec
    from spur_stepd.loop import Loop
    from spur_stepd.privileges import Privileges
    from spur_stepd.timers import Timers

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Where a script starts whose own directory cannot be entered.
LAST_RESORT = "/tmp"  # noqa: S108
_LONGEST_LINE = 2000
_UMASK = 0o022
_READ_SIZE = 1 << 14
#: Reads that empty a pipe.
_PIPE_READS = 5


class Hooks:
    """Starts runs of hooks; what they all need."""

    def __init__(
        self,
        loop: Loop,
        timers: Timers,
        children: dict[int, Callable[[int], None]],
        privileges: Privileges,
    ) -> None:
        """
        Args:
            children: where the supervisor looks whom a child that has ended belongs to.
        """
        self.loop = loop
        self.timers = timers
        self.children = children
        self.privileges = privileges

    def start(
        self,
        name: str,
        hook: HookSpec,
        env: Mapping[str, str],
        directory: str,
        become: Callable[[], None],
        now: float,
        done: Callable[[EpilogRecord], None],
    ) -> None:
        """Begin a run; see `HookRun`."""
        HookRun(self, name, hook, env, directory, become, done).begin(now)


class HookRun:
    """One run of all scripts of a hook; the first that fails is the last."""

    def __init__(
        self,
        hooks: Hooks,
        name: str,
        hook: HookSpec,
        env: Mapping[str, str],
        directory: str,
        become: Callable[[], None],
        done: Callable[[EpilogRecord], None],
    ) -> None:
        """
        Args:
            name: for the log, for example "epilog".
            env: the whole environment.
            directory: where the scripts start, if it can be entered.
            become: called in each script's process within a root section, to take its rights and its place.
            done: called once with the result.
        """
        self._name = name
        self._hook = hook
        self._env = {"PATH": DEFAULT_PATH, **env}
        self._directory = directory
        self._become = become
        self._loop = hooks.loop
        self._timers = hooks.timers
        self._children = hooks.children
        self._privileges = hooks.privileges
        self._done = done
        self._next = 0
        self._pid = 0
        self._stderr = -1
        self._line = bytearray()
        self._last_line = ""
        self._ended_by = ""

    @property
    def _path(self) -> str:
        return self._hook.paths[self._next - 1]

    def begin(self, now: float) -> None:
        """Start the first script."""
        if self._next == len(self._hook.paths):
            self._done(EpilogRecord(ok=True))
            return
        self._next += 1
        self._last_line = ""
        self._line.clear()
        try:
            self._fork()
        except OSError as error:
            self._finish(EpilogRecord(ok=False, status=1, text=f"{self._path}: {error.strerror}"))
            return
        self._children[self._pid] = self._on_ended
        self._loop.watch(self._stderr, READ, self._on_stderr)
        if self._hook.timeout_secs > 0:
            self._timers.at(self, now + self._hook.timeout_secs, self._on_time_out)

    def stop(self, why: str) -> None:
        """End the run: the script is killed, which counts as a failure for the reason `why`."""
        if self._pid:
            self._ended_by = self._ended_by or why
            self._kill()

    # -- one script --------------------------------------------------------------------------------

    def _fork(self) -> None:
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            with self._privileges.root():
                pid = os.fork()
                if pid == 0:
                    try:
                        self._be_script(write)
                    finally:
                        os._exit(127)
                try:
                    os.setpgid(pid, pid)
                except OSError:
                    pass  # it has done so itself, or is gone
        except OSError:
            os.close(read)
            raise
        finally:
            os.close(write)
        os.set_blocking(read, False)
        self._pid, self._stderr = pid, read

    def _be_script(self, stderr: int) -> NoReturn:
        try:
            os.dup2(stderr, 2, inheritable=True)
            os.setpgid(0, 0)
            detach.reset_signals()
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 0, inheritable=True)
            os.dup2(null, 1, inheritable=True)
            os.closerange(3, 1 << 20)
            os.umask(_UMASK)
            self._become()
            # A script whose supervisor is killed has nobody to watch it and to tell its result to.
            prctl.die_with_parent()
            try:
                os.chdir(self._directory or LAST_RESORT)
            except OSError:
                os.chdir(LAST_RESORT)
            path = words.raw(self._path)
            os.execve(path, [path], words.raw_map(self._env))  # noqa: S606 - that is what a hook is
        except OSError as error:
            os.write(2, f"cannot be run: {error.strerror}\n".encode())
            os._exit(126 if error.errno == errno.EACCES else 127)

    def _on_stderr(self, _events: int) -> None:
        if self._stderr < 0:
            return
        try:
            data = os.read(self._stderr, _READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            self._close()
            return
        self._line += data
        *lines, rest = bytes(self._line).split(b"\n")
        for line in lines:
            self._say(line)
        self._line = bytearray(rest)
        if len(rest) > _LONGEST_LINE:
            self._say(rest)
            self._line.clear()

    def _say(self, line: bytes) -> None:
        text = line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip()
        if text:
            self._last_line = text
            say(f"{self._name}_says", script=self._path, line=text)

    def _on_time_out(self, _now: float) -> None:
        self.stop(f"timed out after {self._hook.timeout_secs:g} seconds")

    def _kill(self) -> None:
        with self._privileges.root():
            try:
                os.killpg(self._pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def _on_ended(self, status: int) -> None:
        self._timers.cancel(self)
        self._kill()  # whoever it has left behind
        self._pid = 0
        for _ in range(_PIPE_READS):  # not for ever: somebody else may hold the other end
            self._on_stderr(0)
        if self._line:
            self._say(bytes(self._line))
        self._close()
        code = os.waitstatus_to_exitcode(status)
        if not self._ended_by and code == 0:
            self._begin_next()
            return
        how = self._ended_by or (f"exit status {code}" if code >= 0 else f"killed by signal {-code}")
        said = f": {self._last_line}" if self._last_line else ""
        shell_code = code if code >= 0 else 128 - code
        self._finish(
            EpilogRecord(ok=False, status=shell_code or 1, text=f"{self._path}: {how}{said}"[:_LONGEST_LINE])
        )

    def _begin_next(self) -> None:
        # On the loop's next turn: the children that have ended are being collected just now.
        self._timers.at(self, 0.0, self.begin)

    def _close(self) -> None:
        if self._stderr >= 0:
            self._loop.forget(self._stderr)
            os.close(self._stderr)
            self._stderr = -1

    def _finish(self, record: EpilogRecord) -> None:
        say(f"{self._name}_failed", text=record.text)
        self._done(record)

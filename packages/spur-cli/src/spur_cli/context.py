"""What a command is given: words, environment, directory and three descriptors; nothing else.

A command is a function `run(ctx) -> exit code`.  It never touches `sys.argv`, `os.environ` or `sys.stdout`,
so that a resident process can run commands for somebody else's terminal.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence


class Stop(Exception):
    """Ends a command: print `lines` on stderr as they are and exit with `code`."""

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.code = code
        self.lines = lines


class Context:
    """The surroundings of one command.

    name: the Slurm name that diagnostics begin with.
    argv: the words after the name.
    env: the caller's environment, surrogate-escaped text.
    cwd: absolute path.
    stdin, stdout, stderr: descriptors.
    clock: seconds since the epoch.
    """

    __slots__ = ("argv", "clock", "cwd", "env", "name", "stderr", "stdin", "stdout")

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        stdin: int = 0,
        stdout: int = 1,
        stderr: int = 2,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.env = env
        self.cwd = cwd
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.clock = clock

    def out(self, text: str) -> None:
        """Write `text` to stdout at once; the caller ends its lines."""
        write_all(self.stdout, text.encode("utf-8", "surrogateescape"))

    def err(self, text: str) -> None:
        """Write `text` to stderr at once; a stderr that is gone is nobody's problem."""
        try:
            write_all(self.stderr, text.encode("utf-8", "surrogateescape"))
        except OSError:
            return

    def info(self, text: str) -> None:
        """`NAME: text`"""
        self.err(f"{self.name}: {text}\n")

    def warning(self, text: str) -> None:
        """`NAME: warning: text`"""
        self.err(f"{self.name}: warning: {text}\n")

    def error(self, text: str) -> None:
        """`NAME: error: text`"""
        self.err(f"{self.name}: error: {text}\n")

    def stop(self, text: str, code: int = 1) -> Stop:
        """The exception that prints `NAME: error: text` and exits with `code`."""
        return Stop(code, f"{self.name}: error: {text}")

    def fatal(self, text: str, code: int = 1) -> Stop:
        """The exception that prints `NAME: fatal: text` and exits with `code`."""
        return Stop(code, f"{self.name}: fatal: {text}")

    def path(self, name: str) -> str:
        """`name` as a path seen from the command's directory."""
        return name if name.startswith("/") else f"{self.cwd.rstrip('/')}/{name}"

    def env_bytes(self) -> dict[bytes, bytes]:
        """The environment as the bytes it came as."""
        return {os.fsencode(name): os.fsencode(value) for name, value in self.env.items()}


def write_all(fd: int, data: bytes) -> None:
    """Write every byte of `data`.

    Raises:
        OSError: the other side is gone or the disk is full.
    """
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        view = view[written:]

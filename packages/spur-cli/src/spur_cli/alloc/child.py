"""The command of an allocation: a process group of its own, with the terminal when there is one.

The process is made before anything else, while this one has a single thread and no gRPC: a fork beside
running threads is not safe.  It waits for its environment and then becomes the command.
"""

import os
import signal
from collections.abc import Mapping, Sequence

from spur_cli.context import Context

#: What the command must not inherit from this process's own handling.
_DEFAULT = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD,
)  # fmt: skip
_WAITING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGTERM)


class Child:
    """A process that becomes `argv` when `go` is called.

    Args:
        work_dir: where it runs.
        terminal: standard input is a terminal that the command is to have.
    """

    def __init__(self, ctx: Context, argv: Sequence[str], work_dir: str, *, terminal: bool) -> None:
        self.terminal = terminal
        self.started = False
        self._stdin = ctx.stdin
        read, self._write = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._write)
                _become(ctx, argv, work_dir, read, terminal=terminal)
            finally:
                os._exit(1)
        os.close(read)

    def go(self, env: Mapping[str, str]) -> None:
        """Run the command with this environment."""
        entries = (f"{name}={value}" for name, value in env.items())
        data = b"\0".join(os.fsencode(entry) for entry in entries)
        view = memoryview(b"G" + data)
        self.started = True
        try:
            while view:
                view = view[os.write(self._write, view) :]
        except BrokenPipeError:
            pass  # it was killed; its end tells
        os.close(self._write)

    def forget(self) -> None:
        """There is nothing to run: let the process end."""
        if not self.started:
            self.started = True
            os.close(self._write)
            os.waitpid(self.pid, 0)

    def signal(self, number: int) -> None:
        """Signal the command's group; with a terminal, whoever is in its foreground too."""
        groups = {self.pid}
        if self.terminal:
            try:
                groups.add(os.tcgetpgrp(self._stdin))
            except OSError:
                pass
        groups.discard(os.getpgrp())
        for group in groups:
            try:
                os.killpg(group, number)
                os.killpg(group, signal.SIGCONT)
            except (ProcessLookupError, PermissionError):
                pass

    def take_terminal(self) -> None:
        """Make this process the terminal's foreground again."""
        if self.terminal:
            give_terminal(self._stdin, os.getpgrp())

    def resume(self) -> None:
        """Let a stopped command go on, with the terminal if it is ours to give."""
        if self.terminal:
            try:
                if os.tcgetpgrp(self._stdin) == os.getpgrp():
                    give_terminal(self._stdin, self.pid)
            except OSError:
                pass
        try:
            os.killpg(self.pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            pass


def give_terminal(fd: int, group: int) -> None:
    """Put `group` into the foreground; a terminal that is gone needs none."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(fd, group)
    except OSError:
        pass
    finally:
        signal.signal(signal.SIGTTOU, before)


def _become(ctx: Context, argv: Sequence[str], work_dir: str, read: int, *, terminal: bool) -> None:
    """The forked process.  Whoever waits for an allocation must not lose it to a ^C meant for the client."""
    for number in _WAITING:
        signal.signal(number, signal.SIG_IGN)
    parts = []
    while part := os.read(read, 1 << 16):
        parts.append(part)
    data = b"".join(parts)
    if not data:
        os._exit(0)
    pairs = (entry.partition(b"=") for entry in data[1:].split(b"\0") if entry)
    env = {name: value for name, _, value in pairs}
    os.setpgid(0, 0)
    if terminal:
        give_terminal(ctx.stdin, os.getpgrp())
    for number in _DEFAULT:
        signal.signal(number, signal.SIG_DFL)
    for at, fd in enumerate((ctx.stdin, ctx.stdout, ctx.stderr)):
        if fd != at:
            os.dup2(fd, at)
        os.set_inheritable(at, True)
    try:
        os.chdir(work_dir)
        os.execvpe(argv[0], list(argv), env)  # noqa: S606 - its argv is the user's own
    except OSError as error:
        where = f": {error.filename}" if error.filename == work_dir else ""
        ctx.error(f'Unable to exec command "{argv[0]}": {error.strerror}{where}')

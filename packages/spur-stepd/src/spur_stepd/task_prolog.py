"""Task prologs: run in a task's own process behind the gate, as the user, before it becomes the program.

Their standard output changes the task, a line each; other lines are ignored:

    export NAME=VALUE       sets a variable
    unset NAME              removes one
    print TEXT              goes to the task's standard output

Standard error is the task's.  The first script that fails ends the task with its status.
"""

from __future__ import annotations

import errno
import os
import select
import time

from spur_core.lean import namedtuple, signal
from spur_stepd import words

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, NoReturn

    from spur_proto_lite.launch_spec import HookSpec

    class Changes(NamedTuple):
        #: Name -> value, None = removed.
        env: dict[bytes, bytes | None]
        printed: bytes
else:
    Changes = namedtuple("Changes", ("env", "printed"))

#: Bytes of output that are looked at; a script that writes more is not listened to any longer.
OUTPUT_LIMIT = 1 << 20


def parse(output: bytes) -> Changes:
    """What the output of a script asks for.  Pure."""
    env: dict[bytes, bytes | None] = {}
    printed = bytearray()
    for line in output.replace(b"\0", b"").split(b"\n"):
        word, space, rest = line.partition(b" ")
        if not space:
            continue
        if word == b"print":
            printed += rest + b"\n"
        elif word == b"export":
            name, equals, value = rest.partition(b"=")
            name = name.strip()
            if equals and name and b" " not in name:
                env[name] = value
        elif word == b"unset" and rest.strip():
            env[rest.strip()] = None
    return Changes(env, bytes(printed))


def apply(env: dict[bytes, bytes], changes: Changes) -> None:
    """Change an environment in place."""
    for name, value in changes.env.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value


def run(hook: HookSpec, env: dict[bytes, bytes]) -> int:
    """Run every script in turn; `env` is changed as they ask.

    Returns:
        0, or the exit code of the task for the one that failed; its standard error says so.
    """
    overlay = words.raw_map(hook.env)
    for path in hook.paths:
        try:
            output, code, how = _run_one(path, {**env, **overlay}, hook.timeout_secs)
        except OSError as error:
            output, code, how = b"", 1, error.strerror or str(error)
        changes = parse(output)
        apply(env, changes)
        _write_all(1, changes.printed)
        if code:
            _write_all(2, words.raw(words.task_prolog_failed(path, how)))
            return code
    return 0


def _run_one(path: str, env: dict[bytes, bytes], timeout: float) -> tuple[bytes, int, str]:
    """(output, exit code or 128 + signal, how it failed)."""
    read, write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            _be_script(path, env, write)
        finally:
            os._exit(127)
    os.close(write)
    os.set_blocking(read, False)
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(read, select.POLLIN)
    poller.register(ended, select.POLLIN)
    deadline = time.monotonic() + timeout if timeout > 0 else None
    output = bytearray()
    is_over, timed_out = False, False
    while not is_over:
        left = None if deadline is None else (deadline - time.monotonic()) * 1000
        if left is not None and left <= 0:
            timed_out = True
            os.killpg(pid, signal.SIGKILL)
            break
        ready = dict(poller.poll(left))
        is_over = ended in ready
        # At the end too: what it wrote last. A pipe that somebody else holds open is not waited for.
        if read in ready and not _take(read, output):
            poller.unregister(read)
    os.close(ended)
    os.close(read)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if timed_out:
        return bytes(output), 128 + signal.SIGKILL, f"timed out after {timeout:g} seconds"
    if code < 0:
        return bytes(output), 128 - code, f"killed by signal {-code}"
    return bytes(output), code, f"status={code}"


def _take(fd: int, output: bytearray) -> bool:
    """Add what is there; False at the end, and once it is too much."""
    while len(output) < OUTPUT_LIMIT:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        output += data
    return False


def _be_script(path: str, env: dict[bytes, bytes], out: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        os.dup2(out, 1, inheritable=True)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0, inheritable=True)
        os.closerange(3, 1 << 20)
        raw = words.raw(path)
        os.execve(raw, [raw], env)  # noqa: S606 - that is what a hook is
    except OSError as error:
        os.write(2, words.raw(words.no_exec(path, error.errno or errno.EIO)))
        os._exit(126 if error.errno == errno.EACCES else 127)


def _write_all(fd: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        pass  # nobody reads it any more

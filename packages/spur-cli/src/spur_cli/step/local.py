"""Programs that srun runs here, before and after its step (`--prolog`, `--epilog`)."""

import os
from collections.abc import Mapping, Sequence

from spur_cli.context import Context


def run_program(
    ctx: Context, option: str, name: str | None, command: Sequence[str], more: Mapping[str, str]
) -> None:
    """Run it with the step's command as its arguments, and wait; that it fails is told and changes nothing.

    Args:
        name: its path; empty or `none` = there is none.
        more: variables beside the caller's.
    """
    if not name or name.lower() == "none":
        return
    path = ctx.path(name) if "/" in name else name
    streams = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate((ctx.stdin, ctx.stdout, ctx.stderr))]
    try:
        pid = os.posix_spawnp(path, [path, *command], {**ctx.env, **more}, file_actions=streams)
    except OSError as error:
        ctx.error(f"--{option}={name}: {error.strerror}")
        return
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        how = f"exited with code {code}" if code > 0 else f"was killed by signal {-code}"
        ctx.error(f"--{option}={name} {how}")

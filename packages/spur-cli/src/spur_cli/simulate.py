"""spur simulate: the program of the spur-sched wheel, which this one may do without.

Commands do not import the scheduler: a login node needs neither it nor numpy.  So the program runs in a
process of its own, from this installation where the wheel is here, else from PATH.
"""

import shutil
import sys

from spur_cli.context import Context

_PROGRAM = "spur-simulate"


def run(ctx: Context) -> int:
    """The command."""
    import subprocess

    words = _found(ctx)
    if words is None:
        raise ctx.stop(
            "the simulator is not installed; install the wheel spur-sched (pip install spur-sched)"
        )
    done = subprocess.run(
        [*words, *ctx.argv],
        stdin=ctx.stdin,
        stdout=ctx.stdout,
        stderr=ctx.stderr,
        env=ctx.env,
        cwd=ctx.cwd,
        check=False,
    )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _found(ctx: Context) -> list[str] | None:
    from importlib.util import find_spec

    try:
        here = find_spec("spur_sched.simulate") is not None
    except ModuleNotFoundError:
        here = False
    if here and sys.executable:
        return [sys.executable, "-P", "-m", "spur_sched.simulate"]
    program = shutil.which(_PROGRAM, path=ctx.env.get("PATH"))
    return None if program is None else [program]

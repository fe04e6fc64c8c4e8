"""The way in from the launch scripts: run one command and leave without the interpreter's teardown."""

import os
import sys
from typing import NoReturn

from spur_cli import dispatch


def main(name: str, argv: list[str]) -> NoReturn:
    """Run the command `name` with this process's environment and descriptors; does not return.

    A reader that goes away (`squeue | head -1`) ends the command silently, as it ends Slurm's.
    """
    import signal

    if name not in ("srun", "salloc"):  # these must outlive a broken pipe to end their job
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    env = dict(os.environ)
    code = dispatch.run(name, argv, env, dispatch.current_directory(env))
    sys.stdout.flush()
    # gRPC's and the interpreter's teardown would cost more than most commands.
    os._exit(code)


def spur() -> NoReturn:
    """The console script `spur`."""
    main("spur", sys.argv[1:])

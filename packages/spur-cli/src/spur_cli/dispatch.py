"""From a name to the command's function; each is imported only when it is called."""

import os
from collections.abc import Mapping, Sequence

from spur_cli.context import Context, Stop

#: Slurm name -> module with `run(ctx)`.
COMMANDS = {
    "sbatch": "spur_cli.submit.sbatch",
    "srun": "spur_cli.step.srun",
    "sattach": "spur_cli.step.sattach",
    "salloc": "spur_cli.alloc.salloc",
    "squeue": "spur_cli.queue.squeue",
    "scancel": "spur_cli.queue.scancel",
    "sinfo": "spur_cli.nodes.sinfo",
    "sacct": "spur_cli.history.sacct",
    "scontrol": "spur_cli.control.scontrol",
    "sdiag": "spur_cli.control.sdiag",
    "sprio": "spur_cli.queue.sprio",
    "spur": "spur_cli.spur",
}
#: Names that Slurm's users may type and that this release does not serve, with what they would need or do.
LATER = {
    "sstat": "usage of running steps",
    "sacctmgr": "accounts, associations and QOS",
    "sshare": "fair share",
    "sreport": "reports of usage",
    "scrontab": "jobs by the calendar",
    "strigger": "programs run on events",
    "sbcast": "copying a file to a job's nodes",
    "smd": "health of nodes; sinfo -R lists nodes with a reason",
}
SLURM_NAMES = (*(name for name in COMMANDS if name != "spur"), *LATER)


def run(
    name: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdin: int = 0,
    stdout: int = 1,
    stderr: int = 2,
) -> int:
    """Run a command; its exit code.  Never raises for what a user did."""
    return run_in(Context(name, argv, env, cwd, stdin, stdout, stderr))


def run_in(ctx: Context) -> int:
    """Run the command that `ctx.name` names."""
    if ctx.name in LATER:
        return _later(ctx)
    module = COMMANDS.get(ctx.name)
    if module is None:
        ctx.err(f"{ctx.name}: no such command\n")
        return 1
    import importlib

    try:
        code: int = importlib.import_module(module).run(ctx)
    except Stop as stop:
        for line in stop.lines:
            ctx.err(line + "\n")
        return stop.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except OSError as error:
        ctx.error(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        return 1
    except UnicodeEncodeError as error:
        return _not_text(ctx, error)
    except Exception as error:
        return _unexpected(ctx, error)
    return code


def _later(ctx: Context) -> int:
    """A command that is refused; what version it belongs to it says all the same."""
    asked = ctx.argv[:1]
    if asked in (["-V"], ["--version"]) or (asked == ["version"] and ctx.name == "sacctmgr"):
        from spur_cli.options.front import SLURM_VERSION

        ctx.out(SLURM_VERSION + "\n")
        return 0
    ctx.error(f"not available in this release ({LATER[ctx.name]})")
    return 1


def _not_text(ctx: Context, error: UnicodeEncodeError) -> int:
    """Bytes that came from somewhere else than an option: a file, the name of a directory."""
    from spur_cli.printable import is_text, not_text

    if is_text(error.object):
        return _unexpected(ctx, error)
    ctx.error(not_text("", error.object))
    return 1


def _unexpected(ctx: Context, error: Exception) -> int:
    """What is left after every known failure: one line; the traceback only for who asks for it."""
    from spur_core.errors import SpurError

    if isinstance(error, SpurError):
        ctx.error(error.text)
        return 1
    if ctx.env.get("SPUR_TRACEBACK"):
        import traceback

        ctx.err("".join(traceback.format_exception(error)))
    ctx.error(
        f"internal error: {type(error).__name__}: {error} (SPUR_TRACEBACK=1 shows where)".replace("\n", " ")
    )
    return 1


def current_directory(env: Mapping[str, str]) -> str:
    """Where the caller is; its own PWD when the directory itself was removed."""
    try:
        return os.getcwd()
    except OSError:
        return env.get("PWD") or "/"

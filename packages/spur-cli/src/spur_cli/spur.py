"""spur: the verbs, each Slurm name as a verb, and what only SPUR has."""

from spur_cli import __version__
from spur_cli.context import Context
from spur_cli.dispatch import SLURM_NAMES, run_in

#: Verb -> Slurm name.
VERBS = {
    "submit": "sbatch",
    "run": "srun",
    "alloc": "salloc",
    "queue": "squeue",
    "jobs": "squeue",
    "cancel": "scancel",
    "kill": "scancel",
    "nodes": "sinfo",
    "info": "sinfo",
    "history": "sacct",
    "acct": "sacct",
    "accounts": "sacctmgr",
    "acctmgr": "sacctmgr",
    "show": "scontrol",
    "control": "scontrol",
    "ctl": "scontrol",
    "priority": "sprio",
    "prio": "sprio",
    "share": "sshare",
    "fairshare": "sshare",
    "stat": "sstat",
    "jobstat": "sstat",
    "diag": "sdiag",
    "diagnostics": "sdiag",
    "report": "sreport",
    "usage": "sreport",
    "trigger": "strigger",
    "triggers": "strigger",
    "attach": "sattach",
    "crontab": "scrontab",
    "cron": "scrontab",
    "health": "smd",
    "monitor": "smd",
}
#: What only SPUR has -> module with `run(ctx)`.
OWN = {
    "up": "spur_cli.cluster.up",
    "down": "spur_cli.cluster.down",
    "restart": "spur_cli.cluster.restart",
    "demo": "spur_cli.cluster.demo",
    "exec": "spur_cli.step.exec_command",
    "explain": "spur_cli.control.explain",
    "node": "spur_cli.control.node",
    "token": "spur_cli.keys",
    "keygen": "spur_cli.keys",
    "simulate": "spur_cli.simulate",
}
#: Verbs of later releases.
LATER = ("net", "k8s", "image", "self-update", "update")

USAGE = """\
Usage: spur <verb> [arguments]

Jobs:      submit (sbatch)   run (srun)        alloc (salloc)   queue (squeue)
           cancel (scancel)  history (sacct)   nodes (sinfo)    show, control (scontrol)
           attach (sattach)  exec JOB COMMAND  explain JOB
Cluster:   up, down, restart and demo: a cluster on this machine
           node drain NODES --reason TEXT
           simulate TRACE: replay a recorded workload with the scheduler
Keys:      keygen [FILE]     token user|node
Other:     version           help              every Slurm name

`spur <verb> --help` tells more.
"""


def run(ctx: Context) -> int:
    """The command."""
    if not ctx.argv:
        ctx.err(USAGE)
        return 1
    verb, rest = ctx.argv[0], ctx.argv[1:]
    if verb in ("help", "--help", "-h"):
        ctx.out(USAGE)
        return 0
    if verb in ("version", "--version", "-V"):
        if rest:
            raise ctx.stop(f"version {rest[0]} is not supported by this release")
        ctx.out(f"spur {__version__}\n")
        return 0
    if verb in LATER:
        ctx.err(f"spur {verb}: not supported by this release\n")
        return 1
    name = verb if verb in SLURM_NAMES else VERBS.get(verb)
    if name is not None:
        words = ["show", *rest] if verb == "show" else rest
        return run_in(_as(ctx, name, words))
    if verb in OWN:
        import importlib

        code: int = importlib.import_module(OWN[verb]).run(_as(ctx, f"spur {verb}", rest))
        return code
    ctx.err(f"spur: unknown command '{verb}'\n\n{USAGE}")
    return 1


def _as(ctx: Context, name: str, words: list[str]) -> Context:
    return Context(name, words, ctx.env, ctx.cwd, ctx.stdin, ctx.stdout, ctx.stderr, ctx.clock)

"""`scontrol show hostnames|hostlist|hostlistsorted`: no controller is needed."""

from spur_cli.context import Context, Stop
from spur_core.errors import GrammarError
from spur_core.grammar import hostlist


def show(ctx: Context, entity: str, operands: list[str]) -> int:
    """Print the list in the form that `entity` names."""
    text = operands[0] if operands else ctx.env.get("SLURM_JOB_NODELIST", "")
    if entity != "hostnames" and "/" in text:
        text = _file(ctx, text)
    try:
        names = hostlist.expand(text)
    except GrammarError as error:
        *why, last = error.text.split("\n")  # of which Slurm leaves the last one without a prefix
        raise Stop(1, *(f"scontrol: error: {line}" for line in why), last) from None
    if not names:
        ctx.error("host list is empty")
        return 0
    if entity == "hostnames":
        ctx.out("".join(f"{name}\n" for name in names))
    elif entity == "hostlist":
        ctx.out(hostlist.compress(names) + "\n")
    else:
        ctx.out(hostlist.compress_sorted(names) + "\n")
    return 0


def _file(ctx: Context, path: str) -> str:
    try:
        with open(ctx.path(path), encoding="utf-8", errors="surrogateescape") as file:
            return ",".join(file.read().split())
    except OSError as error:
        raise ctx.stop(f"{path}: {error.strerror}") from None

"""File names of `-o`, `-e` and `-i`: `%j`, `%A_%a`, `%4t`.

One pass: what a code inserts is never expanded again.  Whether a name is absolute is decided before the
expansion, and what a code inserts is part of one name, so it cannot lead to another directory.
"""

from spur_core.grammar._scan import digits
from spur_core.lean import namedtuple

_MAX_WIDTH = 10
#: Codes that a width pads with zeros.
_NUMERIC = "jAaJstnbr"
#: What `%a` shows for a job that is no array task (Slurm's NO_VAL).
_NO_TASK = 4294967294

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class PatternValues(NamedTuple):
        """What the codes stand for.  `step` None = the batch step; `array_task` None = no array."""

        job_id: int
        array_job_id: int | None
        array_task: int | None
        step: int | None
        task: int
        node: str
        node_index: int
        user: str
        job_name: str
        restarts: int
else:
    PatternValues = namedtuple(
        "PatternValues",
        "job_id array_job_id array_task step task node node_index user job_name restarts",
    )


def default_pattern(is_array: bool, *, slurm_names: bool = True) -> str:
    """Where sbatch output goes when nothing was asked for."""
    return ("slurm" if slurm_names else "spur") + ("-%A_%a.out" if is_array else "-%j.out")


def expand(pattern: str, values: PatternValues) -> str:
    """`pattern` with its codes replaced; unknown codes stay; a backslash anywhere switches all off."""
    if "\\" in pattern:
        return _plain(pattern)
    out: list[str] = []
    for literal, code, width in _pieces(pattern):
        value = _value(code, values)
        if value is None:
            out.append(literal)
        elif code in _NUMERIC and width and value.isdigit():
            out.append(value.rjust(min(width, _MAX_WIDTH), "0"))
        else:
            out.append(value)
    return "".join(out)


def resolve(pattern: str, values: PatternValues, work_dir: str) -> str:
    """The full path: relative patterns lie below `work_dir`."""
    expanded = expand(pattern, values)
    absolute = _plain(pattern).startswith("/")
    return expanded if absolute else work_dir.rstrip("/") + "/" + expanded.lstrip("/")


def codes(pattern: str) -> set[str]:
    """The code letters in `pattern` that an expansion would replace."""
    if "\\" in pattern:
        return set()
    return {code for _, code, _ in _pieces(pattern) if code in _KNOWN and code}


def per_task(pattern: str) -> bool:
    """Whether the pattern gives every task a file of its own."""
    return "t" in codes(pattern)


def per_node(pattern: str) -> bool:
    """Whether the pattern gives every node a file of its own."""
    return bool(codes(pattern) & {"N", "n"})


def stream_target(value: str) -> tuple[str, int]:
    """What srun's `-o`, `-e` and `-i` ask for: ("all", 0), ("none", 0), ("rank", N) or ("file", 0)."""
    word = value.lower()
    if word in ("all", "none"):
        return word, 0
    rank = digits(value, 9)
    return ("file", 0) if rank is None else ("rank", rank)


_KNOWN = "%jJAabstnNuxr"


def _pieces(pattern: str) -> list[tuple[str, str, int]]:
    """(text as written, code or "", width): literal texts have no code."""
    out: list[tuple[str, str, int]] = []
    at = 0
    while at < len(pattern):
        percent = pattern.find("%", at)
        if percent < 0:
            percent = len(pattern)
        if percent > at:
            out.append((pattern[at:percent], "", 0))
        if percent == len(pattern):
            break
        end = percent + 1
        while end < len(pattern) and "0" <= pattern[end] <= "9":
            end += 1
        code = pattern[end : end + 1]
        if code and code in _KNOWN:
            width = digits(pattern[percent + 1 : end], 9)
            out.append((pattern[percent : end + 1], code, width or 0))
            at = end + 1
        else:
            # Unknown: the percent sign stays, and what follows is read as it is.
            out.append(("%", "", 0))
            at = percent + 1
    return out


def _value(code: str, values: PatternValues) -> str | None:
    if not code:
        return None
    step = values.step
    task = _NO_TASK if values.array_task is None else values.array_task
    found: dict[str, object] = {
        "%": "%",
        "j": values.job_id,
        "J": values.job_id if step is None else f"{values.job_id}.{step}",
        "A": values.job_id if values.array_job_id is None else values.array_job_id,
        "a": task,
        "b": task % 10,
        "s": "batch" if step is None else step,
        "t": values.task,
        "n": values.node_index,
        "N": _name(values.node.partition(".")[0]),
        "u": _name(values.user),
        "x": _name(values.job_name),
        "r": values.restarts,
    }
    return str(found[code])


def _plain(pattern: str) -> str:
    """Without its backslashes; a doubled one is one that was meant."""
    return "\\".join(piece.replace("\\", "") for piece in pattern.split("\\\\"))


def _name(text: str) -> str:
    """An inserted name is part of one path component: no slash, and never `.` or `..`."""
    flat = text.replace("/", "_").replace("\0", "")
    return flat if flat.strip(".") else flat.replace(".", "_")

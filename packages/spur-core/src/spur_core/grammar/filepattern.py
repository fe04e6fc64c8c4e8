"""File names of `-o`, `-e` and `-i`: `%j`, `%A_%a`, `%4t`.

One pass: what a code inserts is never expanded again.  Whether a name is absolute is decided before the
expansion, so an inserted slash cannot lead out of the work directory's own names.
"""

from collections import namedtuple
from typing import TYPE_CHECKING

_MAX_WIDTH = 10
_NUMERIC = "jAaJstnbr"

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
        (
            "job_id",
            "array_job_id",
            "array_task",
            "step",
            "task",
            "node",
            "node_index",
            "user",
            "job_name",
            "restarts",
        ),
    )

#: What `%a` shows for a job that is no array task (Slurm's NO_VAL).
_NO_TASK = 4294967294


def default_pattern(is_array: bool) -> str:
    """Where sbatch output goes when nothing was asked for."""
    return "slurm-%A_%a.out" if is_array else "slurm-%j.out"


def expand(pattern: str, values: PatternValues) -> str:
    """`pattern` with its codes replaced; unknown codes stay; a leading backslash switches all off."""
    if pattern.startswith("\\"):
        return pattern[1:]
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char != "%":
            out.append(char)
            continue
        end = at
        while end < len(pattern) and pattern[end].isascii() and pattern[end].isdigit():
            end += 1
        code = pattern[end : end + 1]
        value = _value(code, values)
        if value is None:
            out.append("%")
            continue
        width = min(int(pattern[at:end] or "0"), _MAX_WIDTH)
        out.append(value.rjust(width, "0") if code in _NUMERIC and value.isdigit() else value)
        at = end + 1
    return "".join(out)


def _value(code: str, values: PatternValues) -> str | None:
    if code == "%":
        return "%"
    if code == "j":
        return str(values.job_id)
    if code == "J":
        return str(values.job_id) if values.step is None else f"{values.job_id}.{values.step}"
    if code == "A":
        return str(values.job_id if values.array_job_id is None else values.array_job_id)
    if code == "a":
        return str(_NO_TASK if values.array_task is None else values.array_task)
    if code == "b":
        return str((_NO_TASK if values.array_task is None else values.array_task) % 10)
    if code == "s":
        return "batch" if values.step is None else str(values.step)
    if code == "t":
        return str(values.task)
    if code == "n":
        return str(values.node_index)
    if code == "N":
        return values.node.partition(".")[0]
    if code == "u":
        return _name(values.user)
    if code == "x":
        return _name(values.job_name)
    if code == "r":
        return str(values.restarts)
    return None


def _name(text: str) -> str:
    """An inserted name is one path component: it brings no slash, and it is neither `.` nor `..`."""
    flat = text.replace("/", "_").replace("\0", "")
    return flat if flat.strip(".") else flat.replace(".", "_")


def resolve(pattern: str, values: PatternValues, work_dir: str) -> str:
    """The full path: relative patterns lie below `work_dir`."""
    expanded = expand(pattern, values)
    plain = pattern[1:] if pattern.startswith("\\") else pattern
    if plain.startswith("/"):
        return expanded
    return work_dir.rstrip("/") + "/" + expanded.lstrip("/")


def per_task(pattern: str) -> bool:
    """Whether the pattern gives every task a file of its own."""
    return "t" in codes(pattern)


def per_node(pattern: str) -> bool:
    """Whether the pattern gives every node a file of its own."""
    return bool(codes(pattern) & {"N", "n"})


def codes(pattern: str) -> set[str]:
    """The code letters in `pattern`."""
    found: set[str] = set()
    if pattern.startswith("\\"):
        return found
    at = 0
    while at < len(pattern):
        if pattern[at] == "%":
            at += 1
            while at < len(pattern) and pattern[at].isdigit():
                at += 1
            found.add(pattern[at : at + 1])
        at += 1
    return found

"""Job and step ids in arguments: `123`, `123_4`, `123_[1-3,5]`, `123+1`, `123.batch`."""

from collections import namedtuple
from typing import TYPE_CHECKING

from spur_core.errors import GrammarError
from spur_core.ids import U32_MAX, parse_step_name

if TYPE_CHECKING:
    from typing import NamedTuple

    class JobRef(NamedTuple):
        """A job, some tasks of an array, or a step.

        `tasks` is None for the job itself, "*" for every task, else a task list; `step` is a step id.
        """

        job_id: int
        tasks: str | None
        step: int | None
        het: int | None
else:
    JobRef = namedtuple("JobRef", ("job_id", "tasks", "step", "het"))


def parse_job_ref(text: str) -> JobRef:
    """One reference.

    Raises:
        GrammarError: "Invalid job id specified"; the caller puts its own sentence around the value.
    """
    body, dot, step_text = text.partition(".")
    try:
        step = parse_step_name(step_text) if dot else None
    except GrammarError:
        raise _bad() from None
    head, underscore, tasks = body.partition("_")
    head, plus, het_text = head.partition("+")
    if plus and underscore:
        raise _bad()
    job_id = _number(head)
    if not underscore:
        return JobRef(job_id, None, step, _number(het_text) if plus else None)
    if tasks == "*":
        return JobRef(job_id, "*", step, None)
    if tasks.startswith("[") and tasks.endswith("]"):
        tasks = tasks[1:-1].partition("%")[0]
    elif not (tasks.isascii() and tasks.isdigit()):
        raise _bad()
    from spur_core.grammar.array import parse_array

    try:
        parse_array(tasks)
    except GrammarError:
        raise _bad() from None
    return JobRef(job_id, tasks, step, None)


def split_refs(text: str) -> list[str]:
    """Split a comma list, leaving commas inside brackets alone; empty items are dropped."""
    out: list[str] = []
    current, depth = "", 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            out.append(current)
            current = ""
        else:
            current += char
    out.append(current)
    return [item.strip() for item in out if item.strip()]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > U32_MAX:
        raise _bad()
    return int(text)


def _bad() -> GrammarError:
    return GrammarError("Invalid job id specified")

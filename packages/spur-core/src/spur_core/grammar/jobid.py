"""Job and step ids in arguments: `123`, `123_4`, `123_[1-3,5]`, `123_*`, `123+1`, `123.batch`."""

from collections import namedtuple

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits
from spur_core.ids import U32_MAX, parse_step_name, step_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class JobRef(NamedTuple):
        """A job, some tasks of an array, or a step.

        `tasks` is None for the job itself, "*" for every task, else a task list; `step` is a step id; `het`
        the component of a heterogeneous job.
        """

        job_id: int
        tasks: str | None
        step: int | None
        het: int | None
else:
    JobRef = namedtuple("JobRef", ("job_id", "tasks", "step", "het"))


class BadJobRef(GrammarError):
    """A text that is no job or step id.  Every command has its own sentence for this.

    Attributes:
        item: the text, to be named in that sentence.
    """

    def __init__(self, item: str) -> None:
        super().__init__("Invalid job id specified")
        self.item = item


def parse_job_ref(text: str) -> JobRef:
    """One reference.

    Raises:
        BadJobRef: anything else.
    """
    body, dot, step_text = text.partition(".")
    try:
        step = parse_step_name(step_text) if dot else None
    except GrammarError:
        raise BadJobRef(text) from None
    head, underscore, tasks = body.partition("_")
    head, plus, het_text = head.partition("+")
    job_id, het = _number(head), _number(het_text)
    if not job_id or (plus and (underscore or het is None)):
        raise BadJobRef(text)
    if not underscore:
        return JobRef(job_id, None, step, het)
    if tasks.startswith("[") and tasks.endswith("]"):
        # A listing shows the throttle inside the brackets, and people paste what they see.
        tasks = tasks[1:-1].partition("%")[0]
        if not _is_task_list(tasks):
            raise BadJobRef(text)
    elif tasks != "*" and digits(tasks, 9) is None:
        raise BadJobRef(text)
    return JobRef(job_id, tasks, step, None)


def parse_job_refs(text: str) -> list[JobRef]:
    """A comma list of references; empty items are dropped.

    Raises:
        BadJobRef: naming the item.
    """
    return [parse_job_ref(item) for item in split_refs(text)]


def split_refs(text: str) -> list[str]:
    """Split a comma list, leaving commas inside brackets alone; empty items are dropped."""
    out: list[str] = []
    start, depth = 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            out.append(text[start:at])
            start = at + 1
    out.append(text[start:])
    return [item.strip() for item in out if item.strip()]


def format_job_ref(ref: JobRef) -> str:
    """The text that parses to `ref`."""
    text = str(ref.job_id)
    if ref.het is not None:
        text += f"+{ref.het}"
    elif ref.tasks is not None:
        single = ref.tasks == "*" or digits(ref.tasks, 9) is not None
        text += f"_{ref.tasks}" if single else f"_[{ref.tasks}]"
    return text if ref.step is None else f"{text}.{step_name(ref.step)}"


def format_step(job_id: int, step_id: int, array_job_id: int | None = None, task: int | None = None) -> str:
    """A step as squeue and sacct show it: `123.0`, `123.batch`, `120_4.extern` for a task of array 120."""
    job = str(job_id) if array_job_id is None or task is None else f"{array_job_id}_{task}"
    return f"{job}.{step_name(step_id)}"


def _is_task_list(text: str) -> bool:
    from spur_core.grammar.array import parse_array

    try:
        parse_array(text)
    except GrammarError:
        return False
    return True


def _number(text: str) -> int | None:
    number = digits(text, 10)
    return number if number is not None and number <= U32_MAX else None

"""Who is running: RuntimeId and Slurm's step numbers.

`RuntimeId` is the identity of one running process tree.  It keys everything on a node and is compared
exactly, on all three parts, immediately before every act.
"""

from spur_core.errors import GrammarError
from spur_core.lean import namedtuple

# Not from typing, which costs a supervisor and a command 6 ms; checkers know the name.
TYPE_CHECKING = False

#: Largest id of a numbered step (SLURM_MAX_NORMAL_STEP_ID).
MAX_NORMAL_STEP = 0xFFFFFFF0
STEP_INTERACTIVE = 0xFFFFFFFA
STEP_BATCH = 0xFFFFFFFB
STEP_EXTERN = 0xFFFFFFFC
STEP_PENDING = 0xFFFFFFFD
NO_VAL = 0xFFFFFFFE
INFINITE = 0xFFFFFFFF
U32_MAX = 0xFFFFFFFF

_STEP_NAMES = {
    STEP_BATCH: "batch",
    STEP_EXTERN: "extern",
    STEP_INTERACTIVE: "interactive",
    STEP_PENDING: "TBD",
}
_STEP_NUMBERS = {"batch": STEP_BATCH, "extern": STEP_EXTERN, "interactive": STEP_INTERACTIVE}

if TYPE_CHECKING:
    from typing import NamedTuple

    class _Rid(NamedTuple):
        job_id: int
        run_attempt: int
        step_id: int
else:
    _Rid = namedtuple("_Rid", ("job_id", "run_attempt", "step_id"))


class RuntimeId(_Rid):
    """{job_id, run_attempt, step_id}: one running process tree.

    `run_attempt` counts dispatches from 1; 0 means "not given" and never matches a running attempt.
    """

    __slots__ = ()

    def dirname(self) -> str:
        """The name of its session directory: three decimal numbers joined by dots."""
        return f"{self.job_id}.{self.run_attempt}.{self.step_id}"

    @classmethod
    def from_dirname(cls, name: str) -> "RuntimeId":
        """Parse `dirname()`; exactly three plain decimal u32 parts.

        Raises:
            GrammarError: anything else, leading zeros and signs included.
        """
        parts = name.split(".")
        if len(parts) != 3:
            raise GrammarError(f"not a session name: {name!r}")
        numbers = []
        for part in parts:
            if not (part.isascii() and part.isdigit()) or (len(part) > 1 and part[0] == "0"):
                raise GrammarError(f"not a session name: {name!r}")
            number = int(part)
            if number > U32_MAX:
                raise GrammarError(f"not a session name: {name!r}")
            numbers.append(number)
        return cls(*numbers)

    def __str__(self) -> str:
        return f"{self.job_id}.{self.run_attempt}.{step_name(self.step_id)}"


def step_name(step_id: int) -> str:
    """`batch`, `extern`, `interactive` or the number."""
    return _STEP_NAMES.get(step_id) or str(step_id)


def is_step(step_id: int) -> bool:
    """True for every step that can run: the numbered ones, interactive, batch and extern."""
    return is_numbered(step_id) or step_id in (STEP_INTERACTIVE, STEP_BATCH, STEP_EXTERN)


def parse_step_name(text: str) -> int:
    """The step id that `text` names.

    Raises:
        GrammarError: neither a special name nor a number of a normal step.
    """
    special = _STEP_NUMBERS.get(text.lower())
    if special is not None:
        return special
    if text.isascii() and text.isdigit() and int(text) <= MAX_NORMAL_STEP:
        return int(text)
    raise GrammarError(f"Invalid step id specified: {text}")


def is_numbered(step_id: int) -> bool:
    """True for the steps that `srun` makes: 0, 1, 2, ..."""
    return step_id <= MAX_NORMAL_STEP

"""How a partition shares CPUs between jobs: `OverSubscribe` as Slurm has it."""

from collections import namedtuple

from spur_core.errors import GrammarError

TYPE_CHECKING = False

#: Jobs on one CPU where no number is given.
USUAL = 4
#: As Slurm: the number shares a word with a flag.
MOST = 32767
_WORDS = ("NO", "EXCLUSIVE", "YES", "FORCE")


if TYPE_CHECKING:
    from typing import NamedTuple

    class Sharing(NamedTuple):
        """`word` is NO, EXCLUSIVE (whole nodes), YES (jobs that ask for it share) or FORCE (all do).

        `most`: jobs on one CPU at the most; 1 for NO and EXCLUSIVE.
        """

        word: str
        most: int

else:
    Sharing = namedtuple("Sharing", ("word", "most"))


def parse(text: str) -> Sharing:
    """`NO`, `EXCLUSIVE`, `YES[:n]`, `FORCE[:n]`, in any case.

    Raises:
        GrammarError: says what may be written.
    """
    word, colon, number = text.strip().upper().partition(":")
    counted = word in ("YES", "FORCE")
    if word not in _WORDS or (colon and not counted):
        raise GrammarError("must be one of NO, EXCLUSIVE, YES[:jobs], FORCE[:jobs]")
    if not colon:
        return Sharing(word, USUAL if counted else 1)
    if not number.isascii() or not number.isdigit() or not 1 <= int(number[:9]) <= MOST:
        raise GrammarError(f"the number of jobs on a CPU must be from 1 to {MOST}")
    return Sharing(word, int(number))


def text_of(sharing: Sharing) -> str:
    """As `scontrol show partition` and `sinfo` write it: `YES:4`."""
    return f"{sharing.word}:{sharing.most}" if sharing.word in ("YES", "FORCE") else sharing.word

"""How many answers to request ids are kept, and whose go first: one user's must not crowd out others'.  Pure.

Keys carry who asked: `UID:ID` of a submission, `step:UID:JOB:ID` of a step, `RPC:ID:WHO/PART` of all else.
The ids in them are the callers' own words.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from spur_ctld.state.records import Answer

#: Of all answers together; a hundred thousand of the usual ones.
MOST_BYTES: Final = 32 << 20
#: A longer one, of thousands of refusals, is not kept: its request is looked at again when it is repeated.
LARGEST: Final = 64 << 10
#: What is left of `MOST_BYTES` once it was exceeded, so that it is not exceeded again at once.
_LEFT: Final = MOST_BYTES - MOST_BYTES // 8
#: An answer without its key and result, about.
_BASE: Final = 250


def weight(key: str, answer: Answer) -> int:
    """Bytes that it counts for."""
    return _BASE + len(key) + len(answer.result)


def owner_of(key: str) -> str:
    """Who asked."""
    first, _, rest = key.partition(":")
    if first == "step":
        return rest.partition(":")[0]
    if first.isdigit():
        return first
    return rest.rpartition(":")[2].partition("/")[0]


def total(answers: Mapping[str, Answer]) -> int:
    """Bytes of all of them."""
    return sum(weight(key, answer) for key, answer in answers.items())


def surplus(answers: Mapping[str, Answer]) -> list[str]:
    """What goes when all together are too many: of who has most, the oldest first, as they stand in order."""
    most = Counter[str]()
    for key, answer in answers.items():
        most[owner_of(key)] += weight(key, answer)
    over = most.total() - _LEFT
    # Everybody keeps as much as the others, or what he has.
    share, left = 0, _LEFT
    for at, (_, bytes_) in enumerate(sorted(most.items(), key=lambda one: (one[1], one[0]))):
        share = left // (len(most) - at)
        if bytes_ > share:
            break
        left -= bytes_
    gone: list[str] = []
    for key, answer in answers.items():
        if over <= 0:
            break
        owner = owner_of(key)
        if most[owner] > share:
            most[owner] -= weight(key, answer)
            over -= weight(key, answer)
            gone.append(key)
    return gone

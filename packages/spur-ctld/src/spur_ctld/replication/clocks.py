"""Whether the members' clocks agree: the leader's stamps everything that happens.

The log itself does not need clocks.  But time limits, begin times and the history go by the clock of the one
that leads, so a clock that is wrong shows before its host leads, too.
"""

import logging
from typing import Final

_log = logging.getLogger(__name__)

#: Seconds by which two clocks may differ.
MOST: Final = 2.0
#: A member whose clock is off by more than that many seconds does not go on leading.
MOST_OF_A_LEADER: Final = 10.0
#: A question that travelled longer than this, in seconds, says nothing: somebody stood still.
_SLOWEST: Final = 1.0


class Clocks:
    """What this member measured against each other one."""

    def __init__(self, own: int) -> None:
        self._own = own
        #: Member -> seconds by which its clock is ahead of this one's; only those that differ.
        self._ahead: dict[int, float] = {}

    def measured(self, member: int, asked: float, told: float, round_trip: float) -> None:
        """`member` was asked at `asked` by this clock, said `told`, and the answer took `round_trip` seconds.

        It can have said that at any moment of the round trip, so half of it counts for neither side.
        """
        if not told or round_trip > _SLOWEST:
            return
        ahead = told - (asked + round_trip / 2)
        if abs(ahead) - round_trip / 2 > MOST:
            if member not in self._ahead:
                _log.warning("clock_differs member=%d ahead_secs=%.1f", member, ahead)
            self._ahead[member] = ahead
        elif self._ahead.pop(member, None) is not None:
            _log.info("clock_agrees member=%d ahead_secs=%.1f", member, ahead)

    def far(self, member: int) -> bool:
        """Whether that one's clock is so far from this one's that only one of both may lead."""
        return abs(self._ahead.get(member, 0.0)) > MOST_OF_A_LEADER

    def wrong(self, members: int) -> float:
        """Seconds by which a majority of all `members`, who agree with each other, are ahead of this one.

        0 when this clock may lead, or when nobody can say which one is wrong.
        """
        needed = members // 2 + 1
        off = sorted(ahead for ahead in self._ahead.values() if abs(ahead) > MOST_OF_A_LEADER)
        for first, last in zip(off, off[needed - 1 :], strict=False):
            if last - first <= MOST:
                return first
        return 0.0

    def alarms(self) -> list[str]:
        """One line for each that differs; both sides say the same."""
        found = []
        for member, ahead in sorted(self._ahead.items()):
            first, second = (member, self._own) if ahead > 0 else (self._own, member)
            found.append(
                f"the clock of controller {first} is {abs(ahead):.0f} s ahead of controller {second}'s"
            )
        return found

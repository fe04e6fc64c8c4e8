"""Which of several controllers to call, and which one after it.  Pure but for the clock it is given.

Addresses are `host:port`.  Those that were configured stand first, those that a controller told come behind
them.  One that could not be reached is asked last for a while, also when somebody names it as the leader:
the way to it may be closed from here and open from there.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

#: A controller that could not be reached is not the first choice for so long.
AVOID_SECS = 5.0
#: Addresses kept; a group has at most five members, and each may be known by two names.
MOST = 16


class Route:
    """The order of the controllers.

    Attributes:
        known: every address, in order.
        first: the one to begin with.
    """

    __slots__ = ("_avoided", "_clock", "first", "known")

    def __init__(self, addresses: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        """`addresses`: at least one."""
        self.known = list(dict.fromkeys(addresses))
        self.first = self.known[0]
        self._clock = clock
        self._avoided: dict[str, float] = {}

    @property
    def several(self) -> bool:
        """Whether there is another one to go to."""
        return len(self.known) > 1

    def learn(self, addresses: Iterable[str]) -> bool:
        """Controllers that another one told of; whether any is new.  What is no address is passed over."""
        before = len(self.known)
        for address in addresses:
            host, colon, port = address.rpartition(":")
            usable = bool(colon and host and port.isascii() and port.isdigit())
            if usable and address not in self.known and len(self.known) < MOST:
                self.known.append(address)
        return len(self.known) > before

    def next(self, tried: Container[str]) -> str | None:
        """The next one of a round in which those of `tried` were asked; None = the round is over."""
        at = self.known.index(self.first)
        order = [one for one in self.known[at:] + self.known[:at] if one not in tried]
        for one in order:
            if not self._is_avoided(one):
                return one
        return order[0] if order else None

    def answered(self, address: str, leader: str = "") -> None:
        """It answered.  `leader`: who leads, by its word; then that one is asked next time."""
        self._avoided.pop(address, None)
        self.first = address
        self._prefer(leader)

    def refused(self, address: str, leader: str = "") -> None:
        """It answered that it does not lead, or cannot serve now."""
        self._avoided.pop(address, None)
        self._pass(address)
        self._prefer(leader)

    def lost(self, address: str) -> None:
        """It could not be reached, or broke off."""
        self._avoided[address] = self._clock() + AVOID_SECS
        self._pass(address)

    def _pass(self, address: str) -> None:
        if self.first == address:
            self.first = self.known[(self.known.index(address) + 1) % len(self.known)]

    def _prefer(self, leader: str) -> None:
        if leader:
            self.learn((leader,))
            if leader in self.known and not self._is_avoided(leader):
                self.first = leader

    def _is_avoided(self, address: str) -> bool:
        return self._avoided.get(address, 0.0) > self._clock()

"""Whether all members hold the same state: digests at the same places of the log, own and others'.

`apply` is deterministic, so a difference means a fault in it, or memory or disk that lie.  Nothing can be
done about it here but to say so, loudly: which of two is right is not known.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

_log = logging.getLogger(__name__)
#: Places remembered of each member.
KEPT = 16
#: In a member's directory; removed by people.
ALARMS = "alarms"


class Difference(msgspec.Struct, frozen=True):
    """Two members that hold different states at `index`."""

    index: int
    member: int
    digest: str
    other: int
    other_digest: str

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"at entry {self.index} the state of controller {self.member}"
            f" differs from that of controller {self.other}"
        )


class DigestBook:
    """What is known of the states of the group.

    A digest reads VERSION-HEX.  Only those of equal versions of the state's encoding are compared: a new
    release may write more than an old one.

    Attributes:
        differences: all that were found since the start, at most `KEPT`.
        found: how many.
        alarm: called with each.
    """

    def __init__(self, member: int) -> None:
        self._member = member
        self._places: OrderedDict[int, dict[int, str]] = OrderedDict()
        self.differences: list[Difference] = []
        self.found = 0
        self.alarm: Callable[[Difference], None] = lambda _: None

    def record(self, index: int, digest: str) -> None:
        """This member's state at `index`."""
        self._take(self._member, index, digest)

    def heard(self, member: int, digests: Iterable[tuple[int, str]]) -> None:
        """What another member's states were."""
        for index, digest in digests:
            self._take(member, index, digest)

    def own(self) -> list[tuple[int, str]]:
        """This member's, newest last."""
        return [
            (index, known[self._member])
            for index, known in sorted(self._places.items())
            if self._member in known
        ]

    def _take(self, member: int, index: int, digest: str) -> None:
        if not digest:
            return
        known = self._places.setdefault(index, {})
        if known.get(member) == digest:
            return
        for other, other_digest in known.items():
            # A member that was filled anew may say something else than before: that is a difference too.
            if other_digest != digest and _comparable(other_digest, digest):
                self._differ(Difference(index, member, digest, other, other_digest))
        known[member] = digest
        while len(self._places) > KEPT:
            del self._places[min(self._places)]

    def _differ(self, found: Difference) -> None:
        self.found += 1
        self.differences = [*self.differences[1 - KEPT :], found]
        _log.critical(
            "state_differs index=%d member=%d digest=%s other=%d other_digest=%s",
            found.index,
            found.member,
            found.digest,
            found.other,
            found.other_digest,
        )
        self.alarm(found)


def write_alarm(folder: Path, difference: Difference) -> None:
    """Add a line to the file `alarms` of a member's directory, for people and for `spurctld raft inspect`.

    Raises:
        OSError: it cannot be written.
    """
    with (folder / ALARMS).open("ab") as file:
        file.write(msgspec.json.encode(difference) + b"\n")


def read_alarms(folder: Path) -> list[Difference]:
    """What `write_alarm` wrote; lines that cannot be read are left out."""
    try:
        lines = (folder / ALARMS).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=Difference))
        except msgspec.MsgspecError:
            continue
    return found


def _comparable(one: str, other: str) -> bool:
    return one.partition("-")[0] == other.partition("-")[0]

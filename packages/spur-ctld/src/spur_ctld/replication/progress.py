"""What the leader knows about one peer, and whether it may send it more."""

import enum
from collections import deque


class Flow(enum.Enum):
    """PROBE: one message at a time until the logs meet.  REPLICATE: a window.  SNAPSHOT: a file travels."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    """`match`: durable at the peer.  `next`: first entry to send.  The rest is flow control."""

    __slots__ = (
        "active",
        "asked",
        "flow",
        "inflight",
        "match",
        "next",
        "pending_snapshot",
        "probe_last",
        "resend",
        "round",
        "told_commit",
        "window",
    )

    def __init__(self, next_index: int, window: int) -> None:
        self.match = 0
        self.next = next_index
        self.window = window
        self.flow = Flow.PROBE
        #: PROBE only: a message is out and unanswered.
        self.asked = False
        #: Send something even if there is nothing new: a message may have been lost.
        self.resend = False
        #: Heard from since the last quorum check.
        self.active = False
        #: Newest confirmation round answered.
        self.round = 0
        self.told_commit = 0
        self.pending_snapshot = 0
        #: PROBE only: an acknowledgement from here on answers the message that is out.
        self.probe_last = 0
        self.inflight: deque[int] = deque()

    @property
    def blocked(self) -> bool:
        """Nothing may be sent now."""
        if self.flow is Flow.PROBE:
            return self.asked
        return self.flow is Flow.SNAPSHOT or len(self.inflight) >= self.window

    def wants(self, last_index: int, commit: int) -> bool:
        """There is something to tell."""
        return self.resend or self.next <= last_index or self.told_commit < commit or self.flow is Flow.PROBE

    def probe(self, next_index: int | None = None) -> None:
        """Back to one message at a time, from `next_index` or the first unacknowledged entry."""
        self.flow = Flow.PROBE
        self.asked = False
        self.next = max(self.match + 1, next_index or 0)
        self.probe_last = self.next - 1
        self.inflight.clear()

    def snapshot(self, index: int) -> None:
        """Wait for a snapshot up to `index` to arrive."""
        self.flow = Flow.SNAPSHOT
        self.pending_snapshot = index
        self.inflight.clear()

    def sent(self, count: int, commit: int) -> None:
        """An append with `count` entries left."""
        self.resend = False
        self.told_commit = commit
        if self.flow is Flow.PROBE:
            self.asked = True
            self.probe_last = self.next - 1 + count
        elif count:
            self.next += count
            self.inflight.append(self.next - 1)

    def acknowledged(self, index: int) -> bool:
        """The peer is durable up to `index`.  True when that is news."""
        # While probing, late answers to what was sent before do not open the window again: that would send
        # all of it once more for every one of them.
        wanted = self.pending_snapshot if self.flow is Flow.SNAPSHOT else self.probe_last
        if self.flow is not Flow.REPLICATE and index >= wanted:
            self.flow = Flow.REPLICATE
            self.asked = False
            self.next = max(index, self.match) + 1
            self.inflight.clear()
        while self.inflight and self.inflight[0] <= index:
            self.inflight.popleft()
        self.next = max(self.next, index + 1)
        if index <= self.match:
            return False
        self.match = index
        return True

    def refused(self, index: int, next_index: int) -> None:
        """The peer does not have `index` as we do; late news is ignored."""
        if self.flow is Flow.SNAPSHOT or index <= self.match:
            return
        if self.flow is Flow.PROBE and index != self.next - 1:
            return
        self.probe(min(next_index, index))

    def beaten(self, last_index: int) -> None:
        """A heartbeat was answered: whatever was lost may be sent again."""
        self.active = True
        self.asked = False
        if len(self.inflight) >= self.window:
            self.inflight.popleft()
        if self.match < last_index:
            self.resend = True

"""The state machine that the replicated log drives."""

import logging
from collections.abc import Callable, Iterable

from spur_ctld.state import codec
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import Event, StateReplaced
from spur_ctld.state.frozen import FrozenState
from spur_ctld.state.machine import apply

log = logging.getLogger(__name__)


class LogMachine:
    """Decodes entries, applies them, hands the events of live entries to one listener.

    Attributes:
        state: the live state; only read it from the event loop.
        on_events: called after each entry; None while the log is replayed.
    """

    def __init__(self) -> None:
        self.state = ClusterState.empty()
        self.on_events: Callable[[tuple[Event, ...]], None] | None = None

    def apply(self, index: int, cmd: bytes) -> bytes:
        """Apply one entry and return the encoded result."""
        result, events = apply(self.state, index, codec.decode_op(cmd))
        if events and self.on_events is not None:
            self.on_events(events)
        return codec.encode_result(result)

    def freeze(self) -> FrozenState:
        """Chunks of the present state, safe to encode in another thread, and its digest."""
        return FrozenState(self.state)

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the state."""
        self.state = codec.restore(chunks)
        if self.on_events is not None:
            self.on_events((StateReplaced(),))

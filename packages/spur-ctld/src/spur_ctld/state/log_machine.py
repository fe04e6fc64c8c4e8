"""The state machine that the replicated log drives."""

import logging
from collections.abc import Callable, Iterable

from spur_core.errors import StateError
from spur_ctld.replication.errors import TooNew
from spur_ctld.state import codec, ops, versions
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import Event, StateReplaced
from spur_ctld.state.frozen import FrozenState
from spur_ctld.state.machine import apply

log = logging.getLogger(__name__)

_RAISE = b"raise_command_version"


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
        """Apply one entry and return the encoded result.

        Raises:
            TooNew: it is of a newer release; it is not carried out, and nothing after it may be.
        """
        result, events = apply(self.state, index, self._decode(cmd))
        if events and self.on_events is not None:
            self.on_events(events)
        return codec.encode_result(result)

    @property
    def version(self) -> int:
        """The version of operations that the group uses."""
        return self.state.command_version

    def check(self, cmd: bytes) -> None:
        """Whether bytes of another member may enter the log.

        Raises:
            StateError: they are no operation, or one that not every member understands yet.
        """
        if versions.needed(codec.decode_op(cmd)) > self.state.command_version:
            raise StateError("not every controller knows this operation yet")

    def foresee(self, commands: Iterable[bytes]) -> None:
        """Look through a log that is going to be applied.

        Raises:
            TooNew: a newer release wrote into it.
        """
        for cmd in commands:
            # A look at the bytes costs little beside decoding; a script may hold the word too.
            if _RAISE in cmd:
                self._decode(cmd)

    def _decode(self, cmd: bytes) -> "ops.AnyOp":
        op = codec.decode_op(cmd)
        known = versions.known()
        if isinstance(op, ops.RaiseCommandVersion) and op.to > known:
            raise TooNew(f"the group uses command version {op.to}, this release knows up to {known}")
        if known < versions.COMMAND_VERSION:
            # A test of upgrades: this process is the older release.
            if not versions.usable(type(op), known):
                raise TooNew(f"operation {type(op).__name__} is unknown to this release")
            return versions.fitted(op, known)
        return op

    def freeze(self) -> FrozenState:
        """Chunks of the present state, safe to encode in another thread, and its digest."""
        return FrozenState(self.state)

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the state.

        Raises:
            TooNew: a newer release wrote it.
        """
        self.state = codec.restore(chunks)
        if self.on_events is not None:
            self.on_events((StateReplaced(),))

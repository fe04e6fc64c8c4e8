"""The state as it was at one moment: its chunks for a snapshot, and its digest, in another thread."""

import functools
import hashlib
from collections.abc import Iterator

import msgspec

from spur_ctld.state import codec
from spur_ctld.state.cluster import ClusterState

_VERSION_DIGITS = 8


class FrozenState(Iterator[bytes]):
    """Iterates over the chunks.  Only dictionaries are copied when it is made."""

    def __init__(self, state: ClusterState) -> None:
        still = ClusterState()
        still.settings = state.settings
        still.jobs = dict(state.jobs)
        still.nodes = dict(state.nodes)
        still.partitions = dict(state.partitions)
        still.outbox = dict(state.outbox)
        still.step_outbox = dict(state.step_outbox)
        still.answers = dict(state.answers)
        still.next_job_id = state.next_job_id
        still.acct_seq = state.acct_seq
        still.applied = state.applied
        still.time = state.time
        self._still = still
        self._chunks = codec.freeze(still)

    def __next__(self) -> bytes:
        return next(self._chunks)

    def digest(self) -> str:
        """Of the state, with the version of its encoding in front; equal for equal states."""
        return f"{encoding_version()}-{codec.digest(self._still)}"


@functools.cache
def encoding_version() -> str:
    """Changes whenever a record gains or loses a field: two releases cannot be compared."""
    shapes, components = msgspec.json.schema_components(
        [codec.Head, codec.Jobs, codec.Nodes, codec.Partitions, codec.Outbox, codec.StepOutbox, codec.Answers]
    )
    text = msgspec.json.encode([shapes, components], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:_VERSION_DIGITS]

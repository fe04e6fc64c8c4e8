"""The state as it was at one moment: its chunks for a snapshot, and its digest, in another thread."""

import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from spur_ctld.state import codec
from spur_ctld.state.cluster import ClusterState

_VERSION_DIGITS = 8
_encoder = msgspec.msgpack.Encoder()


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
        still.reservations = dict(state.reservations)
        still.next_job_id = state.next_job_id
        still.acct_seq = state.acct_seq
        still.applied = state.applied
        still.time = state.time
        still.command_version = state.command_version
        still.raised_at = state.raised_at
        self._still = still
        self._chunks: Iterator[bytes] | None = None

    def __next__(self) -> bytes:
        if self._chunks is None:
            # Here, in the other thread: this makes lists of everything.
            self._chunks = codec.freeze(self._still)
        return next(self._chunks)

    def digest(self) -> str:
        """Of the state, with the version of its encoding in front.

        Equal for equal states, whatever way they came about: tables are taken in the order of their keys, but
        partitions in their own, which means something.
        """
        found = hashlib.sha256()
        still = self._still
        # `apply` never looks at the time, and a refused operation changes nothing else.
        head = codec.Head(
            codec.SNAPSHOT_FORMAT,
            still.applied,
            still.next_job_id,
            still.acct_seq,
            still.settings,
            command_version=still.command_version,
            raised_at=still.raised_at,
        )
        found.update(_encoder.encode(head))
        tables: list[dict[Any, Any]] = [
            still.jobs,
            still.nodes,
            still.outbox,
            still.step_outbox,
            still.answers,
            still.reservations,
        ]
        for table in tables:
            keys = sorted(table)
            for at in range(0, len(keys), codec.CHUNK):
                found.update(_encoder.encode([(key, table[key]) for key in keys[at : at + codec.CHUNK]]))
        found.update(_encoder.encode(list(still.partitions.items())))
        return f"{encoding_version()}-{found.hexdigest()}"


@functools.cache
def encoding_version() -> str:
    """Changes whenever a record gains or loses a field: two releases cannot be compared."""
    shapes, components = msgspec.json.schema_components(
        [
            codec.Head,
            codec.Jobs,
            codec.Nodes,
            codec.Partitions,
            codec.Outbox,
            codec.StepOutbox,
            codec.Answers,
            codec.Reservations,
        ]
    )
    text = msgspec.json.encode([shapes, components], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:_VERSION_DIGITS]

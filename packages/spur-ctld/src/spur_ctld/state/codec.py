"""Operations, results and the whole state as bytes: msgpack, decoded against types, never guessed."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from spur_core.errors import StateError
from spur_ctld.replication.errors import TooNew
from spur_ctld.state import ops, versions
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import AcctRow, Answer, Job, Node, Partition, StepAcct
from spur_ctld.state.reservations import Reservation
from spur_ctld.state.settings import Settings

#: Version of the snapshot's layout; a higher one is refused by name.  2: steps, and their rows.  A leader
#: sends its snapshots to members of the release before, so a layout that those cannot read has to wait, as
#: operations do, for `ClusterState.command_version`.
SNAPSHOT_FORMAT = 2
#: Records of one chunk at most.
CHUNK = 512

_encoder = msgspec.msgpack.Encoder()
_op_decoder = msgspec.msgpack.Decoder(ops.AnyOp)
_result_decoder = msgspec.msgpack.Decoder(ops.AnyResult)


class Head(msgspec.Struct, frozen=True, tag="head"):
    """First chunk: format and counters."""

    format: int
    applied: int
    next_job_id: int
    acct_seq: int
    settings: Settings
    time: float = 0.0
    command_version: int = versions.FIRST
    raised_at: float = 0.0


class Jobs(msgspec.Struct, frozen=True, tag="jobs"):
    items: list[Job]


class Nodes(msgspec.Struct, frozen=True, tag="nodes"):
    items: list[Node]


class Partitions(msgspec.Struct, frozen=True, tag="partitions"):
    items: list[Partition]


class Outbox(msgspec.Struct, frozen=True, tag="outbox"):
    items: list[AcctRow]


class StepOutbox(msgspec.Struct, frozen=True, tag="step_outbox"):
    items: list[StepAcct]


class Answers(msgspec.Struct, frozen=True, tag="answers"):
    items: dict[str, Answer]


class Reservations(msgspec.Struct, frozen=True, tag="reservations"):
    items: list[Reservation]


_chunk_decoder = msgspec.msgpack.Decoder(
    Head | Jobs | Nodes | Partitions | Outbox | StepOutbox | Answers | Reservations
)


def encode_op(op: "ops.AnyOp") -> bytes:
    """An operation as it stands in the log."""
    return _encoder.encode(op)


def decode_op(raw: bytes) -> "ops.AnyOp":
    """Raises TooNew when the log holds an operation that this release does not know."""
    try:
        return _op_decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise TooNew(f"an operation is unknown to this release ({error})") from None


def encode_result(result: "ops.AnyResult") -> bytes:
    """A result for the proposer."""
    return _encoder.encode(result)


def decode_result(raw: bytes) -> "ops.AnyResult":
    """The result that `apply` gave."""
    return _result_decoder.decode(raw)


def freeze(state: ClusterState) -> Iterator[bytes]:
    """Chunks of the state as it is now.

    Only the dictionaries are copied before the first chunk is asked for; records never change, so the
    rest may be encoded later and in another thread.
    """
    head = _head(state)
    parts: list[tuple[Callable[[list[Any]], Any], list[Any]]] = [
        (Jobs, list(state.jobs.values())),
        (Nodes, list(state.nodes.values())),
        (Partitions, list(state.partitions.values())),
        (Outbox, list(state.outbox.values())),
        (StepOutbox, list(state.step_outbox.values())),
        (Reservations, list(state.reservations.values())),
    ]
    answers = list(state.answers.items())

    def chunks() -> Iterator[bytes]:
        yield _encoder.encode(head)
        for make, items in parts:
            for at in range(0, len(items), CHUNK):
                yield _encoder.encode(make(items[at : at + CHUNK]))
        for at in range(0, len(answers), CHUNK):
            yield _encoder.encode(Answers(dict(answers[at : at + CHUNK])))

    return chunks()


def restore(chunks: Iterable[bytes]) -> ClusterState:
    """The state that `freeze` wrote.

    Raises:
        TooNew: a state of a newer release.
        StateError: a chunk that is none.
    """
    state = ClusterState()
    for raw in chunks:
        try:
            chunk = _chunk_decoder.decode(raw)
        except msgspec.MsgspecError as error:
            raise StateError(f"the snapshot does not decode: {error}") from None
        if isinstance(chunk, Head):
            if chunk.format > SNAPSHOT_FORMAT:
                raise TooNew(
                    f"the snapshot has format {chunk.format}, this release knows up to {SNAPSHOT_FORMAT}"
                )
            if chunk.command_version > versions.known():
                raise TooNew(
                    f"the group uses command version {chunk.command_version}, this release knows up to"
                    f" {versions.known()}"
                )
            state.command_version = chunk.command_version
            state.raised_at = chunk.raised_at
            state.applied = chunk.applied
            state.next_job_id = chunk.next_job_id
            state.acct_seq = chunk.acct_seq
            state.settings = chunk.settings
            state.time = chunk.time
        elif isinstance(chunk, Jobs):
            for job in chunk.items:
                request = msgspec.structs.replace(
                    job.request, env=state.intern(job.request.env), script=state.intern(job.request.script)
                )
                state.put_job(msgspec.structs.replace(job, request=request))
        elif isinstance(chunk, Nodes):
            state.nodes.update((node.name, node) for node in chunk.items)
        elif isinstance(chunk, Partitions):
            state.partitions.update((part.name, part) for part in chunk.items)
        elif isinstance(chunk, Outbox):
            state.outbox.update(((row.job_id, row.attempt), row) for row in chunk.items)
        elif isinstance(chunk, StepOutbox):
            state.step_outbox.update(
                ((row.job_id, row.attempt, row.step.step_id), row) for row in chunk.items
            )
        elif isinstance(chunk, Reservations):
            state.reservations.update((one.name, one) for one in chunk.items)
        else:
            state.answers.update(chunk.items)
    state.weigh_answers()
    state.take_events()
    return state


def _head(state: ClusterState) -> Head:
    return Head(
        SNAPSHOT_FORMAT,
        state.applied,
        state.next_job_id,
        state.acct_seq,
        state.settings,
        state.time,
        state.command_version,
        state.raised_at,
    )


def digest(state: ClusterState) -> str:
    """Equal for equal states, whatever way they came about."""
    found = hashlib.sha256()
    # `apply` never looks at the time, and a refused operation changes nothing else.
    found.update(_encoder.encode(msgspec.structs.replace(_head(state), time=0.0)))
    tables: list[dict[Any, Any]] = [
        state.jobs,
        state.nodes,
        state.outbox,
        state.step_outbox,
        state.answers,
        state.reservations,
    ]
    for table in tables:
        for key in sorted(table):
            found.update(_encoder.encode(table[key]))
    for partition in state.partitions.values():
        found.update(_encoder.encode(partition))
    return found.hexdigest()

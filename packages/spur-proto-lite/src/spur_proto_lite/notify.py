"""The completion push: one message from a supervisor to `notify.sock`, one answer back.

`accepted` means: the agent has the session in its table and will report it.  It is no acknowledgement;
that comes by `ack` on the control socket once the controller has the completion.
"""

from __future__ import annotations

from spur_core.ids import RuntimeId
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.exits import EpilogRecord, ExitRecord
from spur_proto_lite.record import Record
from spur_proto_lite.versions import NOTIFY_VERSION

ACCEPTED = "accepted"
#: The agent does not know the session yet, or cannot act now: push again later.
DEFERRED = "deferred"
#: Already acknowledged.
KNOWN = "known"
#: The controller has given a verdict on this attempt.
SUPERSEDED = "superseded"
ANSWERS = frozenset({ACCEPTED, DEFERRED, KNOWN, SUPERSEDED})


class Notification(Record):
    """A step has ended.  `seq` is the journal number of its exit; 0 = not durable yet (disk full)."""

    rid: RuntimeId
    v: int = NOTIFY_VERSION
    seq: int
    exit: ExitRecord
    epilog: EpilogRecord | None = None


def encode_answer(answer: str) -> dict[str, object]:
    """The document of an answer."""
    assert answer in ANSWERS, answer
    return {"v": NOTIFY_VERSION, "answer": answer}


def decode_answer(document: dict[str, object]) -> str:
    """The answer in a document.  Words unknown here count as DEFERRED: the push is repeated.

    Raises:
        BadDocument: it holds no answer.
    """
    answer = document.get("answer")
    if not isinstance(answer, str):
        raise BadDocument("a notification's answer needs the field answer")
    return answer if answer in ANSWERS else DEFERRED

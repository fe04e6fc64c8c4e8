"""Values out of requests, each refused by name when it is none."""

import asyncio
from collections.abc import Iterable
from typing import Final

from spur_core.errors import GrammarError, NoSuchJob, RequestError
from spur_core.grammar import array, hostlist
from spur_core.ids import RuntimeId
from spur_core.states import JobState
from spur_ctld import bounds
from spur_ctld.state.ops import Target
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

#: Task lists name indices of arrays that may be larger than today's MaxArraySize.
_ANY_INDEX = 4_000_001
#: Targets after which others get to run.
_BREATHE_AFTER: Final = 500


def target(message: pb.JobTarget) -> Target:
    """A job, an array or some of its tasks.

    Raises:
        NoSuchJob: id 0, or a task list that is none.
    """
    if message.job_id == 0:
        raise NoSuchJob("0")
    text = message.array_tasks
    if len(text) > bounds.TEXTS["array"]:
        raise NoSuchJob(f"{message.job_id}_[{text[:32]}...]")
    if text in ("", "*"):
        return Target(message.job_id)
    try:
        return Target(message.job_id, array.parse_array(text, _ANY_INDEX).ranges)
    except GrammarError:
        raise NoSuchJob(f"{message.job_id}_[{text}]") from None


async def patient_target(message: pb.JobTarget, number: int) -> Target:
    """`target` of the entry at `number` of a list; others get to run meanwhile.

    Raises:
        NoSuchJob: as `target`.
    """
    if ":" in message.array_tasks:
        # Only runs with steps can take long to put together.
        return await asyncio.to_thread(target, message)
    if message.array_tasks or number % _BREATHE_AFTER == _BREATHE_AFTER - 1:
        await asyncio.sleep(0)
    return target(message)


def job_states(numbers: Iterable[int], field: str = "states") -> frozenset[JobState]:
    """States by number.

    Raises:
        RequestError: a number that is no state; it names the field.
    """
    found = set()
    for number in set(numbers):
        try:
            found.add(JobState(number))
        except ValueError:
            raise RequestError(f"{field}: {number} is not a job state") from None
    return frozenset(found)


def hosts(texts: Iterable[str]) -> frozenset[str]:
    """The names of several hostlists, together no more than one list may have.

    Raises:
        GrammarError: one is none, or they are too many.
    """
    return frozenset(hostlist.expand(",".join(texts)))


def runtime_id(message: common_pb2.RuntimeId, field: str = "rid") -> RuntimeId:
    """A complete identity.

    Raises:
        RequestError: the job or the attempt is 0, or there is no step.
    """
    if not message.job_id or not message.run_attempt or not message.HasField("step_id"):
        raise RequestError(f"{field}: job, attempt and step must all be given")
    return RuntimeId(message.job_id, message.run_attempt, message.step_id)


def page_token(text: str) -> int:
    """Where a listing goes on.

    Raises:
        RequestError: not a token of ours.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise GrammarError(f"page_token: not one of ours: {text[:32]!r}")
    return int(text)

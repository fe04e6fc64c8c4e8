"""Output and input of steps, for the job's owner: from the supervisor's attach channel to gRPC and back."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, Final

from spur_agent import trust
from spur_agent.gate import CALLER
from spur_agent.link import Attached
from spur_agent.report import exit_message
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.errors import BusyError, NotFound, RequestError, SpurError, Unreachable, WrongState
from spur_core.ids import STEP_BATCH
from spur_proto import agent_pb2 as pb
from spur_proto_lite import control, framing, spool
from spur_proto_lite.client import exit_of
from spur_proto_lite.exits import ExitRecord

log = logging.getLogger(__name__)

_STREAM_NUMBER: Final = {
    pb.OUTPUT_STREAM_STDOUT: framing.DATA_OUT,
    pb.OUTPUT_STREAM_STDERR: framing.DATA_ERR,
}
_STREAM_NAME: Final = {number: name for name, number in _STREAM_NUMBER.items()}
#: After the end was sent a broken client may come back for it within this time.
_LINGER_SECS: Final = 5.0
#: A supervisor's death is followed by its exit from the journal within this time.
_END_SECS: Final = 5.0
_CHUNK: Final = 64 << 10


class Streams:
    """Answers StreamJobOutput and InteractiveSession."""

    def __init__(self, table: SessionTable) -> None:
        self._table = table

    def find(self, rid: Any) -> Session:
        """The step that is meant, if the caller may have it.  Attempt 0 is the present one; no step is the
        job's own (step 0 of a stand-alone srun, else the batch step).

        Raises:
            NotFound: nothing of that job is here.
            AccessDenied: it is another user's.
            BusyError: it is being launched.
        """
        found = [s for s in self._table.of_job(rid.job_id) if s.phase is not Phase.LOST]
        if found:
            # Before anything is told about the job: whose is it?
            trust.require_owner(CALLER.get(), found[0].uid, found[0].user)
        if rid.run_attempt:
            found = [s for s in found if s.rid.run_attempt == rid.run_attempt]
        elif found:
            newest = max(s.rid.run_attempt for s in found)
            found = [s for s in found if s.rid.run_attempt == newest]
        wanted = (rid.step_id,) if rid.HasField("step_id") else (STEP_BATCH, 0)
        found = [s for s in found if s.rid.step_id in wanted]
        if not found:
            raise NotFound(f"no such step of job {rid.job_id} on this node")
        session = found[0]
        trust.require_owner(CALLER.get(), session.uid, session.user)
        if session.phase is Phase.LAUNCHING:
            raise BusyError(f"{session.rid} is being launched; ask again")
        if not session.claim.spooled:
            where = session.stdout_path or "files"
            raise WrongState(f"the output of {session.rid} goes to {where}")
        return session

    async def output(self, request: pb.StreamJobOutputRequest) -> AsyncIterator[pb.StreamJobOutputResponse]:
        """Everything from the given offsets on, live, then the exit."""
        session = self.find(request.rid)
        async with aclosing(self._follow(session, offsets_of(request.offsets), None)) as parts:
            async for part in parts:
                if isinstance(part, ExitRecord):
                    yield pb.StreamJobOutputResponse(exit=step_exit(part))
                else:
                    yield pb.StreamJobOutputResponse(output=part)

    async def interactive(
        self, requests: AsyncIterator[pb.InteractiveSessionRequest]
    ) -> AsyncIterator[pb.InteractiveSessionResponse]:
        """The same with input, signals and credit from the client, who gives the tasks their input."""
        first = await anext(requests, None)
        if first is None or first.WhichOneof("kind") != "init":
            raise RequestError("the first message must be init")
        session = self.find(first.init.rid)
        pump = _Pump(session, requests)
        try:
            async with aclosing(self._follow(session, offsets_of(first.init.offsets), pump)) as parts:
                async for part in parts:
                    if isinstance(part, ExitRecord):
                        self._taken_soon(session)
                        yield pb.InteractiveSessionResponse(exit=step_exit(part))
                    else:
                        yield pb.InteractiveSessionResponse(output=part)
        finally:
            pump.stop()

    @staticmethod
    def _taken_soon(session: Session) -> None:
        session.end_sent = True
        asyncio.get_running_loop().call_later(_LINGER_SECS, session.output_taken.set)

    async def _follow(
        self, session: Session, offsets: list[list[int]], pump: "_Pump | None"
    ) -> AsyncGenerator[pb.OutputChunk | ExitRecord, None]:
        reached = {(rank, stream): offset for rank, stream, offset in offsets}
        try:
            attached = await session.link.attach(offsets, stdin=pump is not None)
        except (Unreachable, control.Refused) as error:
            log.info("attach_failed step=%s error=%s", session.rid, error)
            attached = None
        if attached is not None:
            try:
                if pump is not None:
                    pump.start(attached)
                async for frame in attached:
                    if frame.kind in _STREAM_NAME:
                        rank, offset, data = framing.decode_data(frame.payload)
                        reached[rank, frame.kind] = offset + len(data)
                        yield chunk(rank, frame.kind, offset, data)
                    elif frame.kind == framing.EXIT:
                        yield exit_of(frame)
                        return
            finally:
                attached.close()
        # The supervisor is gone, or refuses: what it has left on the disk is the rest.
        try:
            async with asyncio.timeout(_END_SECS):
                await session.ended.wait()
        except TimeoutError:
            raise Unreachable(f"the supervisor of {session.rid} does not serve its output") from None
        if session.exit is None:
            raise WrongState(f"the supervisor of {session.rid} was lost")
        for part in await asyncio.to_thread(_spooled, session.paths.dir, reached):
            yield part
        yield session.exit


class _Pump:
    """Carries a client's messages to the step."""

    def __init__(self, session: Session, requests: AsyncIterator[pb.InteractiveSessionRequest]) -> None:
        self._session = session
        self._requests = requests
        self._task: asyncio.Task[None] | None = None

    def start(self, attached: Attached) -> None:
        self._task = asyncio.create_task(self._run(attached))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, attached: Attached) -> None:
        try:
            async for request in self._requests:
                await self._carry(attached, request)
        except SpurError as error:
            log.info("input_ended step=%s error=%s", self._session.rid, error)
        except Exception as error:  # gRPC tells a client's end by exceptions of its own
            log.debug("client_gone step=%s error=%r", self._session.rid, error)

    async def _carry(self, attached: Attached, request: pb.InteractiveSessionRequest) -> None:
        kind = request.WhichOneof("kind")
        if kind == "stdin":
            for at in range(0, len(request.stdin), _CHUNK):
                await attached.send(framing.encode_frame(framing.STDIN, request.stdin[at : at + _CHUNK]))
        elif kind == "stdin_eof":
            await attached.send(framing.encode_frame(framing.STDIN_EOF))
        elif kind == "signal" and 1 <= request.signal <= 64:
            await attached.send(framing.encode_signal(request.signal))
        elif kind == "consumed":
            stream = _STREAM_NUMBER.get(request.consumed.stream)
            if stream is not None:
                await attached.send(
                    framing.encode_credit(stream, request.consumed.rank, request.consumed.offset)
                )


def offsets_of(given: Iterable[pb.StreamOffset]) -> list[list[int]]:
    """The attach request's form.

    Raises:
        RequestError: a stream that does not exist.
    """
    found = []
    for one in given:
        if one.stream not in _STREAM_NUMBER:
            raise RequestError("offsets: name stdout or stderr")
        found.append([one.rank, _STREAM_NUMBER[one.stream], one.offset])
    return found


def chunk(rank: int, stream: int, offset: int, data: bytes) -> pb.OutputChunk:
    """The wire form of a piece of output."""
    return pb.OutputChunk(rank=rank, stream=_STREAM_NAME[stream], offset=offset, data=data)


def step_exit(found: ExitRecord) -> pb.StepExit:
    """The wire form of a step's end."""
    return pb.StepExit(
        exit=exit_message(found),
        ranks=[pb.RankExit(rank=task.rank, exit=exit_message(task)) for task in found.tasks],
    )


def _spooled(session_dir: str, reached: dict[tuple[int, int], int]) -> list[pb.OutputChunk]:
    """What the spools of a dead supervisor hold beyond what was sent."""
    found = []
    for stream, rank in sorted({(s.stream, s.rank) for s in spool.segments(session_dir)}):
        at = reached.get((rank, stream), 0)
        while True:
            start, data = spool.read_from(session_dir, stream, rank, at)
            if not data:
                break
            found.append(chunk(rank, stream, start, data))
            at = start + len(data)
    return found

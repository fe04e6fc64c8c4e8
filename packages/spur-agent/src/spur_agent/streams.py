"""Output and input of steps, for the job's owner: from the supervisor's I/O channel to gRPC and back."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Final, NamedTuple

from spur_agent import pick
from spur_agent.client_input import STREAM_NUMBER, Input
from spur_agent.gate import CALLER
from spur_agent.link import ONLY_OUTPUT, OWNER, WATCHER, Attached
from spur_agent.report import exit_message
from spur_agent.sessions import Phase, Session, SessionTable, mark_output_sent
from spur_core.errors import BusyError, RequestError, Unreachable, WrongState
from spur_core.ids import RuntimeId
from spur_proto import agent_pb2 as pb
from spur_proto_lite import control, framing, spool
from spur_proto_lite.control import AttachArgs, ExecArgs
from spur_proto_lite.exits import ExitRecord, TaskExit, exit_of

log = logging.getLogger(__name__)

_STREAM_NAME: Final = {number: name for name, number in STREAM_NUMBER.items()}
#: After the end was sent a broken client may come back for it within this time.
_LINGER_SECS: Final = 5.0
#: A client has to say what it wants within this time.
_FIRST_SECS: Final = 30.0
#: Sessions that one user may have open here; each holds a descriptor of the agent's.
MOST_OF_ONE: Final = 1024
#: Bytes of a dead supervisor's spools that are in memory at a time, for each client.
_PIECE: Final = 256 << 10
#: A supervisor's death is followed by its exit from the journal within this time.
_END_SECS: Final = 5.0


class Accepted(NamedTuple):
    """The step has the input before `offset`."""

    offset: int


class Ready(NamedTuple):
    """The client has joined, or has become or ceased to be the giver of input."""

    stdin_offset: int
    writer: bool
    pty: bool


#: What comes of a step.
Part = pb.OutputChunk | ExitRecord | TaskExit | Accepted | Ready


class Streams:
    """Answers StreamJobOutput and InteractiveSession."""

    def __init__(self, table: SessionTable) -> None:
        self._table = table
        self._open: set[Attached] = set()
        #: The place of each step's own client; one that comes later takes it.
        self._owners: dict[RuntimeId, object] = {}
        #: User -> sessions that are open.
        self._count: Counter[str] = Counter()
        self._stopping = False

    def stop(self) -> None:
        """End every stream: its client is to come back to the next agent."""
        self._stopping = True
        for attached in list(self._open):
            attached.close()

    async def output(self, request: pb.StreamJobOutputRequest) -> AsyncIterator[pb.StreamJobOutputResponse]:
        """Everything from the given offsets on, live, then the exit."""
        session = pick.find_output(self._table, request.rid)
        source = self._follow(
            session, AttachArgs(mode=ONLY_OUTPUT, offsets=offsets_of(request.offsets)), None
        )
        with self._seat():
            async with aclosing(source) as parts:
                async for part in parts:
                    if isinstance(part, ExitRecord):
                        yield pb.StreamJobOutputResponse(exit=step_exit(part))
                    elif isinstance(part, pb.OutputChunk):
                        yield pb.StreamJobOutputResponse(output=part)

    async def interactive(
        self, requests: AsyncIterator[pb.InteractiveSessionRequest]
    ) -> AsyncIterator[pb.InteractiveSessionResponse]:
        """Joining a step with input, signals and credit, or running a command inside it."""
        with self._seat():
            async with aclosing(self._session(requests)) as responses:
                async for response in responses:
                    yield response

    @contextmanager
    def _seat(self) -> Iterator[None]:
        """One of the places that the caller may have.

        Raises:
            WrongState: there is none left.
        """
        user = CALLER.get().name
        if self._count[user] >= MOST_OF_ONE:
            raise WrongState(f"{MOST_OF_ONE} sessions of user {user} are open on this node already")
        self._count[user] += 1
        try:
            yield
        finally:
            self._count[user] -= 1
            if not self._count[user]:
                del self._count[user]

    async def _session(
        self, requests: AsyncIterator[pb.InteractiveSessionRequest]
    ) -> AsyncGenerator[pb.InteractiveSessionResponse, None]:
        try:
            async with asyncio.timeout(_FIRST_SECS):
                first = await anext(requests, None)
        except TimeoutError:
            raise RequestError(f"nothing was said within {_FIRST_SECS:g} seconds") from None
        if first is None or first.WhichOneof("kind") != "init":
            raise RequestError("the first message must be init")
        init = first.init
        owner = init.mode in (pb.SESSION_MODE_UNSPECIFIED, pb.SESSION_MODE_OWNER)
        said: asyncio.Queue[Accepted] = asyncio.Queue()
        if init.mode == pb.SESSION_MODE_EXEC:
            session = pick.find_place(self._table, init.rid)
            source = self._execute(
                session, exec_of(init), Input(session.rid, requests, False, lambda _at: None)
            )
        elif owner or init.mode == pb.SESSION_MODE_WATCHER:
            session = pick.find_output(self._table, init.rid)
            carried = Input(session.rid, requests, owner, lambda at: said.put_nowait(Accepted(at)))
            source = self._follow(session, attach_of(init, owner), carried)
        else:
            raise RequestError(f"mode: there is no mode {init.mode}")
        async with aclosing(_merged(source, said)) as parts:
            async for part in parts:
                if isinstance(part, ExitRecord) and owner:
                    await self._taken_soon(session)
                yield _response(part)

    @staticmethod
    async def _taken_soon(session: Session) -> None:
        session.end_sent = True
        await asyncio.to_thread(mark_output_sent, session)
        asyncio.get_running_loop().call_later(_LINGER_SECS, session.output_taken.set)

    async def _follow(
        self, session: Session, how: AttachArgs, carried: Input | None
    ) -> AsyncGenerator[Part, None]:
        """Everything of a step from the offsets on, to its exit.

        Raises:
            WrongState: another client came as the step's own.
        """
        reached = {(rank, stream): offset for rank, stream, offset in how.offsets}
        place = object()
        if how.mode == OWNER:
            self._owners[session.rid] = place
        try:
            async with aclosing(self._live(session, how, carried, reached)) as parts:
                async for part in parts:
                    yield part
                    if isinstance(part, ExitRecord):
                        return
            if how.mode == OWNER and self._owners.get(session.rid) is not place:
                raise WrongState(f"another client has taken the place of {session.rid}'s own")
            # The supervisor is gone, or refuses: what it has left on the disk is the rest.
            await self._ended(session)
            assert session.exit is not None
            async with aclosing(spooled(session.paths.dir, reached)) as chunks:
                async for chunk in chunks:
                    yield chunk
            yield session.exit
        finally:
            if self._owners.get(session.rid) is place:
                del self._owners[session.rid]

    async def _live(
        self, session: Session, how: AttachArgs, carried: Input | None, reached: dict[tuple[int, int], int]
    ) -> AsyncGenerator[Part, None]:
        """What the supervisor serves, as long as it does."""
        attached = await self._attached(session, how)
        if attached is None:
            if carried is not None:
                yield Ready(how.stdin_offset, False, False)
            return
        if carried is not None:
            yield _ready(attached, Ready(how.stdin_offset, how.mode == OWNER, False))
        async with aclosing(self._frames(attached, carried, reached)) as parts:
            async for part in parts:
                yield part

    async def _attached(self, session: Session, how: AttachArgs) -> Attached | None:
        """The I/O channel; None when the supervisor does not serve it any more."""
        self._require_open()
        try:
            return await session.link.attach(how)
        except control.Refused as error:
            if session.phase is Phase.LIVE:
                raise WrongState(error.text) from None
            log.info("attach_refused step=%s error=%s", session.rid, error)
        except Unreachable as error:
            log.info("attach_failed step=%s error=%s", session.rid, error)
        return None

    async def _execute(self, session: Session, what: ExecArgs, carried: Input) -> AsyncGenerator[Part, None]:
        """A command inside a step; it ends with the connection."""
        self._require_open()
        try:
            attached = await session.link.execute(what)
        except control.Refused as error:
            raise WrongState(error.text) from None
        yield _ready(attached, Ready(0, True, what.pty))
        async with aclosing(self._frames(attached, carried, {})) as parts:
            async for part in parts:
                yield part
                if isinstance(part, ExitRecord):
                    return
        raise Unreachable(f"{session.rid}: the command was cut off")

    async def _frames(
        self, attached: Attached, carried: Input | None, reached: dict[tuple[int, int], int]
    ) -> AsyncGenerator[Part, None]:
        """What the supervisor sends, to the end of the connection; `reached` is kept up.

        Raises:
            BusyError: the agent stops.
        """
        self._open.add(attached)
        try:
            if carried is not None:
                carried.start(attached)
            async for frame in attached:
                if frame.kind in _STREAM_NAME:
                    rank, offset, data = framing.decode_data(frame.payload)
                    reached[rank, frame.kind] = offset + len(data)
                    yield chunk_of(rank, frame.kind, offset, data)
                elif frame.kind == framing.CREDIT:
                    yield Accepted(framing.decode_credit(frame.payload).offset)
                elif frame.kind == framing.WRITER:
                    writer, offset = framing.decode_writer(frame.payload)
                    yield Ready(offset, writer, attached.answer.get("pty") is True)
                elif frame.kind == framing.TASK_EXIT:
                    yield TaskExit.from_json(framing.decode_body(frame.payload))
                elif frame.kind == framing.EXIT:
                    yield exit_of(frame)
                    return
            self._require_open()
        finally:
            self._open.discard(attached)
            if carried is not None:
                carried.stop()
            attached.close()

    def _require_open(self) -> None:
        if self._stopping:
            raise BusyError("the node agent restarts: call again")

    async def _ended(self, session: Session) -> None:
        try:
            async with asyncio.timeout(_END_SECS):
                await session.ended.wait()
        except TimeoutError:
            raise Unreachable(f"the supervisor of {session.rid} does not serve its output") from None
        if session.exit is None:
            raise pick.StepLost(f"the supervisor of {session.rid} was lost")


async def _merged(
    source: AsyncGenerator[Part, None], said: "asyncio.Queue[Accepted]"
) -> AsyncGenerator[Part, None]:
    """What comes of the step, and what is said about the input on the way to it.

    The first of `source` comes first, and nothing after its end.
    """
    async with aclosing(source):
        yield await anext(source)
        coming: asyncio.Future[Part | None] = asyncio.ensure_future(_next(source))
        saying: asyncio.Future[Accepted] = asyncio.ensure_future(said.get())
        try:
            while True:
                await asyncio.wait((coming, saying), return_when=asyncio.FIRST_COMPLETED)
                if saying.done():
                    yield saying.result()
                    saying = asyncio.ensure_future(said.get())
                if coming.done():
                    part = coming.result()
                    if part is None:
                        return
                    yield part
                    coming = asyncio.ensure_future(_next(source))
        finally:
            for waiting in (coming, saying):
                waiting.cancel()
            await asyncio.gather(coming, saying, return_exceptions=True)


async def _next(source: AsyncGenerator[Part, None]) -> Part | None:
    return await anext(source, None)


def _ready(attached: Attached, fallback: Ready) -> Ready:
    """What the supervisor's answer says of the client's part; a release before says nothing."""
    said = attached.answer
    offset, writer, pty = (said.get(name) for name in ("stdin_offset", "writer", "pty"))
    return Ready(
        offset if isinstance(offset, int) else fallback.stdin_offset,
        writer if isinstance(writer, bool) else fallback.writer,
        pty if isinstance(pty, bool) else fallback.pty,
    )


def _response(part: Part) -> pb.InteractiveSessionResponse:
    if isinstance(part, ExitRecord):
        return pb.InteractiveSessionResponse(exit=step_exit(part))
    if isinstance(part, TaskExit):
        return pb.InteractiveSessionResponse(task_exit=rank_exit(part))
    if isinstance(part, Accepted):
        return pb.InteractiveSessionResponse(stdin_accepted=part.offset)
    if isinstance(part, Ready):
        return pb.InteractiveSessionResponse(
            ready=pb.SessionReady(stdin_offset=part.stdin_offset, writer=part.writer, pty=part.pty)
        )
    return pb.InteractiveSessionResponse(output=part)


def attach_of(init: pb.SessionInit, owner: bool) -> AttachArgs:
    """What a client that joins a step wants.

    Raises:
        RequestError: something in it does not exist.
    """
    return AttachArgs(
        mode=OWNER if owner else WATCHER,
        offsets=offsets_of(init.offsets),
        want_input=owner or init.want_input,
        rows=init.window.rows,
        cols=init.window.cols,
    )


def exec_of(init: pb.SessionInit) -> ExecArgs:
    """The command that a client wants to run inside a step.

    Raises:
        RequestError: there is none, or its environment is malformed.
    """
    if not init.argv or not init.argv[0]:
        raise RequestError("argv: a command is needed")
    env = {}
    for entry in init.environment:
        name, equals, value = entry.partition(b"=")
        if not name or not equals:
            raise RequestError("environment: write NAME=value")
        env[_text(name)] = _text(value)
    argv = [_text(word) for word in init.argv]
    if any("\0" in word for word in (*argv, *env, *env.values(), init.work_dir)):
        raise RequestError("argv and environment may hold no zero byte")
    return ExecArgs(
        argv=tuple(argv),
        env=env,
        pty=init.pty,
        rows=init.window.rows,
        cols=init.window.cols,
        work_dir=init.work_dir,
    )


def _text(data: bytes) -> str:
    """Bytes of the user's as Python keeps them in texts."""
    return data.decode("utf-8", "surrogateescape")


def offsets_of(given: Iterable[pb.StreamOffset]) -> tuple[tuple[int, ...], ...]:
    """The attach request's form.

    Raises:
        RequestError: a stream that does not exist.
    """
    found = []
    for one in given:
        if one.stream not in STREAM_NUMBER:
            raise RequestError("offsets: name stdout or stderr")
        found.append((one.rank, STREAM_NUMBER[one.stream], one.offset))
    return tuple(found)


def chunk_of(rank: int, stream: int, offset: int, data: bytes) -> pb.OutputChunk:
    """The wire form of a piece of output."""
    return pb.OutputChunk(rank=rank, stream=_STREAM_NAME[stream], offset=offset, data=data)


def step_exit(found: ExitRecord) -> pb.StepExit:
    """The wire form of a step's end."""
    return pb.StepExit(
        exit=exit_message(found),
        ranks=[rank_exit(task) for task in found.tasks],
    )


def rank_exit(found: TaskExit) -> pb.RankExit:
    """The wire form of one task's end."""
    return pb.RankExit(rank=found.rank, exit=exit_message(found))


async def spooled(
    session_dir: str, reached: dict[tuple[int, int], int]
) -> AsyncGenerator[pb.OutputChunk, None]:
    """What the spools of a dead supervisor hold beyond what was sent, piece by piece.

    Args:
        reached: (rank, stream) -> offset after the last byte that was sent.
    """
    segments = await asyncio.to_thread(spool.segments, session_dir)
    for stream, rank in sorted({(one.stream, one.rank) for one in segments}):
        at = reached.get((rank, stream), 0)
        while True:
            start, data = await asyncio.to_thread(spool.read_from, session_dir, stream, rank, at, _PIECE)
            if not data:
                break
            yield chunk_of(rank, stream, start, data)
            at = start + len(data)

"""What a client of a session sends, carried to the step as frames."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from spur_agent.link import Attached
from spur_core.errors import SpurError
from spur_core.ids import RuntimeId
from spur_proto import agent_pb2 as pb
from spur_proto_lite import framing

log = logging.getLogger(__name__)

STREAM_NUMBER: Final = {
    pb.OUTPUT_STREAM_STDOUT: framing.DATA_OUT,
    pb.OUTPUT_STREAM_STDERR: framing.DATA_ERR,
}
_CHUNK: Final = 64 << 10
_LAST_SIGNAL: Final = 64
#: Rows or columns of a terminal.
_LARGEST: Final = (1 << 16) - 1


def input_frame(version: int, offset: int, data: bytes) -> bytes:
    """Input of a step; from version 2 on it says where in the stream it belongs."""
    if version < 2:
        return framing.encode_frame(framing.STDIN, data)
    return framing.encode_stdin(offset, data)


def end_frame(version: int, offset: int) -> bytes:
    """The end of the input."""
    return framing.encode_frame(framing.STDIN_EOF) if version < 2 else framing.encode_stdin_eof(offset)


class Input:
    """One client's messages on their way to the step.

    Args:
        credits: its reading lets the supervisor drop output (the step's own client).
        accepted: told how far the input is the step's; with a supervisor of version 1, which never says so,
            as soon as it has been sent.
    """

    def __init__(
        self,
        rid: RuntimeId,
        requests: AsyncIterator[pb.InteractiveSessionRequest],
        credits: bool,
        accepted: Callable[[int], None],
    ) -> None:
        self._rid = rid
        self._requests = requests
        self._credits = credits
        self._accepted = accepted
        self._task: asyncio.Task[None] | None = None

    def start(self, attached: Attached) -> None:
        """Begin to carry."""
        self._task = asyncio.create_task(self._run(attached))

    def stop(self) -> None:
        """No more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, attached: Attached) -> None:
        try:
            async for request in self._requests:
                await self._carry(attached, request)
        except SpurError as error:
            log.info("input_ended step=%s error=%s", self._rid, error)
        except Exception as error:  # gRPC tells a client's end by exceptions of its own
            log.debug("client_gone step=%s error=%r", self._rid, error)

    async def _carry(self, attached: Attached, request: pb.InteractiveSessionRequest) -> None:
        kind = request.WhichOneof("kind")
        if kind == "stdin":
            await self._carry_input(attached, request.stdin_offset, request.stdin)
        elif kind == "stdin_eof":
            await attached.send(end_frame(attached.version, request.stdin_offset))
        elif kind == "signal" and 1 <= request.signal <= _LAST_SIGNAL:
            await attached.send(framing.encode_signal(request.signal))
        elif kind == "resize" and attached.version >= 2:
            size = (min(number, _LARGEST) for number in (request.resize.rows, request.resize.cols))
            await attached.send(framing.encode_resize(*size))
        elif kind == "consumed" and self._credits:
            stream = STREAM_NUMBER.get(request.consumed.stream)
            if stream is not None:
                await attached.send(
                    framing.encode_credit(stream, request.consumed.rank, request.consumed.offset)
                )

    async def _carry_input(self, attached: Attached, offset: int, data: bytes) -> None:
        for at in range(0, len(data), _CHUNK):
            part = data[at : at + _CHUNK]
            await attached.send(input_frame(attached.version, offset + at, part))
            if attached.version < 2:
                self._accepted(offset + at + len(part))

"""One node's part of a step: a thread that keeps a session with its agent, through restarts of the agent.

The thread only puts events into the main queue; everything is decided by the main thread.
"""

import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from spur_cli.cli_errors import CallFailed
from spur_cli.transport import Transport

if TYPE_CHECKING:
    from spur_proto import agent_pb2

#: How long an agent may be away, seconds.
RECONNECT_SECS = 300.0
FIRST_PAUSE, LAST_PAUSE = 0.05, 2.0
#: Tell the agent what has been delivered after so many bytes.
CREDIT_BYTES = 256 << 10
#: Answers that another try does not change.
_FINAL = ("PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED")

#: Kinds of events: (kind, node, payload).
OUTPUT, EXIT, FAILED = "output", "exit", "failed"
Event = tuple[str, str, Any]


class NodeSession:
    """The session with one node.

    Args:
        rid: (job id, run attempt, step id).
        address: where the agent is reached; may be changed while the thread runs.
        events: OUTPUT with an OutputChunk, EXIT with a StepExit, FAILED with a CallFailed.
    """

    def __init__(
        self,
        transport: Transport,
        node: str,
        address: str,
        rid: tuple[int, int, int],
        events: "SimpleQueue[Event]",
    ) -> None:
        self.node = node
        self.address = address
        self.done = False
        self._transport = transport
        self._rid = rid
        self._events = events
        self._offsets: dict[tuple[int, int], int] = {}
        self._uncredited = 0
        self._requests: SimpleQueue[agent_pb2.InteractiveSessionRequest | None] = SimpleQueue()
        self._stdin_ended = False
        self._thread = threading.Thread(target=self._run, name=f"session-{node}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def send_stdin(self, data: bytes) -> None:
        """Bytes for the tasks of this node; none = the end."""
        from spur_proto import agent_pb2 as pb

        if data:
            self._requests.put(pb.InteractiveSessionRequest(stdin=data))
        else:
            self._stdin_ended = True
            self._requests.put(pb.InteractiveSessionRequest(stdin_eof=True))

    def send_signal(self, number: int) -> None:
        """A signal for the tasks of this node."""
        from spur_proto import agent_pb2 as pb

        self._requests.put(pb.InteractiveSessionRequest(signal=number))

    def delivered(self, rank: int, stream: int, offset: int, size: int, *, flush: bool = False) -> None:
        """The main thread has written the bytes before `offset`."""
        from spur_proto import agent_pb2 as pb

        self._uncredited += size
        if self._uncredited >= CREDIT_BYTES or flush:
            self._uncredited = 0
            mark = pb.StreamOffset(rank=rank, stream=stream, offset=offset)  # type: ignore[arg-type]
            self._requests.put(pb.InteractiveSessionRequest(consumed=mark))

    def _run(self) -> None:
        pause = FIRST_PAUSE
        last_contact = time.monotonic()
        while True:
            try:
                for part in self._open():
                    last_contact, pause = time.monotonic(), FIRST_PAUSE
                    if self._take(part):
                        return
                failure = CallFailed("UNAVAILABLE", "", f"the session with {self.node} ended early")
            except CallFailed as error:
                failure = error
            except Exception as error:  # whatever it is, the main thread must not wait for ever
                self._events.put((FAILED, self.node, CallFailed("UNKNOWN", "", f"{error}")))
                return
            if failure.status in _FINAL or time.monotonic() - last_contact > RECONNECT_SECS:
                self._events.put((FAILED, self.node, failure))
                return
            time.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    def _open(self) -> "Iterator[agent_pb2.InteractiveSessionResponse]":
        from spur_proto import agent_pb2 as pb

        # Requests of a broken session that were not sent yet go into the new one.
        waiting, self._requests = self._requests, SimpleQueue()
        init = pb.SessionInit(
            offsets=[
                pb.StreamOffset(rank=rank, stream=stream, offset=offset)  # type: ignore[arg-type]
                for (rank, stream), offset in self._offsets.items()
            ]
        )
        job_id, attempt, step_id = self._rid
        init.rid.job_id, init.rid.run_attempt, init.rid.step_id = job_id, attempt, step_id
        self._requests.put(pb.InteractiveSessionRequest(init=init))
        ended = False
        while not waiting.empty():
            request = waiting.get()
            if request is not None and request.WhichOneof("kind") != "init":
                ended = ended or request.stdin_eof
                self._requests.put(request)
        if self._stdin_ended and not ended:
            self._requests.put(pb.InteractiveSessionRequest(stdin_eof=True))
        queue = self._requests
        parts = self._transport.session(
            self.address,
            "InteractiveSession",
            iter(queue.get, None),
            pb.InteractiveSessionRequest,
            pb.InteractiveSessionResponse,
        )
        try:
            yield from parts
        finally:
            queue.put(None)
            parts.cancel()

    def _take(self, part: "agent_pb2.InteractiveSessionResponse") -> bool:
        """Hand on one part; whether it was the last."""
        if part.WhichOneof("kind") == "exit":
            self._events.put((EXIT, self.node, part.exit))
            return True
        chunk = part.output
        key = (chunk.rank, int(chunk.stream))
        have = self._offsets.get(key, 0)
        end = chunk.offset + len(chunk.data)
        if end > have:
            # After a reconnection the beginning may have been seen already.
            data = chunk.data[max(0, have - chunk.offset) :]
            self._offsets[key] = end
            self._events.put((OUTPUT, self.node, (chunk.rank, int(chunk.stream), end, data)))
        return False

"""A step's I/O between its tasks, the spools and attached clients."""

from __future__ import annotations

import json
import os
import select
from functools import partial

from spur_core.errors import SpurError
from spur_proto_lite import framing
from spur_stepd.log import say
from spur_stepd.loop import READ, WRITE
from spur_stepd.server import HIGH_WATER, Connection
from spur_stepd.spools import Input, Spool

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_proto_lite.exits import ExitRecord
    from spur_proto_lite.launch_spec import LaunchSpec
    from spur_stepd.loop import Loop
    from spur_stepd.privileges import Privileges

_CHUNK = 1 << 15
#: Bytes of input that may wait for the slowest task before its giver has to.
_INPUT_HIGH_WATER = 1 << 20


class Attachments:
    """Spools, the common input, and who is attached."""

    def __init__(self, loop: Loop, directory: int, spec: LaunchSpec, privileges: Privileges) -> None:
        self._loop = loop
        self._directory = directory
        self._spec = spec
        self._privileges = privileges
        self._spools: dict[tuple[int, int], Spool] = {}
        self._input = Input()
        self._attached: list[Connection] = []
        self._exit: ExitRecord | None = None
        self._input_holder: Connection | None = None
        #: Send a signal to the step; set by the supervisor.
        self.on_signal: Callable[[int], object] = lambda _number: None

    # -- set up ------------------------------------------------------------------------------------

    def add_output(self, rank: int, stream: int) -> int:
        """Write end of a new spooled stream."""
        read, write = os.pipe2(os.O_CLOEXEC)
        limit = self._spec.spool_limit
        self._spools[rank, stream] = Spool(self._directory, stream, rank, read, limit, self._privileges)
        return write

    def add_input(self) -> int:
        """Read end of a new task's input."""
        read, write = os.pipe2(os.O_CLOEXEC)
        self._input.add(write)
        return read

    def begin(self) -> None:
        """The tasks run: take what they write."""
        for spool in self._spools.values():
            self._loop.watch(spool.pipe, READ, partial(self._on_output, spool))
        self._input.begin()
        for pipe in self._input.pipes:
            self._loop.watch(pipe, WRITE, partial(self._on_input_room, pipe))
            self._loop.change(pipe, 0)
        self._flush_input()

    def abort(self) -> None:
        """The start has failed: close everything."""
        for spool in self._spools.values():
            spool.give_up()
        self._spools.clear()
        self._input.close()

    # -- tasks -------------------------------------------------------------------------------------

    def _on_output(self, spool: Spool, _events: int) -> None:
        self._pump(spool)
        self._feed_all()

    def _pump(self, spool: Spool) -> bool:
        """Take what is there; whether it was anything."""
        pipe = spool.pipe
        try:
            changed = spool.pump()
        except OSError as error:
            # The disk is full: the task waits.  Tried again when somebody has taken something.
            say("spool_failed", rank=spool.rank, error=error)
            self._loop.forget(pipe)
            return False
        if spool.at_eof or spool.is_full:
            self._loop.forget(pipe)
            self._regulate()
        return changed

    def write_error(self, rank: int, stderr: int, line: bytes) -> None:
        """Put the supervisor's own words where the task's errors go."""
        spool = self._spools.get((rank, framing.DATA_ERR))
        try:
            if spool is not None:
                spool.append(line)
                self._feed_all()
            elif stderr >= 0:
                poller = select.poll()
                poller.register(stderr, WRITE)
                if poller.poll(0):
                    os.write(stderr, line)
        except OSError as error:
            say("words_lost", error=error, line=line.decode("utf-8", "replace").strip())

    def _on_input_room(self, pipe: int, _events: int) -> None:
        if pipe not in self._input.pipes:
            self._loop.forget(pipe)
            return
        self._flush_pipe(pipe)
        self._regulate()

    def _flush_pipe(self, pipe: int) -> None:
        waiting = self._input.pipes[pipe]
        self._loop.forget(pipe)
        if self._input.flush(pipe):
            self._loop.watch(pipe, WRITE, partial(self._on_input_room, pipe))
            if not waiting:
                self._loop.change(pipe, 0)

    def _flush_input(self) -> None:
        for pipe in list(self._input.pipes):
            self._flush_pipe(pipe)
        self._regulate()

    def _regulate(self) -> None:
        """Let the giver of input wait for slow tasks.  Not while a spool is full: the credit that its task
        needs may be on its way behind the input."""
        holder = self._input_holder
        if holder is not None and holder.is_open:
            full = any(spool.is_full for spool in self._spools.values())
            holder.set_reading(full or self._input.waiting < _INPUT_HIGH_WATER)

    # -- clients -----------------------------------------------------------------------------------

    def attach(self, connection: Connection, offsets: dict[tuple[int, int], int], stdin: bool) -> str:
        """Let a connection join.  Its answer has been queued already.

        Returns:
            "" or why it cannot.
        """
        if not self._spec.spool_output:
            return "the output of this step goes to files"
        if stdin:
            if self._input_holder is not None:
                return "another client gives this step its input"
            self._input_holder = connection
        connection.offsets = {
            (task.rank, stream): offsets.get((task.rank, stream), 0)
            for task in self._spec.task_list()
            for stream in (framing.DATA_OUT, framing.DATA_ERR)
        }
        self._attached.append(connection)
        return ""

    def detach(self, connection: Connection) -> None:
        """A connection is gone."""
        if connection in self._attached:
            self._attached.remove(connection)
        if self._input_holder is connection:
            self._input_holder = None

    def on_frame(self, connection: Connection, frame: framing.Frame) -> None:
        """A frame from a client.

        Raises:
            BadDocument: malformed; the connection is closed for it.
        """
        if frame.kind == framing.STDIN and connection is self._input_holder:
            if not self._input.feed(frame.payload):
                say("input_without_end", waiting=self._input.waiting)
                connection.close()
                return
            self._flush_input()
        elif frame.kind == framing.STDIN_EOF and connection is self._input_holder:
            self._input.at_eof = True
            self._flush_input()
        elif frame.kind == framing.SIGNAL:
            try:
                self.on_signal(framing.decode_signal(frame.payload))
            except SpurError as error:
                say("signal_refused", error=error)
        elif frame.kind == framing.CREDIT:
            credit = framing.decode_credit(frame.payload)
            spool = self._spools.get((credit.rank, credit.stream))
            if spool is not None:
                spool.credit(credit.offset)
                if not spool.at_eof and not spool.is_full:
                    self._loop.forget(spool.pipe)
                    self._loop.watch(spool.pipe, READ, partial(self._on_output, spool))
                self._finish_spools()
                self._regulate()

    def on_room(self, connection: Connection) -> None:
        """A client takes more."""
        if connection in self._attached:
            self._feed(connection)

    def _feed_all(self) -> None:
        for connection in list(self._attached):
            if connection.waiting < HIGH_WATER // 2:
                self._feed(connection)

    def _feed(self, connection: Connection) -> None:
        """Queue what this client has not had, up to the mark; at the very end the exit."""
        parts = []
        room = HIGH_WATER - connection.waiting
        at_end = True
        for key, offset in list(connection.offsets.items()):
            spool = self._spools.get(key)
            while spool is not None and room > 0:
                start, data = spool.read(offset, _CHUNK)
                if not data:
                    break
                parts.append(framing.encode_data(spool.stream, spool.rank, start, data))
                offset = start + len(data)
                room -= len(data)
            connection.offsets[key] = offset
            if spool is not None and (offset < spool.end or not spool.at_eof):
                at_end = False
        over = at_end and self._exit is not None
        if over:
            assert self._exit is not None
            payload = json.dumps(self._exit.to_json(), separators=(",", ":")).encode()
            parts.append(framing.encode_frame(framing.EXIT, payload))
            self._attached.remove(connection)
        if parts:
            connection.put(b"".join(parts))
        if over:
            connection.finish()

    # -- the end -----------------------------------------------------------------------------------

    def finish(self, record: ExitRecord) -> None:
        """No process of the step is left: whatever still holds a pipe open is none of ours."""
        self._exit = record
        for pipe in list(self._input.pipes):
            self._loop.forget(pipe)
        self._input.close()
        self._finish_spools()

    def _finish_spools(self) -> None:
        """Take the last bytes of every stream; a full one waits for its credit."""
        if self._exit is not None:
            for spool in self._spools.values():
                while self._pump(spool):
                    pass
                if not spool.at_eof and not spool.is_full:
                    self._loop.forget(spool.pipe)
                    spool.give_up()
        self._feed_all()

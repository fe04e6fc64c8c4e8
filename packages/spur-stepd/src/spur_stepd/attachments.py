"""A step's I/O between its tasks, the spools and attached clients.

The owner's credit decides what is kept.  A watcher holds nothing up: what it has not taken in time it gets
no more, and sees so from the offset of what comes next.
"""

from __future__ import annotations

import os
import select
import time

from spur_core.errors import SpurError
from spur_core.lean import partial, signal
from spur_proto_lite import control, framing, jsontext
from spur_proto_lite.errors import BadDocument
from spur_stepd.inflow import Inflow
from spur_stepd.inlet import Inlet
from spur_stepd.log import say
from spur_stepd.loop import READ, WRITE
from spur_stepd.seats import LISTENER, Client, Seats
from spur_stepd.server import HIGH_WATER, Connection
from spur_stepd.spools import Spool
from spur_stepd.terminal import EndTeller, Terminal
from spur_stepd.terminal_rules import HANG_UP, Detachment

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_proto_lite.exits import ExitRecord, TaskExit
    from spur_proto_lite.launch_spec import LaunchSpec
    from spur_stepd.loop import Loop
    from spur_stepd.privileges import Privileges
    from spur_stepd.timers import Timers

_CHUNK = 1 << 15
#: Seconds after which a full disk is tried again.
_DISK_PAUSE = 1.0
_STREAMS = (framing.DATA_OUT, framing.DATA_ERR)
#: Clients of a step beside its owner.  Each holds a descriptor and up to a quarter of a MiB.
MOST_WATCHERS = 64


class Attachments:
    """Spools, the common input, the terminal if there is one, and who is attached."""

    def __init__(
        self, loop: Loop, directory: int, spec: LaunchSpec, privileges: Privileges, timers: Timers
    ) -> None:
        self._loop = loop
        self._directory = directory
        self._spec = spec
        self._privileges = privileges
        self._timers = timers
        self._spools: dict[tuple[int, int], Spool] = {}
        self._inlet = Inlet(loop, self._on_input_moved)
        #: What was taken from owners, and from watchers.
        self._owned, self._watched = Inflow(), Inflow()
        self._seats = Seats()
        self._window = (spec.pty_rows, spec.pty_cols)
        self._exit: ExitRecord | None = None
        #: Frames that tell the ends of single tasks, in their order.
        self._task_ends: list[bytes] = []
        self.terminal: Terminal | None = None
        self._detachment = Detachment(spec.pty_detach_grace_secs)
        self._teller: EndTeller | None = None
        self._begun = False
        #: Send a signal on a client's behalf, and end the step; set by the supervisor.
        self.on_signal: Callable[[int], object] = lambda _number: None
        self.on_teardown: Callable[[str], object] = lambda _reason: None

    # -- set up ------------------------------------------------------------------------------------

    def add_output(self, rank: int, stream: int) -> int:
        """Write end of a new spooled stream."""
        read, write = os.pipe2(os.O_CLOEXEC)
        self._add_spool(rank, stream, read)
        return write

    def _add_spool(self, rank: int, stream: int, source: int) -> None:
        limit = self._spec.spool_limit
        self._spools[rank, stream] = Spool(self._directory, stream, rank, source, limit, self._privileges)

    def add_input(self, rank: int) -> int:
        """What becomes the input of a new task: a pipe, or nothing for one that gets none."""
        if self._spec.stdin_rank not in (None, rank):
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        read, write = os.pipe2(os.O_CLOEXEC)
        self._inlet.add(write)
        return read

    def add_terminal(self, rank: int) -> int:
        """A copy of a new terminal's own end, which becomes all three descriptors of its task.

        Raises:
            OSError: none can be had.
        """
        self.terminal = terminal = Terminal(self._privileges, *self._window)
        self._add_spool(rank, framing.DATA_OUT, terminal.output)
        self._teller = EndTeller(terminal, self._timers)
        os.set_blocking(terminal.control, False)
        self._inlet.add(os.dup(terminal.control))
        return os.dup(terminal.slave)

    def begin(self) -> None:
        """The tasks run: take what they write."""
        for spool in self._spools.values():
            self._loop.watch(spool.pipe, READ, partial(self._on_output, spool))
        self._inlet.begin()
        self._begun = True
        self._on_input_moved()
        self._count_clients()

    def abort(self) -> None:
        """The start has failed: close everything."""
        for spool in self._spools.values():
            spool.give_up()
        self._spools.clear()
        self._inlet.close()
        if self.terminal is not None:
            self.terminal.close()
            self.terminal = None

    # -- output ------------------------------------------------------------------------------------

    def _on_output(self, spool: Spool, _events: int) -> None:
        self._pump(spool)
        self._feed_all()

    def _pump(self, spool: Spool) -> bool:
        """Take what is there; whether it was anything."""
        if spool.at_eof and not spool.is_stuck:
            return False
        pipe = spool.pipe
        try:
            changed = spool.pump()
        except OSError as error:
            self._wait_for_disk(spool, error)
            return False
        if spool.at_eof or spool.is_full:
            self._loop.forget(pipe)
            self._regulate()
        return changed

    def _wait_for_disk(self, spool: Spool, error: OSError) -> None:
        """The disk is full: the task waits."""
        say("spool_failed", rank=spool.rank, error=error)
        self._loop.forget(spool.pipe)
        self._timers.at(spool, time.monotonic() + _DISK_PAUSE, lambda _now: self._retry(spool))

    def _retry(self, spool: Spool) -> None:
        """The disk may have room again."""
        if self._pump(spool) and not spool.at_eof and not spool.is_full:
            self._loop.watch(spool.pipe, READ, partial(self._on_output, spool))
        self._finish_spools()

    def write_error(self, rank: int, stderr: int, line: bytes) -> None:
        """Put the supervisor's own words where the task's errors go."""
        spool = self._spools.get((rank, framing.DATA_ERR))
        if self.terminal is not None:
            spool, line = self._spools.get((rank, framing.DATA_OUT)), line.replace(b"\n", b"\r\n")
        try:
            if spool is not None:
                self._say_into(spool, line)
            elif stderr >= 0:
                poller = select.poll()
                poller.register(stderr, WRITE)
                if poller.poll(0):
                    os.write(stderr, line)
        except OSError as error:
            say("words_lost", error=error, line=line.decode("utf-8", "replace").strip())

    def _say_into(self, spool: Spool, line: bytes) -> None:
        try:
            spool.add(line)
        except OSError as error:
            self._wait_for_disk(spool, error)
        self._feed_all()

    def _credit(self, rank: int, stream: int, offset: int) -> None:
        """Everything of that stream before `offset` has been delivered for good."""
        spool = self._spools.get((rank, stream))
        if spool is None:
            return
        spool.credit(offset)
        if not (spool.at_eof or spool.is_full or spool.is_stuck):
            self._loop.forget(spool.pipe)
            self._loop.watch(spool.pipe, READ, partial(self._on_output, spool))
        self._finish_spools()
        self._regulate()

    # -- input -------------------------------------------------------------------------------------

    def _inflow(self, client: Client) -> Inflow:
        return self._owned if client.takes_for_good else self._watched

    def _take_input(self, client: Client, payload: bytes) -> None:
        inflow = self._inflow(client)
        offset, data = framing.decode_stdin(payload) if client.version > 1 else (inflow.offset, payload)
        fresh = inflow.take(offset, data)
        if not fresh:
            return
        if self._teller is not None:
            self._teller.cancel()
        if not self._inlet.feed(fresh):
            say("input_without_end", waiting=self._inlet.waiting)
            client.connection.close()

    def _take_end(self, client: Client, payload: bytes) -> None:
        inflow = self._inflow(client)
        if not inflow.end(framing.decode_stdin_eof(payload) if client.version > 1 else inflow.offset):
            return
        if not client.takes_for_good:
            # The step's own client may come back with more.
            client.wants_input = False
            self._settle()
        elif self._spec.pty:
            self._on_input_moved()
        else:
            self._inlet.end()

    def _on_input_moved(self) -> None:
        if self._teller is not None and self._owned.ended and self._inlet.is_empty and self._begun:
            self._teller.begin()
        self._regulate()
        writer = self._seats.writer
        if writer is not None:
            self._confirm(writer)

    def _confirm(self, client: Client) -> None:
        """Say how far the input has come; not while too much is waiting, so that its giver waits."""
        offset = self._inflow(client).offset
        connection = client.connection
        if client.version > 1 and offset > client.confirmed and self._inlet.is_low and connection.has_room:
            client.confirmed = offset
            connection.put(framing.encode_credit(framing.INPUT, 0, offset))

    def _regulate(self) -> None:
        """Let the giver of input wait for slow tasks.  Not while a spool is full: the credit that its task
        needs may be on its way behind the input."""
        full = any(spool.is_full for spool in self._spools.values())
        for client in self._seats.clients:
            blocked = self._inlet.is_flooded if client.version > 1 else not self._inlet.is_low
            client.connection.set_reading(full or not blocked or client is not self._seats.writer)

    # -- clients -----------------------------------------------------------------------------------

    def refusal(self, mode: str) -> str:
        """Why one more client cannot attach to this step, "" if it can."""
        if self._spec.hold:
            return "this step has no task of its own"
        if not self._spec.spool_output:
            return "the output of this step goes to files"
        if mode != control.OWNER and len(self._seats.clients) >= MOST_WATCHERS:
            return f"{MOST_WATCHERS} clients are attached to this step already"
        return ""

    def listen(self, connection: Connection, offsets: dict[tuple[int, int], int], stdin: bool) -> str:
        """Let a connection of protocol 1 join; `admit` follows, after its answer.

        Returns:
            "" or why it cannot.
        """
        if problem := self.refusal(control.OWNER if stdin else LISTENER):
            return problem
        if stdin and self._seats.writer is not None:
            return "another client gives this step its input"
        mode = control.OWNER if stdin else LISTENER
        self._sit(Client(connection, mode, stdin, 1, self._offsets(offsets, False)))
        return ""

    def join(
        self, connection: Connection, args: control.AttachArgs, offsets: dict[tuple[int, int], int]
    ) -> control.AttachReply:
        """Let a connection join; `admit` follows, after its answer.

        Raises:
            BadDocument: what it asks for does not exist, or it has input no more that was never taken.
        """
        if args.mode not in control.MODES:
            raise BadDocument(f"attach: there is no mode {args.mode!r}")
        owner = args.mode == control.OWNER
        inflow = self._owned if owner else self._watched
        if owner and args.stdin_offset > inflow.offset:
            raise BadDocument(f"attach: the input from {inflow.offset} to {args.stdin_offset} is missing")
        client = Client(
            connection,
            args.mode,
            owner if args.want_input is None else args.want_input,
            2,
            self._offsets(offsets, not owner),
            (args.rows, args.cols),
        )
        client.confirmed = inflow.offset
        self._sit(client)
        if owner:
            # What it has said so over a connection that broke may not have arrived.
            for (rank, stream), offset in offsets.items():
                self._credit(rank, stream, offset)
        return control.AttachReply(
            stdin_offset=inflow.offset, writer=self._seats.writer is client, pty=self._spec.pty
        )

    def _offsets(self, given: dict[tuple[int, int], int], recent: bool) -> dict[tuple[int, int], int]:
        """Where a client begins in each stream; `recent`: not at the beginning of what it does not name."""
        begin = {}
        for task in self._spec.task_list():
            for stream in _STREAMS:
                key = (task.rank, stream)
                spool = self._spools.get(key)
                begin[key] = given.get(key, spool.tail if recent and spool is not None else 0)
        return begin

    def _sit(self, client: Client) -> None:
        former = self._seats.join(client)
        if former is not None:
            say("owner_replaced")
            former.connection.close()
        self._settle(client)
        self._count_clients()

    def admit(self, connection: Connection) -> None:
        """It has its answer: frames from here on."""
        connection.attach(self)
        self.on_room(connection)

    def _settle(self, newcomer: Client | None = None) -> None:
        """Tell those whom it concerns who gives the input; a newcomer is told by its answer."""
        lost, gained = self._seats.settle()
        for client, writer in ((lost, False), (gained, True)):
            if client is None:
                continue
            if writer:
                self._resize(client.window)
            if client is not newcomer and client.version > 1 and client.connection.is_open:
                offset = self._inflow(client).offset
                client.confirmed = offset
                client.connection.put(framing.encode_writer(writer, offset))
        self._regulate()

    def _client(self, connection: Connection) -> Client | None:
        return next((client for client in self._seats.clients if client.connection is connection), None)

    def on_close(self, connection: Connection) -> None:
        """A connection is gone."""
        client = self._client(connection)
        if client is not None:
            self._leave(client)

    def _leave(self, client: Client) -> None:
        self._seats.leave(client)
        self._settle()
        self._count_clients()

    def _count_clients(self) -> None:
        if self.terminal is not None and self._begun:
            self._detachment.clients(len(self._seats.clients), time.monotonic())
            self._plan_hang_up()

    def _plan_hang_up(self) -> None:
        if self._detachment.deadline is None:
            self._timers.cancel("hang_up")
        else:
            self._timers.at("hang_up", self._detachment.deadline, self._on_hang_up)

    def _on_hang_up(self, now: float) -> None:
        what = self._detachment.tick(now)
        if what:
            say("terminal_left", doing=what)
        if what == HANG_UP:
            self._signal(signal.SIGHUP)
        elif what:
            self.on_teardown("detached")
        self._plan_hang_up()

    def _signal(self, number: int) -> None:
        try:
            self.on_signal(number)
        except SpurError as error:
            say("signal_refused", error=error)

    def _resize(self, window: tuple[int, int]) -> None:
        if min(window) > 0:
            self._window = window
            if self.terminal is not None and self.terminal.slave >= 0:
                self.terminal.resize(*window)

    def on_frame(self, connection: Connection, frame: framing.Frame) -> None:
        """A frame from a client.  Input that it is not its turn to give is passed over: it was told so.

        Raises:
            BadDocument: malformed; the connection is closed for it.
        """
        client = self._client(connection)
        if client is None:
            return
        writes = client is self._seats.writer
        if frame.kind == framing.STDIN and writes:
            self._take_input(client, frame.payload)
        elif frame.kind == framing.STDIN_EOF and writes:
            self._take_end(client, frame.payload)
        elif frame.kind == framing.SIGNAL:
            number = framing.decode_signal(frame.payload)
            if writes or client.takes_for_good:
                self._signal(number)
        elif frame.kind == framing.RESIZE:
            client.window = framing.decode_resize(frame.payload)
            if writes or client.is_owner:
                self._resize(client.window)
        elif frame.kind == framing.CREDIT and client.takes_for_good:
            credit = framing.decode_credit(frame.payload)
            self._credit(credit.rank, credit.stream, credit.offset)

    def after_frames(self, connection: Connection) -> None:
        """Everything that has arrived was taken."""
        client = self._client(connection)
        if client is not None and client is self._seats.writer:
            self._confirm(client)

    def on_room(self, connection: Connection) -> None:
        """A client takes more."""
        client = self._client(connection)
        if client is not None:
            if client is self._seats.writer:
                self._confirm(client)
            self._feed(client)

    def _feed_all(self) -> None:
        for client in list(self._seats.clients):
            if client.connection.is_attached:
                if client.connection.has_room:
                    self._feed(client)
                else:
                    client.connection.set_wants_room(True)

    def _feed(self, client: Client) -> None:
        """Queue what this client has not had, up to the mark; at the very end the exit."""
        connection = client.connection
        parts = []
        room = HIGH_WATER - connection.waiting
        at_end = True
        more = False
        for key, offset in list(client.offsets.items()):
            spool = self._spools.get(key)
            while spool is not None and room > 0:
                start, data = spool.read(offset, _CHUNK)
                if not data:
                    break
                parts.append(framing.encode_data(spool.stream, spool.rank, start, data))
                offset = start + len(data)
                room -= len(data)
            client.offsets[key] = offset
            if spool is not None and offset < spool.end:
                more = True
            if spool is not None and (offset < spool.end or not spool.at_eof):
                at_end = False
        if client.version > 1:
            parts.extend(self._task_ends[client.told_ends :])
            client.told_ends = len(self._task_ends)
        over = at_end and self._exit is not None
        if over:
            assert self._exit is not None
            payload = jsontext.encode(self._exit.to_json())
            parts.append(framing.encode_frame(framing.EXIT, payload))
        if parts:
            connection.put(b"".join(parts))
        if over:
            self._leave(client)
            connection.finish()
        else:
            connection.set_wants_room(more)

    # -- the end -----------------------------------------------------------------------------------

    def task_ended(self, ended: TaskExit) -> None:
        """One of several tasks has ended: whoever is attached may want to do something about it."""
        if len(self._spec.task_list()) > 1:
            payload = jsontext.encode(ended.to_json())
            self._task_ends.append(framing.encode_frame(framing.TASK_EXIT, payload))
            self._feed_all()

    def finish(self, record: ExitRecord) -> None:
        """No process of the step is left: whatever still holds a pipe open is none of ours."""
        self._exit = record
        self._inlet.close()
        self._detachment.ended()
        self._plan_hang_up()
        if self._teller is not None:
            self._teller.cancel()
        if self.terminal is not None:
            self.terminal.close()
        self._finish_spools()

    def _finish_spools(self) -> None:
        """Take the last bytes of every stream; a full one waits for its credit."""
        if self._exit is not None:
            for spool in self._spools.values():
                while self._pump(spool):
                    pass
                if not (spool.at_eof or spool.is_full or spool.is_stuck):
                    self._loop.forget(spool.pipe)
                    spool.give_up()
        self._feed_all()

"""The control socket: connections, peers, messages, and the change to I/O frames after `attach`."""

from __future__ import annotations

import _socket
import os

from spur_core.errors import SpurError
from spur_proto_lite import framing, unixsock
from spur_stepd.log import say
from spur_stepd.loop import READ, WRITE

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from spur_stepd.loop import Loop

    class Channel(Protocol):
        """What an attached connection belongs to."""

        def on_frame(self, connection: Connection, frame: framing.Frame) -> None:
            """A frame has come.

            Raises:
                SpurError: it is malformed; the connection is closed for it.
            """

        def after_frames(self, connection: Connection) -> None:
            """All that has come whole was given to `on_frame`."""

        def on_room(self, connection: Connection) -> None:
            """It can take more, and `wants_room` was set."""

        def on_close(self, connection: Connection) -> None:
            """It is gone."""


_READ_SIZE = 1 << 16
#: Bytes that may wait in one attached connection before no more is put there.
HIGH_WATER = 1 << 18


class Connection:
    """One client.  It speaks messages until it attaches, and frames afterwards."""

    def __init__(self, server: Server, fd: int) -> None:
        self.fd = fd
        #: Whose frames it carries, once attached.
        self.channel: Channel | None = None
        self.is_open = True
        self._server = server
        self._in = framing.MessageBuffer()
        self._frames = framing.FrameBuffer()
        self._out = bytearray()
        self._closing = False
        self._reading = READ
        self._wants_room = False

    @property
    def is_attached(self) -> bool:
        return self.channel is not None

    @property
    def is_finished(self) -> bool:
        """Everything is out; only the client's own close is missing."""
        return self._closing and not self._out

    @property
    def waiting(self) -> int:
        """Bytes that the client has not taken yet."""
        return len(self._out)

    @property
    def has_room(self) -> bool:
        """Whether so little is waiting that more should be put there."""
        return len(self._out) < HIGH_WATER // 2

    def set_wants_room(self, wants: bool) -> None:
        """Let the channel know, or not, as soon as there is room."""
        if self.is_open and self._wants_room != wants:
            self._wants_room = wants
            self._watch()

    def on_ready(self, events: int) -> None:
        if events & WRITE:
            self.flush()
            if self._wants_room and self.is_open and self.channel is not None and self.has_room:
                self.set_wants_room(False)
                self.channel.on_room(self)
        if events & ~WRITE and self.is_open:
            self._receive()

    def _receive(self) -> None:
        try:
            data = os.read(self.fd, _READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not data:
            self.close()
            return
        (self._in if self.channel is None else self._frames).feed(data)
        try:
            self._take()
            if self.channel is not None and self.is_open and not self._closing:
                self.channel.after_frames(self)
        except SpurError as error:
            say("bad_client", error=error)
            self.close()

    def _take(self) -> None:
        """Serve everything that has arrived whole."""
        while self.is_open:
            if self.channel is not None:
                frame = self._frames.take()
                if frame is None:
                    return
                if not self._closing:
                    self.channel.on_frame(self, frame)
            else:
                message = self._in.take()
                if message is None:
                    return
                self._server.on_message(self, message)

    def attach(self, channel: Channel) -> None:
        """From here on both sides speak frames."""
        self.channel = channel
        self._frames.feed(self._in.rest())

    def detach(self) -> None:
        """It speaks messages again: what it was to be attached for has not come about."""
        self.channel = None
        self._in.feed(self._frames.rest())

    def send(self, document: dict[str, object]) -> None:
        """Queue one message."""
        self.put(framing.encode_message(document))

    def put(self, data: bytes) -> None:
        """Queue bytes and send what goes."""
        if self.is_open:
            self._out += data
            self.flush()

    def flush(self) -> None:
        """Send what goes, and ask for more when the queue has run low."""
        try:
            while self._out:
                sent = os.write(self.fd, self._out[:HIGH_WATER])
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self.is_finished:
            self._hang_up()
        self._watch()

    def set_reading(self, reading: bool) -> None:
        """Take no more from this client for now, or go on."""
        if self.is_open and bool(self._reading) != reading:
            self._reading = READ if reading else 0
            self._watch()

    def _watch(self) -> None:
        self._server.loop.change(self.fd, self._reading | (WRITE if self._out or self._wants_room else 0))

    def finish(self) -> None:
        """No more will come from here.  The connection stays until the client closes it, so that what it
        is still sending does not cut off what it has still to read."""
        self._closing = True
        self._wants_room = False
        self._reading = READ
        self.flush()

    def _hang_up(self) -> None:
        sock = _socket.socket(fileno=self.fd)
        try:
            sock.shutdown(_socket.SHUT_WR)
        except OSError:
            pass
        finally:
            sock.detach()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._server.loop.forget(self.fd)
            self._server.connections.discard(self)
            os.close(self.fd)
            self._server.on_close(self)
            if self.channel is not None:
                self.channel.on_close(self)


class Server:
    """Accepts whom the session's owner is, and root."""

    def __init__(
        self,
        loop: Loop,
        fd: int,
        owner: int,
        on_message: Callable[[Connection, dict[str, object]], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        """
        Args:
            fd: the listening descriptor.
            owner: uid of the session directory.
        """
        self.loop = loop
        self.connections: set[Connection] = set()
        self.on_message = on_message
        self.on_close = on_close
        self._owner = owner
        self._listener = _socket.socket(fileno=fd)
        self._listener.setblocking(False)
        loop.watch(fd, READ, self._on_accept)

    def _on_accept(self, _events: int) -> None:
        while True:
            try:
                fd, _address = self._listener._accept()  # type: ignore[attr-defined]  # all `_socket` has
            except BlockingIOError:
                return
            except OSError as error:
                say("accept_failed", error=error)
                return
            _pid, uid, _gid = unixsock.peer(fd)
            if uid not in (self._owner, 0):
                say("peer_refused", uid=uid)
                os.close(fd)
                continue
            os.set_blocking(fd, False)
            connection = Connection(self, fd)
            self.connections.add(connection)
            self.loop.watch(fd, READ, connection.on_ready)

    def close(self) -> None:
        """Stop listening and drop everybody."""
        for connection in list(self.connections):
            connection.close()
        self.loop.forget(self._listener.fileno())
        self._listener.close()

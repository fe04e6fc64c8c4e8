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

    from spur_stepd.loop import Loop

_READ_SIZE = 1 << 16
#: Bytes that may wait in one attached connection before no more is put there.
HIGH_WATER = 1 << 18


class Connection:
    """One client.  It speaks messages until it attaches, and frames afterwards."""

    def __init__(self, server: Server, fd: int) -> None:
        self.fd = fd
        self.is_attached = False
        #: (rank, stream) -> offset of the next byte to send, once attached.
        self.offsets: dict[tuple[int, int], int] = {}
        self.is_open = True
        self._server = server
        self._in = framing.MessageBuffer()
        self._frames = framing.FrameBuffer()
        self._out = bytearray()
        self._closing = False
        self._reading = READ

    @property
    def is_finished(self) -> bool:
        """Everything is out; only the client's own close is missing."""
        return self._closing and not self._out

    @property
    def waiting(self) -> int:
        """Bytes that the client has not taken yet."""
        return len(self._out)

    def on_ready(self, events: int) -> None:
        if events & WRITE:
            self.flush()
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
        (self._frames if self.is_attached else self._in).feed(data)
        try:
            self._take()
        except SpurError as error:
            say("bad_client", error=error)
            self.close()

    def _take(self) -> None:
        """Serve everything that has arrived whole."""
        while self.is_open:
            if self.is_attached:
                frame = self._frames.take()
                if frame is None:
                    return
                if not self._closing:
                    self._server.on_frame(self, frame)
            else:
                message = self._in.take()
                if message is None:
                    return
                self._server.on_message(self, message)

    def attach(self) -> None:
        """From here on both sides speak frames."""
        self.is_attached = True
        self._frames.feed(self._in.rest())

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
        if self.is_attached and len(self._out) < HIGH_WATER // 2:
            self._server.on_room(self)

    def set_reading(self, reading: bool) -> None:
        """Take no more from this client for now, or go on."""
        if self.is_open and bool(self._reading) != reading:
            self._reading = READ if reading else 0
            self._watch()

    def _watch(self) -> None:
        self._server.loop.change(self.fd, self._reading | (WRITE if self._out else 0))

    def finish(self) -> None:
        """No more will come from here.  The connection stays until the client closes it, so that what it
        is still sending does not cut off what it has still to read."""
        self._closing = True
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


class Server:
    """Accepts whom the session's owner is, and root."""

    def __init__(
        self,
        loop: Loop,
        fd: int,
        owner: int,
        on_message: Callable[[Connection, dict[str, object]], None],
        on_frame: Callable[[Connection, framing.Frame], None],
        on_room: Callable[[Connection], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        """
        Args:
            fd: the listening descriptor.
            owner: uid of the session directory.
            on_room: an attached connection can take more output.
        """
        self.loop = loop
        self.connections: set[Connection] = set()
        self.on_message = on_message
        self.on_frame = on_frame
        self.on_room = on_room
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

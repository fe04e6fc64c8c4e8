"""A way to a controller of one's own, which notes when its client has learned who else there is."""

import contextlib
import socket
import threading

#: The call that asks for the group, as the commands write it: not compressed.
_ASKS = b"/slurm.SlurmController/Ping"


class Relay:
    """Passes on what comes to `address`, as long as the controller is there.

    Attributes:
        learned: set once a client has asked for the group, has had its answer and has hung up.
    """

    def __init__(self, target: str) -> None:
        """`target`: HOST:PORT."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        self.learned = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._door.accept()
                self._sockets.append(here)
                try:
                    there = socket.create_connection(self._target)
                except OSError:
                    here.close()
                    continue
                self._sockets.append(there)
                for ends in ((here, there, True), (there, here, False)):
                    self._threads.append(threading.Thread(target=self._pump, args=ends, daemon=True))
                    self._threads[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket, of_client: bool) -> None:
        seen = b""
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                seen = (seen + data)[-(1 << 17) :]
                sink.sendall(data)
        if of_client and _ASKS in seen:
            self.learned.set()
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Hang up everywhere."""
        self._door.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()  # after it there are no new ones
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for one in (self._door, *self._sockets):
            one.close()

"""The completion push without waiting: connect, send, read one answer, all as the socket allows."""

from __future__ import annotations

import os

from spur_core.errors import SpurError
from spur_proto_lite import framing, notify, unixsock
from spur_stepd.loop import READ, WRITE

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spur_stepd.loop import Loop
    from spur_stepd.privileges import Privileges


class Notifier:
    """At most one push at a time."""

    def __init__(
        self, loop: Loop, path: str, privileges: Privileges, done: Callable[[str | None], None]
    ) -> None:
        """
        Args:
            path: of `notify.sock`.
            done: called once a push with its answer, None when nobody answered.
        """
        self._loop = loop
        self._path = path
        self._privileges = privileges
        self._done = done
        self._fd = -1
        #: What the socket has not taken yet: the exit of thousands of tasks is more than it takes at once.
        self._out = b""
        self._buffer = framing.MessageBuffer()

    def push(self, notification: notify.Notification) -> None:
        """Tell the agent; a push that is still waiting for its answer is given up for this one."""
        self.close()
        try:
            with self._privileges.root():
                # The backlog of a listening Unix socket is what can make this wait; an agent that does not
                # accept for so long is as good as none.
                self._fd = unixsock.connect(self._path, 1.0)
        except SpurError:
            self._done(None)
            return
        self._buffer = framing.MessageBuffer()
        os.set_blocking(self._fd, False)
        self._loop.watch(self._fd, READ, self._on_ready)
        try:
            self._out = framing.encode_message(notification.to_json())
            self._flush()
        except (OSError, SpurError):
            self._finish(None)

    def _flush(self) -> None:
        try:
            while self._out:
                self._out = self._out[os.write(self._fd, self._out) :]
        except BlockingIOError:
            pass
        self._loop.change(self._fd, READ | (WRITE if self._out else 0))

    def _on_ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._flush()
            if not events & ~WRITE:
                return
            data = os.read(self._fd, 1 << 16)
            self._buffer.feed(data)
            message = self._buffer.take()
            if message is not None:
                self._finish(notify.decode_answer(message))
            elif not data:
                self._finish(None)
        except (OSError, SpurError):
            self._finish(None)

    def _finish(self, answer: str | None) -> None:
        self.close()
        self._done(answer)

    def close(self) -> None:
        """Give up a waiting push."""
        if self._fd >= 0:
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1

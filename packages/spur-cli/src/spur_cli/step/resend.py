"""Input that was given but is not yet known to have arrived.  Pure.

Offsets count bytes from the first one that anybody gave.
"""


class ResendBuffer:
    """A window over the input: what lies before `base` has arrived, what lies before `end` was given.

    closed: nothing more will be given.
    """

    __slots__ = ("_bytes", "base", "closed")

    def __init__(self) -> None:
        self.base = 0
        self.closed = False
        self._bytes = bytearray()

    @property
    def end(self) -> int:
        """Offset behind the last byte given."""
        return self.base + len(self._bytes)

    @property
    def waiting(self) -> int:
        """Bytes that are not confirmed."""
        return len(self._bytes)

    def put(self, data: bytes) -> None:
        """More input; not after `close`."""
        self._bytes += data

    def close(self) -> None:
        """The input ends here."""
        self.closed = True

    def confirm(self, offset: int) -> None:
        """Everything before `offset` has arrived; older news changes nothing.

        An offset beyond our own end means that somebody else has given input too: what is kept here is then
        of no use any more, and the next byte given follows that one's.
        """
        done = offset - self.base
        if done > 0:
            del self._bytes[:done]
            self.base = offset

    def move(self, offset: int) -> None:
        """Let what is kept begin at `offset`: for the first turn of one who gives input after others."""
        self.base = offset

    def forget(self) -> None:
        """Drop what is kept, an end included: it will not be wanted."""
        self.base = self.end
        self.closed = False
        self._bytes.clear()

    def after(self, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` on (from `base`, when that is later)."""
        start = max(offset - self.base, 0)
        return bytes(memoryview(self._bytes)[start : start + limit])

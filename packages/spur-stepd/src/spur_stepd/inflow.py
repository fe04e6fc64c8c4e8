"""What has been taken of the input that clients send.  Pure.

Input carries its offset, so what a client sends again after a lost connection is taken once, and what is
missing is noticed.
"""

from __future__ import annotations

from spur_proto_lite.errors import BadDocument


class Inflow:
    """The input from one kind of client, over all its connections."""

    def __init__(self) -> None:
        #: Everything before it has been taken.
        self.offset = 0
        #: Whether the end has been told, at the present offset.
        self.ended = False

    def take(self, offset: int, data: bytes) -> bytes:
        """The part of `data`, which begins at `offset`, that is new.

        Raises:
            BadDocument: something before it is missing.
        """
        if offset > self.offset:
            raise BadDocument(f"input from {self.offset} to {offset} is missing")
        fresh = data[self.offset - offset :]
        if fresh:
            self.offset += len(fresh)
            self.ended = False
        return fresh

    def end(self, offset: int) -> bool:
        """The input is `offset` bytes long; whether that is news.  Input that follows nevertheless undoes it.

        Raises:
            BadDocument: something before it is missing.
        """
        if offset > self.offset:
            raise BadDocument(f"input from {self.offset} to {offset} is missing before its end")
        if self.ended or offset < self.offset:
            return False
        self.ended = True
        return True

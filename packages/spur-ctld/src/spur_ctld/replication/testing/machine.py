"""A state machine whose state is the list of commands it saw."""

import hashlib
from collections.abc import Iterator

import msgspec


class ListMachine:
    """`commands[i]` is the i-th command; the result of a command is its index in the log, as text."""

    def __init__(self, chunk: int = 500) -> None:
        self.commands: list[bytes] = []
        self.restores = 0
        self._chunk = chunk

    def apply(self, index: int, cmd: bytes) -> bytes:
        self.commands.append(cmd)
        return str(index).encode()

    def freeze(self) -> "FrozenList":
        commands = list(self.commands)
        return FrozenList(self._encode(commands), commands)

    def _encode(self, commands: list[bytes]) -> Iterator[bytes]:
        for at in range(0, len(commands), self._chunk):
            yield msgspec.msgpack.encode(commands[at : at + self._chunk])

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.restores += 1
        self.commands = [cmd for chunk in chunks for cmd in msgspec.msgpack.decode(chunk, type=list[bytes])]


class FrozenList(Iterator[bytes]):
    """Its chunks and its digest."""

    def __init__(self, chunks: Iterator[bytes], commands: list[bytes]) -> None:
        self._chunks = chunks
        self._commands = commands

    def __next__(self) -> bytes:
        return next(self._chunks)

    def digest(self) -> str:
        """Of the whole list."""
        return f"list-{hashlib.sha256(msgspec.msgpack.encode(self._commands)).hexdigest()}"

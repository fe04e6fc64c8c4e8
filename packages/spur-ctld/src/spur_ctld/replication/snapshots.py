"""Snapshot files: the whole state at one position of the log.

    magic "SPURSNP1", then records: kind u8 | length u32 | CRC32 u32 | payload     (little endian)
    kind "H" header (once, first), "C" chunk (any number), "F" footer (once, last)

The CRC covers the record's number, kind, length and payload; the footer repeats the number of chunks, their
bytes and a CRC over all of them, and nothing may follow it.  A file gets its name only when it is durable.
"""

import struct
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from spur_ctld.replication.errors import BadSnapshot
from spur_ctld.replication.files import Files
from spur_ctld.replication.types import Position, SnapshotMeta

MAGIC = b"SPURSNP1"
FORMAT = 1
KEPT = 2
_RECORD = struct.Struct("<cII")
_SEED = struct.Struct("<QcI")
_PREFIX = "snap-"


class Header(msgspec.Struct, frozen=True):
    """What the file is.  `schema`: version of the state's own encoding."""

    format: int
    index: int
    term: int
    cluster_id: str
    schema: int


class Footer(msgspec.Struct, frozen=True):
    """What the chunks add up to.  `digest`: of the state itself, equal on all members; empty = unknown."""

    chunks: int
    size: int
    crc: int
    digest: str = ""


def read_header(path: Path) -> Header:
    """The header of a snapshot file, whoever's it is.

    Raises:
        BadSnapshot: it has none that can be read.
    """
    try:
        with path.open("rb") as file:
            return _header(path, file)
    except OSError as error:
        raise BadSnapshot(f"{path}: {error.strerror}") from None


def _header(path: Path, file: BinaryIO) -> Header:
    if file.read(len(MAGIC)) != MAGIC:
        raise BadSnapshot(f"{path}: not a snapshot file")
    kind, payload = _next(path, file, 0)
    return _decode(path, kind == b"H", payload, Header)


class SnapshotStore:
    """The snapshots in directory `folder`, which must exist.

    Args:
        cluster_id: a file of another cluster is not usable.
        schema: newest version of the state's encoding that this program reads; written into new files.
    """

    def __init__(self, folder: Path, cluster_id: str, files: Files | None = None, *, schema: int = 1) -> None:
        self._folder = folder
        self._cluster_id = cluster_id
        self._files = files or Files()
        self._schema = schema

    def path(self, meta: SnapshotMeta) -> Path:
        """File of the snapshot at `meta`."""
        return self._folder / f"{_PREFIX}{meta.index:016x}-{meta.term:016x}"

    def clean(self) -> None:
        """Remove files that a crash left half written."""
        for path in self._folder.glob(f"{_PREFIX}*.tmp"):
            self._files.unlink(path)

    def list(self) -> list[SnapshotMeta]:
        """Newest first; says nothing about whether they are readable."""
        found = (_position_of(path) for path in self._folder.iterdir())
        return sorted((meta for meta in found if meta is not None), key=_age, reverse=True)

    def write(
        self, meta: SnapshotMeta, chunks: Iterable[bytes], digest: Callable[[], str] | None = None
    ) -> int:
        """Durable under its final name on return; its size in bytes.

        Args:
            digest: of the state that the chunks hold; called after the last of them.

        Raises:
            OSError: the system refused; nothing but a .tmp file is left.
        """
        final = self.path(meta)
        tmp = final.with_name(final.name + ".tmp")
        tmp.unlink(missing_ok=True)
        fd = self._files.create(tmp)
        try:
            size = self._write(fd, meta, chunks, digest or str)
            self._files.datasync(fd)
        finally:
            self._files.close(fd)
        self._files.rename(tmp, final)
        self._files.sync_dir(self._folder)
        return size

    def _write(self, fd: int, meta: SnapshotMeta, chunks: Iterable[bytes], digest: Callable[[], str]) -> int:
        header = Header(FORMAT, meta.index, meta.term, self._cluster_id, self._schema)
        written = count = total = crc = 0
        self._files.write(fd, MAGIC)

        def put(number: int, kind: bytes, payload: bytes) -> int:
            self._files.write(fd, _RECORD.pack(kind, len(payload), _check(number, kind, payload)) + payload)
            return _RECORD.size + len(payload)

        written += len(MAGIC) + put(0, b"H", msgspec.msgpack.encode(header))
        for chunk in chunks:
            count += 1
            total += len(chunk)
            crc = zlib.crc32(chunk, crc)
            written += put(count, b"C", chunk)
        footer = Footer(count, total, crc, digest())
        return written + put(count + 1, b"F", msgspec.msgpack.encode(footer))

    def verify(self, meta: SnapshotMeta) -> Footer:
        """Read it all; what its footer says.

        Raises:
            BadSnapshot: the text names file and fault.
        """
        chunks = self._open(meta)
        while True:
            try:
                next(chunks)
            except StopIteration as end:
                footer: Footer = end.value
                return footer

    def read(self, meta: SnapshotMeta) -> Iterator[bytes]:
        """The chunks.  Raises BadSnapshot at the latest after the last one: `verify` before use."""
        yield from self._open(meta)

    def _open(self, meta: SnapshotMeta) -> Generator[bytes, None, Footer]:
        path = self.path(meta)
        try:
            with path.open("rb") as file:
                return (yield from self._read(path, file, meta))
        except OSError as error:
            raise BadSnapshot(f"{path}: {error.strerror}") from None

    def _read(self, path: Path, file: BinaryIO, meta: SnapshotMeta) -> Generator[bytes, None, Footer]:
        header = _header(path, file)
        if header.format != FORMAT or header.schema > self._schema:
            raise BadSnapshot(f"{path}: written by a newer release")
        if header.cluster_id != self._cluster_id:
            raise BadSnapshot(f"{path}: belongs to another cluster")
        if Position(header.index, header.term) != meta:
            raise BadSnapshot(f"{path}: holds position {header.index}, its name says {meta.index}")
        count = total = crc = 0
        while True:
            kind, payload = _next(path, file, count + 1)
            if kind == b"F":
                break
            if kind != b"C":
                raise BadSnapshot(f"{path}: unknown record after chunk {count}")
            count += 1
            total += len(payload)
            crc = zlib.crc32(payload, crc)
            yield payload
        footer = _decode(path, True, payload, Footer)
        if (footer.chunks, footer.size, footer.crc) != (count, total, crc):
            raise BadSnapshot(f"{path}: the footer does not fit the {count} chunks")
        if file.read(1):
            raise BadSnapshot(f"{path}: something follows the footer")
        return footer

    def adopt(self, received: Path, meta: SnapshotMeta) -> None:
        """Give a file that came from another member its final name, durably, if it is what it should be.

        Args:
            received: a `.tmp` file in the store's folder, its contents synced.

        Raises:
            BadSnapshot: torn, damaged, of another cluster or position; the file stays as it is.
            OSError: the system refused.
        """
        with received.open("rb") as file:
            for _ in self._read(received, file, meta):
                pass
        self._files.rename(received, self.path(meta))
        self._files.sync_dir(self._folder)

    def prune(self) -> None:
        """Remove all but the newest two."""
        gone = self.list()[KEPT:]
        for meta in gone:
            self._files.unlink(self.path(meta))
        if gone:
            self._files.sync_dir(self._folder)


def _next(path: Path, file: BinaryIO, number: int) -> tuple[bytes, bytes]:
    head = file.read(_RECORD.size)
    if len(head) < _RECORD.size:
        raise BadSnapshot(f"{path}: cut off at record {number}")
    kind, size, check = _RECORD.unpack(head)
    payload = file.read(size)
    if len(payload) < size:
        raise BadSnapshot(f"{path}: cut off in record {number}")
    if _check(number, kind, payload) != check:
        raise BadSnapshot(f"{path}: record {number} is damaged")
    return kind, payload


def _check(number: int, kind: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(_SEED.pack(number, kind, len(payload))))


_S = TypeVar("_S", Header, Footer)


def _decode(path: Path, expected: bool, payload: bytes, kind: type[_S]) -> _S:
    if not expected:
        raise BadSnapshot(f"{path}: no header")
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except msgspec.MsgspecError as error:
        raise BadSnapshot(f"{path}: {error}") from None


def _position_of(path: Path) -> SnapshotMeta | None:
    parts = path.name.removeprefix(_PREFIX).split("-")
    if not path.name.startswith(_PREFIX) or len(parts) != 2:
        return None
    try:
        return Position(int(parts[0], 16), int(parts[1], 16))
    except ValueError:
        return None


def _age(meta: SnapshotMeta) -> tuple[int, int]:
    return meta.index, meta.term

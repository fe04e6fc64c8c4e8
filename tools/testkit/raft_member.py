"""One member of a group as a program of its own, with a key-value machine.

`python -m testkit.raft_member FILE`.  FILE is JSON: id, members, tls, state, socket, and optionally limits,
sync_delay.  The program prints READY when its listener is open, answers JSON lines on the UNIX socket, and
ends with SIGTERM or when its stdin closes.
"""

import asyncio
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import msgspec

from spur_core import faults
from spur_core.errors import SpurError
from spur_ctld.replication import certs
from spur_ctld.replication.api import EXIT_STORAGE
from spur_ctld.replication.files import Files
from spur_ctld.replication.limits import Limits
from spur_ctld.replication.meta import Member
from spur_ctld.replication.node import Node
from spur_ctld.replication.recovery import init_directory
from spur_ctld.replication.tls import read_tls
from spur_ctld.replication.transport import Transport
from spur_ctld.replication.watchdog import new_event_loop


class Frozen(Iterator[bytes]):
    """Chunks of a table, and its digest."""

    def __init__(self, table: dict[str, str], doubles: int) -> None:
        self._table = table
        self._doubles = doubles
        self._chunks = self._encode()

    def _encode(self) -> Iterator[bytes]:
        yield msgspec.msgpack.encode([["", str(self._doubles)]])
        rows = list(self._table.items())
        for at in range(0, len(rows), 512):
            yield msgspec.msgpack.encode(rows[at : at + 512])

    def __next__(self) -> bytes:
        return next(self._chunks)

    def digest(self) -> str:
        return f"kv-{digest_of(self._table, self._doubles)}"


def digest_of(table: dict[str, str], doubles: int) -> str:
    rows = msgspec.msgpack.encode([sorted(table.items()), doubles])
    return hashlib.sha256(rows).hexdigest()[:32]


class Table:
    """Keys that begin with `r` may be written again; writing any other twice is counted in `doubles`."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.doubles = 0

    def apply(self, index: int, cmd: bytes) -> bytes:
        key, value = msgspec.msgpack.decode(cmd, type=tuple[str, str])
        if key in self.rows and not key.startswith("r"):
            self.doubles += 1
        self.rows[key] = value
        return str(index).encode()

    def freeze(self) -> Frozen:
        return Frozen(dict(self.rows), self.doubles)

    def restore(self, chunks: Iterator[bytes]) -> None:
        rows: dict[str, str] = {}
        for chunk in chunks:
            rows.update(msgspec.msgpack.decode(chunk, type=list[tuple[str, str]]))
        self.doubles = int(rows.pop("", "0"))
        self.rows = rows


class SlowFiles(Files):
    """Adds time to each sync."""

    def __init__(self, delay: float) -> None:
        self._delay = delay

    def datasync(self, fd: int) -> None:
        super().datasync(fd)
        if self._delay:
            time.sleep(self._delay)


class Program:
    """The member and its socket."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.table = Table()
        members = [Member(**row) for row in given["members"]]
        self.id = given["id"]
        state = Path(given["state"])
        alone = len(members) == 1
        tls = Path(given["tls"])
        cluster = None if alone else certs.cluster_id(tls / "ca.pem")
        if not alone and not (state / "raft" / "meta").exists():
            init_directory(state, self.id, members, Files(), cluster)
        limits = Limits(**given.get("limits", {}))
        own = members[self.id - 1]
        self.node = Node(
            state,
            self.table,
            fatal=_fatal,
            member_id=self.id,
            members=members,
            transport=None if alone else Transport(own.address, read_tls(tls), limits),
            files=SlowFiles(given.get("sync_delay", 0.0)),
            limits=limits,
            cluster_id=cluster,
            command_version=1,
            version="test",
        )
        self._socket = given["socket"]
        self.role = ("", 0)
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._over.set)
        await self.node.start()
        self.node.on_role_change(self._changed)
        server = await asyncio.start_unix_server(self._serve, self._socket, limit=1 << 24)
        loop.add_reader(0, self._parent)
        sys.stdout.write("READY\n")
        sys.stdout.flush()
        await self._over.wait()
        server.close()
        await self.node.stop()

    def _changed(self, role: Any, term: int) -> None:
        self.role = (role.value, term)

    def _parent(self) -> None:
        """Nobody holds the other end of stdin any more."""
        if not os.read(0, 100):
            self._over.set()
            asyncio.get_running_loop().remove_reader(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            task = asyncio.ensure_future(self._one(json.loads(line), writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        writer.close()

    async def _one(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        number = asked.pop("number")
        try:
            answer = {"ok": await getattr(self, "do_" + asked.pop("do"))(**asked)}
        except SpurError as error:
            answer = {"error": error.code, "text": error.text}
        writer.write(json.dumps({"number": number, **answer}).encode() + b"\n")

    # --- what may be asked --------------------------------------------------------------------------------

    async def do_put(self, key: str, value: str, secs: float = 5.0) -> int:
        cmd = msgspec.msgpack.encode((key, value))
        return int(await self.node.propose(cmd, asyncio.get_running_loop().time() + secs))

    async def do_get(self, key: str, secs: float = 5.0) -> str | None:
        await self.node.read_barrier(asyncio.get_running_loop().time() + secs)
        return self.table.rows.get(key)

    async def do_stale(self, key: str) -> list[Any]:
        return [self.table.rows.get(key), self.node.applied, self.node.seconds_since_leader()]

    async def do_missing(self, keys: list[str]) -> list[str]:
        return [key for key in keys if key not in self.table.rows]

    async def do_status(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "leads": self.role[0] == "leader",
            "leader": self.node.leader(),
            "term": self.node.term,
            "applied": self.node.applied,
            "count": len(self.table.rows),
            "doubles": self.table.doubles,
            "metrics": msgspec.to_builtins(self.node.metrics()),
            "members": [msgspec.to_builtins(view) for view in self.node.members()],
        }

    async def do_digest(self) -> list[Any]:
        return [self.node.applied, digest_of(self.table.rows, self.table.doubles)]

    async def do_transfer(self, to: int | None = None) -> int:
        return await self.node.transfer_leadership(to)

    async def do_load(self, inflight: int, secs: float, size: int = 200) -> dict[str, float]:
        """Commands per second with so many waiting at a time, the load made here."""
        loop = asyncio.get_running_loop()
        pad = "x" * (size - 16)
        times: list[float] = []
        numbers = iter(range(1 << 60))
        began = loop.time()
        until = began + secs

        async def client() -> None:
            while (now := loop.time()) < until:
                key = f"r{next(numbers) % 10_000}"
                await self.node.propose(msgspec.msgpack.encode((key, pad)))
                times.append(loop.time() - now)

        await asyncio.gather(*(client() for _ in range(inflight)))
        times.sort()
        return {
            "rate": len(times) / (loop.time() - began),
            "p50": times[len(times) // 2],
            "p99": times[len(times) * 99 // 100],
        }

    async def do_reads(self, inflight: int, secs: float) -> dict[str, float]:
        """Reads per second."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        done = 0

        async def client() -> None:
            nonlocal done
            while loop.time() < began + secs:
                await self.node.read_barrier()
                done += 1

        await asyncio.gather(*(client() for _ in range(inflight)))
        return {"rate": done / (loop.time() - began)}


def _fatal(error: BaseException) -> None:
    sys.stderr.write(f"raft_member: fatal: {error!r}\n")
    sys.stderr.flush()
    os._exit(EXIT_STORAGE)


def main() -> None:
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    faults.arm(os.environ)
    given = json.loads(Path(sys.argv[1]).read_text())
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(given))


async def _run(given: dict[str, Any]) -> None:
    await Program(given).run()


if __name__ == "__main__":
    main()

"""A group of `raft_member` programs: started, killed, paused, asked, put under load and judged.

async with RaftGroup(folder) as group:
    await group.start()
    leader = await group.leader()
    await group.ask(leader, "put", key="a", value="b")
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spur_ctld.replication import certs

TOOLS = Path(__file__).resolve().parents[1]


class Refused(Exception):
    """The member answered with an error; the text begins with its code."""


class Link:
    """One connection to a member's socket; any number of questions at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next = 0
        self._task = asyncio.ensure_future(self._read(reader))

    async def ask(self, do: str, **what: Any) -> Any:
        """Raises Refused, and ConnectionError when the member is gone."""
        if self._task.done():
            raise ConnectionError("the member is gone")
        self._next += 1
        number = self._next
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps({"number": number, "do": do, **what}).encode() + b"\n")
        return await future

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                answer = json.loads(line)
                future = self._waiting.pop(answer["number"])
                if future.done():
                    continue
                if "error" in answer:
                    future.set_exception(Refused(f"{answer['error']}: {answer['text']}"))
                else:
                    future.set_result(answer["ok"])
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the member is gone"))
        self._waiting.clear()

    async def close(self) -> None:
        self._writer.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class RaftGroup:
    """The programs and what is known about them.

    Args:
        folder: everything is kept here; its path must be short enough for sockets.
        hosts: address of each member; default: 127.0.0.1 with free ports.
        launch: words before the program, by member.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        *,
        hosts: Sequence[str] = (),
        launch: dict[int, list[str]] | None = None,
        limits: dict[str, Any] | None = None,
        sync_delay: float = 0.0,
    ) -> None:
        self.folder = folder
        self.ids = list(range(1, count + 1))
        self._launch = launch or {}
        self._limits = limits or {}
        self._sync_delay = sync_delay
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._links: dict[int, Link] = {}
        ports = [7000 + id for id in self.ids] if hosts else free_ports(count)
        hosts = hosts or ["127.0.0.1"] * count
        self._members = [
            {"id": id, "address": f"{host}:{port}", "name": f"spur-controller-{id}", "client": f"c{id}:1"}
            for id, host, port in zip(self.ids, hosts, ports, strict=True)
        ]
        if count > 1:
            certs.make_ca(folder / "tls")
            for id in self.ids:
                certs.make_member(folder / "tls", id)

    async def __aenter__(self) -> "RaftGroup":
        return self

    async def __aexit__(self, *_: object) -> None:
        for id in list(self._processes):
            self.resume(id)
            await self.kill(id)

    # --- programs -----------------------------------------------------------------------------------------

    async def start(self, *ids: int, fault: str = "") -> None:
        """Start members, all by default; returns when their listeners are open.

        Args:
            fault: see `spur_core.faults`.
        """
        wanted = ids or self.ids
        for id in wanted:
            self._spawn(id, fault)
        for id in wanted:
            out = self._processes[id].stdout
            assert out is not None
            line = await asyncio.wait_for(asyncio.to_thread(out.readline), 20)
            assert line == b"READY\n", f"member {id}: {line!r}\n{self.log(id)}"

    def _spawn(self, id: int, fault: str) -> None:
        given = self.folder / f"m{id}.json"
        socket_path = self._socket(id)
        socket_path.unlink(missing_ok=True)
        given.write_text(
            json.dumps(
                {
                    "id": id,
                    "members": self._members,
                    "tls": str(certs.member_dir(self.folder / "tls", id)),
                    "state": str(self.folder / f"state-{id}"),
                    "socket": str(socket_path),
                    "limits": self._limits,
                    "sync_delay": self._sync_delay,
                }
            )
        )
        with (self.folder / f"m{id}.log").open("ab") as log:
            self._processes[id] = subprocess.Popen(
                [*self._launch.get(id, []), sys.executable, "-m", "testkit.raft_member", str(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": str(TOOLS),
                    **({"SPUR_FAULT": fault, "SPUR_TEST_FAULTS": "1"} if fault else {}),
                },
            )

    def _socket(self, id: int) -> Path:
        return self.folder / f"m{id}.sock"

    def log(self, id: int) -> str:
        """The end of a member's log."""
        return (self.folder / f"m{id}.log").read_text()[-3000:]

    def running(self) -> list[int]:
        return list(self._processes)

    async def kill(self, *ids: int) -> None:
        """SIGKILL, all at the same moment."""
        for id in ids:
            self._processes[id].kill()
        for id in ids:
            process = self._processes.pop(id)
            await asyncio.to_thread(process.wait)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
            if link := self._links.pop(id, None):
                await link.close()

    async def ended(self, id: int) -> int:
        """Exit code of a member that ends by itself."""
        return await asyncio.to_thread(self._processes[id].wait)

    def pause(self, id: int) -> None:
        self._processes[id].send_signal(signal.SIGSTOP)

    def resume(self, id: int) -> None:
        self._processes[id].send_signal(signal.SIGCONT)

    # --- questions ----------------------------------------------------------------------------------------

    async def link(self, id: int) -> Link:
        """A new connection."""
        return Link(*await asyncio.open_unix_connection(str(self._socket(id)), limit=1 << 24))

    async def ask(self, id: int, do: str, **what: Any) -> Any:
        """Raises Refused, ConnectionError."""
        link = self._links.get(id)
        if link is None:
            link = self._links[id] = await self.link(id)
        return await link.ask(do, **what)

    async def leader(self, among: Sequence[int] = (), patience: float = 10.0) -> int:
        """Wait until a member leads and `among` (default: all that run) agree on it."""
        async with asyncio.timeout(patience):
            while True:
                wanted = among or self.running()
                with contextlib.suppress(ConnectionError, FileNotFoundError):
                    found = [await self.ask(id, "status") for id in wanted]
                    leading = {one["id"] for one in found if one["leads"]}
                    if len(leading) == 1 and {one["leader"] for one in found} == leading:
                        return leading.pop()
                await asyncio.sleep(0.01)

    async def new_leader(self, among: Sequence[int], patience: float = 10.0) -> int:
        """Wait until one of `among` leads; quicker than `leader`."""
        async with asyncio.timeout(patience):
            while True:
                for id in among:
                    if (await self.ask(id, "status"))["leads"]:
                        return id
                await asyncio.sleep(0.005)

    async def caught_up(self, patience: float = 10.0) -> None:
        """Wait until all running members applied what one of them has applied now; they may go on."""
        goal = max([(await self.ask(id, "status"))["applied"] for id in self.running()])
        async with asyncio.timeout(patience):
            for id in self.running():
                while (await self.ask(id, "status"))["applied"] < goal:
                    await asyncio.sleep(0.01)

    async def level(self, patience: float = 20.0) -> str:
        """Wait until all running members hold the same while nobody writes; the digest."""
        async with asyncio.timeout(patience):
            while True:
                found = [tuple(await self.ask(id, "digest")) for id in self.running()]
                if len({applied for applied, _ in found}) == 1:
                    digests = {digest for _, digest in found}
                    assert len(digests) == 1, f"members differ: {found}"
                    return str(digests.pop())
                await asyncio.sleep(0.02)


class Load:
    """Clients that write keys of their own through every member, note what was acknowledged, and read back.

    Attributes:
        acknowledged: keys.
        unsure: how many writes ended without certainty.
        stale: reads that did not show what was acknowledged before; must stay empty.
        gap: longest time between two acknowledgements, and when it ended.
    """

    def __init__(self, group: RaftGroup, seed: int, clients: int = 4) -> None:
        self._group = group
        self._random = random.Random(seed)
        self._clients = clients
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []
        self._registers: dict[str, int] = {}
        self.acknowledged: list[str] = []
        self.reads = 0
        self.unsure = 0
        self.refused = 0
        self.stale: list[str] = []
        self.gap = 0.0
        self._last = 0.0

    def begin(self) -> None:
        self._last = time.monotonic()
        for id in self._group.ids:
            for number in range(self._clients):
                self._tasks.append(asyncio.ensure_future(self._client(id, f"{id}-{number}")))

    async def end(self) -> None:
        """Returns when every client has its last answer."""
        self._over = True
        await asyncio.gather(*self._tasks)
        self._tasks.clear()

    async def judge(self) -> None:
        """Raise unless everything acknowledged is on every running member, once."""
        await self._group.level()
        assert not self.stale, self.stale[:10]
        for id in self._group.running():
            for at in range(0, len(self.acknowledged), 20_000):
                missing = await self._group.ask(id, "missing", keys=self.acknowledged[at : at + 20_000])
                assert not missing, f"member {id} lost {len(missing)}, among them {missing[:5]}"
            status = await self._group.ask(id, "status")
            assert status["doubles"] == 0, f"member {id} applied {status['doubles']} commands twice"

    async def _client(self, id: int, name: str) -> None:
        number = 0
        link: Link | None = None
        while not self._over:
            try:
                if link is None:
                    link = await self._group.link(id)
                if self._random.random() < 0.2 and self._registers:
                    await self._read(link)
                    continue
                number += 1
                # The register first: a reader that knows the number finds it.
                await link.ask("put", key=f"r{name}", value=str(number), secs=2.0)
                self._registers[f"r{name}"] = number
                self._noted()
                key = f"{name}-{number}"
                await link.ask("put", key=key, value=name, secs=2.0)
                self.acknowledged.append(key)
                self._noted()
            except Refused as error:
                if str(error).startswith("unknown"):
                    self.unsure += 1
                else:
                    self.refused += 1
                    await asyncio.sleep(0.01)
            except (ConnectionError, FileNotFoundError):
                if link is not None:
                    await link.close()
                link = None
                self.unsure += 1
                await asyncio.sleep(0.05)
        if link is not None:
            await link.close()

    async def _read(self, link: Link) -> None:
        key = self._random.choice(list(self._registers))
        known = self._registers[key]
        value = await link.ask("get", key=key, secs=2.0)
        self.reads += 1
        if int(value or 0) < known:
            self.stale.append(f"{key}: {value} after {known} was acknowledged")

    def _noted(self) -> None:
        now = time.monotonic()
        self.gap = max(self.gap, now - self._last)
        self._last = now


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]

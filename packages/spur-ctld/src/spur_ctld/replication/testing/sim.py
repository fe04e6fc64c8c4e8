"""A deterministic simulator of a whole group: one seed, one run.

Real cores on a simulated network (delay, loss, duplication, reordering, partitions), simulated disks whose
writes end late or never, crashes, snapshots, transfers and reads.  Time is in milliseconds; nothing here
sleeps.  `Invariants` watches every event; at the end the group is healed and must make progress and agree.
"""

import heapq
import random
from collections.abc import Callable

import msgspec

from spur_ctld.replication.core import Core
from spur_ctld.replication.roles import Role, Timing
from spur_ctld.replication.testing.invariants import Invariants, Violation
from spur_ctld.replication.types import (
    ORIGIN,
    AnyMessage,
    Entry,
    HardState,
    InstallSnapshot,
    Position,
    Ready,
)

TICK = 50
State = tuple[bytes, ...]


class Weather(msgspec.Struct, frozen=True):
    """Probabilities per message, and mean milliseconds between events (0 = never)."""

    loss: float = 0.05
    duplicate: float = 0.05
    delay: int = 30
    sync: int = 20
    crash_every: int = 4000
    crash_all_every: int = 20_000
    cut_every: int = 3000
    command_every: int = 15
    read_every: int = 100
    transfer_every: int = 8000
    snapshot_entries: int = 40
    keep: int = 10


#: Nothing fails.
CALM = Weather(loss=0.0, duplicate=0.0, crash_every=0, crash_all_every=0, cut_every=0)
#: Some of everything.
RAIN = Weather()
#: Elections all the time, slow disks, members that fall behind.
STORM = Weather(
    loss=0.1, delay=50, sync=60, crash_every=1500, crash_all_every=9000, cut_every=1000, transfer_every=3000
)


class Disk:
    """What survives a crash."""

    def __init__(self) -> None:
        self.hard = HardState()
        self.base = ORIGIN
        self.entries: list[Entry] = []
        self.snapshot = ORIGIN
        self.state: State = ()

    def write(self, ready: Ready) -> None:
        """All of it or, when the simulator never calls, nothing."""
        if ready.hard is not None:
            self.hard = ready.hard
        if ready.install_snapshot is not None:
            self.base = ready.install_snapshot
            self.entries = []
        if ready.entries:
            if not self.base.index < ready.first <= self.base.index + len(self.entries) + 1:
                raise Violation(f"a write at {ready.first} leaves a gap after {len(self.entries)}")
            del self.entries[ready.first - 1 - self.base.index :]
            self.entries += ready.entries

    def compact(self, index: int) -> None:
        """Forget entries up to `index`."""
        count = index - self.base.index
        if 0 < count <= len(self.entries):
            last = self.entries[count - 1]
            self.base = Position(last.index, last.term)
            del self.entries[:count]


class Host:
    """One member: its disk, and its core while it is up.  `life` tells events of an earlier life apart."""

    def __init__(self, id: int, sim: "Simulator") -> None:
        self.id = id
        self.disk = Disk()
        self.life = 0
        self.core: Core | None = None
        self.state: State = ()
        self._sim = sim
        self._proposed: dict[int, int] = {}
        self._reads: dict[int, int] = {}
        self._read_token = 0

    def start(self) -> None:
        disk = self.disk
        self.life += 1
        if disk.snapshot.index > disk.base.index + len(disk.entries):
            # A crash between a received snapshot and its restart frame.
            disk.base, disk.entries = disk.snapshot, []
        at = disk.snapshot.index - disk.base.index
        if at > 0 and disk.entries[at - 1].term != disk.snapshot.term:
            disk.base, disk.entries = disk.snapshot, []
        self.state = disk.state
        self._proposed.clear()
        self._reads.clear()
        self.core = Core(
            self.id,
            self._sim.members,
            disk.hard,
            disk.snapshot,
            disk.entries,
            self._sim.rng,
            self._sim.timing,
            base=disk.base,
        )
        self._tick(self.life)

    def resume(self) -> None:
        if self.core is None:
            self.start()

    def crash(self) -> None:
        self.core = None
        self.life += 1

    def _tick(self, life: int) -> None:
        if self.core is None or life != self.life:
            return
        self.core.tick()
        self.turn()
        # Clocks run at different speeds.
        self._sim.after(self._sim.rng.randrange(TICK - 10, TICK + 11), lambda: self._tick(life))

    def turn(self) -> None:
        """What the driver does after anything happened."""
        core = self.core
        if core is None:
            return
        self._sim.watch.leads(core)
        for msg in core.take_now():
            self._sim.send(msg)
        ready = core.ready()
        if ready is not None:
            life = self.life
            delay = self._sim.some(self._sim.weather.sync) if ready.writes else 0
            self._sim.after(delay, lambda: self._written(life, ready))
        self._apply(core)
        for answer in core.take_reads():
            asked = self._reads.pop(answer.token, 0)
            if answer.index is not None:
                self._sim.reads += 1
                self._sim.watch.read(self.id, answer.index, asked)

    def _written(self, life: int, ready: Ready) -> None:
        core = self.core
        if core is None or life != self.life:
            # The power went; sometimes the write had made it.
            if life == self.life - 1 and core is None and self._sim.rng.random() < 0.5:
                self.disk.write(ready)
            return
        self.disk.write(ready)
        core.persisted(ready)
        if ready.install_snapshot is not None and core.log.base == ready.install_snapshot:
            self.state = self.disk.state
            core.applied_to(ready.install_snapshot.index)
        for msg in ready.messages:
            self._sim.send(msg)
        self.turn()

    def _apply(self, core: Core) -> None:
        for entry in core.committed(20):
            self._sim.watch.applied(self.id, core.applied, entry)
            if entry.data is not None:
                self.state = (*self.state, entry.data)
            core.applied_to(entry.index)
            if self._proposed.pop(entry.index, 0) == entry.term:
                self._sim.watch.acknowledge(entry.index)
                self._sim.acknowledged += 1
        weather = self._sim.weather
        if core.applied - core.snapshot.index >= weather.snapshot_entries:
            meta = Position(core.applied, core.log.term_at(core.applied) or 0)
            self.disk.snapshot, self.disk.state = meta, self.state
            self._sim.snapshots[meta] = self.state
            self.disk.compact(core.snapshot_taken(meta, weather.keep))

    def receive(self, msg: AnyMessage) -> None:
        core = self.core
        if core is None:
            return
        wanted = max(core.commit, self.disk.snapshot.index)
        if isinstance(msg, InstallSnapshot) and msg.meta.index > wanted:
            # The file is durable before the message is stepped.
            self.disk.snapshot, self.disk.state = msg.meta, self._sim.snapshots[msg.meta]
        core.step(msg)
        self.turn()

    def propose(self, data: bytes) -> None:
        if self.core is not None and (placed := self.core.propose([data])) is not None:
            self._proposed[placed[1]] = placed[0]
            self.turn()

    def read(self) -> None:
        if self.core is None:
            return
        self._read_token += 1
        self._reads[self._read_token] = self._sim.watch.acknowledged
        self.core.read_index(self._read_token)
        self.turn()


class Simulator:
    """A group of `size` members under `weather`, decided by `seed` alone."""

    def __init__(
        self, seed: int, size: int = 3, weather: Weather | None = None, timing: Timing | None = None
    ) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.weather = weather or Weather()
        self.timing = timing or Timing(window=4, append_bytes=200)
        self.members = tuple(range(1, size + 1))
        self.watch = Invariants()
        self.hosts = {id: Host(id, self) for id in self.members}
        self.snapshots: dict[Position, State] = {ORIGIN: ()}
        self.now = 0
        self.acknowledged = self.reads = self.crashes = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._counter = 0
        #: Ordered pairs whose messages are lost.
        self._cut: set[tuple[int, int]] = set()
        self._commands = 0

    def after(self, delay: int, event: Callable[[], None]) -> None:
        """Run `event` in `delay` milliseconds."""
        self._counter += 1
        heapq.heappush(self._events, (self.now + delay, self._counter, event))

    def some(self, mean: int) -> int:
        """A random time, mostly short, sometimes very long."""
        return min(int(self.rng.expovariate(1 / mean)) if mean else 0, 50 * mean)

    def send(self, msg: AnyMessage) -> None:
        """Into the network."""
        self.watch.sent(msg)
        lost = (msg.src, msg.dst) in self._cut or self.rng.random() < self.weather.loss
        copies = 0 if lost else 1 + (self.rng.random() < self.weather.duplicate)
        if isinstance(msg, InstallSnapshot):
            self.after(200, lambda: self._snapshot_sent(msg, ok=bool(copies)))
        for _ in range(copies):
            # Copies are independent: they overtake each other and what was sent before or after.
            self.after(self.some(self.weather.delay), lambda: self.hosts[msg.dst].receive(msg))

    def _snapshot_sent(self, msg: InstallSnapshot, *, ok: bool) -> None:
        host = self.hosts[msg.src]
        if host.core is not None:
            host.core.snapshot_sent(msg.dst, ok)
            host.turn()

    def run(self, milliseconds: int) -> None:
        """Start everybody, let it rain for a while, heal, and check that all agree."""
        for host in self.hosts.values():
            host.start()
        weather = self.weather
        events = (
            (weather.command_every, self._command),
            (weather.read_every, lambda: self._any().read()),
            (weather.crash_every, lambda: self._crash([self._any()])),
            (weather.crash_all_every, lambda: self._crash(list(self.hosts.values()))),
            (weather.cut_every, self._partition),
            (weather.transfer_every, self._transfer),
        )
        for every, event in events:
            if every:
                self._repeat(every, event, milliseconds)
        self._until(milliseconds)
        self._heal()
        self._until(self.now + 30_000)
        self._check_agreement()

    def _repeat(self, every: int, event: Callable[[], object], end: int) -> None:
        def happen() -> None:
            if self.now < end:
                event()
                self._repeat(every, event, end)

        self.after(1 + self.some(every), happen)

    def _until(self, end: int) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def _any(self) -> Host:
        leaders = [host for host in self.hosts.values() if host.core and host.core.role is Role.LEADER]
        if leaders and self.rng.random() < 0.7:
            return self.rng.choice(leaders)
        return self.rng.choice(list(self.hosts.values()))

    def _command(self) -> None:
        self._commands += 1
        self._any().propose(b"%d" % self._commands)

    def _crash(self, hosts: list[Host]) -> None:
        for host in hosts:
            if host.core is not None:
                host.crash()
                self.crashes += 1
                self.after(200 + self.some(1500), host.resume)

    def _partition(self) -> None:
        if self._cut:
            self._cut.clear()
            return
        alone = self._any().id
        for other in self.members:
            if other != alone:
                self._cut.add((alone, other))
                if self.rng.random() < 0.6:
                    self._cut.add((other, alone))

    def _transfer(self) -> None:
        host = self._any()
        if host.core is not None:
            host.core.transfer(self.rng.choice(self.members))
            host.turn()

    def _heal(self) -> None:
        self.weather = msgspec.structs.replace(self.weather, loss=0.0, duplicate=0.0)
        self._cut.clear()
        for host in self.hosts.values():
            host.resume()
        self.after(15_000, self._last_command)

    def _last_command(self) -> None:
        for host in self.hosts.values():
            host.propose(b"last")

    def _check_agreement(self) -> None:
        states = {host.id: host.state for host in self.hosts.values()}
        first = states[self.members[0]]
        if not first or first[-1] != b"last":
            raise Violation(f"no progress after healing: {[len(state) for state in states.values()]}")
        for id, state in states.items():
            if state != first:
                raise Violation(f"member {id} ended in another state than member {self.members[0]}")
        applied = [host.core.applied for host in self.hosts.values() if host.core is not None]
        if min(applied) < self.watch.acknowledged:
            raise Violation("an acknowledged command is missing")

"""A deterministic simulator of a whole group: one seed, one run.

Real cores (in a share of the runs with the real stores) on a simulated network with delay, loss, duplication,
reordering and partitions; disks whose writes end late or never; crashes, stalls, clocks that run differently,
snapshots, transfers, commands and reads at leaders and followers, lost directories.  Time is in milliseconds;
nothing here sleeps.  `Invariants` watches every event; at the end the group is healed and must make progress
and agree.
"""

import heapq
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from spur_ctld.replication import seeding
from spur_ctld.replication.roles import Role
from spur_ctld.replication.testing import trace
from spur_ctld.replication.testing.disks import Disk, FileDisk, MemoryDisk
from spur_ctld.replication.testing.host import Ending, Host, refused
from spur_ctld.replication.testing.invariants import Invariants, Violation
from spur_ctld.replication.testing.weather import Setup, draw
from spur_ctld.replication.types import AnyMessage, InstallSnapshot

#: After healing all must agree within this.
HEALING = 120_000
#: No run has nearly as many events.
ENDLESS = 1_000_000
LAST = b"last"
#: Receives one line of what happens.
Teller = Callable[[str], None]


class Simulator:
    """A group under the weather that `seed` draws, or under `setup`; everything else is the seed's too."""

    def __init__(self, seed: int, setup: Setup | None = None, tell: Teller | None = None) -> None:
        self.seed = seed
        self.setup = setup or draw(seed)
        self.rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.weather = self.setup.weather
        self.members = tuple(range(1, self.setup.size + 1))
        self.quorum = self.setup.size // 2 + 1
        self.now = 0
        self.tracing = tell is not None
        self.acknowledged = self.refused = self.reads = self.forwards = 0
        self.crashes = self.installs = self.transfers = self.losses = self.events = 0
        self._tell = tell
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._counter = 0
        self._commands = 0
        #: Ordered pairs whose messages are lost.
        self._cut: set[tuple[int, int]] = set()
        self._folder: Path | None = None
        if self.setup.files:
            shm = Path("/dev/shm")  # noqa: S108 - nothing predictable is made there
            self._folder = Path(tempfile.mkdtemp(prefix="spursim", dir=shm if shm.is_dir() else None))
        holders = None if self.weather.lose_every else self._holders
        self.watch = Invariants(holders, self.quorum)
        self.hosts = {id: Host(id, self, self._disk(id)) for id in self.members}

    def _disk(self, id: int) -> Disk:
        return FileDisk(self.rng, self._folder / str(id)) if self._folder else MemoryDisk(self.rng)

    def _holders(self, index: int, term: int) -> int:
        return sum(host.disk.holds(index, term) for host in self.hosts.values())

    @property
    def elections(self) -> int:
        """How many leaders there were."""
        return len(self.watch.leaders)

    # --- time ---------------------------------------------------------------------------------------------

    def after(self, delay: int, event: Callable[[], None]) -> None:
        """Run `event` in `delay` milliseconds."""
        self._counter += 1
        heapq.heappush(self._queue, (self.now + delay, self._counter, event))

    def some(self, mean: int) -> int:
        """A random time, mostly short, sometimes very long."""
        return min(int(self.rng.expovariate(1 / mean)) if mean else 0, 50 * mean)

    def write_time(self) -> int:
        """How long a disk takes."""
        if self.rng.random() < self.weather.slow_sync:
            return self.rng.randrange(1000, 5000)
        return self.some(self.weather.sync)

    def note(self, id: int, text: str) -> None:
        """For the trace."""
        if self._tell is not None:
            self._tell(f"{self.now / 1000:8.3f}  {id or '-'}  {text}")

    def _until(self, end: int) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, event = heapq.heappop(queue)
            self.events += 1
            if self.events > ENDLESS:
                raise Violation("messages beget messages without end")
            event()
        self.now = end

    # --- the network --------------------------------------------------------------------------------------

    def _lost(self, src: int, dst: int) -> bool:
        return (src, dst) in self._cut or self.rng.random() < self.weather.loss

    def _travel(self) -> int:
        if self.rng.random() < self.weather.late:
            return self.rng.randrange(500, 8000)
        return self.some(self.weather.delay)

    def send(self, msg: AnyMessage) -> None:
        """Into the network."""
        self.watch.sent(msg)
        if isinstance(msg, InstallSnapshot):
            self._stream(msg)
            return
        lost = self._lost(msg.src, msg.dst)
        copies = 0 if lost else 1 + (self.rng.random() < self.weather.duplicate)
        if self.tracing:
            self.note(msg.src, f"sends {trace.message(msg)}{'' if copies else '  LOST'}")
        if lost and self.rng.random() < 0.3:
            # A stream that breaks tells the sender, sooner or later.
            self.after(self.some(200), lambda: self.hosts[msg.src].unreachable(msg.dst))
        for _ in range(copies):
            # Copies are independent: they overtake each other and what was sent before or after.
            self.after(self._travel(), lambda: self._deliver(msg))

    def _deliver(self, msg: AnyMessage) -> None:
        host = self.hosts[msg.dst]
        if self.tracing and host.core is not None:
            self.note(msg.dst, f"gets  {trace.message(msg)}")
        host.receive(msg)

    def _stream(self, msg: InstallSnapshot) -> None:
        """The file travels with the message, both may be lost on the way, and the message may come again."""
        source = self.hosts[msg.src]
        life = source.life
        state = source.disk.state_at(msg.meta)
        time = 50 + self.some(200)
        if self.tracing:
            self.note(msg.src, f"sends {trace.message(msg)}{'' if state else '  NO FILE'}")

        def arrive() -> None:
            ok = (
                state is not None
                and not self._lost(msg.src, msg.dst)
                and self.hosts[msg.dst].core is not None
            )
            if ok and state is not None:
                self.hosts[msg.dst].receive_file(msg, state)
                if self.rng.random() < self.weather.duplicate:
                    self.after(
                        self.rng.randrange(10_000), lambda: self.hosts[msg.dst].receive_file(msg, state)
                    )
            if source.life == life:
                source.snapshot_sent(msg.dst, ok)

        self.after(time, arrive)

    def carry(self, src: int, dst: int, arrived: Callable[[Host], None]) -> None:
        """A call from member to member, or its answer: once, late, or not at all."""
        if self._lost(src, dst):
            return

        def arrive() -> None:
            if self.hosts[dst].core is not None:
                arrived(self.hosts[dst])

        self.after(self._travel(), arrive)

    # --- the run ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start everybody, let it rain for a while, heal, and check that all agree.

        Raises:
            AssertionError: what does not hold; `Violation` for an invariant.
        """
        try:
            self._run()
        finally:
            if self._folder is not None:
                for host in self.hosts.values():
                    host.disk.power_off()
                shutil.rmtree(self._folder)

    def _run(self) -> None:
        for host in self.hosts.values():
            host.start()
        weather = self.weather
        events: tuple[tuple[int, Callable[[], None]], ...] = (
            (weather.command_every, self._command),
            (weather.read_every, lambda: self._any().read()),
            (weather.crash_every, lambda: self._crash(self._any(), "loses its power")),
            (weather.crash_all_every, self._crash_all),
            (weather.fail_every, lambda: self._crash(self._any(), "ends: its disk refuses")),
            (weather.cut_every, self._partition),
            (weather.stall_every, lambda: self._any().stall(self.rng.randrange(200, 5000))),
            (weather.lose_every, self._lose),
            (weather.transfer_every, lambda: self._any().transfer(self.rng.choice(self.members))),
        )
        for every, event in events:
            if every:
                self._repeat(every, event, self.setup.milliseconds)
        self._until(self.setup.milliseconds)
        self._heal()
        end = self.now + HEALING
        self.after(10_000, self._last_command)
        self._until(self.now + 12_000)
        while self.now < end and not self._agreed():
            self._until(self.now + 500)
        self._check_agreement()

    def _repeat(self, every: int, event: Callable[[], None], end: int) -> None:
        def happen() -> None:
            if self.now < end:
                event()
                self._repeat(every, event, end)

        self.after(1 + self.some(every), happen)

    def _any(self) -> Host:
        """A member, mostly a leader."""
        leaders = [host for host in self.hosts.values() if host.core and host.core.role is Role.LEADER]
        if leaders and self.rng.random() < 0.6:
            return self.rng.choice(leaders)
        return self.rng.choice(list(self.hosts.values()))

    def _command(self) -> None:
        for _ in range(self.rng.choice((1, 1, 1, 5))):
            self._commands += 1
            self._submit(self._any(), b"%d" % self._commands)

    def _submit(self, host: Host, cmd: bytes) -> None:
        def told(ending: Ending) -> None:
            if isinstance(ending, bytes):
                self.acknowledged += 1
                self.watch.acknowledge(cmd, int(ending))
            elif refused(ending):
                self.refused += 1
                self.watch.refuse(cmd)

        host.submit(cmd, told, self.rng.choice((500, 3000, 10_000)))

    # --- what goes wrong ----------------------------------------------------------------------------------

    def _crash(self, host: Host, why: str) -> None:
        if host.core is not None:
            self.crashes += 1
            host.stop(why)
            self.after(200 + self.some(1500), lambda: self._start(host))

    def _crash_all(self) -> None:
        for host in self.hosts.values():
            self._crash(host, "loses its power")

    def _start(self, host: Host) -> None:
        if host.core is not None:
            return
        if host.lost and not self._fill(host):
            self.after(300, lambda: self._start(host))
            return
        host.start()

    def _lose(self) -> None:
        """A directory is gone, of as many members at once as may be filled again."""
        host = self._any()
        away = sum(other.lost or bool(other.disk.hard.abstain) for other in self.hosts.values())
        if away >= self.setup.size - self.quorum:
            return
        if host.core is not None:
            host.stop("loses its directory")
        else:
            host.life += 1
        host.lost = True
        self.losses += 1
        self.after(100 + self.some(800), lambda: self._start(host))

    def _fill(self, host: Host) -> bool:
        """`raft seed`: ask a majority, begin with an empty log."""
        terms = {
            other.id: other.core.term
            for other in self.hosts.values()
            if other is not host and other.core is not None and not other.lost and not other.core.abstain
        }
        if len(terms) < self.quorum:
            return False
        asked = self.rng.sample(sorted(terms), self.quorum)
        hard = seeding.first_state(host.id, self.members, {id: terms[id] for id in asked})
        host.disk.format(hard)
        host.lost = False
        self.note(host.id, f"begins anew in term {hard.term}")
        return True

    def _partition(self) -> None:
        """End the present one, or cut a member's links one way or both, one link, or the group in two."""
        self.note(0, "links heal" if self._cut else "links break")
        if self._cut:
            self._cut.clear()
            return
        alone = self._any().id
        others = [id for id in self.members if id != alone]
        kind = self.rng.random()
        if kind < 0.15:
            self._cut = {(alone, other) for other in others}
        elif kind < 0.3:
            self._cut = {(other, alone) for other in others}
        elif kind < 0.65:
            self._cut = {pair for other in others for pair in ((alone, other), (other, alone))}
        elif kind < 0.85 and others:
            other = self.rng.choice(others)
            self._cut = {(alone, other), (other, alone)}
        else:
            side = set(self.rng.sample(self.members, self.rng.randrange(len(self.members) + 1)))
            self._cut = {
                (one, two) for one in self.members for two in self.members if (one in side) != (two in side)
            }

    def _heal(self) -> None:
        self.note(0, "everything heals")
        self.weather = msgspec.structs.replace(
            self.weather, loss=0.0, duplicate=0.0, late=0.0, slow_sync=0.0, sync=10, delay=10
        )
        self._cut.clear()
        for host in self.hosts.values():
            self._start(host)

    def _last_command(self) -> None:
        for host in self.hosts.values():
            host.submit(LAST + b"%d" % host.id, lambda _: None, 60_000)

    # --- the end ------------------------------------------------------------------------------------------

    def _agreed(self) -> bool:
        cores = [host.core for host in self.hosts.values()]
        return (
            all(core is not None and core.applied == max(self.watch.chosen, default=-1) for core in cores)
            and len({host.state for host in self.hosts.values()}) == 1
            and sum(LAST in (entry.data or b"") for entry in self.watch.chosen.values()) == len(self.hosts)
        )

    def _check_agreement(self) -> None:
        if self._agreed():
            return
        where = "; ".join(
            f"{host.id}: {trace.member(host.core) if host.core else 'down'}" for host in self.hosts.values()
        )
        raise Violation(f"no agreement {HEALING // 1000} s after healing: {where}")

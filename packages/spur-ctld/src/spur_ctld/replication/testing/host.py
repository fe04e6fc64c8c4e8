"""One simulated member: what the driver does around the core, without threads, sockets and clocks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from spur_ctld.replication.core import Core
from spur_ctld.replication.errors import Dropped, NotLeader, Unknown
from spur_ctld.replication.roles import Role
from spur_ctld.replication.testing import trace
from spur_ctld.replication.testing.disks import Disk, State
from spur_ctld.replication.testing.invariants import Violation
from spur_ctld.replication.types import AnyMessage, InstallSnapshot, Position, ReadResult, Ready
from spur_ctld.replication.waiting import Waiting, WaitingRoom

if TYPE_CHECKING:
    import asyncio

    from spur_ctld.replication.testing.sim import Simulator

TICK = 50
#: How a command ended: its result, or why there is none.
Ending = bytes | Exception
#: Commands in one forward, and forwards that may be unanswered.
BATCH, FORWARDS = 30, 2
#: Milliseconds until a forward without an answer is given up.
PATIENCE = 2500


class Answer:
    """Stands where the driver has a future: ends once and tells."""

    def __init__(self, told: Callable[[Ending], None]) -> None:
        self._told: Callable[[Ending], None] | None = told

    def done(self) -> bool:
        return self._told is None

    def set_result(self, result: bytes) -> None:
        self._end(result)

    def set_exception(self, error: Exception) -> None:
        self._end(error)

    def _end(self, how: Ending) -> None:
        told, self._told = self._told, None
        assert told is not None, "ended twice"
        told(how)


class Host:
    """A member: its disk, and its core while its program runs.

    `life` tells events of an earlier life apart.
    """

    def __init__(self, id: int, sim: "Simulator", disk: Disk) -> None:
        self.id = id
        self.disk = disk
        self.life = 0
        self.core: Core | None = None
        self.state = State()
        self.lost = False
        self._sim = sim
        self._forget()

    def _forget(self) -> None:
        self._room = WaitingRoom()
        self._writing: Ready | None = None
        self._snapshot: tuple[Position, State] | None = None
        self._compact_to = 0
        self._receiving: set[Position] = set()
        self._reads: dict[int, Callable[[int | None], None]] = {}
        self._reads_applying: list[tuple[int, int]] = []
        self._tokens = 0
        self._forwards: dict[int, list[Waiting]] = {}
        self._stalled = False
        self._missed = 0
        self._held: list[Callable[[Core], None]] = []

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The program starts and reads its directory."""
        sim = self._sim
        self.life += 1
        self._forget()
        loaded = self.disk.load()
        self.state = loaded.state
        self.core = core = Core(
            self.id,
            sim.members,
            loaded.hard,
            loaded.snapshot,
            loaded.entries,
            sim.rng,
            sim.setup.timing,
            base=loaded.base,
        )
        sim.watch.started(core)
        sim.watch.same_state(self.id, self.state.index, self.state.digest)
        self.note(lambda: f"starts: {trace.member(core)}")
        skew = sim.weather.skew
        self._speed = skew ** sim.rng.choice((-1, 0, 1))
        if len(sim.members) == 1:
            core.campaign()
        self._later(self._tick_time(), self._tick, held=False)
        self.turn(core)

    def stop(self, why: str) -> None:
        """The power goes, or the program ends, in the middle of whatever it is doing."""
        self.note(lambda: why)
        self.core = None
        self.life += 1
        if self._writing is not None:
            self.disk.torn(self._writing)
        elif self._snapshot is not None:
            self.disk.torn_snapshot(*self._snapshot)
        elif self._compact_to:
            self.disk.torn_compact(self._compact_to)
        self.disk.power_off()

    def stall(self, milliseconds: int) -> None:
        """The program stands still; what arrives waits."""
        if self.core is None or self._stalled:
            return
        self.note(lambda: f"stands still for {milliseconds} ms")
        self._stalled = True
        self._later(milliseconds, self._resume, held=False)

    def _resume(self, core: Core) -> None:
        self.note(lambda: "goes on")
        self._stalled = False
        held, self._held = self._held, []
        # What arrived meanwhile first, then at most half an election time-out of time.
        for action in held:
            if self.core is not core:
                return
            action(core)
            self._sim.watch.observe(core)
        for _ in range(min(self._missed, self._sim.setup.timing.election // 2)):
            core.tick()
            self._sim.watch.observe(core)
        self._missed = 0
        self.turn(core)

    def _tick_time(self) -> int:
        return max(1, int(self._speed * self._sim.rng.randrange(TICK - 10, TICK + 11)))

    def _tick(self, core: Core) -> None:
        self._later(self._tick_time(), self._tick, held=False)
        if self._stalled:
            self._missed += 1
            return
        core.tick()
        self.turn(core)

    def _later(self, delay: int, action: Callable[[Core], None], *, held: bool = True) -> None:
        """Do `action` in `delay` milliseconds of this life, later still while the program stands still."""
        life = self.life

        def happen() -> None:
            core = self.core
            if core is None or life != self.life:
                return
            if self._stalled and held:
                self._held.append(action)
            else:
                action(core)
                self._sim.watch.observe(core)

        self._sim.after(delay, happen)

    def meanwhile(self, action: Callable[[Core], None]) -> None:
        """Something arrives from outside."""
        core = self.core
        if core is None:
            return
        if self._stalled:
            self._held.append(action)
        else:
            action(core)

    def note(self, text: Callable[[], str]) -> None:
        if self._sim.tracing:
            self._sim.note(self.id, text())

    # --- the turn -----------------------------------------------------------------------------------------

    def turn(self, core: Core) -> None:
        """What the driver does after anything happened."""
        watch = self._sim.watch
        watch.observe(core)
        self._take_commands(core)
        for msg in core.take_now():
            self._send(core, msg)
        watch.observe(core)
        self._start_write(core)
        self._apply(core)
        self._answer_reads(core)
        self._maybe_snapshot(core)

    def _start_write(self, core: Core) -> None:
        while self._writing is None:
            ready = core.ready()
            if ready is None:
                return
            if ready.writes:
                self._write(core, ready)
                return
            core.persisted(ready)
            self._sim.watch.observe(core)
            for msg in ready.messages:
                self._send(core, msg)

    def _write(self, core: Core, ready: Ready) -> None:
        self._sim.watch.wrote(core, ready)
        self._writing = ready
        life = self.life

        def done() -> None:
            if self.core is None or self.life != life:
                return
            # The disk works while the program stands still.
            self.disk.write(ready)
            self._writing = None
            self.note(lambda: f"has on disk: {trace.written(ready)}")
            self.meanwhile(lambda core: self._written(core, ready))

        self._sim.after(self._sim.write_time(), done)

    def _written(self, core: Core, ready: Ready) -> None:
        install = ready.install_snapshot
        if install is not None:
            state = self.disk.state_at(install)
            if state is None:
                raise Violation(f"member {self.id}: the snapshot {trace.place(install)} to install is gone")
            self.state = state
            self._sim.watch.same_state(self.id, state.index, state.digest)
            core.applied_to(install.index)
            self._room.skipped(install.index)
            self._sim.installs += 1
            self.disk.prune()
        core.persisted(ready)
        for msg in ready.messages:
            self._send(core, msg)
        self.turn(core)

    def _apply(self, core: Core) -> None:
        sim, room = self._sim, self._room
        for entry in core.committed(sim.rng.choice((1, 20))):
            before = core.applied
            self.state = self.state.after(entry)
            core.applied_to(entry.index)
            sim.watch.applied(self.id, before, entry, self.state.digest)
            if entry.data is None:
                room.displaced(entry.index, entry.term)
            else:
                room.applied(entry.index, entry.term, b"%d" % entry.index)
        if core.committed(1):
            self._later(1, self.turn)

    def _maybe_snapshot(self, core: Core) -> None:
        sim = self._sim
        due = core.applied - core.snapshot.index >= sim.weather.snapshot_entries
        if not due or self._snapshot is not None or core.applied < core.log.base.index:
            return
        term = core.log.term_at(core.applied)
        assert term is not None
        self._snapshot = meta, state = Position(core.applied, term), self.state
        assert state.index == meta.index

        def taken(core: Core) -> None:
            self._snapshot = None
            oldest = self.disk.take(meta, state, prune=True)
            keep = core.snapshot_taken(meta, sim.weather.keep)
            self._compact_to = min(keep, oldest)
            self._later(self._sim.write_time(), self._compact)
            self.note(lambda: f"has a snapshot of {trace.place(meta)}: {trace.member(core)}")
            self.turn(core)

        self._later(2 * sim.write_time(), taken)

    def _compact(self, core: Core) -> None:
        if self._compact_to:
            self.disk.compact(self._compact_to)
            self._compact_to = 0

    # --- messages -----------------------------------------------------------------------------------------

    def _send(self, core: Core, msg: AnyMessage) -> None:
        self._sim.watch.promised(core, msg, self.disk.hard, self.disk.holds)
        self._sim.send(msg)

    def receive(self, msg: AnyMessage) -> None:
        """A message arrives."""
        self.meanwhile(lambda core: self._step(core, msg))

    def _step(self, core: Core, msg: AnyMessage) -> None:
        core.step(msg)
        self._sim.watch.observe(core)
        self.turn(core)

    def receive_file(self, msg: InstallSnapshot, state: State) -> None:
        """A snapshot file arrived; it is made durable before the message is stepped."""
        self.meanwhile(lambda core: self._keep_file(core, msg, state))

    def _keep_file(self, core: Core, msg: InstallSnapshot, state: State) -> None:
        meta = msg.meta
        if meta in self._receiving:
            return
        if meta.index <= core.commit:
            self._step(core, msg)
            return
        self._receiving.add(meta)

        def durable(core: Core) -> None:
            self._receiving.discard(meta)
            if meta.index > core.snapshot.index:
                self.disk.take(meta, state, prune=False)
            self._step(core, msg)

        self._later(2 * self._sim.write_time(), durable)

    def transfer(self, to: int) -> None:
        """Somebody asks it to hand over."""

        def ask(core: Core) -> None:
            if core.transfer(to):
                self._sim.transfers += 1
                self.note(lambda: f"hands over to {to}")
            self.turn(core)

        self.meanwhile(ask)

    def snapshot_sent(self, to: int, ok: bool) -> None:
        def tell(core: Core) -> None:
            core.snapshot_sent(to, ok)
            self.turn(core)

        self.meanwhile(tell)

    def unreachable(self, peer: int) -> None:
        def tell(core: Core) -> None:
            core.unreachable(peer)
            self.turn(core)

        self.meanwhile(tell)

    # --- commands -----------------------------------------------------------------------------------------

    def submit(self, cmd: bytes, told: Callable[[Ending], None], patience: int) -> None:
        """A client's command; `told` is never called when the program ends before it knows."""

        def enter(core: Core) -> None:
            waiting = self._enter(cmd, told, hop=False)
            self._later(patience, lambda core: waiting.expire())
            self.turn(core)

        self.meanwhile(enter)

    def _enter(self, cmd: bytes, told: Callable[[Ending], None], *, hop: bool) -> Waiting:
        waiting = Waiting(cmd, cast("asyncio.Future[bytes]", Answer(told)), hop=hop)
        self._room.enter(waiting)
        return waiting

    def _take_commands(self, core: Core) -> None:
        room = self._room
        if not room.queue:
            return
        if core.role is Role.LEADER:
            waits = self._writing is not None and len(self._sim.members) == 1
            if core.can_propose and not waits and (batch := room.batch(BATCH, 1 << 20)):
                placed = core.propose([waiting.cmd for waiting in batch])
                assert placed is not None
                room.place(batch, *placed)
            return
        room.refuse_hops(NotLeader(core.leader or None))
        while core.leader and len(self._forwards) < FORWARDS and (batch := room.batch(BATCH, 1 << 20)):
            room.send(batch)
            self._forward(core.leader, batch)

    def _forward(self, leader: int, batch: list[Waiting]) -> None:
        self._tokens += 1
        number, life = self._tokens, self.life
        self._forwards[number] = batch
        self._sim.forwards += len(batch)
        commands = [waiting.cmd for waiting in batch]

        def answered(endings: list[Ending]) -> None:
            if self.life == life:
                self.meanwhile(lambda core: self._forwarded(core, number, endings))

        def arrived(host: "Host") -> None:
            host.serve(
                commands, lambda endings: self._sim.carry(host.id, self.id, lambda _: answered(endings))
            )

        self._sim.carry(self.id, leader, arrived)
        unknown: list[Ending] = [Unknown("no answer")] * len(batch)
        self._later(PATIENCE, lambda core: self._forwarded(core, number, unknown))

    def _forwarded(self, core: Core, number: int, endings: list[Ending]) -> None:
        batch = self._forwards.pop(number, None)
        if batch is None:
            return
        again = [waiting for waiting, ending in zip(batch, endings) if isinstance(ending, NotLeader)]
        for waiting, ending in zip(batch, endings):
            if isinstance(ending, NotLeader) or not self._room.settle(waiting):
                continue
            if isinstance(ending, bytes):
                waiting.succeed(ending)
            else:
                waiting.fail(ending)
        self._room.send_again(again)
        if not again:
            self.turn(core)
        else:
            self._later(20, self.turn)

    def serve(self, commands: list[bytes], reply: Callable[[list[Ending]], None]) -> None:
        """Commands that another member sent: one hop only."""
        self.meanwhile(lambda core: self._serve(core, commands, reply))

    def _serve(self, core: Core, commands: list[bytes], reply: Callable[[list[Ending]], None]) -> None:
        if core.role is not Role.LEADER:
            reply([NotLeader(core.leader or None)] * len(commands))
            return
        endings: dict[int, Ending] = {}

        def told(at: int, ending: Ending) -> None:
            endings[at] = ending
            if len(endings) == len(commands):
                reply([endings[at] for at in range(len(commands))])

        for at, cmd in enumerate(commands):
            self._enter(cmd, lambda ending, at=at: told(at, ending), hop=True)  # type: ignore[misc]
        self.turn(core)

    # --- reads --------------------------------------------------------------------------------------------

    def read(self) -> None:
        """A client reads this member's state."""
        floor = self._sim.watch.floor
        self.meanwhile(lambda core: self._begin_read(core, floor))

    def _begin_read(self, core: Core, floor: int) -> None:
        life, leader = self.life, core.leader

        def told(index: int | None) -> None:
            if self.life == life and index is not None:
                self._reads_applying.append((index, floor))

        if core.role is Role.LEADER:
            self._ask_index(core, told)
        elif leader:

            def answered(index: int | None) -> None:
                def take(core: Core) -> None:
                    told(index)
                    self.turn(core)

                if self.life == life:
                    self.meanwhile(take)

            def arrived(host: "Host") -> None:
                def reply(index: int | None) -> None:
                    self._sim.carry(host.id, self.id, lambda _: answered(index))

                host.meanwhile(lambda core: host._ask_index(core, reply))

            self._sim.carry(self.id, leader, arrived)

    def _ask_index(self, core: Core, told: Callable[[int | None], None]) -> None:
        self._tokens += 1
        self._reads[self._tokens] = told
        core.read_index(self._tokens)
        self.turn(core)

    def _answer_reads(self, core: Core) -> None:
        answers: list[ReadResult] = core.take_reads()
        for answer in answers:
            self._reads.pop(answer.token)(answer.index)
        if not self._reads_applying:
            return
        still = []
        for index, floor in self._reads_applying:
            if self.state.index < index:
                still.append((index, floor))
                continue
            self._sim.reads += 1
            self._sim.watch.read(self.id, self.state.index, floor)
        self._reads_applying = still


def refused(ending: Ending) -> bool:
    """The command certainly was not and will not be executed."""
    return isinstance(ending, NotLeader | Dropped)

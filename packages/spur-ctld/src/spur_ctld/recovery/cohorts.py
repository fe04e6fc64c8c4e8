"""Cohorts: whether every node of a run still has its supervisor, after some agent was away.

Pure.  Events go in (a report, the answer to a probe, a heartbeat's list, the time), decisions come out
(a verdict for the reporter, probes to send, runs to give up).  The first report of a run opens a window; the
run is kept once each of its nodes is confirmed, and given up when a node certainly has nothing of it, or when
the window ends first.  Each window ends in exactly one of the two.

Nothing here is replicated: a new leader starts without windows, and agents repeat their reports until they
have a final verdict.  Times are seconds of one monotonic clock, given by the caller.
"""

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Final, NamedTuple

from spur_core.ids import RuntimeId

#: Between two probes of one node; a probe itself may take as long.
PROBE_SECS: Final = 5.0


class Verdict(Enum):
    """What an agent is told about one supervisor."""

    KEEP = "the run goes on"
    WAIT = "not decided: report again"
    FENCE = "end everything of exactly this run here, then report again"
    FORGET = "nothing of it is wanted: clean up"
    RESTORE = "start a new holding supervisor on what is there"


class Cohort(NamedTuple):
    """What the replicated state says of a run.

    Attributes:
        nodes: where it needs a supervisor.
        ended: of those, the ones whose exit is on file.
        excused: of those, the ones whose agent announced that it restarts; how long it may stay away is
            another clock's business, and its window's time counts from its return.
    """

    nodes: frozenset[str]
    ended: frozenset[str]
    excused: frozenset[str] = frozenset()


#: The run's cohort now; None = the run is over, superseded or being ended by somebody else.
Look = Callable[[RuntimeId], "Cohort | None"]


class Probe(NamedTuple):
    """Ask this node whether it has the run."""

    rid: RuntimeId
    node: str


class Loss(NamedTuple):
    """The run is to be given up.

    Attributes:
        node: the first that has nothing of it.
        why: for people.
        certain: the node said so itself; False: its word was waited for in vain.
    """

    rid: RuntimeId
    node: str
    why: str
    certain: bool = True


class Decisions(NamedTuple):
    """What the shell does next."""

    probes: tuple[Probe, ...] = ()
    losses: tuple[Loss, ...] = ()


class _Phase(Enum):
    OPEN = "some node is not confirmed"
    KEPT = "all were confirmed"
    LOST = "given up; stays so until the run is gone from the state"


class _Window:
    """One run under examination."""

    __slots__ = ("confirmed", "deadline", "excused_until", "phase", "probed", "restoring")

    def __init__(self, deadline: float) -> None:
        self.phase = _Phase.OPEN
        self.deadline = deadline
        self.confirmed: set[str] = set()
        #: Nodes that were told to start a new supervisor and have not said that it lives.
        self.restoring: set[str] = set()
        #: Node -> when it was asked last.
        self.probed: dict[str, float] = {}
        #: Node -> its own deadline, moved on as long as it is excused.
        self.excused_until: dict[str, float] = {}


class Cohorts:
    """All windows.

    Args:
        look: what the state says of a run now.
        grace: seconds a window stays open.
    """

    def __init__(self, look: Look, grace: float) -> None:
        self._look = look
        self.grace = grace
        self._windows: dict[RuntimeId, _Window] = {}
        self._losses: list[Loss] = []

    def __len__(self) -> int:
        return len(self._windows)

    # -- events

    def live(self, rid: RuntimeId, node: str, now: float, fresh: Collection[str] = ()) -> Verdict:
        """`node` reports that its supervisor of the run lives, or that it has ended and told how.

        Args:
            fresh: nodes whose last heartbeat, a moment ago, named the run as alive.
        """
        cohort = self._look(rid)
        if cohort is None:
            self._windows.pop(rid, None)
            return Verdict.WAIT
        if node not in cohort.nodes:
            return Verdict.FENCE
        window = self._window(rid, now)
        if window.phase is _Phase.OPEN:
            window.confirmed.add(node)
            window.confirmed.update(fresh)
            window.restoring.discard(node)
            self._settle(rid, window, cohort, now)
        return _VERDICT[window.phase]

    def lost(self, rid: RuntimeId, node: str, now: float, why: str, *, restorable: bool = False) -> Verdict:
        """`node` says that its supervisor of the run is gone without an exit.

        Args:
            restorable: nothing but the supervisor is missing, so a new one may take its place.
        """
        cohort = self._look(rid)
        if cohort is None:
            self._windows.pop(rid, None)
            return Verdict.WAIT
        if node not in cohort.nodes:
            return Verdict.FORGET
        if node in cohort.ended:
            return Verdict.FORGET
        window = self._window(rid, now)
        if restorable and window.phase is not _Phase.LOST:
            if window.phase is _Phase.KEPT:
                window = self._reopen(rid, window, now)
            window.confirmed.discard(node)
            window.restoring.add(node)
            return Verdict.RESTORE
        self._give_up(rid, window, node, why)
        return Verdict.FENCE

    def probed(self, rid: RuntimeId, node: str, active: bool, now: float) -> None:
        """`node` answered a probe; a probe without an answer is no event."""
        window = self._windows.get(rid)
        cohort = self._look(rid) if window is not None else None
        if window is None or cohort is None or window.phase is not _Phase.OPEN or node not in cohort.nodes:
            return
        if active:
            window.confirmed.add(node)
            window.restoring.discard(node)
        elif node not in cohort.ended and node not in window.restoring and node not in window.confirmed:
            self._give_up(rid, window, node, f"{node} has no supervisor of it")
            return
        self._settle(rid, window, cohort, now)

    def seen(self, node: str, rids: Iterable[RuntimeId], now: float) -> None:
        """A heartbeat of `node` names these runs as alive."""
        if not self._windows:
            return
        for rid in rids:
            window = self._windows.get(rid)
            if window is None or window.phase is not _Phase.OPEN or node in window.restoring:
                continue
            cohort = self._look(rid)
            if cohort is not None and node in cohort.nodes:
                window.confirmed.add(node)
                self._settle(rid, window, cohort, now)

    def due(self, now: float) -> Decisions:
        """What time has brought, and the losses found since the last call.

        A window that reaches its deadline with a node unconfirmed is given up; decided windows go once the
        run is gone, or, when it was kept, once they are as old as a window lasts.
        """
        probes: list[Probe] = []
        for rid, window in list(self._windows.items()):
            cohort = self._look(rid)
            if cohort is None or (window.phase is _Phase.KEPT and now >= window.deadline):
                del self._windows[rid]
                continue
            if window.phase is not _Phase.OPEN or self._settle(rid, window, cohort, now):
                continue
            missing = self._missing(window, cohort)
            for node in cohort.excused.intersection(missing):
                window.excused_until[node] = now + self.grace
            late = [n for n in missing if now >= window.excused_until.get(n, window.deadline)]
            if late:
                why = f"no word of its supervisor from {', '.join(late)}"
                self._give_up(rid, window, late[0], why, certain=False)
                continue
            for node in missing:
                if node not in window.restoring and now - window.probed.get(node, -PROBE_SECS) >= PROBE_SECS:
                    window.probed[node] = now
                    probes.append(Probe(rid, node))
        losses, self._losses = self._losses, []
        return Decisions(tuple(probes), tuple(losses))

    # -- windows

    def _window(self, rid: RuntimeId, now: float) -> _Window:
        window = self._windows.get(rid)
        if window is None or (window.phase is _Phase.KEPT and now >= window.deadline):
            window = self._windows[rid] = _Window(now + self.grace)
        return window

    def _reopen(self, rid: RuntimeId, old: _Window, now: float) -> _Window:
        window = self._windows[rid] = _Window(now + self.grace)
        window.confirmed = old.confirmed
        return window

    def _missing(self, window: _Window, cohort: Cohort) -> list[str]:
        return sorted(cohort.nodes - cohort.ended - window.confirmed)

    def _settle(self, rid: RuntimeId, window: _Window, cohort: Cohort, now: float) -> bool:
        """Keep the run if every node is confirmed."""
        if self._missing(window, cohort):
            return False
        window.phase = _Phase.KEPT
        # So long a repeated report of it is answered from here instead of opening another window.
        window.deadline = now + self.grace
        return True

    def _give_up(self, rid: RuntimeId, window: _Window, node: str, why: str, *, certain: bool = True) -> None:
        if window.phase is not _Phase.LOST:
            window.phase = _Phase.LOST
            self._losses.append(Loss(rid, node, why, certain))


_VERDICT: Final = {_Phase.OPEN: Verdict.WAIT, _Phase.KEPT: Verdict.KEEP, _Phase.LOST: Verdict.FENCE}

"""What the leader remembers of nodes without replicating it: beats, loads, lists, cool-downs, absences.

Losing it costs nothing but time: after a start every node gets a full window of silence, and absence has
to be seen twice again.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from spur_core.ids import STEP_EXTERN, RuntimeId
from spur_ctld.api.node_view import Load
from spur_ctld.recovery.policy import belongs, expected
from spur_ctld.state.cluster import ClusterState

#: Two snapshots that miss a supervisor must be at least this far apart, in seconds.
ABSENCE_SECS: Final = 60.0


class Held(NamedTuple):
    """A supervisor that an agent holds.  `state`: "live", "finished" or "lost"."""

    rid: RuntimeId
    state: str


class Missing(NamedTuple):
    """A supervisor that should be on the node.  `why` is for people."""

    rid: RuntimeId
    why: str


class Findings(NamedTuple):
    """What a node's list says against the state.

    Attributes:
        obsolete: held there although it is over, superseded or elsewhere.
        lost: should run there and is dead by the agent's word, or was missing twice.
    """

    obsolete: tuple[RuntimeId, ...]
    lost: tuple[Missing, ...]


class _List(NamedTuple):
    """The last consistent list of a node."""

    at: float
    live: frozenset[RuntimeId]


class NodeMemory:
    """Times are monotonic seconds, given by the caller."""

    def __init__(self) -> None:
        self.beats: dict[str, float] = {}
        self.loads: dict[str, Load] = {}
        self._cool_until: dict[str, float] = {}
        self._missing: dict[tuple[str, RuntimeId], float] = {}
        self._lists: dict[str, _List] = {}

    def start(self, nodes: Iterable[str], now: float) -> None:
        """Nobody is silent yet."""
        self.beats = dict.fromkeys(nodes, now)

    def heard(self, node: str, now: float) -> None:
        """A sign of life."""
        self.beats[node] = now

    def cool(self, node: str, until: float) -> None:
        """Leave the node alone until then."""
        self._cool_until[node] = until

    def cooling(self, now: float) -> frozenset[str]:
        """Nodes that get no new work at present."""
        for node in [node for node, until in self._cool_until.items() if until <= now]:
            del self._cool_until[node]
        return frozenset(self._cool_until)

    def next_warm(self) -> float | None:
        """When the next cool-down ends."""
        return min(self._cool_until.values(), default=None)

    def names_live(self, node: str, rid: RuntimeId, since: float) -> bool:
        """Whether the node's last list is not older than `since` and names the run as alive."""
        known = self._lists.get(node)
        return known is not None and known.at >= since and rid in known.live

    def compare(self, state: ClusterState, node: str, held: Collection[Held], now: float) -> Findings:
        """Both directions, by exact identity; a consistent list only."""
        live = frozenset(rid for rid, life in held if life == "live")
        self._lists[node] = _List(now, live)
        # What has ended waits for its report to be taken, what is lost is dead: nothing to kill.
        obsolete = sorted(rid for rid in live if not belongs(state, node, rid))
        present = {rid for rid, life in held if life != "lost"}
        dead = {rid for rid, life in held if life == "lost"} - present
        lost = []
        use = state.use.get(node)
        due: set[tuple[str, RuntimeId]] = set()
        for job_id in sorted(use.jobs) if use is not None else ():
            for rid in expected(state.jobs[job_id], node):
                key = (node, rid)
                due.add(key)
                if rid in present:
                    self._missing.pop(key, None)
                    continue
                first = self._missing.setdefault(key, now)
                # The agent's word that a supervisor is dead is certain, but a lost extern step's agent asks
                # by itself what to do; an absence has to be seen twice.
                if rid in dead and rid.step_id != STEP_EXTERN:
                    lost.append(Missing(rid, f"its supervisor on {node} was lost"))
                elif now - first >= ABSENCE_SECS:
                    lost.append(Missing(rid, f"{node} has no supervisor of it"))
        for key in [key for key in self._missing if key[0] == node and key not in due]:
            del self._missing[key]
        return Findings(tuple(obsolete), tuple(lost))

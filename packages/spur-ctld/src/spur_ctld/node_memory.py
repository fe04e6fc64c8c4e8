"""What the leader remembers of nodes without replicating it: beats, loads, cool-downs, missing attempts.

Losing it costs nothing but time: after a start every node gets a full window of silence, and absence has
to be seen twice again.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from spur_core.states import ACTIVE_STATES, JobState
from spur_ctld.api.node_view import Load
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Job

#: Two snapshots that miss an attempt must be at least this far apart, in seconds.
ABSENCE_SECS: Final = 60.0

#: (job id, attempt, step id, "live", "finished" or "lost") of a supervisor that an agent holds.
Held = tuple[int, int, int, str]


class Findings(NamedTuple):
    """What a node's list says against the state.

    `obsolete`: (job, attempt) held there although it is over, superseded or elsewhere.
    `lost`: (job, attempt) that should run there and is dead by the agent's word, or was missing twice.
    """

    obsolete: tuple[tuple[int, int], ...]
    lost: tuple[tuple[int, int], ...]


class NodeMemory:
    """Times are monotonic seconds, given by the caller."""

    def __init__(self) -> None:
        self.beats: dict[str, float] = {}
        self.loads: dict[str, Load] = {}
        self._cool_until: dict[str, float] = {}
        self._missing: dict[tuple[str, int, int], float] = {}

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

    def compare(self, state: ClusterState, node: str, held: Collection[Held], now: float) -> Findings:
        """Both directions, by exact identity; a consistent list only."""
        obsolete = {
            (job_id, attempt)
            for job_id, attempt, _, life in held
            # What has ended waits for its report to be taken, what is lost is dead: nothing to kill.
            if life == "live"
            and not belongs(state.jobs.get(job_id), attempt, node, state.next_job_id, job_id)
        }
        present = {(job_id, attempt) for job_id, attempt, _, life in held if life != "lost"}
        dead = {(job_id, attempt) for job_id, attempt, _, life in held if life == "lost"} - present
        lost = []
        use = state.use.get(node)
        expected: set[tuple[str, int, int]] = set()
        for job_id in use.jobs if use is not None else ():
            job = state.jobs[job_id]
            if job.state not in (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING):
                continue
            if job.fence is not None or node not in live_nodes(job):
                continue
            key = (node, job_id, job.run_attempt)
            expected.add(key)
            if (job_id, job.run_attempt) in present:
                self._missing.pop(key, None)
                continue
            first = self._missing.setdefault(key, now)
            # The agent's word that a supervisor is dead is certain; an absence has to be seen twice.
            if (job_id, job.run_attempt) in dead or now - first >= ABSENCE_SECS:
                lost.append((job_id, job.run_attempt))
        for key in [key for key in self._missing if key[0] == node and key not in expected]:
            del self._missing[key]
        return Findings(tuple(sorted(obsolete)), tuple(sorted(lost)))


def belongs(job: Job | None, attempt: int, node: str, next_job_id: int, job_id: int) -> bool:
    """Whether a supervisor of (job, attempt) may be on that node.

    An id that was never issued here is left alone: it may belong to a state that was lost.
    """
    if job is None:
        return job_id >= next_job_id
    if job.run_attempt != attempt:
        return attempt > job.run_attempt
    return job.state in ACTIVE_STATES and node in live_nodes(job)

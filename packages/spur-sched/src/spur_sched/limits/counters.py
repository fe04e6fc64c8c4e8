"""What groups of jobs have in use."""

import math

from spur_sched.limits.footprint import Footprint

#: ("user", account, uid), ("account", account), ("qos", name), ("qos-user", name, uid) or
#: ("qos-account", name, account).
GroupKey = tuple[str | int, ...]


class Counter:
    """The active jobs of one group: how many, their TRES, the TRES-minutes that they may still use, and on
    which nodes they are (a node counts once, however many of them are on it)."""

    __slots__ = ("_endless", "_run_mins", "jobs", "nodes", "tres")

    def __init__(self) -> None:
        self.jobs = 0
        self.tres: dict[str, float] = {}
        #: Node -> how many jobs of the group are there.
        self.nodes: dict[str, int] = {}
        #: Without jobs that have no limit, which would spoil a sum for good.
        self._run_mins: dict[str, float] = {}
        self._endless: dict[str, int] = {}

    def put(self, found: Footprint, sign: int) -> None:
        """Take in (+1) or let go (-1) one job."""
        self.jobs += sign
        for name, amount in found.tres.items():
            if name != "node" or found.nodes is None:
                self.tres[name] = self.tres.get(name, 0.0) + sign * amount
            if math.isfinite(found.minutes):
                self._run_mins[name] = self._run_mins.get(name, 0.0) + sign * amount * found.minutes
            elif amount:
                self._endless[name] = self._endless.get(name, 0) + sign
        for node in found.nodes or ():
            count = self.nodes.get(node, 0) + sign
            if count > 0:
                self.nodes[node] = count
            else:
                self.nodes.pop(node, None)

    def used(self, name: str) -> float:
        """How much of a TRES is in use."""
        return self.tres.get(name, 0.0) + (len(self.nodes) if name == "node" else 0)

    def run_mins(self, name: str) -> float:
        """TRES-minutes that the jobs may still use, inf with one that has no limit."""
        return math.inf if self._endless.get(name) else self._run_mins.get(name, 0.0)

    def more(self, name: str, found: Footprint) -> float:
        """How much of a TRES the job adds.  Of nodes only those where the group is not yet; before the job is
        placed, as many as must be new at least."""
        if name != "node":
            return found.tres.get(name, 0.0)
        if found.nodes is None:
            return float(max(0, found.node_count - len(self.nodes)))
        return float(sum(node not in self.nodes for node in found.nodes))


class Counters:
    """All groups; one that has nothing in use does not exist."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Counter] = {}

    def of(self, key: GroupKey) -> Counter:
        """The group's counter, made when it is missing."""
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = Counter()
        return found

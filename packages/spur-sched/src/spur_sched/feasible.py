"""Could a request ever run on the nodes there are?  Asked at submit, answered as Slurm does.  Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from spur_core.errors import GrammarError
from spur_core.grammar import features
from spur_sched.api import Infeasible, JobView, NodeView, PartitionView
from spur_sched.ground import Ground
from spur_sched.rules import class_of, constraint_trees, count_of, need_in, usable
from spur_sched.shape import Shape

_CODE: Final = "bad_request"
NO_PARTITION: Final = Infeasible("Invalid partition name specified", _CODE)
NOT_AVAILABLE: Final = Infeasible("Requested node configuration is not available", _CODE)
BAD_FEATURE: Final = Infeasible("Invalid feature specification", _CODE)
TOO_MANY_CPUS: Final = Infeasible("More processors requested than permitted", _CODE)
#: After so many questions what was worked out is thrown away.
_FORGET: Final = 1000
NODES_ELSEWHERE: Final = Infeasible("Requested nodes not in this partition", _CODE)


def feasible(
    job: JobView,
    nodes: Iterable[NodeView],
    partitions: Mapping[str, PartitionView],
    switches: Sequence[tuple[str, str]] = (),
) -> Infeasible | None:
    """None when one of the job's partitions could run it with all its nodes up and empty.

    Limits of partitions (time, node counts) are no reason here: they can be changed, and such a job
    waits.  A node that never registered is believed to be able to do anything.

    Args:
        switches: the network, as `Policy.topology` has it.

    Returns:
        The obstacle in the first partition otherwise.
    """
    return Fleet(nodes, partitions, switches).check(job)


class Fleet:
    """The nodes there are, to be asked about many jobs; what runs on them does not matter."""

    def __init__(
        self,
        nodes: Iterable[NodeView],
        partitions: Mapping[str, PartitionView],
        switches: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._nodes = list(nodes)
        self._partitions = partitions
        self._switches = switches
        self._parts: dict[str, tuple[list[NodeView], Ground]] = {}
        self._asked = 0

    def check(self, job: JobView) -> Infeasible | None:
        """As `feasible`."""
        self._asked += 1
        if self._asked % _FORGET == 0:
            # What was worked out for jobs of all kinds is not kept for ever.
            self._parts.clear()
        first: Infeasible | None = None
        for name in job.partitions:
            part = self._partitions.get(name)
            obstacle = NO_PARTITION if part is None else _in_partition(job, part, *self._part(part))
            if obstacle is None:
                return None
            first = first or obstacle
        return first or NO_PARTITION

    def _part(self, part: PartitionView) -> tuple[list[NodeView], Ground]:
        found = self._parts.get(part.name)
        if found is None:
            members = [node for node in self._nodes if node.name in part.nodes]
            ground = Ground(members, {part.name: part}, 0.0)
            # Whoever may use nodes now does not matter.
            ground.share(())
            ground.connect(self._switches)
            for _ in ground.build():
                pass
            found = self._parts[part.name] = (members, ground)
        return found


def _in_partition(
    job: JobView, part: PartitionView, members: list[NodeView], ground: Ground
) -> Infeasible | None:
    if not job.nodelist <= part.nodes:
        return NODES_ELSEWHERE
    if job.nodelist & job.exclude:
        return NOT_AVAILABLE
    try:
        trees = constraint_trees(job.constraint)
    except GrammarError:
        return BAD_FEATURE
    bad = [_features_missing(job, members, tree) for tree in trees]
    if None not in bad:
        return bad[0]
    # The partition's node limits may change.
    need = need_in(job, part)
    count = count_of(job, part._replace(max_nodes=None))
    wanted = class_of(job, part)._replace(uid=None, alone=False)
    shape = Shape(ground, wanted, ground.demand(need), count, math.inf)
    if shape.required is None:
        return NOT_AVAILABLE
    if any(shape.could(pool, tree, up_only=False) for tree, pool in ground.pools(wanted)):
        return None
    allowed = [node for node in members if any(usable(node, wanted, tree) for tree in trees)]
    cpus = sum(node.cpus for node in allowed)
    asked = count.num_tasks * need.cpus_per_task
    if job.tasks_given and all(node.known for node in allowed) and asked > cpus:
        return TOO_MANY_CPUS
    return NOT_AVAILABLE


def _features_missing(job: JobView, members: list[NodeView], tree: features.Node) -> Infeasible | None:
    """What is wrong with one alternative of the constraint."""
    if job.constraint and not any(
        not node.known or features.matches(tree, node.features) for node in members
    ):
        return BAD_FEATURE
    for name, number in features.counts(tree):
        have = sum(not node.known or name in node.features for node in members)
        if have < number:
            return NOT_AVAILABLE if have else BAD_FEATURE
    return None

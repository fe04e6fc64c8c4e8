"""Could a request ever run on the nodes there are?  Asked at submit, answered as Slurm does.  Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from spur_core.errors import GrammarError
from spur_core.grammar import features
from spur_sched.api import Infeasible, JobView, NodeView, PartitionView
from spur_sched.need import need_of
from spur_sched.rules import Class, constraint_trees, count_of, enough_nodes, usable
from spur_sched.spread import Count

_CODE: Final = "bad_request"
NO_PARTITION: Final = Infeasible("Invalid partition name specified", _CODE)
NOT_AVAILABLE: Final = Infeasible("Requested node configuration is not available", _CODE)
BAD_FEATURE: Final = Infeasible("Invalid feature specification", _CODE)
TOO_MANY_CPUS: Final = Infeasible("More processors requested than permitted", _CODE)
NODES_ELSEWHERE: Final = Infeasible("Requested nodes not in this partition", _CODE)


def feasible(
    job: JobView, nodes: Iterable[NodeView], partitions: Mapping[str, PartitionView]
) -> Infeasible | None:
    """None when one of the job's partitions could run it with all its nodes up and empty.

    Limits of partitions (time, node counts) are no reason here: they can be changed, and such a job
    waits.  A node that never registered is believed to be able to do anything.

    Returns:
        The obstacle in the first partition otherwise.
    """
    known = list(nodes)
    first: Infeasible | None = None
    for name in job.partitions:
        part = partitions.get(name)
        obstacle = NO_PARTITION if part is None else _in_partition(job, known, part)
        if obstacle is None:
            return None
        first = first or obstacle
    return first or NO_PARTITION


def _in_partition(job: JobView, nodes: list[NodeView], part: PartitionView) -> Infeasible | None:
    members = [node for node in nodes if node.name in part.nodes]
    if not job.nodelist <= part.nodes:
        return NODES_ELSEWHERE
    if job.nodelist & job.exclude:
        return NOT_AVAILABLE
    try:
        trees = constraint_trees(job.constraint)
    except GrammarError:
        return BAD_FEATURE
    wanted = Class(part.name, job.nodelist, job.exclude, job.constraint)
    # The partition's node limits may change, so they do not bind here.
    count = count_of(job, part._replace(max_nodes=None))
    obstacles = [_with_tree(job, members, wanted, tree, count) for tree in trees]
    return None if None in obstacles else obstacles[0]


def _with_tree(
    job: JobView, members: list[NodeView], wanted: Class, tree: features.Node, count: Count
) -> Infeasible | None:
    need = need_of(job)
    if job.constraint and not any(
        not node.known or features.matches(tree, node.features) for node in members
    ):
        return BAD_FEATURE
    for name, number in features.counts(tree):
        have = sum(not node.known or name in node.features for node in members)
        if have < number:
            return NOT_AVAILABLE if have else BAD_FEATURE
    allowed = [node for node in members if usable(node, wanted, tree)]
    if enough_nodes(allowed, need, count, job.nodelist, features.counts(tree)):
        return None
    cpus = sum(node.cpus for node in allowed)
    if (
        job.tasks_given
        and all(node.known for node in allowed)
        and count.num_tasks * need.cpus_per_task > cpus
    ):
        return TOO_MANY_CPUS
    return NOT_AVAILABLE

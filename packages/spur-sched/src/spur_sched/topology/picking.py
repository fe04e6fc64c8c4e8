"""Which of the nodes on offer a job gets, so that it spans the fewest leaf switches.  Pure.

1. The lowest switch below which enough nodes are on offer; among those of one level the one whose nodes
   would be left the least room (best fit).
2. Below it as few leaves as possible: the largest first, and in the last place the smallest that still
   suffices, so that large ones stay whole.

Nodes without a switch, and trees that nothing joins, never share a job, as in Slurm.
"""

from collections.abc import Callable, Sequence

import numpy as np

from spur_sched.columns import Ints
from spur_sched.spread import Count, Offer, choose
from spur_sched.topology.tree import Topology


class Groups:
    """The nodes on offer by their leaf switch; those of a leaf become offers when they are asked for.

    Attributes:
        nodes, tasks, bound: leaf -> how many nodes, tasks and required nodes it has.
        alone: nodes without a switch.
        required: required nodes of all.
        total: all nodes.
    """

    def __init__(self, offers: Sequence[Offer], switch_of: Callable[[int], str], topology: Topology) -> None:
        self.alone: list[Offer] = []
        self._made: dict[str, list[Offer]] = {}
        self._columns: dict[str, tuple[Ints, Ints]] = {}
        for offer in offers:
            name = switch_of(offer.at)
            if name in topology.parents:
                self._made.setdefault(name, []).append(offer)
            else:
                self.alone.append(offer)
        self.required = sum(offer.required for offer in offers)
        self.total = len(offers)
        self.nodes = {name: len(group) for name, group in self._made.items()}
        self.tasks = {name: sum(offer.tasks for offer in group) for name, group in self._made.items()}
        self.bound = {name: sum(offer.required for offer in group) for name, group in self._made.items()}

    @classmethod
    def of_columns(cls, leaves: Sequence[str], leaf_at: Ints, where: Ints, tasks: Ints) -> "Groups":
        """From columns, none of them required.

        Args:
            leaves: leaf switches.
            leaf_at: position in `leaves` of each of `where`; -1 = none.
        """
        found = cls((), str, Topology({}))
        order = np.argsort(leaf_at, kind="stable")
        ids = leaf_at[order]
        heads = np.searchsorted(ids, np.arange(len(leaves) + 1)).tolist()
        found.total = len(where)
        found.alone = [Offer(int(where[at]), int(tasks[at])) for at in order[: heads[0]].tolist()]
        sums = np.bincount(ids[heads[0] :], weights=tasks[order[heads[0] :]], minlength=len(leaves)).tolist()
        for place, name in enumerate(leaves):
            head, end = heads[place], heads[place + 1]
            if head < end:
                mine = order[head:end]
                found._columns[name] = (where[mine], tasks[mine])
                found.nodes[name], found.tasks[name], found.bound[name] = end - head, int(sums[place]), 0
        return found

    def __contains__(self, leaf: str) -> bool:
        return leaf in self.nodes

    def __getitem__(self, leaf: str) -> list[Offer]:
        found = self._made.get(leaf)
        if found is None:
            where, tasks = self._columns[leaf]
            found = self._made[leaf] = [
                Offer(at, held) for at, held in zip(where.tolist(), tasks.tolist(), strict=True)
            ]
        return found


def pick(
    topology: Topology,
    offers: Sequence[Offer],
    switch_of: Callable[[int], str],
    count: Count,
    most: int | None = None,
) -> list[Offer] | None:
    """The offers that `spread.choose` shall choose from, leaf by leaf; None = the network forbids it.

    Args:
        switch_of: the leaf switch of the node at `Offer.at`; "" = none.
        most: leaf switches at most (`--switches`); None = as few as there can be, but any number.
    """
    whole = choose(count, offers)
    if whole is None:
        return None
    return _pick(topology, Groups(offers, switch_of, topology), count, most, len(whole))


def pick_of(topology: Topology, groups: Groups, count: Count, most: int | None = None) -> list[Offer] | None:
    """The same for nodes none of which is required, or special in any other way."""
    return _pick(topology, groups, count, most, min(count.max_nodes, groups.total))


def _pick(
    topology: Topology, groups: Groups, count: Count, most: int | None, whole: int
) -> list[Offer] | None:
    if not count.tasks_given and whole > count.min_nodes:
        # As many nodes as could be had at all, if they can be had together.
        wish = count._replace(min_nodes=whole)
        found = _search(topology, groups, wish, most)
        if found is not None:
            return found
    return _search(topology, groups, count, most)


def switches_used(offers: Sequence[Offer], switch_of: Callable[[int], str]) -> int:
    """How many leaf switches they span; a node without one counts for itself."""
    names = [switch_of(offer.at) for offer in offers]
    return len({name for name in names if name}) + sum(not name for name in names)


def _search(topology: Topology, groups: Groups, count: Count, most: int | None) -> list[Offer] | None:
    nodes, tasks, bound, required = groups.nodes, groups.tasks, groups.bound, groups.required
    sizes = tasks if count.tasks_given else nodes
    wanted = count.num_tasks if count.tasks_given else count.min_nodes
    for level in topology.by_level:
        able: list[tuple[int, int, int, list[str]]] = []
        for place, name in enumerate(level):
            leaves = [leaf for leaf in topology.under[name] if leaf in groups]
            total = sum(nodes[leaf] for leaf in leaves)
            if total < count.min_nodes or sum(bound[leaf] for leaf in leaves) < required:
                continue
            least = _least(sizes, nodes, leaves, wanted, count.min_nodes)
            if least is not None and (most is None or least <= most):
                able.append((least, total, place, leaves))
        # Fewest leaves, then the fullest switch; the first that can do with the least it could is the best.
        best: tuple[tuple[int, int], list[str]] | None = None
        for least, total, _, leaves in sorted(able):
            if best is not None and best[0] <= (least, total):
                break
            found = _fewest(leaves, groups, count, sizes)
            if found is None or (most is not None and len(found) > most):
                continue
            if best is None or (len(found), total) < best[0]:
                best = (len(found), total), found
        if best is not None:
            return [offer for leaf in best[1] for offer in groups[leaf]]
    for offer in groups.alone:
        if (required == 0 or (offer.required and required == 1)) and choose(count, [offer]) is not None:
            return [offer]
    return None


def _least(
    sizes: dict[str, int], nodes: dict[str, int], leaves: Sequence[str], wanted: int, min_nodes: int
) -> int | None:
    """No fewer leaves than this have enough, or None when not even all have."""
    if len(leaves) == 1:
        return 1 if sizes[leaves[0]] >= wanted else None
    worst = 0
    for amounts, need in ((sizes, wanted), (nodes, min_nodes)):
        held = number = 0
        for amount in sorted((amounts[leaf] for leaf in leaves), reverse=True):
            if held >= need:
                break
            held += amount
            number += 1
        if held < need:
            return None
        worst = max(worst, number)
    return max(1, worst)


def _fewest(leaves: Sequence[str], groups: Groups, count: Count, sizes: dict[str, int]) -> list[str] | None:
    """As few of the leaves as suffice; those that hold required nodes are among them."""

    def enough(names: Sequence[str]) -> bool:
        return choose(count, [offer for name in names for offer in groups[name]]) is not None

    must = [name for name in leaves if groups.bound[name]]
    free = [name for name in leaves if name not in must]
    order = np.argsort([-sizes[name] for name in free], kind="stable").tolist() if free else []
    ranked = [free[at] for at in order]
    if must and enough(must):
        return must
    low, high = 0, len(ranked)
    if not ranked or not enough(must + ranked):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if enough(must + ranked[:middle]):
            high = middle
        else:
            low = middle
    first = must + ranked[: high - 1]
    # The smallest in the last place that still suffices.
    for name in reversed(ranked[high - 1 :]):
        if enough([*first, name]):
            return [*first, name]
    return None

"""Which of the nodes on offer a job gets, so that it spans the fewest leaf switches.  Pure.

1. The lowest switch below which enough nodes are on offer; among those of one level the one whose nodes
   would be left the least room (best fit).
2. Below it as few leaves as possible: the largest first, and in the last place the smallest that still
   suffices, so that large ones stay whole.

Nodes without a switch, and trees that nothing joins, never share a job, as in Slurm.
"""

from collections.abc import Callable, Sequence

import numpy as np

from spur_sched.spread import Count, Offer, choose
from spur_sched.topology.tree import Topology


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
    if not count.tasks_given and len(whole) > count.min_nodes:
        # As many nodes as could be had at all, if they can be had together.
        wish = count._replace(min_nodes=len(whole))
        found = _search(topology, offers, switch_of, wish, most)
        if found is not None:
            return found
    return _search(topology, offers, switch_of, count, most)


def switches_used(offers: Sequence[Offer], switch_of: Callable[[int], str]) -> int:
    """How many leaf switches they span; a node without one counts for itself."""
    names = [switch_of(offer.at) for offer in offers]
    return len({name for name in names if name}) + sum(not name for name in names)


def _search(
    topology: Topology,
    offers: Sequence[Offer],
    switch_of: Callable[[int], str],
    count: Count,
    most: int | None,
) -> list[Offer] | None:
    groups: dict[str, list[Offer]] = {}
    alone: list[Offer] = []
    for offer in offers:
        name = switch_of(offer.at)
        if name in topology.parents:
            groups.setdefault(name, []).append(offer)
        else:
            alone.append(offer)
    required = sum(offer.required for offer in offers)
    nodes = {name: len(group) for name, group in groups.items()}
    tasks = {name: sum(offer.tasks for offer in group) for name, group in groups.items()}
    bound = {name: sum(offer.required for offer in group) for name, group in groups.items()}
    for level in topology.by_level:
        best: tuple[tuple[int, int], list[Offer]] | None = None
        for name in level:
            leaves = [leaf for leaf in topology.under[name] if leaf in groups]
            total = sum(nodes[leaf] for leaf in leaves)
            if total < count.min_nodes or sum(bound[leaf] for leaf in leaves) < required:
                continue
            if count.tasks_given and sum(tasks[leaf] for leaf in leaves) < count.num_tasks:
                continue
            found = _fewest(leaves, groups, count, tasks if count.tasks_given else nodes)
            if found is None or (most is not None and len(found) > most):
                continue
            # Fewest leaves, then the fullest switch.
            key = (len(found), total)
            if best is None or key < best[0]:
                best = key, [offer for leaf in found for offer in groups[leaf]]
        if best is not None:
            return best[1]
    for offer in alone:
        if (required == 0 or (offer.required and required == 1)) and choose(count, [offer]) is not None:
            return [offer]
    return None


def _fewest(
    leaves: Sequence[str], groups: dict[str, list[Offer]], count: Count, sizes: dict[str, int]
) -> list[str] | None:
    """As few of the leaves as suffice; those that hold required nodes are among them."""

    def enough(names: Sequence[str]) -> bool:
        return choose(count, [offer for name in names for offer in groups[name]]) is not None

    must = [name for name in leaves if any(offer.required for offer in groups[name])]
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

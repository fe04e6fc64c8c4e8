"""So many nodes of a job with a feature (`-C "[ib*2&gpu*1]"`): which nodes are taken for it.  Pure.

Nodes with the same of the counted features are alike but for the tasks that they hold.  How many of each such
group are taken is tried in all ways that can be of use, remembering for each number of nodes and each rest of
the wants only what holds most tasks.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Final

from spur_sched.spread import Count, Offer, choose

#: Ways to be tried at the most; who asks for more gets the first nodes with each feature.
_MOST_WAYS: Final = 1_000_000
#: Of nodes with the same of the wanted features: which ones, as 0 and 1 in the order of the wants.
Mask = tuple[int, ...]
#: (what is still wanted of each, nodes taken) -> (tasks that they hold, how many are of each group).
_Ways = dict[tuple[tuple[int, ...], int], tuple[int, tuple[int, ...]]]
Names = Callable[[int], frozenset[str]]


def choose_counted(
    count: Count, offers: Sequence[Offer], names: Names, wants: Sequence[tuple[str, int]]
) -> list[tuple[int, int]] | None:
    """As `spread.choose`, of nodes of which so many have each feature."""
    marked = with_features(count, offers, names, wants)
    return None if marked is None else choose(count, marked)


def with_features(
    count: Count, offers: Sequence[Offer], names: Names, wants: Sequence[tuple[str, int]]
) -> list[Offer] | None:
    """The offers with those marked as required by which each (feature, nodes) of `wants` is met, or None when
    it cannot be.

    With a number of tasks these are all nodes to be taken, as few as will do.  Without one they are the
    fewest by which the wants are met; others may be taken besides.

    Args:
        names: the features of a node, by `Offer.at`.
    """
    most_of: dict[str, int] = {}
    for name, number in wants:
        most_of[name] = max(number, most_of.get(name, 0))
    forced = [offer for offer in offers if offer.required]
    masks = {offer.at: tuple(int(name in names(offer.at)) for name in most_of) for offer in offers}
    needs = _less(tuple(most_of.values()), [masks[offer.at] for offer in forced])
    groups: dict[Mask, list[Offer]] = {}
    for offer in offers:
        if not offer.required and (count.tasks_given or offer.tasks >= count.each):
            groups.setdefault(masks[offer.at], []).append(offer)
    rule = _with_tasks if count.tasks_given else _fewest
    taken = rule(count, forced, needs, groups)
    if taken is None:
        return None
    places = {offer.at for offer in taken}
    return [offer._replace(required=True) if offer.at in places else offer for offer in offers]


def _less(needs: tuple[int, ...], masks: Sequence[Mask]) -> tuple[int, ...]:
    return tuple(max(0, need - sum(mask[at] for mask in masks)) for at, need in enumerate(needs))


def _fewest(
    count: Count, forced: list[Offer], needs: tuple[int, ...], groups: dict[Mask, list[Offer]]
) -> list[Offer] | None:
    """The fewest nodes by which the wants are met, the first ones of each group."""
    useful = {mask: found for mask, found in groups.items() if any(mask)}
    most = max(needs, default=0)
    if prod(need + 1 for need in needs) * (most + 1) * len(useful) > _MOST_WAYS:
        return _first_ones(needs, useful)
    ways: dict[tuple[int, ...], tuple[int, tuple[int, ...]]] = {needs: (0, ())}
    for mask, found in useful.items():
        after: dict[tuple[int, ...], tuple[int, tuple[int, ...]]] = {}
        for left, (used, picks) in ways.items():
            for number in range(min(len(found), max(left, default=0)) + 1):
                rest = tuple(max(0, need - number * has) for need, has in zip(left, mask, strict=True))
                if rest not in after or used + number < after[rest][0]:
                    after[rest] = (used + number, (*picks, number))
        ways = after
    best = ways.get((0,) * len(needs))
    if best is None or len(forced) + best[0] > count.max_nodes:
        return None
    return _of_groups(useful, best[1])


def _with_tasks(
    count: Count, forced: list[Offer], needs: tuple[int, ...], groups: dict[Mask, list[Offer]]
) -> list[Offer] | None:
    """As few nodes as hold all tasks and meet the wants (with `spread` as many), those of a group that hold
    most first; a node that will do alone, the first of them."""
    total = len(forced) + sum(map(len, groups.values()))
    room = min(count.max_nodes, count.num_tasks, total) - len(forced)
    if room < 0:
        return None
    if count.min_nodes <= 1 and not forced and not count.spread:
        alone = [
            offer
            for mask, found in groups.items()
            if not any(_less(needs, [mask]))
            for offer in found
            if offer.tasks >= count.num_tasks
        ]
        if alone:
            return [min(alone, key=lambda one: one.at)]
    if prod(need + 1 for need in needs) * (room + 1) ** 2 * len(groups) > _MOST_WAYS:
        return _first_ones(needs, groups)
    ways: _Ways = {(needs, 0): (sum(offer.tasks for offer in forced), ())}
    ordered = {mask: sorted(found, key=lambda one: (-one.tasks, one.at)) for mask, found in groups.items()}
    for mask, found in ordered.items():
        holds = list(accumulate((offer.tasks for offer in found), initial=0))
        after: _Ways = {}
        for (left, used), (tasks, picks) in ways.items():
            for number in range(min(len(found), room - used) + 1):
                rest = tuple(max(0, need - number * has) for need, has in zip(left, mask, strict=True))
                key = (rest, used + number)
                if key not in after or tasks + holds[number] > after[key][0]:
                    after[key] = (tasks + holds[number], (*picks, number))
        ways = after
    met = (0,) * len(needs)
    sizes = range(max(0, count.min_nodes - len(forced)), room + 1)
    for size in reversed(sizes) if count.spread else sizes:
        tasks, picks = ways.get((met, size), (-1, ()))
        if tasks >= count.num_tasks:
            return _of_groups(ordered, picks)
    return None


def _of_groups(groups: dict[Mask, list[Offer]], picks: tuple[int, ...]) -> list[Offer]:
    pairs = zip(groups.values(), picks, strict=True)
    return [offer for found, number in pairs for offer in found[:number]]


def _first_ones(needs: tuple[int, ...], groups: dict[Mask, list[Offer]]) -> list[Offer] | None:
    taken: dict[int, Offer] = {}
    for at, need in enumerate(needs):
        found = sorted(
            (one for mask, some in groups.items() if mask[at] for one in some), key=lambda one: one.at
        )
        if len(found) < need:
            return None
        taken.update((one.at, one) for one in found[:need])
    return list(taken.values())

"""Which nodes a job gets and how its tasks lie on them, once it is known what each node holds.  Pure.

Tasks are laid out in blocks: consecutive ranks share a node, the first nodes get the remainder.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple


class Count(NamedTuple):
    """How many nodes and tasks a job wants."""

    min_nodes: int
    max_nodes: int
    num_tasks: int
    #: False: one task a node, and as many nodes as there are up to `max_nodes`.
    tasks_given: bool
    #: Without a task count: tasks that every node gets.
    each: int
    #: As many nodes as will do, tasks evenly; without a task count as few as will do.
    spread: bool = False
    fewest: bool = False
    #: Tasks lie evenly on the nodes, not node after node; None = where more than one node was asked for.
    even: bool | None = None

    def of(self, size: int) -> "Count":
        """The same of exactly so many nodes."""
        even = self.min_nodes > 1 if self.even is None else self.even
        return self._replace(min_nodes=size, max_nodes=size, even=even)


class Offer(NamedTuple):
    """A node that may take part and how many tasks it holds (at least 1)."""

    at: int
    tasks: int
    #: The job asked for this node by name.
    required: bool = False


#: A choice of nodes and of the tasks on them.
Rule = Callable[[Count, Sequence[Offer]], list[tuple[int, int]] | None]


def choose(count: Count, offers: Sequence[Offer]) -> list[tuple[int, int]] | None:
    """(node, tasks) in the order of `offers`, or None when they do not suffice.

    All required offers are taken.  With a task count the fewest nodes that hold all tasks, but not fewer
    than `min_nodes`; without one as many nodes as possible, but not more than `max_nodes`.
    """
    if len(offers) < count.min_nodes:
        return None
    if not count.tasks_given:
        usable = [offer for offer in offers if offer.tasks >= count.each]
        picked = _first(usable, count.min_nodes if count.fewest else count.max_nodes)
        # Counted features can ask for more nodes than the job may have.
        if not count.min_nodes <= len(picked) <= count.max_nodes or _lost_required(offers, picked):
            return None
        return [(offer.at, count.each) for offer in picked]
    most = min(count.max_nodes, count.num_tasks, len(offers))
    least = max(count.min_nodes, sum(offer.required for offer in offers))
    if least > most:
        return None
    if count.spread:
        return _spread(count, offers, most)
    picked = _first(offers, least)
    if least == 1 and not any(offer.required for offer in offers):
        picked = next(([offer] for offer in offers if offer.tasks >= count.num_tasks), picked)
    if sum(offer.tasks for offer in picked) < count.num_tasks:
        # The biggest first, as many as it takes; then back into the given order.
        biggest = sorted(offers, key=lambda offer: (not offer.required, -offer.tasks, offer.at))
        held = sum(offer.tasks for offer in biggest[:least])
        size = least
        while held < count.num_tasks and size < most:
            held += biggest[size].tasks
            size += 1
        if held < count.num_tasks:
            return None
        chosen = {offer.at for offer in biggest[:size]}
        picked = [offer for offer in offers if offer.at in chosen]
    rule = _even if (count.min_nodes > 1 if count.even is None else count.even) else _fill
    parts = rule([offer.tasks for offer in picked], count.num_tasks)
    return [(offer.at, part) for offer, part in zip(picked, parts, strict=True)]


def _spread(count: Count, offers: Sequence[Offer], most: int) -> list[tuple[int, int]] | None:
    """The first `most` nodes, or the biggest ones when those do not hold all tasks."""
    picked = _first(offers, most)
    if sum(offer.tasks for offer in picked) < count.num_tasks:
        biggest = sorted(offers, key=lambda offer: (not offer.required, -offer.tasks, offer.at))[:most]
        if sum(offer.tasks for offer in biggest) < count.num_tasks:
            return None
        chosen = {offer.at for offer in biggest}
        picked = [offer for offer in offers if offer.at in chosen]
    parts = _even([offer.tasks for offer in picked], count.num_tasks)
    return [(offer.at, part) for offer, part in zip(picked, parts, strict=True)]


def in_a_row(
    count: Count, offers: Sequence[Offer], places: Mapping[int, int], rule: Rule = choose
) -> list[tuple[int, int]] | None:
    """As `choose`, of nodes that stand next to each other.

    Args:
        places: the place of each node (`Offer.at`) among all nodes.
        rule: the choice among those of a row.
    """
    ordered = sorted(offers, key=lambda offer: places[offer.at])
    most = count.max_nodes if not count.tasks_given else min(count.max_nodes, count.num_tasks)
    required = sum(offer.required for offer in offers)
    least = max(1, count.min_nodes, required)
    sizes = range(least, min(most, len(ordered)) + 1)
    if count.spread or not (count.tasks_given or count.fewest):
        sizes = sizes[::-1]
    for size in sizes:
        for row in rows(ordered, places, size):
            if sum(offer.required for offer in row) < required:
                continue
            found = rule(count.of(size), row)
            if found is not None:
                return found
    return None


def rows(ordered: Sequence[Offer], places: Mapping[int, int], size: int) -> Iterator[Sequence[Offer]]:
    """Every `size` of the offers, which stand in the order of their places, that have nobody between them."""
    for first in range(len(ordered) - size + 1):
        row = ordered[first : first + size]
        if places[row[-1].at] - places[row[0].at] == size - 1:
            yield row


def _first(offers: Sequence[Offer], size: int) -> list[Offer]:
    """The required ones and the first others, `size` in all, in order."""
    required = [offer for offer in offers if offer.required]
    if not required:
        return list(offers[:size])
    others = [offer for offer in offers if not offer.required][: max(0, size - len(required))]
    chosen = {offer.at for offer in (*required, *others)}
    return [offer for offer in offers if offer.at in chosen]


def _lost_required(offers: Sequence[Offer], picked: Sequence[Offer]) -> bool:
    return sum(offer.required for offer in offers) > sum(offer.required for offer in picked)


def _even(room: list[int], tasks: int) -> list[int]:
    """As equal as the nodes allow: one task to each in turn.  `-N2 -n7` is 4 and 3."""
    parts = [0] * len(room)
    left = tasks
    open_nodes = [at for at, most in enumerate(room) if most > 0]
    while left > 0 and open_nodes:
        # A whole round at once, so that big jobs cost rounds and not tasks.
        level = max(1, min(left // len(open_nodes), min(room[at] - parts[at] for at in open_nodes)))
        for at in open_nodes:
            part = min(level, left)
            parts[at] += part
            left -= part
        open_nodes = [at for at in open_nodes if parts[at] < room[at]]
    return parts


def _fill(room: list[int], tasks: int) -> list[int]:
    """Node after node, leaving at least one task for each later one."""
    parts = []
    left = tasks
    for at, most in enumerate(room):
        part = min(most, left - (len(room) - at - 1))
        parts.append(part)
        left -= part
    return parts

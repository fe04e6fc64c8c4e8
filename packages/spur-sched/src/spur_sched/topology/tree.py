"""Switches above nodes.  A block of nodes is a leaf switch, and all blocks hang on one trunk."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

#: Name of what joins all blocks.
TRUNK: Final = "blocks"


class Topology:
    """A forest of switches.

    Args:
        parents: switch -> the switch above it; "" = none.
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        self.parents = dict(parents)

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Switch -> the switches right below it, in the order in which they were named."""
        found: dict[str, list[str]] = {name: [] for name in self.parents}
        for name, parent in self.parents.items():
            if parent:
                found[parent].append(name)
        return found

    @cached_property
    def levels(self) -> dict[str, int]:
        """Switch -> 0 for a leaf, else one more than the highest below it."""
        found: dict[str, int] = {}
        for root in (name for name, parent in self.parents.items() if not parent):
            order = [root]
            for name in order:
                order.extend(self.children[name])
            for name in reversed(order):
                found[name] = max((found[child] + 1 for child in self.children[name]), default=0)
        return found

    @cached_property
    def under(self) -> dict[str, tuple[str, ...]]:
        """Switch -> the leaves below it, itself if it is one."""
        found: dict[str, tuple[str, ...]] = {}
        for name in sorted(self.parents, key=self.levels.__getitem__):
            below = self.children[name]
            found[name] = tuple(leaf for child in below for leaf in found[child]) if below else (name,)
        return found

    @cached_property
    def by_level(self) -> list[list[str]]:
        """Switches of each level, the leaves first."""
        found: list[list[str]] = [[] for _ in range(max(self.levels.values(), default=-1) + 1)]
        for name in self.parents:
            found[self.levels[name]].append(name)
        return found

    def path(self, leaf: str) -> tuple[str, ...]:
        """From the top to `leaf`; empty for a switch that is not there."""
        found: list[str] = []
        name = leaf if leaf in self.parents else ""
        while name:
            found.append(name)
            name = self.parents[name]
        return tuple(reversed(found))

    def distance(self, one: str, other: str) -> int | None:
        """Hops between two leaves, up to what joins them and down; None = nothing does."""
        if one == other:
            return 0
        first, second = self.path(one), self.path(other)
        common = 0
        for above, below in zip(first, second, strict=False):
            if above != below:
                break
            common += 1
        return len(first) + len(second) - 2 * common if common else None


def tree(switches: Iterable[tuple[str, Sequence[str]]]) -> Topology:
    """From (switch, the switches right below it), as the configuration says it.

    A switch that is below two others belongs to the first of them.
    """
    parents: dict[str, str] = {}
    pairs = list(switches)
    for name, _ in pairs:
        parents.setdefault(name, "")
    for name, below in pairs:
        for child in below:
            if child in parents and not parents[child] and child != name:
                parents[child] = name
    return Topology(parents)


def blocks(nodes: Sequence[str], size: int) -> tuple[Topology, dict[str, str]]:
    """Groups of `size` of the nodes as they stand, named `block000` and so on; and the block of each node."""
    found: dict[str, str] = {}
    parents: dict[str, str] = {}
    for at in range(0, len(nodes), max(1, size)):
        name = f"block{at // max(1, size):03d}"
        parents[name] = TRUNK
        found.update((node, name) for node in nodes[at : at + max(1, size)])
    if parents:
        parents[TRUNK] = ""
    return Topology(parents), found

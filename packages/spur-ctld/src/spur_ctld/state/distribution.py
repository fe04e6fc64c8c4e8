"""How tasks lie on nodes: how many on each, and which ranks.  Pure.

`-m` as Slurm has it: `block`, `cyclic`, `plane=N` or `arbitrary` for nodes, then after colons what concerns
sockets and cores (which nodes do by themselves), then `,Pack` or `,NoPack`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from spur_core.errors import GrammarError

_WITHIN: Final = frozenset({"*", "block", "cyclic", "fcyclic"})
#: A node that takes any number of tasks takes so many: their ends still fit into one message of its
#: supervisor, and the placement is made in apply, whose time is everybody's.
NO_BOUND: Final = 8192


class Distribution(NamedTuple):
    """`kind`: "block", "cyclic", "plane" or "arbitrary"; `pack`: fill one node after the other."""

    kind: str = "block"
    plane: int = 0
    pack: bool = False

    @property
    def label(self) -> str:
        """Slurm's word for it in accounting."""
        return self.kind.capitalize()


def parse(text: str) -> Distribution:
    """The distribution that `text` names; empty = block.

    Raises:
        GrammarError: it is none.
    """
    words, _, packing = text.strip().lower().partition(",")
    if packing not in ("", "pack", "nopack"):
        raise _bad(text)
    nodes, *within = words.split(":")
    if len(within) > 2 or any(word not in _WITHIN for word in within):
        raise _bad(text)
    kind, equals, size = nodes.partition("=")
    if kind in ("", "*"):
        kind = "block"
    if kind == "plane":
        if not (size.isascii() and size.isdigit()) or not 0 < int(size) < 1 << 20:
            raise _bad(text)
        return Distribution("plane", int(size))
    if equals or kind not in ("block", "cyclic", "arbitrary"):
        raise _bad(text)
    return Distribution(kind, pack=packing == "pack")


def _bad(text: str) -> GrammarError:
    return GrammarError(f"Invalid --distribution specification: {text[:80]!r}")


def counts(room: Sequence[int], tasks: int, how: Distribution) -> list[int]:
    """Tasks for each node, in order; together `tasks`, none more than its `room`.

    Seven tasks on two nodes are four and three, whether block or cyclic; packed they fill the first node.
    """
    assert sum(room) >= tasks
    if how.pack and how.kind == "block":
        return _fill(room, tasks)
    return _rounds(room, tasks, how.plane if how.kind == "plane" else 1)


def _rounds(room: Sequence[int], tasks: int, size: int) -> list[int]:
    """`size` tasks to each node in turn, round after round."""
    given = [0] * len(room)
    left = tasks
    open_nodes = [at for at, most in enumerate(room) if most > 0]
    while left > 0:
        # Whole rounds at once, so that big steps cost rounds and not tasks.
        least = min(room[at] - given[at] for at in open_nodes)
        whole = min(left // len(open_nodes), least) // size * size
        for at in open_nodes:
            part = min(max(whole, size), left, room[at] - given[at])
            given[at] += part
            left -= part
        open_nodes = [at for at in open_nodes if given[at] < room[at]]
    return given


def _fill(room: Sequence[int], tasks: int) -> list[int]:
    """Node after node, one task at least for each."""
    given = []
    left = tasks
    for at, most in enumerate(room):
        part = max(0, min(most, left - (len(room) - at - 1)))
        given.append(part)
        left -= part
    return given if not left else _rounds(room, tasks, 1)


def ranks(given: Sequence[int], how: Distribution) -> list[tuple[int, ...]]:
    """The ranks of each node, ascending, for `given` tasks on each."""
    if how.kind == "block":
        first = 0
        found = []
        for count in given:
            found.append(tuple(range(first, first + count)))
            first += count
        return found
    size = how.plane or 1
    dealt: list[list[int]] = [[] for _ in given]
    rank, tasks = 0, sum(given)
    while rank < tasks:
        for at, count in enumerate(given):
            part = min(size, count - len(dealt[at]))
            dealt[at].extend(range(rank, rank + part))
            rank += part
    return [tuple(own) for own in dealt]

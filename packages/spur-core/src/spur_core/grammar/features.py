"""Node features: `-C "intel&(gpu|fpga)"`, `[rack1|rack2]`, `ib*4`.

`parse` gives a small tree; `matches` says whether one node satisfies it alone; `groups` gives the
alternatives of a matching-or and the counts, which speak of the whole allocation.
"""

from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, Union

from spur_core.errors import GrammarError

if TYPE_CHECKING:
    from typing import NamedTuple

    class Feature(NamedTuple):
        """A name, and how many nodes of the job must have it (None = all)."""

        name: str
        nodes: int | None

    class All(NamedTuple):
        parts: tuple["Node", ...]

    class AnyOf(NamedTuple):
        """`matching`: every node of the job must satisfy the same part."""

        parts: tuple["Node", ...]
        matching: bool
else:
    Feature = namedtuple("Feature", ("name", "nodes"))
    All = namedtuple("All", ("parts",))
    AnyOf = namedtuple("AnyOf", ("parts", "matching"))

Node = Union["Feature", "All", "AnyOf"]


def parse(text: str) -> Node:
    """The tree of a constraint; an empty text is `All(())`.

    Raises:
        GrammarError: "Invalid feature specification".
    """
    if not text.strip():
        return All(())
    scanner = _Scanner(text.replace(" ", ""))
    tree = scanner.any_of(matching=False)
    if scanner.rest:
        raise _bad()
    return tree


class _Scanner:
    def __init__(self, text: str) -> None:
        self.rest = text

    def any_of(self, *, matching: bool) -> Node:
        parts = [self.all_of()]
        while self.rest.startswith("|"):
            self.rest = self.rest[1:]
            parts.append(self.all_of())
        return parts[0] if len(parts) == 1 and not matching else AnyOf(tuple(parts), matching)

    def all_of(self) -> Node:
        parts = [self.atom()]
        while self.rest[:1] in ("&", ","):
            self.rest = self.rest[1:]
            parts.append(self.atom())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def atom(self) -> Node:
        opening = self.rest[:1]
        if opening in ("(", "["):
            self.rest = self.rest[1:]
            inner = self.any_of(matching=opening == "[")
            if not self.rest.startswith(")" if opening == "(" else "]"):
                raise _bad()
            self.rest = self.rest[1:]
            return inner
        name = self._while(lambda char: char.isalnum() or char in "_-.=:/+")
        if not name:
            raise _bad()
        if not self.rest.startswith("*"):
            return Feature(name, None)
        self.rest = self.rest[1:]
        digits = self._while(lambda char: char.isascii() and char.isdigit())
        if not digits or int(digits) < 1:
            raise _bad()
        return Feature(name, int(digits))

    def _while(self, wanted: Callable[[str], bool]) -> str:
        end = 0
        while end < len(self.rest) and wanted(self.rest[end]):
            end += 1
        out, self.rest = self.rest[:end], self.rest[end:]
        return out


def matches(tree: Node, features: "frozenset[str] | set[str]") -> bool:
    """Whether a node with these features may take part.  A counted feature restricts no single node."""
    if isinstance(tree, Feature):
        return tree.nodes is not None or tree.name in features
    if isinstance(tree, All):
        return all(matches(part, features) for part in tree.parts)
    return any(matches(part, features) for part in tree.parts)


def alternatives(tree: Node) -> list[Node]:
    """The trees to try one after the other so that all nodes satisfy the same part of each `[a|b]`."""
    if isinstance(tree, AnyOf) and tree.matching:
        return [choice for part in tree.parts for choice in alternatives(part)]
    if isinstance(tree, All):
        combined: list[tuple[Node, ...]] = [()]
        for part in tree.parts:
            combined = [(*done, choice) for done in combined for choice in alternatives(part)]
        return [All(parts) for parts in combined]
    return [tree]


def counts(tree: Node) -> list[tuple[str, int]]:
    """(feature, nodes of the job that must have it)."""
    if isinstance(tree, Feature):
        return [] if tree.nodes is None else [(tree.name, tree.nodes)]
    return [found for part in tree.parts for found in counts(part)]


def _bad() -> GrammarError:
    return GrammarError("Invalid feature specification")

"""Node features: `-C "intel&(gpu|fpga)"`, `[rack1|rack2]`, `ib*4`.

`parse` gives a small tree; `matches` says whether one node satisfies it alone; `alternatives` and `counts`
give what speaks of the whole allocation: the choices of a matching-or, and how many nodes must have a
feature.  `satisfied_by` puts them together for a set of nodes.
"""

from collections import namedtuple

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NamedTuple

    class Feature(NamedTuple):
        """A name, and how many nodes of the job must have it (None = all)."""

        name: str
        nodes: int | None

    class All(NamedTuple):
        parts: "tuple[Node, ...]"

    class AnyOf(NamedTuple):
        """`matching`: every node of the job must satisfy the same part."""

        parts: "tuple[Node, ...]"
        matching: bool

    Node = Feature | All | AnyOf
else:
    Feature = namedtuple("Feature", ("name", "nodes"))
    All = namedtuple("All", ("parts",))
    AnyOf = namedtuple("AnyOf", ("parts", "matching"))
    Node = (Feature, All, AnyOf)

#: Far beyond what anybody writes; keeps a hostile text from costing the controller time or stack.
MAX_DEPTH = 16
MAX_ALTERNATIVES = 64
_MAX_LENGTH = 4096


def parse(text: str) -> "Node":
    """The tree of a constraint; an empty text is `All(())`.

    `&` and `,` bind closer than `|`.

    Raises:
        GrammarError: "Invalid feature specification".
    """
    if not text.strip():
        return All(())
    if len(text) > _MAX_LENGTH:
        raise _bad()
    scanner = _Scanner(text.replace(" ", ""))
    tree = scanner.any_of(0, matching=False)
    if scanner.at < len(scanner.text) or _choices(tree) > MAX_ALTERNATIVES:
        raise _bad()
    return tree


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def any_of(self, depth: int, *, matching: bool) -> "Node":
        if depth > MAX_DEPTH:
            raise _bad()
        parts = [self.all_of(depth)]
        while self.skip("|"):
            parts.append(self.all_of(depth))
        return parts[0] if len(parts) == 1 and not matching else AnyOf(tuple(parts), matching)

    def all_of(self, depth: int) -> "Node":
        parts = [self.atom(depth)]
        while self.skip("&") or self.skip(","):
            parts.append(self.atom(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def atom(self, depth: int) -> "Node":
        for opening, closing in ("()", "[]"):
            if self.skip(opening):
                inner = self.any_of(depth + 1, matching=opening == "[")
                if not self.skip(closing):
                    raise _bad()
                return inner
        name = self.run(lambda char: char.isalnum() or char in "_-.=:/+")
        if not name:
            raise _bad()
        if not self.skip("*"):
            return Feature(name, None)
        count = digits(self.run(lambda char: "0" <= char <= "9"), 9)
        if not count:
            raise _bad()
        return Feature(name, count)

    def skip(self, char: str) -> bool:
        found = self.text.startswith(char, self.at)
        self.at += found
        return found

    def run(self, wanted: "Callable[[str], bool]") -> str:
        start = self.at
        while self.at < len(self.text) and wanted(self.text[self.at]):
            self.at += 1
        return self.text[start : self.at]


def _choices(tree: "Node") -> int:
    """How many trees `alternatives` would give."""
    if isinstance(tree, AnyOf) and tree.matching:
        return sum(_choices(part) for part in tree.parts)
    if isinstance(tree, All):
        product = 1
        for part in tree.parts:
            product *= _choices(part)
        return product
    return 1


def matches(tree: "Node", features: "frozenset[str] | set[str]") -> bool:
    """Whether a node with these features may take part.  A counted feature restricts no single node."""
    if isinstance(tree, Feature):
        return tree.nodes is not None or tree.name in features
    if isinstance(tree, All):
        return all(matches(part, features) for part in tree.parts)
    return any(matches(part, features) for part in tree.parts)


def alternatives(tree: "Node") -> "list[Node]":
    """The trees to try one after the other so that all nodes satisfy the same part of each `[a|b]`."""
    if isinstance(tree, AnyOf) and tree.matching:
        return [choice for part in tree.parts for choice in alternatives(part)]
    if isinstance(tree, All):
        combined: list[tuple[Node, ...]] = [()]
        for part in tree.parts:
            combined = [(*done, choice) for done in combined for choice in alternatives(part)]
        return [All(parts) for parts in combined]
    return [tree]


def counts(tree: "Node") -> list[tuple[str, int]]:
    """(feature, nodes of the job that must have it)."""
    if isinstance(tree, Feature):
        return [] if tree.nodes is None else [(tree.name, tree.nodes)]
    return [found for part in tree.parts for found in counts(part)]


def names(tree: "Node") -> set[str]:
    """Every feature that the constraint names."""
    if isinstance(tree, Feature):
        return {tree.name}
    return {name for part in tree.parts for name in names(part)}


def satisfied_by(tree: "Node", nodes: "Iterable[frozenset[str] | set[str]]") -> bool:
    """Whether an allocation of nodes with these features meets the whole constraint."""
    allocation = list(nodes)
    for choice in alternatives(tree):
        each = all(matches(choice, features) for features in allocation)
        if each and all(sum(name in have for have in allocation) >= n for name, n in counts(choice)):
            return True
    return False


def _bad() -> GrammarError:
    return GrammarError("Invalid feature specification")

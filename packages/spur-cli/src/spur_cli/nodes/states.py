"""How a node's state is printed and filtered (Slurm's words, suffixes and flags)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from spur_core.states import NodeBase, NodeFlag

if TYPE_CHECKING:
    from spur_proto import common_pb2

    Node = common_pb2.NodeInfo

_LONG = {
    NodeBase.UNKNOWN: ("unknown", "unk"),
    NodeBase.DOWN: ("down", "down"),
    NodeBase.IDLE: ("idle", "idle"),
    NodeBase.ALLOCATED: ("allocated", "alloc"),
    NodeBase.ERROR: ("error", "err"),
    NodeBase.MIXED: ("mixed", "mix"),
    NodeBase.FUTURE: ("future", "futr"),
}
#: Rank of a row by its words: what needs attention first.
_ORDER = ("down", "drained", "draining", "fail", "failing", "inval", "maint", "unknown", "mixed", "allocated")


def has_work(node: "Node") -> bool:
    """Whether jobs run or end there."""
    return (
        bool(node.alloc_cpus)
        or bool(node.flags & NodeFlag.COMPLETING)
        or base(node)
        in (
            NodeBase.ALLOCATED,
            NodeBase.MIXED,
        )
    )


def base(node: "Node") -> NodeBase:
    """The base state."""
    return NodeBase(int(node.base) or NodeBase.UNKNOWN)


def words(node: "Node") -> tuple[str, str]:
    """(long, compact) without suffix."""
    flags = NodeFlag(node.flags)
    state = base(node)
    if flags & NodeFlag.INVAL:
        return "inval", "inval"
    if flags & NodeFlag.DRAIN:
        return ("draining", "drng") if has_work(node) else ("drained", "drain")
    if flags & NodeFlag.FAIL:
        return ("failing", "failg") if has_work(node) else ("fail", "fail")
    if state == NodeBase.IDLE:
        for flag, pair in (
            (NodeFlag.MAINT, ("maint", "maint")),
            (NodeFlag.RESERVED, ("reserved", "resv")),
            (NodeFlag.PLANNED, ("planned", "plnd")),
            (NodeFlag.COMPLETING, ("completing", "comp")),
        ):
            if flags & flag:
                return pair
    return _LONG[state]


def suffix(node: "Node") -> str:
    """`$` maintenance; `*` not responding; `+` allocated with an ending job; `-` mixed and planned."""
    flags = NodeFlag(node.flags)
    if flags & NodeFlag.MAINT and words(node)[0] != "maint":
        return "$"
    if flags & NodeFlag.NOT_RESPONDING:
        return "*"
    if base(node) == NodeBase.ALLOCATED and flags & NodeFlag.COMPLETING:
        return "+"
    if base(node) == NodeBase.MIXED and flags & NodeFlag.PLANNED:
        return "-"
    return ""


def long_state(node: "Node") -> str:
    """`idle`, `mixed-`, `down*`, ..."""
    return words(node)[0] + suffix(node)


def compact_state(node: "Node") -> str:
    """`idle`, `mix-`, `down*`, ..."""
    return words(node)[1] + suffix(node)


def order(node: "Node") -> int:
    """Sort rank: what is down or draining first, idle last."""
    word = words(node)[0]
    return _ORDER.index(word) if word in _ORDER else len(_ORDER)


def scontrol_state(node: "Node") -> str:
    """`IDLE+DRAIN`, `DOWN*`, `MIXED+PLANNED`."""
    flags = NodeFlag(node.flags)
    text = base(node).name
    if flags & NodeFlag.NOT_RESPONDING and base(node) == NodeBase.DOWN:
        text += "*"
        flags &= ~NodeFlag.NOT_RESPONDING
    names = [flag.name or "" for flag in NodeFlag if flag and flags & flag]
    return "+".join([text, *names])


#: Words of `-t`, each with its test.
FILTERS: "dict[str, Callable[[Node], bool]]" = {
    "allocated": lambda n: base(n) == NodeBase.ALLOCATED,
    "completing": lambda n: bool(n.flags & NodeFlag.COMPLETING),
    "down": lambda n: base(n) == NodeBase.DOWN,
    "drain": lambda n: bool(n.flags & NodeFlag.DRAIN),
    "drained": lambda n: bool(n.flags & NodeFlag.DRAIN) and not has_work(n),
    "draining": lambda n: bool(n.flags & NodeFlag.DRAIN) and has_work(n),
    "drng": lambda n: bool(n.flags & NodeFlag.DRAIN) and has_work(n),
    "error": lambda n: base(n) == NodeBase.ERROR,
    "fail": lambda n: bool(n.flags & NodeFlag.FAIL) and not has_work(n),
    "failing": lambda n: bool(n.flags & NodeFlag.FAIL) and has_work(n),
    "future": lambda n: base(n) == NodeBase.FUTURE,
    "idle": lambda n: base(n) == NodeBase.IDLE and not n.flags & (NodeFlag.DRAIN | NodeFlag.FAIL),
    "inval": lambda n: bool(n.flags & NodeFlag.INVAL),
    "maint": lambda n: bool(n.flags & NodeFlag.MAINT),
    "mixed": lambda n: base(n) == NodeBase.MIXED,
    "no_respond": lambda n: bool(n.flags & NodeFlag.NOT_RESPONDING),
    "planned": lambda n: bool(n.flags & NodeFlag.PLANNED),
    "plnd": lambda n: bool(n.flags & NodeFlag.PLANNED),
    "reserved": lambda n: bool(n.flags & NodeFlag.RESERVED),
    "resv": lambda n: bool(n.flags & NodeFlag.RESERVED),
    "respond": lambda n: not n.flags & NodeFlag.NOT_RESPONDING,
    "unknown": lambda n: base(n) == NodeBase.UNKNOWN,
}


def parse_filter(text: str) -> "Callable[[Node], bool]":
    """A test from `idle,mix`, `idle&drain`, `~down`.

    Raises:
        ValueError: an unknown word; the exception's text is the word.
    """
    alternatives = []
    for item in text.split(","):
        if item.strip():
            parts = item.strip().replace("+", "&").split("&")
            alternatives.append([_one(part.strip()) for part in parts])
    if not alternatives:
        raise ValueError(text)
    return lambda node: any(all(test(node) for test in parts) for parts in alternatives)


def _one(word: str) -> "Callable[[Node], bool]":
    negated = word[:1] in ("~", "!")
    name = (word[1:] if negated else word).lower()
    test = FILTERS.get(name)
    if test is None and name:
        test = next((found for known, found in FILTERS.items() if known.startswith(name)), None)
    if test is None:
        raise ValueError(word)
    return (lambda node: not test(node)) if negated else test

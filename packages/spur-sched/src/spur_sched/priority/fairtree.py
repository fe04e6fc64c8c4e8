"""Fair shares of users in a tree of accounts: Slurm's fair tree, and its classic formula.

An association is an account, or a user of one; a user appears once for each account that he may use.  The raw
usage of an account covers all below it.

Fairshare=parent: a user stands for his whole account, which puts him before all who have shares of their own
in it; what is below an account is compared with the account's own siblings, as if the account were not there.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

#: Instead of a number of shares: Fairshare=parent.
PARENT: Final = -1

#: (account, user); user "" = the account itself.
Key = tuple[str, str]


class Association(NamedTuple):
    """An account or a user of one.

    Attributes:
        user: "" = the account itself.
        parent: of an account the one above it, "" = the root.
        shares: at least 0, or PARENT.
        usage: decayed and raw, without what is below.
    """

    account: str
    user: str = ""
    parent: str = ""
    shares: int = 1
    usage: float = 0.0


class Share(NamedTuple):
    """What came out for one association.

    Attributes:
        norm_shares: its part of its siblings' shares; in the classic formula of the whole machine's.
        usage: raw, with all below.
        effective_usage: its part of its siblings' usage; in the classic formula of the whole machine's, drawn
            to that of the account.
        level: norm_shares by effective_usage, inf without usage.
        factor: from 0 to 1, of users only.
    """

    norm_shares: float
    usage: float
    effective_usage: float
    level: float
    factor: float | None = None


class _Node:
    """One place of the tree."""

    __slots__ = ("children", "effective", "factor", "key", "level", "norm", "own", "shares", "usage")

    def __init__(self, key: Key, shares: int, own: float) -> None:
        self.key, self.shares, self.own = key, shares, own
        self.children: list[_Node] = []
        self.usage = 0.0
        self.norm = self.effective = 1.0
        self.level = 1.0
        self.factor: float | None = None

    @property
    def is_user(self) -> bool:
        return bool(self.key[1])

    def share(self) -> Share:
        return Share(self.norm, self.usage, self.effective, self.level, self.factor)


def fair_tree(associations: Iterable[Association]) -> dict[Key, Share]:
    """Users in the order of their turn: the factor is the place counted from the end, by all places.

    Siblings are compared by level fair share.  Who is alike shares the best place among them: users with each
    other, and users with the best user of an account.  Accounts alike are compared by their children, as if
    these were siblings.

    Raises:
        ValueError: the accounts are no tree.
    """
    root = _tree(associations)
    for node in _all(root):
        shares = sum(child.shares for child in node.children if child.shares != PARENT)
        for child in node.children:
            child.norm = child.shares / shares if shares and child.shares != PARENT else 0.0
            child.effective = child.usage / node.usage if node.usage > 0 else 0.0
            child.level = _level(child)
            if child.shares == PARENT:
                child.norm, child.level = node.norm, math.inf
    users = sum(node.is_user for node in _all(root))
    _take_turns(root.children, _Turn(users), tied=False)
    return {node.key: node.share() for node in _all(root) if node is not root}


def classic(
    associations: Iterable[Association], *, whole: float | None = None, dampening: float = 1.0
) -> dict[Key, Share]:
    """`2 ** (-usage / shares / dampening)`: 0.5 for who used just his part.

    The usage that counts is the user's own drawn to that of his account by his part of its shares, and the
    account's likewise to that of the one above; right below the root it is the account's own.

    Args:
        whole: the usage that the machine could have had; None = the usage that it had.
        dampening: FairShareDampeningFactor; larger ones take less notice of differences.

    Raises:
        ValueError: the accounts are no tree.
    """
    root = _tree(associations)
    whole = root.usage if whole is None else whole
    for node in _all(root):
        shares = sum(child.shares for child in node.children if child.shares != PARENT)
        for child in node.children:
            if child.shares == PARENT:
                child.norm, child.effective = node.norm, node.effective
            else:
                part = child.shares / shares if shares else 0.0
                child.norm = node.norm * part
                child.effective = child.usage / whole if whole > 0 else 0.0
                if node is not root:
                    child.effective += (node.effective - child.effective) * part
            child.level = _level(child)
            if child.is_user:
                child.factor = 2 ** (-child.effective / child.norm / dampening) if child.norm > 0 else 0.0
    return {node.key: node.share() for node in _all(root) if node is not root}


class _Turn:
    """Places are given from the first on: `rank` is that of the last user, `left` how many have none yet."""

    __slots__ = ("left", "rank", "users")

    def __init__(self, users: int) -> None:
        self.users = self.left = self.rank = users


def _take_turns(siblings: list[_Node], turn: _Turn, *, tied: bool) -> None:
    """Give places to all users below.

    Args:
        tied: the first of them shares the place of the one before.
    """
    ordered = sorted(siblings, key=_place, reverse=True)
    for _, alike in groupby(ordered, key=_place):
        children: list[_Node] = []
        for node in alike:
            if not node.is_user:
                children += node.children
                continue
            if not tied:
                turn.rank = turn.left
            tied = True
            node.factor = turn.rank / turn.users
            turn.left -= 1
        if children:
            _take_turns(children, turn, tied=tied)
        tied = False


def _place(node: _Node) -> float:
    """What siblings are compared by; the last digits are noise of the division."""
    return float(f"{node.level:.12g}")


def _level(node: _Node) -> float:
    if node.norm <= 0:
        return 0.0
    return node.norm / node.effective if node.effective > 0 else math.inf


def _tree(associations: Iterable[Association]) -> _Node:
    """The root, with raw usage summed up from below."""
    listed = list(associations)
    root = _Node(("", ""), 1, 0.0)
    accounts = {
        one.account: _Node((one.account, ""), one.shares, one.usage) for one in listed if not one.user
    }
    parents = {one.account: one.parent for one in listed if not one.user}
    for one in listed:
        if one.user:
            node, above = _Node((one.account, one.user), one.shares, one.usage), one.account
        else:
            node, above = accounts[one.account], one.parent
        _not_through_parents(above, accounts, parents, root).children.append(node)
    _add_up(root)
    if sum(1 for _ in _all(root)) != len(listed) + 1:
        raise ValueError("the accounts are no tree")
    return root


def _not_through_parents(
    name: str, accounts: dict[str, _Node], parents: dict[str, str], root: _Node
) -> _Node:
    """The nearest account from `name` upwards that has shares of its own."""
    for _ in range(len(accounts) + 1):
        if not name:
            return root
        if name not in accounts:
            raise ValueError(f"account {name} is not known")
        if accounts[name].shares != PARENT:
            return accounts[name]
        name = parents[name]
    raise ValueError("the accounts are no tree")


def _all(root: _Node) -> Iterator[_Node]:
    """Every node, those above before those below."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children


def _add_up(root: _Node) -> None:
    for node in reversed(list(_all(root))):
        node.usage = node.own + sum(child.usage for child in node.children)

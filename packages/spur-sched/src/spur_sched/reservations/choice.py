"""Nodes for a reservation that asks for a number of nodes or cores instead of names."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from spur_core.grammar import features
from spur_core.grammar.hostlist import natural_key


class Candidate(NamedTuple):
    """A node that may be taken.

    Attributes:
        up: in service.
        busy: work on it goes on when the reservation begins.
        free_cpus: not kept by another reservation at that time.
        threads: CPUs of a core.
        weight: higher is preferred, as for jobs.
    """

    name: str
    up: bool
    busy: bool
    free_cpus: int
    cpus: int
    threads: int = 1
    weight: int = 1
    features: frozenset[str] = frozenset()


class Ask(NamedTuple):
    """What is wanted.

    Attributes:
        nodes: how many; 0 = as few as give the cores.
        cores: of all nodes together; 0 = whole nodes.
        constraint: features that each node must have.
        ignore_jobs: work that runs there does not matter.
        keep: nodes that it has already; they stay while they are fit.
    """

    nodes: int = 0
    cores: int = 0
    constraint: str = ""
    ignore_jobs: bool = False
    keep: frozenset[str] = frozenset()


class Choice(NamedTuple):
    """Nodes by name in natural order, and how many CPUs of each; None = all."""

    nodes: tuple[str, ...]
    cpus: tuple[tuple[str, int], ...] | None


def choose(ask: Ask, candidates: Sequence[Candidate]) -> Choice | None:
    """The nodes: those it has, then idle ones, then the preferred; None when there are not enough."""
    fit = [
        one
        for one in candidates
        if one.up and _has(ask.constraint, one) and (ask.ignore_jobs or not one.busy)
    ]
    order: Callable[[Candidate], tuple[object, ...]] = lambda one: (  # noqa: E731
        one.name not in ask.keep,
        one.busy,
        -one.weight,
        natural_key(one.name),
    )
    fit.sort(key=order)
    if not ask.cores:
        whole = [one for one in fit if one.free_cpus >= one.cpus]
        if len(whole) < ask.nodes or not ask.nodes:
            return None
        return Choice(_names(whole[: ask.nodes]), None)
    return _by_cores(ask, [one for one in fit if one.free_cpus >= one.threads])


def _by_cores(ask: Ask, fit: Sequence[Candidate]) -> Choice | None:
    left = ask.cores
    taken: dict[str, int] = {}
    if ask.nodes:
        if len(fit) < ask.nodes or ask.cores < ask.nodes:
            return None
        # Each gets its share; what one cannot give the others do.
        chosen = sorted(fit[: ask.nodes], key=lambda one: one.free_cpus // one.threads)
        for at, one in enumerate(chosen):
            share = min(-(-left // (len(chosen) - at)), one.free_cpus // one.threads)
            taken[one.name] = share * one.threads
            left -= share
    else:
        for one in fit:
            share = min(left, one.free_cpus // one.threads)
            taken[one.name] = share * one.threads
            left -= share
            if not left:
                break
    if left:
        return None
    names = tuple(sorted(taken, key=natural_key))
    return Choice(names, tuple((name, taken[name]) for name in names))


def _has(constraint: str, one: Candidate) -> bool:
    if not constraint:
        return True
    return any(
        features.matches(tree, one.features) for tree in features.alternatives(features.parse(constraint))
    )


def _names(chosen: Sequence[Candidate]) -> tuple[str, ...]:
    return tuple(sorted((one.name for one in chosen), key=natural_key))

"""What one step gets of its attempt's holding on this node.  Pure.

A step gets all the CPUs of the job here, unless it asked for an exact number: then those that no other exact
step of the attempt uses, as far as there are so many.  Countable resources are picked in the same way.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from spur_agent.allocation import Grant, GresGrant, NoRoom

#: Steps of one attempt that may run here at once without a CPU of their own.  Each has a supervisor
#: of some MiB, which is in no limit of the job's.
MOST_OVERLAPPING: Final = 256

#: (name, type, count); an empty type takes any.
GresWish = tuple[str, str, int]


class Share(NamedTuple):
    """Holdings on this node: the step's own, and that of the whole attempt around it."""

    step: Grant
    job: Grant


class Wish(NamedTuple):
    """What a step asks for here.  `cpus` counts only when `exact`; an overlapping step takes nothing away."""

    cpus: int
    memory_mb: int
    gres: tuple[GresWish, ...]
    exact: bool
    overlap: bool


class Beside(NamedTuple):
    """A step that runs beside: what it uses, and whether others should keep off its CPUs and devices."""

    grant: Grant
    exact: bool
    overlap: bool


def whole(grant: Grant) -> Share:
    """The share of a step that stands for its attempt."""
    return Share(grant, grant)


def choose(job: Grant, wish: Wish, beside: Iterable[Beside]) -> Share:
    """Pick the step's part of the job's holding.

    Raises:
        NoRoom: more of a countable resource is asked for than the job has here, or a further overlapping
            step is one too many.
    """
    beside = list(beside)
    others = [one for one in beside if not one.overlap]
    if wish.overlap and len(beside) - len(others) >= MOST_OVERLAPPING:
        raise NoRoom(f"{MOST_OVERLAPPING} overlapping steps of the job run here already; let one end first")
    cpus = job.cpu_ids
    if wish.exact and 0 < wish.cpus < len(cpus):
        used = Counter(cpu for one in others if one.exact for cpu in one.grant.cpu_ids)
        cpus = tuple(sorted(sorted(cpus, key=lambda cpu: (used[cpu], cpu))[: wish.cpus]))
    return Share(Grant(cpus, wish.memory_mb, _gres(job, wish.gres, others), job.layer), job)


def _gres(job: Grant, wishes: Sequence[GresWish], others: Iterable[Beside]) -> tuple[GresGrant, ...]:
    used = Counter((g.name, i) for one in others for g in one.grant.gres for i in g.indices)
    taken: set[tuple[str, int]] = set()
    picked: dict[tuple[str, str], list[int]] = {}
    # Typed wishes first: an untyped one can make do with what they leave.
    for name, type_, count in sorted(wishes, key=lambda w: not w[1]):
        if not count:
            continue
        fitting = [
            (index, held.type)
            for held in job.gres
            if held.name == name and (type_ in ("", held.type) or not held.type)
            for index in held.indices
            if (name, index) not in taken
        ]
        if count > len(fitting):
            label = f"{name}:{type_}" if type_ else name
            raise NoRoom(f"the step wants {count} {label}, its job has {len(fitting)} here")
        fitting.sort(key=lambda one: (used[name, one[0]], one[0]))
        for index, held_type in fitting[:count]:
            taken.add((name, index))
            picked.setdefault((name, held_type), []).append(index)
    # Under the job's own types, so that the holdings of its steps put together are its holding.
    return tuple(GresGrant(name, type_, tuple(sorted(i))) for (name, type_), i in picked.items())


def gpu_ids(grant: Grant) -> list[int]:
    """Indices of the GPUs of a holding, ascending."""
    return sorted(index for one in grant.gres if one.name == "gpu" for index in one.indices)


def cpu_count(share: Share, ordered: int) -> int:
    """How many CPUs a step has here.

    Args:
        ordered: what the controller says; of a step beside others that is only what it asked for.
    """
    if share.step is share.job:
        return ordered or len(share.job.cpu_ids)
    return len(share.step.cpu_ids) or ordered

"""What of this node is given to which attempt.

One entry per (job, attempt): all steps of an attempt share it.  CPUs are logical CPU numbers, lowest free
first.  Attempts that share CPUs are each in a layer, as the controller says, and two of one layer have no CPU
in common.  Countable resources are indices per name, counted over all types of that name in order.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from spur_core.errors import BusyError

#: (job id, attempt)
Owner = tuple[int, int]
#: (name, type); the type is empty for untyped ones.
GresKey = tuple[str, str]


class NoRoom(BusyError):
    """The node has less free than asked for; nothing was taken."""

    code = "no_room"


class GresGrant(NamedTuple):
    """Indices of one resource, e.g. gpu of type h100: 0 and 2."""

    name: str
    type: str
    indices: tuple[int, ...]


class Want(NamedTuple):
    """What the controller decided for this node; an empty type takes any type of that name.

    cpu_ids: which CPUs; empty = any.
    indices: which devices, by (name, type); of what is not there any.
    """

    cpus: int
    memory_mb: int
    gres: tuple[tuple[str, str, int], ...] = ()
    cpu_ids: tuple[int, ...] = ()
    indices: Mapping[GresKey, tuple[int, ...]] = {}
    #: Its CPUs are alone in this layer of shared CPUs; 0 = nobody shares them.
    layer: int = 0


class Grant(NamedTuple):
    """What an attempt holds here."""

    cpu_ids: tuple[int, ...]
    memory_mb: int
    gres: tuple[GresGrant, ...] = ()
    layer: int = 0


class AllocationTable:
    """The node's resources and their holders.

    Args:
        cpu_ids: logical CPUs of the node, ascending.
        memory_mb: memory that may be given out.
        gres: capacity per (name, type).
    """

    def __init__(self, cpu_ids: Sequence[int], memory_mb: int, gres: Mapping[GresKey, int]) -> None:
        self._cpus = tuple(cpu_ids)
        self._memory_mb = memory_mb
        self._units = _units(gres)
        self._held: dict[Owner, Grant] = {}

    def held(self) -> Mapping[Owner, Grant]:
        """Who holds what now."""
        return dict(self._held)

    def reserve(self, owner: Owner, want: Want, asleep: Collection[Owner] = ()) -> Grant:
        """Take what is wanted, or nothing at all.  An owner that holds something gets just that again.

        Where the controller names CPUs and devices it gets those or none.

        Args:
            asleep: owners all of whose processes are stopped: where free CPUs do not suffice theirs are used,
                which the controller has lent.

        Raises:
            NoRoom: names the resource of which there is not enough, or what is another's already.
        """
        held = self._held.get(owner)
        if held is not None:
            return held
        cpus = self._named_cpus(want, asleep) if want.cpu_ids else self._any_cpus(want, asleep)
        free_memory = self._memory_mb - sum(g.memory_mb for g in self._held.values())
        if want.memory_mb > max(free_memory, 0):
            raise NoRoom(f"{want.memory_mb} MB wanted, {max(free_memory, 0)} of {self._memory_mb} are free")
        grant = Grant(cpus, want.memory_mb, self._pick_gres(want.gres, want.indices), want.layer)
        self._held[owner] = grant
        return grant

    def restore(self, owner: Owner, grant: Grant) -> None:
        """Enter what a step that was found running holds, whatever the table says of it."""
        held = self._held.get(owner)
        self._held[owner] = grant if held is None else _union(held, grant)

    def release(self, owner: Owner) -> None:
        """Free what the owner holds; nothing if it holds nothing."""
        self._held.pop(owner, None)

    def _any_cpus(self, want: Want, asleep: Collection[Owner]) -> tuple[int, ...]:
        free = self._shared_cpus(want.layer) if want.layer else self._free_cpus()
        if want.cpus > len(free) and asleep:
            free += [cpu for cpu in self._free_cpus(asleep) if cpu not in free]
        if want.cpus > len(free):
            raise NoRoom(f"{want.cpus} CPUs wanted, {len(free)} of {len(self._cpus)} are free")
        return tuple(sorted(free[: want.cpus]))

    def _named_cpus(self, want: Want, asleep: Collection[Owner]) -> tuple[int, ...]:
        named = set(want.cpu_ids)
        if len(named) != want.cpus:
            raise NoRoom(f"{want.cpus} CPUs wanted, {len(named)} are named")
        if missing := named.difference(self._cpus):
            raise NoRoom(f"CPU {min(missing)} is wanted, this node has no such")
        for owner, grant in self._held.items():
            apart = want.layer and grant.layer not in (0, want.layer)
            if owner not in asleep and not apart and (both := named.intersection(grant.cpu_ids)):
                raise NoRoom(f"CPU {min(both)} is wanted, job {owner[0]} has it")
        return tuple(sorted(named))

    def _free_cpus(self, asleep: Collection[Owner] = ()) -> list[int]:
        taken = {cpu for owner, grant in self._held.items() if owner not in asleep for cpu in grant.cpu_ids}
        return [cpu for cpu in self._cpus if cpu not in taken]

    def _shared_cpus(self, layer: int) -> list[int]:
        """CPUs that nobody has for himself or in the same layer, those with fewest jobs first."""
        grants = self._held.values()
        taken = {cpu for grant in grants if grant.layer in (0, layer) for cpu in grant.cpu_ids}
        jobs = Counter(cpu for grant in grants for cpu in grant.cpu_ids)
        return sorted((cpu for cpu in self._cpus if cpu not in taken), key=lambda cpu: jobs[cpu])

    def _pick_gres(
        self, wanted: Iterable[tuple[str, str, int]], named: Mapping[GresKey, tuple[int, ...]]
    ) -> tuple[GresGrant, ...]:
        taken = {
            (one.name, index): owner[0]
            for owner, grant in self._held.items()
            for one in grant.gres
            for index in one.indices
        }
        for (name, type_), indices in named.items():
            self._check_named(name, type_, indices, taken)
        ours = {(name, index) for (name, _), indices in named.items() for index in indices}
        picked: list[GresGrant] = []
        # Typed wishes first: an untyped one can make do with what they leave.
        for name, type_, count in sorted(wanted, key=lambda w: not w[1]):
            label = f"{name}:{type_}" if type_ else name
            units = self._units.get(name, [])
            gone = {index for kind, index in (*taken, *ours) if kind == name}
            free = [i for i, t in enumerate(units) if type_ in ("", t) and i not in gone]
            chosen = tuple(sorted(set(named.get((name, type_), ()))))
            if chosen and len(chosen) != count:
                raise NoRoom(f"{count} {label} wanted, {len(chosen)} are named")
            if not chosen and count > len(free):
                raise NoRoom(f"{count} {label} wanted, {len(free)} are free")
            chosen = chosen or tuple(free[:count])
            ours.update((name, i) for i in chosen)
            picked.append(GresGrant(name, type_, chosen))
        return tuple(picked)

    def _check_named(
        self, name: str, type_: str, indices: Iterable[int], taken: Mapping[tuple[str, int], int]
    ) -> None:
        units = self._units.get(name, [])
        for index in indices:
            if index >= len(units) or type_ not in ("", units[index]):
                raise NoRoom(f"{name} {index} is wanted, this node has no such of type {type_ or 'any'}")
            if (name, index) in taken:
                raise NoRoom(f"{name} {index} is wanted, job {taken[name, index]} has it")


def _units(gres: Mapping[GresKey, int]) -> dict[str, list[str]]:
    """Per name the type of every unit, in index order."""
    units: dict[str, list[str]] = {}
    for (name, type_), count in gres.items():
        units.setdefault(name, []).extend([type_] * count)
    return units


def _union(one: Grant, other: Grant) -> Grant:
    """Two steps of one attempt report the same holding, or parts of it."""
    gres = {(g.name, g.type): set(g.indices) for g in one.gres}
    for grant in other.gres:
        gres.setdefault((grant.name, grant.type), set()).update(grant.indices)
    return Grant(
        tuple(sorted({*one.cpu_ids, *other.cpu_ids})),
        max(one.memory_mb, other.memory_mb),
        tuple(GresGrant(name, type_, tuple(sorted(i))) for (name, type_), i in gres.items()),
        max(one.layer, other.layer),
    )

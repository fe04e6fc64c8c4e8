"""Which limits hold for one user in one account with one QOS: from the tables to flat lists.

Of a limit that is set at several places the first one counts: the partition's QOS, the job's QOS, the user's
association, the accounts above.  Limits of groups of associations hold at every level, unless a QOS sets
them.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spur_sched.limits import tokens
from spur_sched.limits.counters import GroupKey
from spur_sched.limits.tables import Association, GroupLimits, JobLimits, Past, Qos, Tables


class Single(NamedTuple):
    """What one job may have at most (or, of `min_tres`, at least)."""

    wall: tuple[float, str] | None
    tres: tuple[tuple[str, float, str], ...]
    per_node: tuple[tuple[str, float, str], ...]
    mins: tuple[tuple[str, float, str], ...]
    min_tres: tuple[tuple[str, float, str], ...] = ()


class Cap(NamedTuple):
    """What a group may have in use of one TRES; for minutes `past` is what it used already."""

    key: GroupKey
    name: str
    limit: float
    reason: str
    past: float = 0.0


class Source(NamedTuple):
    """The limits of the associations, or of one QOS, in the order in which they are looked at."""

    counts: tuple[tuple[GroupKey, int, str], ...]
    #: Wall time that groups used: (used, limit, reason).
    walls: tuple[tuple[float, float, str], ...]
    single: Single
    shares: tuple[Cap, ...]
    groups: tuple[Cap, ...]
    group_mins: tuple[Cap, ...]
    group_run_mins: tuple[Cap, ...]
    #: (group, most submitted, reason).
    submits: tuple[tuple[GroupKey, int, str], ...]
    #: (group, most whose age counts).
    accruals: tuple[tuple[GroupKey, int], ...]


class Resolved(NamedTuple):
    """Associations first, then the QOS; `keys` are the groups that a job of this kind belongs to."""

    sources: tuple[Source, ...]
    keys: tuple[GroupKey, ...]


#: (limit, TRES or "").
_Set = set[tuple[str, str]]


def resolve(tables: Tables, account: str, uid: int, qos: str, partition: str) -> Resolved:
    """The limits of a job."""
    chain = tables.chain(account, uid)
    named = dict.fromkeys((tables.partition_qos.get(partition, ""), qos))
    found = [tables.qos[name] for name in named if name in tables.qos]
    taken: _Set = set()
    sources = []
    for one in found:
        own: _Set = set()
        sources.append(_qos(one, account, uid, taken, own))
        taken |= own
    keys: list[GroupKey] = [("user", account, uid)]
    keys += [("account", above.account) for above in chain[1:]]
    for one in found:
        keys += [("qos", one.name), ("qos-user", one.name, uid), ("qos-account", one.name, account)]
    return Resolved((_associations(chain, account, uid, taken), *sources), tuple(keys))


def _qos(one: Qos, account: str, uid: int, taken: _Set, own: _Set) -> Source:
    group: GroupKey = ("qos", one.name)
    user: GroupKey = ("qos-user", one.name, uid)
    accounts: GroupKey = ("qos-account", one.name, account)
    fresh = _Fresh(taken, own)
    counts = [
        (key, limit, reason)
        for what, key, limit, reason in (
            ("jobs", user, one.user.jobs, tokens.QOS_MAX_JOBS_USER),
            ("account_jobs", accounts, one.account.jobs, tokens.QOS_MAX_JOBS_ACCOUNT),
            ("grp_jobs", group, one.group.jobs, tokens.QOS_GRP_JOBS),
        )
        if limit is not None and fresh(what)
    ]
    submits = [
        (key, limit, reason)
        for what, key, limit, reason in (
            ("submit", user, one.user.submit_jobs, tokens.QOS_MAX_SUBMIT_USER),
            ("account_submit", accounts, one.account.submit_jobs, tokens.QOS_MAX_SUBMIT_ACCOUNT),
            ("grp_submit", group, one.group.submit_jobs, tokens.QOS_GRP_SUBMIT),
        )
        if limit is not None and fresh(what)
    ]
    accruals = [
        (key, limit)
        for what, key, limit in (
            ("accrue", user, one.user.jobs_accrue),
            ("account_accrue", accounts, one.account.jobs_accrue),
            ("grp_accrue", group, one.group.jobs_accrue),
        )
        if limit is not None and fresh(what)
    ]
    shares = [
        Cap(key, name, limit, tokens.tres("qos", what, name))
        for what, key, tres in (("user", user, one.user.tres), ("account", accounts, one.account.tres))
        for name, limit in _sorted(tres)
        if fresh(f"{what}_tres", name)
    ]
    return Source(
        tuple(counts),
        _walls(one.group, one.past, tokens.QOS_GRP_WALL, fresh),
        _single("qos", [one.job], tokens.QOS_MAX_WALL, fresh, one.min_tres),
        tuple(shares),
        *_groups("qos", group, one.group, one.past, fresh),
        tuple(submits),
        tuple(accruals),
    )


def _associations(chain: tuple[Association, ...], account: str, uid: int, taken: _Set) -> Source:
    user: GroupKey = ("user", account, uid)
    counts, submits, accruals = [], [], []
    first = _Fresh(taken, set())
    for one in chain:
        if one.own.jobs is not None and first("jobs"):
            counts.append((user, one.own.jobs, tokens.ASSOC_MAX_JOBS))
        if one.own.submit_jobs is not None and first("submit"):
            submits.append((user, one.own.submit_jobs, tokens.ASSOC_MAX_SUBMIT))
        if one.own.jobs_accrue is not None and first("accrue"):
            accruals.append((user, one.own.jobs_accrue))
    walls: list[tuple[float, float, str]] = []
    groups: list[Cap] = []
    mins: list[Cap] = []
    runs: list[Cap] = []
    for one in chain:
        key: GroupKey = user if one.uid is not None else ("account", one.account)
        each = _Fresh(taken, set())
        if one.group.jobs is not None and each("grp_jobs"):
            counts.append((key, one.group.jobs, tokens.ASSOC_GRP_JOBS))
        if one.group.submit_jobs is not None and each("grp_submit"):
            submits.append((key, one.group.submit_jobs, tokens.ASSOC_GRP_SUBMIT))
        if one.group.jobs_accrue is not None and each("grp_accrue"):
            accruals.append((key, one.group.jobs_accrue))
        walls += _walls(one.group, one.past, tokens.ASSOC_GRP_WALL, each)
        more = _groups("assoc", key, one.group, one.past, each)
        groups += more[0]
        mins += more[1]
        runs += more[2]
    return Source(
        tuple(counts),
        tuple(walls),
        _single("assoc", [one.job for one in chain], tokens.ASSOC_MAX_WALL, _Fresh(taken, set())),
        (),
        tuple(groups),
        tuple(mins),
        tuple(runs),
        tuple(submits),
        tuple(accruals),
    )


class _Fresh:
    """Whether a limit was not set by whoever comes before; asking sets it."""

    def __init__(self, taken: _Set, own: _Set) -> None:
        self._taken, self._own = taken, own

    def __call__(self, what: str, name: str = "") -> bool:
        if (what, name) in self._taken or (what, name) in self._own:
            return False
        self._own.add((what, name))
        return True


def _walls(
    group: GroupLimits, past: Past, reason: str, fresh: _Fresh
) -> tuple[tuple[float, float, str], ...]:
    return ((past.wall, group.wall, reason),) if group.wall is not None and fresh("grp_wall") else ()


def _single(
    source: str,
    limits: Iterable[JobLimits],
    wall_reason: str,
    fresh: _Fresh,
    min_tres: Mapping[str, float] | None = None,
) -> Single:
    """Of several the first that sets a limit counts."""
    wall: tuple[float, str] | None = None
    found: dict[str, list[tuple[str, float, str]]] = {"job": [], "per_node": [], "job_mins": []}
    for one in limits:
        if one.wall is not None and fresh("wall"):
            wall = (one.wall, wall_reason)
        for what, tres in (("job", one.tres), ("per_node", one.tres_per_node), ("job_mins", one.tres_mins)):
            for name, limit in _sorted(tres):
                if fresh(what, name):
                    found[what].append((name, limit, tokens.tres(source, what, name)))
    least = [
        (name, limit, tokens.tres(source, "min", name))
        for name, limit in _sorted(min_tres or {})
        if fresh("min", name)
    ]
    for rows in found.values():
        rows.sort(key=lambda row: tokens.order(row[0]))
    return Single(wall, tuple(found["job"]), tuple(found["per_node"]), tuple(found["job_mins"]), tuple(least))


def _groups(
    source: str, key: GroupKey, group: GroupLimits, past: Past, fresh: _Fresh
) -> tuple[tuple[Cap, ...], tuple[Cap, ...], tuple[Cap, ...]]:
    found: list[tuple[Cap, ...]] = []
    for what, tres in (
        ("group", group.tres),
        ("group_mins", group.tres_mins),
        ("group_run_mins", group.tres_run_mins),
    ):
        used = past.tres_mins if what == "group_mins" else {}
        found.append(
            tuple(
                Cap(key, name, limit, tokens.tres(source, what, name), used.get(name, 0.0))
                for name, limit in _sorted(tres)
                if fresh(what, name)
            )
        )
    return found[0], found[1], found[2]


def _sorted(tres: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(tres.items(), key=lambda item: tokens.order(item[0]))

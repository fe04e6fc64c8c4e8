"""Who may use a partition: groups, accounts, QOS, root, reservations.  Pure.

Groups and root are looked at when a job is submitted or moved; accounts, QOS and reservations again by every
pass, because partitions change while jobs wait.
"""

from collections.abc import Collection, Iterable
from typing import Final

from spur_core import reasons
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Job, Partition, Request

#: Slurm's sentences.
NO_ACCOUNT: Final = "Invalid account or account/partition combination specified"
NO_QOS: Final = "Invalid qos specification"
NO_GROUP: Final = "User's group not permitted to use this partition"
DENIED: Final = "Access/permission denied"


def account_allowed(partition: Partition, account: str) -> bool:
    """A list of allowed accounts counts before one of denied ones; with either a job must have an account."""
    if partition.allow_accounts:
        return account.lower() in map(str.lower, partition.allow_accounts)
    return not partition.deny_accounts or (
        bool(account) and account.lower() not in map(str.lower, partition.deny_accounts)
    )


def qos_allowed(partition: Partition, qos: str) -> bool:
    """Likewise; a job without a QOS is kept out only by a list of allowed ones."""
    if partition.allow_qos:
        return qos.lower() in map(str.lower, partition.allow_qos)
    return qos.lower() not in map(str.lower, partition.deny_qos)


def refusal(
    partition: Partition,
    *,
    uid: int,
    groups: Collection[str],
    admin: bool,
    account: str,
    qos: str,
    reservation: str,
) -> str:
    """Why a job may not be submitted to the partition, "" when it may.

    Args:
        groups: names of all groups of the user on the controller's host.
        admin: whether an administrator submits it: groups and `root_only` do not bind him.
    """
    if partition.req_resv and not reservation:
        return DENIED
    if text := closed_to(partition, uid, groups, admin=admin):
        return text
    if not account_allowed(partition, account):
        return NO_ACCOUNT
    return "" if qos_allowed(partition, qos) else NO_QOS


def closed_to(partition: Partition, uid: int, groups: Collection[str], *, admin: bool) -> str:
    """Why a user may not use the partition whatever his job is, "" when he may."""
    if partition.root_only and not admin:
        return DENIED
    if partition.disable_root_jobs and uid == 0:
        return DENIED
    if partition.allow_groups and not admin and not set(partition.allow_groups) & set(groups):
        return NO_GROUP
    return ""


def open_to(request: Request, partitions: Iterable[Partition]) -> tuple[tuple[str, ...], str]:
    """(the partitions that a pending job may start in, why none when there is none)."""
    names: list[str] = []
    reason = ""
    for partition in partitions:
        why = ""
        if not account_allowed(partition, request.account):
            why = reasons.ACCOUNT_NOT_ALLOWED
        elif not qos_allowed(partition, request.qos):
            why = reasons.QOS_NOT_ALLOWED
        elif partition.req_resv and not request.reservation:
            why = reasons.RESERVATION
        if why:
            reason = reason or why
        else:
            names.append(partition.name)
    return tuple(names), "" if names else reason


def owning_job(state: ClusterState, held: Iterable[Job]) -> Job | None:
    """The job among those of a node for which the node is kept for its user."""
    for job in held:
        partition = state.partitions.get(job.partition)
        if job.request.exclusive_user or (partition is not None and partition.exclusive_user):
            return job
    return None


def restricts(partition: Partition) -> bool:
    """Whether `open_to` may keep a job out of it."""
    return bool(
        partition.allow_accounts
        or partition.deny_accounts
        or partition.allow_qos
        or partition.deny_qos
        or partition.req_resv
    )

"""The limits that were set, and what counts against them from the past.

None = no limit and 0 = nothing at all; a TRES that a mapping does not name has no limit.  TRES names are
Slurm's ("cpu", "mem" in MiB, "node", "gres/gpu", "gres/gpu:h100", "license/x", "billing"); times are minutes.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

Tres = Mapping[str, float]
_NONE: Final[Tres] = {}


class JobLimits(NamedTuple):
    """For each job by itself: MaxWallDurationPerJob, MaxTRESPerJob, MaxTRESPerNode, MaxTRESMinsPerJob."""

    wall: float | None = None
    tres: Tres = _NONE
    tres_per_node: Tres = _NONE
    tres_mins: Tres = _NONE


class GroupLimits(NamedTuple):
    """For all jobs together: GrpJobs, GrpSubmitJobs, GrpJobsAccrue, GrpWall, GrpTRES, GrpTRESMins,
    GrpTRESRunMins."""

    jobs: int | None = None
    submit_jobs: int | None = None
    jobs_accrue: int | None = None
    wall: float | None = None
    tres: Tres = _NONE
    tres_mins: Tres = _NONE
    tres_run_mins: Tres = _NONE


class ShareLimits(NamedTuple):
    """For the jobs of one user, or of one account, together: MaxJobsPer..., MaxSubmitJobsPer...,
    MaxJobsAccruePer..., MaxTRESPer..."""

    jobs: int | None = None
    submit_jobs: int | None = None
    jobs_accrue: int | None = None
    tres: Tres = _NONE


class Past(NamedTuple):
    """What was used already, decayed: TRES-minutes and minutes of wall time."""

    tres_mins: Tres = _NONE
    wall: float = 0.0


class Association(NamedTuple):
    """An account, or a user of one.

    What is set for each job and in `own` of an account holds for each of its users and of the accounts below
    that have nothing else set; `group` holds for all below together, at every level.

    Attributes:
        uid: None = the account itself.
        parent: of an account the one above it; "" = the root.
        own: MaxJobs, MaxSubmitJobs, MaxJobsAccrue: of a user in the account.
    """

    account: str
    uid: int | None = None
    parent: str = ""
    job: JobLimits = JobLimits()
    own: ShareLimits = ShareLimits()
    group: GroupLimits = GroupLimits()
    past: Past = Past()


class Qos(NamedTuple):
    """A quality of service.

    Attributes:
        min_tres: MinTRESPerJob.
        deny: DenyOnLimit: what can never run is refused when it is submitted.
    """

    name: str
    job: JobLimits = JobLimits()
    min_tres: Tres = _NONE
    user: ShareLimits = ShareLimits()
    account: ShareLimits = ShareLimits()
    group: GroupLimits = GroupLimits()
    past: Past = Past()
    deny: bool = False


class Tables(NamedTuple):
    """Everything.

    Attributes:
        associations: by account and uid.
        partition_qos: partition -> the QOS whose limits hold in it besides the job's own.
        safe: start only what can end before GrpTRESMins is used up (AccountingStorageEnforce=safe).
    """

    associations: Mapping[tuple[str, int | None], Association] = {}
    qos: Mapping[str, Qos] = {}
    partition_qos: Mapping[str, str] = {}
    safe: bool = False

    def chain(self, account: str, uid: int) -> tuple[Association, ...]:
        """The user's association, that of his account, and those above it up to the root.

        A user without one of his own has an empty one; an account that nobody knows has no limits.
        """
        own = self.associations.get((account, uid)) or Association(account, uid)
        found = [own]
        name, seen = account, set[str]()
        while name not in seen:
            seen.add(name)
            above = self.associations.get((name, None))
            if above is None:
                break
            found.append(above)
            if not name:
                break
            name = above.parent
        return tuple(found)

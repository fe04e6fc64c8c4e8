"""Why a job waits or how it ended: Slurm's exact tokens.

A job always has one of these.  A free text may stand in front of users instead (`state_desc`), but the
token stays what scripts match on.
"""

NONE = "None"
PRIORITY = "Priority"
RESOURCES = "Resources"
DEPENDENCY = "Dependency"
DEPENDENCY_NEVER = "DependencyNeverSatisfied"
BEGIN_TIME = "BeginTime"
HELD_USER = "JobHeldUser"
HELD_ADMIN = "JobHeldAdmin"
HELD_MAX_REQUEUE = "JobHoldMaxRequeue"
#: A job that lost its node agents' supervisors five times is parked with this one.
RECOVERY_FAILED = "RecoveryFailed"
ARRAY_TASK_LIMIT = "JobArrayTaskLimit"
LICENSES = "Licenses"
#: The reservation that the job names does not hold now, or is not for it.
RESERVATION = "Reservation"
#: It was deleted, or is over; the job is held.
RESERVATION_DELETED = "ReservationDeleted"
PARTITION_DOWN = "PartitionDown"
PARTITION_INACTIVE = "PartitionInactive"
PARTITION_NODE_LIMIT = "PartitionNodeLimit"
PARTITION_TIME_LIMIT = "PartitionTimeLimit"
PARTITION_CONFIG = "PartitionConfig"
REQ_NODE_NOT_AVAIL = "ReqNodeNotAvail"
NODE_DOWN = "NodeDown"
BAD_CONSTRAINTS = "BadConstraints"
SYSTEM_FAILURE = "SystemFailure"
LAUNCH_FAILURE = "JobLaunchFailure"
NON_ZERO_EXIT = "NonZeroExitCode"
RAISED_SIGNAL = "RaisedSignal"
TIME_LIMIT = "TimeLimit"
#: The client behind an allocation was silent for too long.
INACTIVE_LIMIT = "InactiveLimit"
DEADLINE = "DeadLine"
OUT_OF_MEMORY = "OutOfMemory"
ACCOUNT_NOT_ALLOWED = "AccountNotAllowed"
QOS_NOT_ALLOWED = "QOSNotAllowed"
CLEANING = "Cleaning"

#: Reasons under which the scheduler does not look at a job until somebody releases it.
HOLDS = frozenset({HELD_USER, HELD_ADMIN, HELD_MAX_REQUEUE, RECOVERY_FAILED, RESERVATION_DELETED})

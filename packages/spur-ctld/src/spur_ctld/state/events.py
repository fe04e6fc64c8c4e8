"""What an applied operation means for the shell.  Plain values; replay drops them."""

from typing import NamedTuple

from spur_core.states import JobState


class JobChanged(NamedTuple):
    """Anything about this record changed, or it is gone; watchers look again."""

    job_id: int


class JobQueued(NamedTuple):
    """A pending job may have become startable: the scheduler looks."""

    job_id: int


class DispatchRequested(NamedTuple):
    """A dispatch was recorded: launch exactly this attempt."""

    job_id: int
    attempt: int


class FenceRequested(NamedTuple):
    """A fence was recorded: end exactly this attempt on the fence's targets."""

    job_id: int
    attempt: int


class JobEnded(NamedTuple):
    """A run, or a job that never ran, is over for good."""

    job_id: int
    attempt: int
    state: JobState


class StepChanged(NamedTuple):
    """A step was recorded to be ended, or is over; `JobChanged` of its job comes with it."""

    job_id: int
    attempt: int
    step_id: int


class SuspendRequested(NamedTuple):
    """A suspension or its end was recorded: tell the nodes of exactly this attempt."""

    job_id: int
    attempt: int


class PreemptRequested(NamedTuple):
    """Processes of the attempt are to be told that they are preempted."""

    job_id: int
    attempt: int


class WarnRequested(NamedTuple):
    """Processes of the attempt are to get the signal that it asked for ahead of its limit."""

    job_id: int
    attempt: int


class ReservationChanged(NamedTuple):
    """A reservation came, changed or went."""

    name: str


class RoomFreed(NamedTuple):
    """Resources came free on these nodes: the scheduler looks."""

    nodes: tuple[str, ...]


class NodeChanged(NamedTuple):
    """A node's availability, size or administration changed."""

    name: str


class OutboxGrew(NamedTuple):
    """There is something to write to the accounting database."""


class ConfigChanged(NamedTuple):
    """Settings, partitions or overlays changed."""


class StateReplaced(NamedTuple):
    """The whole state was replaced by a snapshot: whatever was remembered of it is void."""


Event = (
    JobChanged
    | JobQueued
    | DispatchRequested
    | FenceRequested
    | JobEnded
    | StepChanged
    | SuspendRequested
    | PreemptRequested
    | WarnRequested
    | ReservationChanged
    | RoomFreed
    | NodeChanged
    | OutboxGrew
    | ConfigChanged
    | StateReplaced
)

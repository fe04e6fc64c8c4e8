"""What a member can be, and how long it waits."""

import enum

import msgspec


class Role(enum.Enum):
    """FOLLOWER is also a member that knows no leader; PRECANDIDATE asks before it raises its term."""

    FOLLOWER = "follower"
    PRECANDIDATE = "precandidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Timing(msgspec.Struct, frozen=True):
    """Counted in ticks of the driver (50 ms): heartbeats every 150 ms, elections after 1 to 2 s.

    Attributes:
        window: append messages to one peer that may be unacknowledged.
        append_bytes: size of one append message; a larger single entry still goes alone.
    """

    heartbeat: int = 3
    election: int = 20
    window: int = 64
    append_bytes: int = 1 << 20

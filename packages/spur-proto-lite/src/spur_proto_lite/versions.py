"""Format and protocol numbers, and how two sides agree on one.

Supervisors outlive agents: an agent must be able to drive every supervisor of the previous release, so
each side states the smallest and the largest number it speaks.
"""

#: Control protocol (requests, replies and frames on `ctl.sock`).  2 counts the input, knows owners and
#: watchers, terminals and `exec`.
PROTOCOL_MIN = 1
PROTOCOL_MAX = 2

#: Format of `launch.json`.
LAUNCH_FORMAT = 1
#: Format of `descriptor.json`.
DESCRIPTOR_FORMAT = 1
#: Messages on `notify.sock`.
NOTIFY_VERSION = 1
#: Messages between the agent and the spawner.
SPAWN_VERSION = 1


def negotiate(
    their_min: int, their_max: int, our_min: int = PROTOCOL_MIN, our_max: int = PROTOCOL_MAX
) -> int | None:
    """The largest version that both speak, or None when the ranges do not meet."""
    best = min(their_max, our_max)
    return best if best >= max(their_min, our_min) else None

"""Whether the service manager would kill supervisors together with the agent.

Supervisors that cannot leave the agent's control group live only if the unit says `KillMode=process`.
"""

import logging
import subprocess
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

WANTED: Final = "process"
#: "none" spares them as well.
_SPARING: Final = frozenset({WANTED, "none"})
_ASK_SECS: Final = 3.0


def unit_of(text: str) -> str:
    """The service unit in the text of `/proc/self/cgroup`, "" outside of any."""
    for line in text.splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3 and (fields[0] == "0" or fields[1] == "name=systemd"):
            for part in reversed(fields[2].split("/")):
                if part.endswith(".service"):
                    return part
    return ""


def complaint(unit: str, mode: str, outside: bool) -> str:
    """What is wrong for supervisors, "" if nothing is.

    Args:
        mode: of the unit; empty = could not be found out.
        outside: supervisors leave the agent's control group.
    """
    if not unit or outside or mode in _SPARING:
        return ""
    found = f"KillMode={mode}" if mode else "an unknown KillMode"
    return (
        f"unit {unit} has {found} and steps cannot leave its control group: stopping or restarting the agent"
        f" would kill them; set KillMode={WANTED} in the unit"
    )


def kill_mode(unit: str) -> str:
    """The unit's setting, "" if nobody tells.  Blocks a moment."""
    try:
        done = subprocess.run(
            ["systemctl", "show", "-p", "KillMode", "--value", unit],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ASK_SECS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip()


def check(outside: bool, cgroup_file: str = "/proc/self/cgroup") -> None:
    """Log an error if stopping the agent would kill steps."""
    try:
        unit = unit_of(Path(cgroup_file).read_text(errors="replace"))
    except OSError:
        return
    if not unit or outside:
        return
    found = complaint(unit, kill_mode(unit), outside)
    if found:
        log.error("kill_mode text=%s", found)

"""The name of this host's time zone, by whose clock repeated reservations go."""

import os
from collections.abc import Mapping
from pathlib import Path

from spur_sched.reservations.recurrence import zone_of

_MARK = "zoneinfo/"


def local_zone(environ: Mapping[str, str] = os.environ, etc: Path = Path("/etc")) -> str:
    """From TZ, the link /etc/localtime or /etc/timezone; "UTC" when none names one that is known."""
    candidates = [environ.get("TZ", "").removeprefix(":")]
    try:
        candidates.append(str((etc / "localtime").readlink()))
    except OSError:
        pass
    try:
        candidates.append((etc / "timezone").read_text(encoding="ascii").strip())
    except (OSError, UnicodeError):
        pass
    for text in candidates:
        name = text.rpartition(_MARK)[2] if _MARK in text else text
        if name and not name.startswith("/") and str(zone_of(name)) == name:
            return name
    return "UTC"

"""Durations as Slurm's commands print them."""

_YEAR = 365 * 86400


def _split(seconds: float) -> tuple[int, int, int, int]:
    whole = int(seconds)
    return whole // 86400, whole % 86400 // 3600, whole % 3600 // 60, whole % 60


def squeue_form(seconds: float) -> str:
    """`M:SS`, `H:MM:SS` or `D-HH:MM:SS`; `INVALID` when negative or over a year."""
    if seconds < 0 or seconds > _YEAR:
        return "INVALID"
    days, hours, minutes, secs = _split(seconds)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{secs:02}"
    if hours:
        return f"{hours}:{minutes:02}:{secs:02}"
    return f"{minutes}:{secs:02}"


def long_form(seconds: float) -> str:
    """`HH:MM:SS` or `D-HH:MM:SS`, as scontrol and sacct print."""
    days, hours, minutes, secs = _split(max(seconds, 0))
    clock = f"{hours:02}:{minutes:02}:{secs:02}"
    return f"{days}-{clock}" if days else clock


def cpu_form(seconds: float) -> str:
    """sacct's CPU times: `MM:SS.mmm` below an hour, else the long form."""
    if seconds >= 3600:
        return long_form(seconds)
    millis = round(seconds * 1000)
    return f"{millis // 60000:02}:{millis % 60000 // 1000:02}.{millis % 1000:03}"


def limit_squeue(seconds: int | None, unlimited: str = "UNLIMITED") -> str:
    """A time limit in squeue and sinfo, rounded up to the minute."""
    return unlimited if seconds is None else squeue_form(-(-seconds // 60) * 60)


def limit_long(seconds: int | None) -> str:
    """A time limit in scontrol and sacct, rounded up to the minute."""
    return "UNLIMITED" if seconds is None else long_form(-(-seconds // 60) * 60)

"""Durations as Slurm's commands print them."""

_YEAR = 365 * 86400


def _clock(seconds: float) -> tuple[int, int, int, int]:
    whole = int(seconds)
    return whole // 86400, whole % 86400 // 3600, whole % 3600 // 60, whole % 60


def squeue_form(seconds: float) -> str:
    """`M:SS`, `H:MM:SS` or `D-HH:MM:SS`; `INVALID` when negative or over a year."""
    if seconds < 0 or seconds > _YEAR:
        return "INVALID"
    days, hours, minutes, secs = _clock(seconds)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{secs:02}"
    if hours:
        return f"{hours}:{minutes:02}:{secs:02}"
    return f"{minutes}:{secs:02}"


def long_form(seconds: float) -> str:
    """`HH:MM:SS` or `D-HH:MM:SS`, as scontrol and sacct print; never below zero."""
    days, hours, minutes, secs = _clock(max(seconds, 0))
    clock = f"{hours:02}:{minutes:02}:{secs:02}"
    return f"{days}-{clock}" if days else clock


def cpu_form(seconds: float) -> str:
    """sacct's CPU times: `MM:SS.mmm` below an hour, else the long form."""
    # Rounded first: 3599.9996 s is an hour and must not show as 60 minutes.
    millis = round(max(seconds, 0) * 1000)
    if millis >= 3_600_000:
        return long_form(millis // 1000)
    return f"{millis // 60000:02}:{millis % 60000 // 1000:02}.{millis % 1000:03}"


def limit_squeue(seconds: int | None, unlimited: str = "UNLIMITED") -> str:
    """A time limit in squeue (and, with `infinite`, in sinfo), rounded up to the minute."""
    return unlimited if seconds is None else squeue_form(-(-seconds // 60) * 60)


def limit_long(seconds: int | None, unlimited: str = "UNLIMITED") -> str:
    """A time limit in scontrol and sacct, rounded up to the minute."""
    return unlimited if seconds is None else long_form(-(-seconds // 60) * 60)

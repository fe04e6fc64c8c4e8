"""How long texts and how large numbers of a request may be, in submissions and in changes alike.  Pure.

What passes here can be stored, shown and put into a database: no NUL, no instant that is none, no number
that another field's type cannot hold.  Lengths of texts that must be parsed are Slurm's; they keep a single
request from occupying the controller.
"""

from collections.abc import Iterable
from typing import Any, Final

from spur_core.errors import RequestError

#: Characters, by field of `JobSpec` and `UpdateJobRequest`.
TEXTS: Final = {
    "name": 1024,
    "partition": 1024,
    "account": 256,
    "qos": 256,
    "comment": 65536,
    "wckey": 256,
    "nodelist": 65536,
    "exclude": 65536,
    "req_nodelist": 65536,
    "exc_nodelist": 65536,
    "constraint": 1024,
    "dependency": 131072,
    "reservation": 4096,
    "licenses": 4096,
    "array": 8192,
    "gres": 65536,
    "work_dir": 4096,
    "stdout_path": 4096,
    "stderr_path": 4096,
    "stdin_path": 4096,
    "open_mode": 16,
    "submit_host": 256,
    "submit_dir": 4096,
    "command": 65536,
    "submit_line": 262144,
    "warn_signal": 256,
    "reason": 1024,
    "distribution": 256,
    "request_id": 256,
}
#: Entries of a repeated field.
ENTRIES: Final = {"argv": 65536, "script_args": 65536, "environment": 65536, "gres": 256, "rlimits": 64}
#: MiB; an exbibyte is a typing error.
MAX_MEMORY_MB: Final = 1 << 40
#: Seconds since the epoch that a calendar can show.
MAX_INSTANT: Final = 2.5e11


def bounded(value: str, field: str, most: int) -> str:
    """`value`.

    Raises:
        RequestError: it is too long or holds a NUL.
    """
    if len(value) > most or "\0" in value:
        raise RequestError(f"{field}: more than {most} characters, or a NUL in it")
    return value


def check_texts(message: Any) -> None:
    """Every text and list of a request that has a bound.

    Raises:
        RequestError: the first that exceeds it.
    """
    for descriptor, value in message.ListFields():
        name = descriptor.name
        if name in ENTRIES and not isinstance(value, str):
            if len(value) > ENTRIES[name]:
                raise RequestError(f"{name}: more than {ENTRIES[name]} entries")
            if name in TEXTS:
                _together(value, name)
        elif name in TEXTS:
            bounded(value, name, TEXTS[name])


def _together(values: Iterable[str], name: str) -> None:
    bounded(",".join(values), name, TEXTS[name])


def memory_mb(value: int, field: str) -> int:
    """`value`.

    Raises:
        RequestError: no machine has so much.
    """
    if value > MAX_MEMORY_MB:
        raise RequestError(f"{field}: {value} MiB is more than {MAX_MEMORY_MB}")
    return value


def instant(value: float) -> float:
    """`value`.

    Raises:
        RequestError: it is no instant.
    """
    if not 0 <= value < MAX_INSTANT:
        raise RequestError("Invalid time specified")
    return value


def rlimit(text: str) -> str:
    """`text`, `NAME=SOFT[:HARD]` with numbers that a kernel knows, or `unlimited`.

    Raises:
        RequestError: it is none.
    """
    name, equals, values = text.partition("=")
    soft, _, hard = values.partition(":")
    good = bool(equals) and name.replace("_", "").isalnum() and len(name) <= 64
    if not good or not all(_limit(word) for word in (soft, hard or soft)):
        raise RequestError(f"rlimits: {text[:80]!r} is not NAME=SOFT:HARD")
    return text


def _limit(word: str) -> bool:
    if word.lower() in ("unlimited", "-1", "18446744073709551615"):
        return True
    return word.isascii() and word.isdigit() and len(word) <= 19 and int(word) < 1 << 63

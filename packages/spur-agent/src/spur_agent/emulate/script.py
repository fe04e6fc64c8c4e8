"""What an emulated job would do, from its script alone: how long it sleeps, and its exit code.  Pure.

Only plain commands are understood: `sleep N[smhd]...` and `exit N`, at the beginning of a line or after `;`
or `&&`.  Everything else takes no time.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)", re.ASCII)
_BREAK: Final = re.compile(r"[;\n]|&&")


class Doing(NamedTuple):
    """Seconds until the end, and the exit code then."""

    secs: float
    code: int


def of_script(script: bytes) -> Doing:
    """What a batch script does."""
    secs = 0.0
    for command in _BREAK.split(script.decode(errors="replace")):
        try:
            words = shlex.split(command, comments=True)
        except ValueError:
            continue
        if words[:1] == ["exec"]:
            words = words[1:]
        if words[:1] == ["exit"] and len(words) == 2 and words[1].isascii() and words[1].isdecimal():
            return Doing(secs, int(words[1]) & 0xFF)
        secs += _sleeps(words)
    return Doing(secs, 0)


def of_words(argv: Sequence[bytes]) -> Doing:
    """What a command of srun does."""
    words = [word.decode(errors="replace") for word in argv]
    if words[:1]:
        words[0] = words[0].rpartition("/")[2]
    return Doing(_sleeps(words), 1 if words[:1] == ["false"] else 0)


def _sleeps(words: Sequence[str]) -> float:
    if words[:1] != ["sleep"]:
        return 0.0
    found = [_NUMBER.fullmatch(word) for word in words[1:]]
    return sum(float(one[1]) * _UNITS[one[2]] for one in found if one is not None)

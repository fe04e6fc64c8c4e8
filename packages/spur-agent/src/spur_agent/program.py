"""Where the supervisor program is, and whether it can be started."""

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import NamedTuple

from spur_core.errors import StateError

NAME = "spurstepd"


class ProgramUnusable(StateError):
    """The supervisor program cannot be started; the text names it and says why."""

    code = "supervisor_program"


class Signature(NamedTuple):
    """Changes when the file is replaced."""

    device: int
    inode: int
    mtime_ns: int


def locate(configured: str, agent: str = sys.argv[0]) -> str:
    """The path of the program: as configured, else beside the agent's own, else on PATH.

    A path is returned also when nothing is there; `check` says so.
    """
    if configured:
        return configured
    own = Path(agent)
    beside = [own.resolve().with_name(NAME), Path(sys.executable).with_name(NAME)]
    if own.is_absolute() or own.parent != Path():
        beside.insert(0, own.absolute().with_name(NAME))
    for path in beside:
        if path.exists():
            return str(path)
    return shutil.which(NAME) or str(beside[0])


def check(path: str) -> Signature:
    """Verify that the program is there and may be executed.

    Raises:
        ProgramUnusable: it cannot be.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - no Path needed for each launch
    except OSError as error:
        raise ProgramUnusable(f"supervisor program {path}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise ProgramUnusable(f"supervisor program {path}: not a regular file")
    if not os.access(path, os.X_OK):
        raise ProgramUnusable(f"supervisor program {path}: Permission denied")
    return Signature(found.st_dev, found.st_ino, found.st_mtime_ns)

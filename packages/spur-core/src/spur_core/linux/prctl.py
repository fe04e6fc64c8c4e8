"""The process attributes that Python has no call for.

`_ctypes` is used without `ctypes` around it: the supervisor pays for every import in each of its copies.
"""

from __future__ import annotations

import _ctypes

_SIGKILL = 9
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

# RTLD_NOW of what the interpreter itself is linked with; the stub does not know that None is allowed.
_LIBC = _ctypes.dlopen(None, 2)  # type: ignore[arg-type]
_PRCTL = _ctypes.dlsym(_LIBC, "prctl")


def _prctl(option: int, value: int) -> None:
    if _ctypes.call_function(_PRCTL, (option, value, 0, 0, 0)) != 0:
        raise OSError(f"prctl {option} was refused")


def set_child_subreaper() -> None:
    """Orphans below this process become its children instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_not_dumpable() -> None:
    """Nobody but root may trace this process or read its memory; no core file."""
    _prctl(_PR_SET_DUMPABLE, 0)


def set_no_new_privs() -> None:
    """Set-user-id programs give no rights to this process or its children any more."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent() -> None:
    """SIGKILL for this process when its parent ends.  To be set after the last change of user ids, which
    clears it; a parent that was gone before is not noticed."""
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)

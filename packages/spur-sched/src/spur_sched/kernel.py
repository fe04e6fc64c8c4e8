"""The compiled kernel, where there is one: loops of the search that `search` has in Python, too.

With it and without it plans are the same.  It is built with the wheel where a C compiler is
(`hatch_build.py`), and is used only if it was built from the very source that lies beside it.
"""

import ctypes
import hashlib
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
_LONG: Final = ctypes.c_int64
_REAL: Final = ctypes.c_double
_ARRAY: Final = ctypes.c_void_p


class Search(ctypes.Structure):
    """As in `_kernel.c`."""

    _fields_ = (
        *((name, _LONG) for name in ("size", "stride", "rows")),
        *((name, _ARRAY) for name in ("where", "begins", "lasts", "falls", "room")),
        ("columns", _LONG),
        *((name, _ARRAY) for name in ("member", "promised", "from_nodes")),
        ("sums", _LONG),
        ("summed", _ARRAY),
        ("parts", _LONG),
        *((name, _ARRAY) for name in ("bounds", "betters", "row", "fixed", "each")),
        *((name, _LONG) for name in ("exclusive", "mixes", "per_node", "least", "most", "level")),
        *((name, _LONG) for name in ("nodes", "tasks_wanted", "most_nodes")),
        *((name, _REAL) for name in ("now", "secs", "forever", "resolution", "after", "horizon")),
        *((name, _LONG) for name in ("count", "place")),
        *((name, _ARRAY) for name in ("starts", "limits", "sure", "firm", "step", "tasks")),
        ("instant", _REAL),
        *((name, _LONG) for name in ("there", "begun")),
        *((name, _ARRAY) for name in ("there_at", "there_where", "there_tasks")),
        *((name, _ARRAY) for name in ("keep_starts", "keep_limits", "keep_sure", "keep_firm")),
        *((name, _ARRAY) for name in ("keep_step", "keep_tasks")),
        *((name, _ARRAY) for name in ("order", "other", "vector", "by_column")),
        *((name, _ARRAY) for name in ("keys", "other_keys", "good")),
    )


class Table(ctypes.Structure):
    """As in `_kernel.c`."""

    _fields_ = (
        *((name, _LONG) for name in ("size", "stride", "rows", "lost")),
        *((name, _ARRAY) for name in ("where", "begins", "lasts", "falls", "room")),
        *((name, _ARRAY) for name in ("heads", "given", "used")),
        ("columns", _LONG),
        ("low", _ARRAY),
        ("sums", _LONG),
        *((name, _ARRAY) for name in ("summed", "promised", "vector")),
    )


class _State:
    """Whether to use it, where it lies, and what was found there."""

    wanted = True
    place: Path | None = HERE
    library: ctypes.CDLL | None = None


def use(wanted: bool) -> bool:
    """Whether passes that begin from now on use the kernel if there is one.

    Returns:
        whether they did before.
    """
    before, _State.wanted = _State.wanted, wanted
    return before


def look_in(place: Path) -> None:
    """Use the kernel that lies there."""
    _State.place = place


def library() -> ctypes.CDLL | None:
    """The kernel, None = passes do without."""
    if not _State.wanted:
        return None
    if _State.place is not None:
        _State.library, _State.place = load(_State.place), None
    return _State.library


def load(place: Path) -> ctypes.CDLL | None:
    """The kernel that lies there, if it was built from the source that lies there; None = there is none."""
    try:
        source = (place / "_kernel.c").read_bytes()
        found = ctypes.CDLL(str(place / "_kernel.so"))
        built = ctypes.c_char.in_dll(found, "spur_kernel_source")
        found.spur_kernel_size.restype = _LONG
        found.spur_candidates.argtypes = [ctypes.c_void_p]
        found.spur_candidates.restype = None
        found.spur_sweep.argtypes = [ctypes.c_void_p]
        found.spur_sweep.restype = _LONG
        found.spur_look.argtypes = [ctypes.c_void_p, _LONG, _ARRAY]
        found.spur_look.restype = _LONG
        found.spur_table_size.restype = _LONG
        found.spur_occupy.argtypes = [ctypes.c_void_p, _LONG, _ARRAY, _ARRAY, _ARRAY, _ARRAY]
        found.spur_occupy.restype = _LONG
        found.spur_pick.argtypes = [_LONG, _ARRAY, _ARRAY, _LONG, _LONG, _LONG, _LONG, _ARRAY]
        found.spur_pick.restype = _LONG
        found.spur_cover.argtypes = [_LONG, _LONG, _ARRAY, _ARRAY]
        found.spur_cover.restype = _LONG
        found.spur_window.argtypes = [ctypes.c_void_p, _LONG, _REAL, _REAL]
        found.spur_window.restype = _REAL
    except (OSError, ValueError, AttributeError):
        return None
    if ctypes.string_at(ctypes.addressof(built)) != digest(source).encode():
        return None
    sizes = (found.spur_kernel_size(), found.spur_table_size())
    return found if sizes == (ctypes.sizeof(Search), ctypes.sizeof(Table)) else None


def digest(source: bytes) -> str:
    """What a kernel has in it of its source; `hatch_build.py` works out the same."""
    return hashlib.sha256(source).hexdigest()

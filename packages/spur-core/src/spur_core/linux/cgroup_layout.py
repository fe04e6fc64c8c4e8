"""Which control groups this host has, and below which directories ours may lie.

A host has the unified tree (v2), one tree per controller (v1), or both (hybrid: v1 controllers, and a v2
tree that has none of them but still tracks, freezes and kills).
"""

from __future__ import annotations

import os

from spur_core.lean import namedtuple

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple

    class Layout(NamedTuple):
        #: Mount of the v2 tree, None without one.
        unified: str | None
        #: Controllers that v2 has.
        unified_controllers: frozenset[str]
        #: v1 controller -> its mount.
        v1: dict[str, str]

    class Root(NamedTuple):
        """Where our groups lie: one directory per hierarchy, not made yet."""

        unified: str | None
        unified_controllers: frozenset[str]
        v1: dict[str, str]
else:
    Layout = namedtuple("Layout", ("unified", "unified_controllers", "v1"))
    Root = namedtuple("Root", ("unified", "unified_controllers", "v1"))

#: Controllers that carry our limits.
LIMITING = ("memory", "cpu", "cpuset", "pids")
#: Name of our part of every hierarchy.
DEFAULT_NAME = "spur"


def parse_mounts(text: str) -> tuple[list[str], dict[str, str]]:
    """(mounts of v2, v1 controller -> mount) of the text of `/proc/self/mounts`."""
    unified: list[str] = []
    v1: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        mount = fields[1].replace("\\040", " ")
        if fields[2] == "cgroup2":
            unified.append(mount)
        elif fields[2] == "cgroup":
            for option in fields[3].split(","):
                if option in LIMITING or option == "freezer":
                    v1.setdefault(option, mount)
    return unified, v1


def detect() -> Layout:
    """The layout of this host."""
    mounts, v1 = parse_mounts(_read("/proc/self/mounts"))
    # One mount may hide another; `cgroup.procs` is in every group that can be seen.
    unified = next((mount for mount in mounts if os.access(f"{mount}/cgroup.procs", os.F_OK)), None)
    controllers = _read(f"{unified}/cgroup.controllers").split() if unified else []
    return Layout(unified, frozenset(controllers), v1)


def parse_own(text: str) -> str | None:
    """The path of a process in the v2 tree by the text of its `/proc/PID/cgroup`."""
    for line in text.splitlines():
        if line.startswith("0::"):
            return line[3:]
    return None


def _writable(directory: str) -> bool:
    return os.access(directory, os.W_OK) and os.access(f"{directory}/cgroup.procs", os.W_OK)


def choose_root(
    layout: Layout,
    setting: str,
    own_path: str | None = None,
    writable: Callable[[str], bool] = _writable,
) -> tuple[Root | None, str]:
    """Where our groups go.

    Args:
        setting: "none", "auto", or a path below every hierarchy's mount.
        own_path: our own place in the v2 tree, tried when its top may not be written.

    Returns:
        (the root, "") or (None, why there is none).
    """
    if setting == "none":
        return None, 'switched off by cgroup_root = "none"'
    name = DEFAULT_NAME if setting == "auto" else setting.strip("/")
    if not name or ".." in name.split("/"):
        return None, f"cgroup_root {setting!r} is not a path below a hierarchy"
    tops = [layout.unified, *layout.v1.values()]
    usable = {top for top in tops if top and writable(top)}
    v1 = {
        controller: f"{mount}/{name}"
        for controller, mount in layout.v1.items()
        if mount in usable and controller not in layout.unified_controllers
    }
    if layout.unified in usable:
        # The v2 group can freeze and kill by itself.
        v1.pop("freezer", None)
        return Root(f"{layout.unified}/{name}", layout.unified_controllers, v1), ""
    if v1:
        return Root(None, frozenset(), v1), ""
    if setting == "auto" and layout.unified and own_path and own_path != "/":
        own = f"{layout.unified}{own_path}"
        if writable(own):
            return Root(f"{own}/{name}", layout.unified_controllers, {}), ""
    return None, "no control group here may be written: no limits, processes are tracked by parentage"


def own_path() -> str | None:
    """Our own place in the v2 tree."""
    return parse_own(_read("/proc/self/cgroup"))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""

"""Where this host's logical CPUs are: which share a core, a socket, a memory node."""

from pathlib import Path

from spur_agent.binding import Places
from spur_core.errors import GrammarError
from spur_core.grammar import idlist


def read_places(root: Path = Path("/")) -> Places:
    """From sysfs; what it does not tell is left out."""
    core: dict[int, object] = {}
    socket: dict[int, object] = {}
    ldom: dict[int, object] = {}
    for folder in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        number = int(folder.name[3:])
        package = _text(folder / "topology/physical_package_id")
        if package:
            socket[number] = package
            core[number] = (package, _text(folder / "topology/core_id"))
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        try:
            members = idlist.numbers(idlist.mask_of(_text(folder / "cpulist")))
        except GrammarError:
            continue
        ldom.update((number, folder.name) for number in members)
    return Places(core, socket, ldom)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

"""What this node has: CPUs, their topology, memory, scratch space, boot time."""

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from spur_core.errors import GrammarError
from spur_core.grammar import idlist

_CPU_DIR = "sys/devices/system/cpu"


class Topology(NamedTuple):
    """Sockets of the node, cores of a socket, threads of a core."""

    sockets: int
    cores_per_socket: int
    threads_per_core: int


class Hardware(NamedTuple):
    """Facts of the host.  Memory and disk in MiB; `boot_at` in seconds since the epoch.

    `cpu_ids` are the logical CPUs that are online, ascending.
    """

    cpu_ids: tuple[int, ...]
    topology: Topology
    memory_mb: int
    tmp_disk_mb: int
    arch: str
    os: str
    boot_id: str
    boot_at: float
    #: (package, core) of each of `cpu_ids`; empty = not known.
    seats: tuple[tuple[int, int], ...] = ()


def fold_topology(places: Iterable[tuple[int, int]], cpus: int) -> Topology:
    """The node's shape from the (package, core) of each logical CPU.

    A shape that is not regular, or unknown, becomes one socket of `cpus` single-threaded cores, so that the
    product always is the number of CPUs.
    """
    seats = list(places)
    cores = set(seats)
    sockets = {package for package, _ in seats}
    if seats and len(seats) == cpus and cpus % len(cores) == 0 and len(cores) % len(sockets) == 0:
        return Topology(len(sockets), len(cores) // len(sockets), cpus // len(cores))
    return Topology(1, max(cpus, 1), 1)


def parse_meminfo(text: str, field: str) -> int:
    """A field of /proc/meminfo in MiB; 0 when it is not there."""
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) // 1024
    return 0


def parse_boot_time(text: str) -> float:
    """The `btime` line of /proc/stat; 0 when it is not there."""
    for line in text.splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def hardware(root: Path = Path("/"), tmp: Path = Path("/tmp")) -> Hardware:  # noqa: S108
    """Ask this host.

    Args:
        root: where `proc` and `sys` are.
        tmp: the folder whose file system counts as scratch space.
    """
    cpu_ids = _online(root)
    boot_id = _read(root / "proc/sys/kernel/random/boot_id").strip()
    seats = _places(root, cpu_ids)
    return Hardware(
        cpu_ids=cpu_ids,
        topology=fold_topology(seats, len(cpu_ids)),
        memory_mb=parse_meminfo(_read(root / "proc/meminfo"), "MemTotal"),
        tmp_disk_mb=_disk_mb(tmp),
        arch=platform.machine(),
        os=f"{platform.system()} {platform.release()} {platform.version()}",
        boot_id=boot_id,
        boot_at=parse_boot_time(_read(root / "proc/stat")),
        seats=tuple(seats),
    )


def load_times_100(root: Path = Path("/")) -> int:
    """The one-minute load average times 100."""
    words = _read(root / "proc/loadavg").split()
    return int(float(words[0]) * 100) if words else 0


def free_memory_mb(root: Path = Path("/")) -> int:
    """Memory that new work could use, MiB."""
    return parse_meminfo(_read(root / "proc/meminfo"), "MemAvailable")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _online(root: Path) -> tuple[int, ...]:
    try:
        listed = idlist.numbers(idlist.mask_of(_read(root / _CPU_DIR / "online").strip()))
    except GrammarError:
        listed = ()
    if listed:
        return listed
    lines = _read(root / "proc/cpuinfo").splitlines()
    count = sum(1 for line in lines if line.startswith("processor")) or os.cpu_count() or 1
    return tuple(range(count))


def _places(root: Path, cpu_ids: Iterable[int]) -> list[tuple[int, int]]:
    places = []
    for cpu in cpu_ids:
        base = root / _CPU_DIR / f"cpu{cpu}/topology"
        try:
            places.append((int(_read(base / "physical_package_id")), int(_read(base / "core_id"))))
        except ValueError:
            return []
    return places


def _disk_mb(path: Path) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize // (1024 * 1024)

"""A network of its own for each member of a group, which can be cut and healed; needs root and `ip`.

Each member lives in a network namespace with one end of a veth pair; the other ends are ports of a bridge in
a namespace that is the switch.  Nothing of the machine's own network is touched.

What is lost vanishes without an error: `one_way(src, dst)` makes `src` believe in a hardware address of `dst`
that nobody has.
"""

import os
import subprocess
from collections.abc import Sequence

_PREFIX = "10.211.77"


class RaftNet:
    """Namespaces for members `ids`; everything is gone after the `with` block."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = list(ids)
        tag = f"spur{os.getpid()}"
        self._switch = f"{tag}-sw"
        self._names = {id: f"{tag}-{id}" for id in ids}

    @property
    def hosts(self) -> list[str]:
        """The members' addresses."""
        return [f"{_PREFIX}.{id}" for id in self._ids]

    @property
    def launch(self) -> dict[int, list[str]]:
        """Words that start a member in its namespace."""
        return {id: ["ip", "netns", "exec", name] for id, name in self._names.items()}

    def __enter__(self) -> "RaftNet":
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*self._names.values(), self._switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def _make(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "br0", "up")
        for id, name in self._names.items():
            _ip("netns", "add", name)
            _ip(
                *("-n", self._switch, "link", "add", f"p{id}", "type", "veth"),
                *("peer", "name", "eth0", "netns", name),
            )
            _ip("-n", self._switch, "link", "set", f"p{id}", "master", "br0")
            _ip("-n", self._switch, "link", "set", f"p{id}", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "eth0", "address", _hardware(id))
            _ip("-n", name, "addr", "add", f"{_PREFIX}.{id}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
        for src in self._ids:
            for dst in self._ids:
                if src != dst:
                    self._believe(src, dst, _hardware(dst))

    def _believe(self, src: int, dst: int, hardware: str) -> None:
        _ip(
            *("-n", self._names[src], "neigh", "replace", f"{_PREFIX}.{dst}"),
            *("lladdr", hardware, "dev", "eth0", "nud", "permanent"),
        )

    def cut(self, id: int) -> None:
        """Nothing comes from or to `id`."""
        for other in self._ids:
            if other != id:
                self.one_way(id, other)
                self.one_way(other, id)

    def heal(self) -> None:
        """Everything comes through again."""
        for src in self._ids:
            for dst in self._ids:
                if src != dst:
                    self._believe(src, dst, _hardware(dst))

    def one_way(self, src: int, dst: int) -> None:
        """What `src` sends to `dst` is lost."""
        self._believe(src, dst, "02:00:00:00:ff:ff")


def _hardware(id: int) -> str:
    return f"02:00:00:00:00:{id:02x}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")

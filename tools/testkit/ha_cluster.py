"""A cluster with several controllers, of which one leads: who, and how that is changed.

`HaCluster` has everything on loopback.  In a `NetCluster`, which needs root, each controller is in a network
namespace of its own on a common bridge, so that single ways between controllers and agents can be closed
without a word.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from spur_cli.cluster.home import Cluster
from spur_cli.context import Context
from spur_cli.control import members
from spur_cli.transport import Transport
from testkit.crash_cluster import CrashCluster, until


class HaCluster(CrashCluster):
    """`controllers` controllers and `nodes` agents.

    Attributes:
        older: controllers that, when they are started, are a release that knows commands only up to that
            version; all of them with the argument of that name.
    """

    def __init__(
        self, folder: Path, nodes: int = 3, controllers: int = 3, older: int = 0, **how: Any
    ) -> None:
        super().__init__(folder, nodes=nodes, controllers=controllers, **how)
        self.older = dict.fromkeys(self.controllers, older) if older else {}

    def _environment(self, name: str) -> dict[str, str]:
        if name not in self.older:
            return {}
        return {"SPUR_TEST_COMMAND_VERSION": str(self.older[name]), "SPUR_TEST_FAULTS": "1"}

    def state_dir(self, name: str) -> Path:
        """The directory of a controller."""
        return self.folder / "state" / name

    @property
    def controllers(self) -> list[str]:
        """Names of the controllers."""
        return self.layout.controllers

    def address(self, name: str) -> str:
        """Where clients reach that controller."""
        return self.layout.addresses[self.controllers.index(name)]

    def only(self, *names: str) -> dict[str, str]:
        """Environment of a client that knows just these controllers."""
        return {"SPUR_CONTROLLER_ADDR": ",".join(self.address(name) for name in names)}

    def state(self, job: str) -> str:
        """Of the job's last run, as the controllers know it.

        Not the history: a controller that was frozen amid a transaction holds the lock of its SQLite file.
        """
        return self.ok("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def state_or_nothing(self, job: str) -> str:
        """The same, also while no controller answers."""
        return self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.strip()

    # -- who leads

    def view(self) -> members.Group:
        """What the controllers that answer say of themselves."""
        context = Context("test", [], {**self.env, "SPUR_RETRY_SECS": "0"}, str(self.work))
        return members.gather(Transport(context))

    def leads(self) -> str:
        """The name of the controller that says itself that it leads; "" while there is none."""
        for member in self.view().members:
            if member.answer is not None and member.answer.leader_id == member.number:
                return self.controllers[member.number - 1]
        return ""

    def leader(self, *, other_than: str = "", secs: float = 30.0) -> str:
        """Wait for a leader; its name."""

        def found() -> str:
            name = self.leads()
            return name if name != other_than else ""

        name: str = until(found, f"somebody leads, not {other_than or 'nobody'}", secs)
        return name

    def followers(self) -> list[str]:
        """The controllers that run and do not lead."""
        leader = self.leader()
        return [name for name in self.controllers if name != leader and self.running(name)]

    def lead(self, name: str) -> None:
        """Have that controller lead."""

        def asked() -> bool:
            return (
                self.leads() == name
                or self.run("scontrol", "takeover", str(self._number(name))).returncode == 0
            )

        until(lambda: asked() and self.leads() == name, f"{name} leads", 30)

    def _number(self, name: str) -> int:
        return self.controllers.index(name) + 1

    def armed_leader(self, faults: str) -> str:
        """Have a controller lead whose fault points are set; its name."""
        name = self.followers()[0]
        self.kill(name)
        self.start(name, wait=True, faults=faults)
        self.lead(name)
        return name

    # -- stopped processes

    def freeze(self, name: str) -> None:
        """Its process does nothing any more, as on a host that was paused."""
        os.kill(self.pid(name), signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """It goes on."""
        os.kill(self.pid(name), signal.SIGCONT)

    def frozen(self, name: str) -> bool:
        """Whether it has been stopped, perhaps by itself at a fault point."""
        text = Path(f"/proc/{self.pid(name)}/stat").read_text()
        return text.rpartition(")")[2].split()[0] == "T"

    # -- clients

    def begin(self, *argv: str, **env: str) -> "subprocess.Popen[str]":
        """Start a command; its standard input is empty."""
        return subprocess.Popen(
            argv,
            env={**self.env, **env},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def timed(self, *argv: str, **env: str) -> tuple["subprocess.CompletedProcess[str]", float]:
        """Run a command; what came of it, and the seconds it took."""
        begun = time.monotonic()
        out, err = (client := self.begin(*argv, **env)).communicate(timeout=120)
        done = subprocess.CompletedProcess(argv, client.returncode, out, err)
        return done, time.monotonic() - begun

    def down_nodes(self) -> list[str]:
        """Nodes that are not as they should be."""
        rows = [line.split() for line in self.ok("sinfo", "-h", "-N", "-o", "%N %T").splitlines()]
        return [name for name, state in rows if "down" in state or "*" in state or "drain" in state]


class _NetLayout(Cluster):
    """As the folder says, but controllers in namespaces and agents on the bridge."""

    net: int

    @property
    def addresses(self) -> list[str]:
        return [f"10.88.{self.net}.{10 + at}:{port}" for at, port in enumerate(self.ports, 1)]

    @property
    def raft_addresses(self) -> list[str]:
        return [f"10.88.{self.net}.{10 + at}:{port}" for at, port in enumerate(self.raft_ports, 1)]

    def command(self, name: str) -> list[str]:
        words = super().command(name)
        if name.startswith("spurd-"):
            words = [word.replace("127.0.0.1", f"10.88.{self.net}.1") for word in words]
        return words


class NetCluster(HaCluster):
    """Controllers on a network of their own; agents and clients on this host, at its end of the bridge."""

    _nets: ClassVar[Iterator[int]] = itertools.count(os.getpid() % 100)

    def __init__(self, folder: Path, **how: Any) -> None:
        self.net = next(self._nets) % 250
        super().__init__(folder, **how)
        before = [*self.layout.addresses, *self.layout.raft_addresses]
        self.layout.__class__ = _NetLayout
        self.layout.net = self.net  # type: ignore[attr-defined]
        text = self.layout.config.read_text()
        after = [*self.layout.addresses, *self.layout.raft_addresses]
        for old, new in zip(before, after, strict=True):
            text = text.replace(f'"{old}"', f'"{new}"')
        self.layout.config.write_text(text)
        self._bridge = f"spurb{self.net}"
        self._make_net()

    def _make_net(self) -> None:
        _ip("link", "add", "name", self._bridge, "type", "bridge")
        _ip("addr", "add", f"10.88.{self.net}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for name in self.controllers:
            at, space = self._number(name), self._space(name)
            outer, inner = f"spurv{self.net}-{at}", f"spurw{self.net}-{at}"
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            _ip("link", "set", inner, "netns", space)
            _ip("link", "set", outer, "master", self._bridge)
            _ip("link", "set", outer, "up")
            _ip("-n", space, "addr", "add", f"{self._host(name)}/24", "dev", inner)
            _ip("-n", space, "link", "set", inner, "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _space(self, name: str) -> str:
        return f"spur{self.net}-{self._number(name)}"

    def _host(self, name: str) -> str:
        return f"10.88.{self.net}.{10 + self._number(name)}"

    def _launch(self, name: str, faults: str, prefix: Sequence[str]) -> None:
        if name in self.controllers:
            prefix = ("ip", "netns", "exec", self._space(name), *prefix)
        super()._launch(name, faults, prefix)

    def cut(self, name: str, *others: str) -> None:
        """Nothing of that controller reaches the other ones any more, nor its answers; "" = the agents."""
        for other in others:
            host = self._host(other) if other else f"10.88.{self.net}.1"
            _ip("-n", self._space(name), "route", "add", "blackhole", f"{host}/32")

    def mend(self, name: str, *others: str) -> None:
        """The ways are open again."""
        for other in others:
            host = self._host(other) if other else f"10.88.{self.net}.1"
            _ip("-n", self._space(name), "route", "del", "blackhole", f"{host}/32")

    def stop(self) -> None:
        """End the daemons, then their network."""
        super().stop()
        for name in self.controllers:
            with contextlib.suppress(AssertionError):
                _ip("netns", "del", self._space(name))
        with contextlib.suppress(AssertionError):
            _ip("link", "del", self._bridge)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"

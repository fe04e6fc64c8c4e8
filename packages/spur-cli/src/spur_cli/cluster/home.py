"""The folder of a one-machine cluster: what is in it, and making it.

DIR/spur.conf          configuration of every part; `SPUR_CONF=DIR/spur.conf` reaches the cluster
DIR/key, DIR/token     the generated key, and the caller's token
DIR/env.sh             exports for a shell
DIR/cluster.json       node names and ports, so that a resumed cluster has the same addresses
DIR/certs/             CA of several controllers, should there be more than one
DIR/run/NAME.pid       one per daemon: spurctld-1, spurd-node1, ...
DIR/log/NAME.log       its log
DIR/state/NAME/        its state
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from spur_cli.context import Context
from spur_cli.endpoints import home
from spur_core.errors import RequestError

CLUSTER_NAME = "local"
CONTROLLER = "spurctld-1"
#: Of a folder with one controller; releases that know only one read it.
FORMAT = 1
#: Of a folder with several.
FORMAT_GROUP = 2


class Cluster:
    """A cluster's folder.

    nodes: node name -> port of its agent.  ports: of the controllers.
    raft_ports: of the controllers' talk with each other; empty with one controller.
    """

    def __init__(
        self, root: Path, nodes: dict[str, int], ports: list[int], raft_ports: list[int] | None = None
    ) -> None:
        self.root = root
        self.nodes = nodes
        self.ports = ports
        self.raft_ports = raft_ports or []

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "spur.conf"

    @property
    def addresses(self) -> list[str]:
        """Of the controllers."""
        return [f"127.0.0.1:{port}" for port in self.ports]

    @property
    def raft_addresses(self) -> list[str]:
        """Where the controllers reach each other; empty with one controller."""
        return [f"127.0.0.1:{port}" for port in self.raft_ports]

    @property
    def controllers(self) -> list[str]:
        """Names of the controllers."""
        return [f"spurctld-{at}" for at in range(1, len(self.ports) + 1)]

    @property
    def daemons(self) -> list[str]:
        """Names of all daemons, in the order in which they start."""
        return [*self.controllers, *(f"spurd-{node}" for node in self.nodes)]

    def state(self, name: str) -> Path:
        """State directory of the daemon `name`."""
        return self.root / "state" / name

    def command(self, name: str) -> list[str]:
        """Program and arguments of the daemon `name`.

        Raises:
            RequestError: no such daemon.
        """
        common = ["-D", "--config", str(self.config), "--state-dir", str(self.state(name))]
        if name in self.controllers:
            at = self.controllers.index(name)
            words = ["spurctld", *common, "--listen", self.addresses[at]]
            if self.raft_ports:
                words += ["--raft-listen", self.raft_addresses[at], "--node-id", str(at + 1)]
            return words
        node = name.removeprefix("spurd-")
        if not name.startswith("spurd-") or node not in self.nodes:
            known = ", ".join(self.daemons)
            raise RequestError(f"no program {name} in {self.root}; there are {known}")
        listen = f"127.0.0.1:{self.nodes[node]}"
        return ["spurd", *common, "--controller", ",".join(self.addresses), "-N", node, "--listen", listen]


def default_root(ctx: Context) -> Path:
    """Where `spur up` puts its cluster."""
    return Path(home(ctx.env)) / ".local/state/spur/up"


def chosen_root(ctx: Context, option: str | None) -> Path:
    """The folder that `--dir` names, else the default one."""
    return Path(ctx.path(option)) if option else default_root(ctx)


def load(root: Path) -> Cluster | None:
    """The cluster in `root`; None when there is none.

    Raises:
        RequestError: what is there cannot be read.
    """
    path = root / "cluster.json"
    try:
        data = json.loads(path.read_text())
        nodes = {str(name): int(port) for name, port in data["nodes"].items()}
        if data["format"] == FORMAT:
            return Cluster(root, nodes, [int(data["controller"])])
        if data["format"] == FORMAT_GROUP:
            return Cluster(root, nodes, list(map(int, data["controllers"])), list(map(int, data["raft"])))
        raise RequestError(f"{path} was written by another release (format {data['format']})")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RequestError(f"{path} is damaged; remove {root}") from None


def create(root: Path, count: int, cpus: int, gres: str, controllers: int = 1) -> Cluster:
    """Make the folder of a new cluster.

    Args:
        count: of nodes.  cpus: of each node.  gres: of each node, "" for none.

    Raises:
        RequestError: the folder cannot be made, or holds something else.
    """
    from spur_auth.keygen import keygen

    if root.exists() and any(root.iterdir()):
        raise RequestError(f"{root} is not empty and holds no cluster; choose another --dir")
    raft = controllers if controllers > 1 else 0
    ports = free_ports(controllers + raft + count)
    nodes = {f"node{at + 1}": port for at, port in enumerate(ports[controllers + raft :])}
    cluster = Cluster(root, nodes, ports[:controllers], ports[controllers : controllers + raft])
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)
        for name in ("run", "log", "state"):
            (root / name).mkdir(mode=0o700, exist_ok=True)
        for name in cluster.daemons:
            cluster.state(name).mkdir(mode=0o700, exist_ok=True)
        keygen(root / "key")
        cluster.config.write_text(config_text(cluster, cpus, memory_mb() // count, gres))
        (root / "env.sh").write_text(env_text(cluster))
        if raft:
            from spur_cli.cluster.group import found_group

            found_group(cluster)
        # Last: with this file the folder is a cluster.
        data: dict[str, object] = {"format": FORMAT, "controller": cluster.ports[0], "nodes": nodes}
        if raft:
            data = {
                "format": FORMAT_GROUP,
                "controllers": cluster.ports,
                "raft": cluster.raft_ports,
                "nodes": nodes,
            }
        (root / "cluster.json").write_text(json.dumps(data, indent=1) + "\n")
    except (OSError, RequestError) as error:
        # The folder was empty before; half a cluster would only be in the way of the next attempt.
        shutil.rmtree(root, ignore_errors=True)
        if isinstance(error, OSError):
            raise RequestError(f"{error.filename or root}: {error.strerror}") from None
        raise
    return cluster


@contextlib.contextmanager
def locked(cluster: Cluster) -> Iterator[None]:
    """Only one `up`, `down` or `restart` works on a cluster at a time; others wait."""
    fd = os.open(cluster.root / "run" / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


def memory_mb() -> int:
    """Memory of this host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


def config_text(cluster: Cluster, cpus: int, memory: int, gres: str) -> str:
    """The text of spur.conf."""
    names = ",".join(cluster.nodes)
    if len(cluster.nodes) > 1:
        names = f"node[1-{len(cluster.nodes)}]"
    lines = [
        "# A cluster on one machine, written by `spur up`.",
        f"cluster_name = {json.dumps(CLUSTER_NAME)}",
        "",
        "[controller]",
        f"listen_addr = {json.dumps(cluster.addresses[0])}",
        'hosts = ["127.0.0.1"]',
        f"state_dir = {json.dumps(str(cluster.state(CONTROLLER)))}",
        *_group_lines(cluster),
        "",
        "[auth]",
        'plugin = "jwt"',
        'mode = "required"',
        f"jwt_key_file = {json.dumps(str(cluster.root / 'key'))}",
        f"allow_root_jobs = {'true' if os.geteuid() == 0 else 'false'}",
        "",
        "[client]",
        f"token_file = {json.dumps(str(cluster.root / 'token'))}",
        "",
        "[[partitions]]",
        'name = "debug"',
        "default = true",
        f"nodes = {json.dumps(names)}",
        "",
        "[[nodes]]",
        f"names = {json.dumps(names)}",
        f"cpus = {cpus}",
        f"memory_mb = {memory}",
    ]
    if gres:
        lines.append(f"gres = {json.dumps(gres.split(','))}")
    return "\n".join(lines) + "\n"


def _group_lines(cluster: Cluster) -> list[str]:
    """What several controllers need: each other, and a history that whoever leads can write."""
    if not cluster.raft_ports:
        return []
    history = f"sqlite+aiosqlite:///{cluster.root / 'state' / 'accounting.sqlite'}"
    return [
        f"peers = {json.dumps(cluster.raft_addresses)}",
        f"client_addrs = {json.dumps(cluster.addresses)}",
        "",
        "[accounting]",
        f"database_url = {json.dumps(history)}",
    ]


def env_text(cluster: Cluster) -> str:
    """The text of env.sh."""
    import shlex
    import sys

    programs = Path(sys.executable).parent
    return (
        "# Use: . env.sh\n"
        f"export SPUR_CONF={shlex.quote(str(cluster.config))}\n"
        f'export PATH={shlex.quote(str(programs))}:"$PATH"\n'
    )

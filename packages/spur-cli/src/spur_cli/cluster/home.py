"""The folder of a one-machine cluster: what is in it, and making it.

DIR/spur.conf          configuration of every part; `SPUR_CONF=DIR/spur.conf` reaches the cluster
DIR/key, DIR/token     the generated key, and the caller's token
DIR/env.sh             exports for a shell
DIR/cluster.json       node names and ports, so that a resumed cluster has the same addresses
DIR/run/NAME.pid       one per daemon: spurctld-1, spurd-node1, ...
DIR/log/NAME.log       its log
DIR/state/NAME/        its state
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from spur_cli.context import Context
from spur_cli.endpoints import home
from spur_core.errors import RequestError

CLUSTER_NAME = "local"
CONTROLLER = "spurctld-1"
FORMAT = 1


class Cluster:
    """A cluster's folder.

    nodes: node name -> port of its agent.  port: of the controller.
    """

    def __init__(self, root: Path, nodes: dict[str, int], port: int) -> None:
        self.root = root
        self.nodes = nodes
        self.port = port

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "spur.conf"

    @property
    def address(self) -> str:
        """Of the controller."""
        return f"127.0.0.1:{self.port}"

    @property
    def daemons(self) -> list[str]:
        """Names of all daemons, in the order in which they start."""
        return [CONTROLLER, *(f"spurd-{node}" for node in self.nodes)]

    def command(self, name: str) -> list[str]:
        """Program and arguments of the daemon `name`.

        Raises:
            RequestError: no such daemon.
        """
        state = str(self.root / "state" / name)
        common = ["-D", "--config", str(self.config), "--state-dir", state]
        if name == CONTROLLER:
            return ["spurctld", *common, "--listen", self.address]
        node = name.removeprefix("spurd-")
        if not name.startswith("spurd-") or node not in self.nodes:
            known = ", ".join(self.daemons)
            raise RequestError(f"no program {name} in {self.root}; there are {known}")
        listen = f"127.0.0.1:{self.nodes[node]}"
        return ["spurd", *common, "--controller", self.address, "-N", node, "--listen", listen]


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
        if data["format"] != FORMAT:
            raise RequestError(f"{path} was written by another release (format {data['format']})")
        return Cluster(root, {str(k): int(v) for k, v in data["nodes"].items()}, int(data["controller"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RequestError(f"{path} is damaged; remove {root}") from None


def create(root: Path, count: int, cpus: int, gres: str) -> Cluster:
    """Make the folder of a new cluster.

    Args:
        cpus: CPUs of each node.  gres: of each node, "" for none.

    Raises:
        RequestError: the folder cannot be made, or holds something else.
    """
    from spur_auth.keygen import keygen

    if root.exists() and any(root.iterdir()):
        raise RequestError(f"{root} is not empty and holds no cluster; choose another --dir")
    ports = free_ports(count + 1)
    nodes = {f"node{at + 1}": ports[at + 1] for at in range(count)}
    cluster = Cluster(root, nodes, ports[0])
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)
        for name in ("run", "log", "state"):
            (root / name).mkdir(mode=0o700, exist_ok=True)
        for name in cluster.daemons:
            (root / "state" / name).mkdir(mode=0o700, exist_ok=True)
        keygen(root / "key")
        cluster.config.write_text(config_text(cluster, cpus, memory_mb() // count, gres))
        (root / "env.sh").write_text(env_text(cluster))
        # Last: with this file the folder is a cluster.
        data = {"format": FORMAT, "controller": cluster.port, "nodes": nodes}
        (root / "cluster.json").write_text(json.dumps(data, indent=1) + "\n")
    except OSError as error:
        raise RequestError(f"{error.filename or root}: {error.strerror}") from None
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
        f"listen_addr = {json.dumps(cluster.address)}",
        'hosts = ["127.0.0.1"]',
        f"state_dir = {json.dumps(str(cluster.root / 'state' / CONTROLLER))}",
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

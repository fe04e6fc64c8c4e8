"""Making the directories of several controllers: by `spurctld raft`, as an administrator would."""

import subprocess

from spur_cli.cluster import processes
from spur_cli.cluster.home import Cluster
from spur_core.errors import RequestError

_SECS = 60.0


def found_group(cluster: Cluster) -> None:
    """Certificates and empty logs of a new group, from the configuration that is written already.

    Raises:
        RequestError: a tool failed; its last words.
    """
    certs = cluster.root / "certs"
    _raft(cluster, "gen-certs", "--out", str(certs))
    for at, name in enumerate(cluster.controllers, 1):
        state = cluster.state(name)
        (certs / f"member-{at}").rename(state / "tls")
        _raft(cluster, "init", "--state-dir", str(state), "--node-id", str(at))


def _raft(cluster: Cluster, tool: str, *words: str) -> None:
    try:
        done = subprocess.run(
            [processes.program("spurctld"), "raft", tool, "--config", str(cluster.config), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RequestError(f"spurctld raft {tool} did not end within {_SECS:g} s") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RequestError(f"spurctld raft {tool}: {lines[-1] if lines else f'code {done.returncode}'}")

"""`spur keygen`, `spur token`, and the folder of `spur up`."""

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from spur_auth.kinds import NODE, USER
from spur_auth.verify import verify
from spur_cli import keys
from spur_cli.cluster import home, processes
from spur_core.config import load_config
from spur_core.errors import RequestError

NOW = 1796032800.0


@pytest.fixture
def config(tmp_path, cli):
    assert cli("spur", "keygen", "key").code == 0
    path = tmp_path / "spur.conf"
    path.write_text(f'cluster_name = "alpha"\n[auth]\njwt_key_file = "{tmp_path}/key"\n')
    return path


def key_of(config):
    return ((config.parent / "key").read_bytes().strip(),)


def test_keygen(cli, tmp_path):
    printed = cli("spur", "keygen")
    assert (printed.code, printed.err, len(printed.out)) == (0, "", 65)
    made = cli("spur", "keygen", "k")
    assert (made.code, made.out) == (0, "")
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600
    again = cli("spur", "keygen", "k")
    assert again.code == 1
    assert again.err.startswith("spur keygen: error: ")
    assert "never overwritten" in again.err


def test_user_token(cli, config):
    result = cli("spur", "token", "user", "--user", "root", "--ttl", "1h", env={"SPUR_CONF": str(config)})
    assert (result.code, result.err) == (0, "")
    found = verify(key_of(config), result.out.strip(), USER, NOW, cluster="alpha")
    assert (found.name, found.uid) == ("root", 0)
    assert cli("spur", "token", "user", "-f", str(config)).code == 0


def test_node_token(cli, config):
    for words in (["--node", "n7"], ["n7"]):
        result = cli("spur", "token", "node", *words, "--config", str(config))
        assert verify(key_of(config), result.out.strip(), NODE, NOW).name == "n7"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["token"], "write `spur token user"),
        (["token", "user", "--ttl", "soon"], "--ttl soon: write a time such as"),
        (["token", "node"], "--node NAME is needed"),
        (["token", "create"], "create is not supported by this release"),
        (["token", "user", "--admin"], "--admin is not supported by this release"),
        (["token", "user", "--bogus"], "spur token: unrecognized option '--bogus'"),
        (["up", "--controllers", "2"], "--controllers 2: choose 1, 3 or 5"),
        (["up", "--nodes", "0"], "--nodes 0: not a number from 1 to 64"),
        (["up", "--gres", ":"], "Invalid generic resource"),
        (["up", "extra"], "unexpected word extra"),
        (["up", "--dir", "key"], "key"),
        (["down"], "no cluster in"),
        (["restart"], "name one program"),
        (["restart", "spurd-node1"], "no cluster in"),
    ],
)
def test_mistakes_are_one_line(cli, config, words, text):
    result = cli("spur", *words, env={"SPUR_CONF": str(config)})
    assert (result.code, result.out) == (1, "")
    assert text in result.err
    assert len(result.err.splitlines()) <= 2


def test_token_without_a_key(cli, tmp_path):
    assert "no configuration found" in cli("spur", "token", "user").err
    (tmp_path / "empty.conf").write_text('cluster_name = "x"\n')
    assert "neither jwt_key_file nor jwt_key" in cli("spur", "token", "user", "-f", "empty.conf").err


@pytest.mark.parametrize(
    ("text", "secs"), [("3600s", 3600), ("90m", 5400), ("24h", 86400), ("7d", 604800), ("5", 5)]
)
def test_ttl(text, secs):
    assert keys.parse_ttl(text) == secs


@pytest.fixture
def root(tmp_path):
    return tmp_path / "up"


def test_a_new_cluster_is_private_and_valid(root):
    cluster = home.create(root, 2, 3, "gpu:2")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "key").stat().st_mode) == 0o600
    config = load_config(cluster.config)
    assert config.auth.mode == "required"
    assert config.auth.allow_root_jobs == (os.geteuid() == 0)
    assert config.controller_addresses == tuple(cluster.addresses)
    entry = config.node_entry("node2", {})
    assert entry is not None
    assert (entry.cpus, entry.gres) == (3, ("gpu:2",))
    assert [part.node_names for part in config.partitions] == [("node1", "node2")]
    assert cluster.daemons == ["spurctld-1", "spurd-node1", "spurd-node2"]
    assert len({*cluster.ports, *cluster.nodes.values()}) == 3
    assert f"export SPUR_CONF={cluster.config}" in (root / "env.sh").read_text()


def test_a_cluster_is_found_again_as_it_was(root):
    made = home.create(root, 2, 1, "")
    found = home.load(root)
    assert found is not None
    assert (found.nodes, found.ports, found.raft_ports) == (made.nodes, made.ports, [])
    assert home.load(root / "elsewhere") is None
    with pytest.raises(RequestError, match="no program spurd-node9"):
        found.command("spurd-node9")
    assert found.command("spurd-node2")[0] == "spurd"


def test_a_folder_with_other_things_is_left_alone(root):
    root.mkdir(parents=True)
    (root / "precious").write_text("x")
    with pytest.raises(RequestError, match="is not empty and holds no cluster"):
        home.create(root, 1, 1, "")
    (root / "cluster.json").write_text("{}")
    with pytest.raises(RequestError, match="is damaged"):
        home.load(root)


def test_options_that_would_change_a_cluster_are_refused(cli, root):
    home.create(root, 2, 1, "")
    result = cli("spur", "up", "--dir", str(root), "--nodes", "3", "--cpus", "9")
    assert result.code == 1
    assert "holds a cluster of 2 node(s) and 1 controller(s), which --nodes and --cpus cannot" in result.err
    result = cli("spur", "up", "--dir", str(root), "--controllers", "3")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "which --controllers cannot change" in result.err


def test_several_controllers_get_what_each_needs(root):
    """The folder is complete before anything starts: certificates, logs, ports, one configuration for all."""
    made = home.create(root, 2, 1, "", controllers=3)
    found = home.load(root)
    assert found is not None
    assert (found.ports, found.raft_ports) == (made.ports, made.raft_ports)
    assert len({*found.ports, *found.raft_ports, *found.nodes.values()}) == 8
    assert found.daemons[:4] == ["spurctld-1", "spurctld-2", "spurctld-3", "spurd-node1"]
    config = load_config(found.config)
    assert config.controller_addresses == tuple(found.addresses)
    for at, name in enumerate(found.controllers, 1):
        assert {path.name for path in found.state(name).iterdir()} == {"raft", "tls"}
        command = found.command(name)
        assert command[command.index("--node-id") + 1] == str(at)
        assert command[command.index("--raft-listen") + 1] == config.controller.peers[at - 1]
        assert command[command.index("--listen") + 1] == config.controller.client_addrs[at - 1]
    assert found.command("spurd-node1")[7] == ",".join(found.addresses)
    assert config.accounting.database_url == f"sqlite+aiosqlite:///{root}/state/accounting.sqlite"


def test_a_group_that_cannot_be_made_leaves_nothing(root, monkeypatch):
    monkeypatch.setattr(home, "_group_lines", lambda cluster: ["bogus = 1"])
    with pytest.raises(RequestError, match=r"spurctld raft gen-certs: spurctld: error: .*bogus"):
        home.create(root, 1, 1, "", controllers=3)
    assert not root.exists()


class TestProcesses:
    """With a stand-in daemon: a real process that prints READY, or does not."""

    @pytest.fixture
    def cluster(self, root, monkeypatch):
        made = home.create(root, 1, 1, "")
        daemon = root / "daemon"
        daemon.write_text(
            f"#!{sys.executable}\n"
            "import os, signal, sys, time\n"
            "mode = open(os.path.join(os.path.dirname(sys.argv[0]), 'mode')).read()\n"
            "if mode == 'die':\n"
            "    sys.exit('cannot bind: Address already in use')\n"
            "if mode == 'stubborn':\n"
            "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('READY spurctld x', flush=True)\n"
            "time.sleep(60)\n"
        )
        daemon.chmod(0o755)
        (root / "mode").write_text("ok")
        monkeypatch.setattr(processes, "program", lambda name: str(daemon))
        yield made
        processes.stop(made, home.CONTROLLER, kill=True)

    def test_start_and_stop(self, cluster):
        pid = processes.start(cluster, home.CONTROLLER)
        assert processes.pid_of(cluster, home.CONTROLLER) == pid
        assert os.getsid(pid) == pid
        assert processes.stop(cluster, home.CONTROLLER)
        assert processes.pid_of(cluster, home.CONTROLLER) is None
        assert not processes.stop(cluster, home.CONTROLLER)

    def test_a_stubborn_one_is_killed(self, cluster, monkeypatch):
        (cluster.root / "mode").write_text("stubborn")
        monkeypatch.setattr(processes, "STOP_SECS", 0.3)
        processes.start(cluster, home.CONTROLLER)
        assert processes.stop(cluster, home.CONTROLLER)
        assert processes.pid_of(cluster, home.CONTROLLER) is None

    def test_one_that_cannot_start_is_quoted(self, cluster):
        (cluster.root / "mode").write_text("die")
        with pytest.raises(RequestError, match="spurctld-1 ended with code 1: cannot bind: Address already"):
            processes.start(cluster, home.CONTROLLER)

    def test_a_pid_that_is_somebody_elses_is_not_ours(self, cluster):
        other = subprocess.Popen(["sleep", "60"])
        try:
            (cluster.root / "run/spurctld-1.pid").write_text(f"{other.pid}\n")
            assert processes.pid_of(cluster, home.CONTROLLER) is None
            assert not processes.stop(cluster, home.CONTROLLER, kill=True)
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()

    def test_restart(self, cluster, cli):
        first = processes.start(cluster, home.CONTROLLER)
        result = cli("spur", "restart", "--dir", str(cluster.root), "spurctld-1", "--kill")
        assert result.code == 0
        second = processes.pid_of(cluster, home.CONTROLLER)
        assert result.out == f"spurctld-1 restarted, pid {second}\n"
        assert second != first
        os.kill(second, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while processes.pid_of(cluster, home.CONTROLLER) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "started, pid" in cli("spur", "restart", "--dir", str(cluster.root), "spurctld-1").out

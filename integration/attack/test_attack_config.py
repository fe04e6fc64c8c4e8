"""A careless administrator: a broken or dangerous configuration is one line, and nothing starts."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spur_core.ids import STEP_BATCH, RuntimeId
from spur_proto import agent_pb2

KEY = "0123456789abcdef0123456789abcdef"

#: Word -> (text of spur.conf, part of the one line).
CONFIGS = {
    "not toml": ("cluster_name = \n", "spur.conf"),
    "binary": ("\x00\x01\x02", "spur.conf"),
    "not utf-8": (b'cluster_name = "\xff"\n', "spur.conf"),
    "deep": ("a = " + "[" * 5000 + "\n", "spur.conf"),
    "a table for a text": ("[cluster_name]\n", "cluster_name"),
    "a number for a text": ("cluster_name = 5\n", "cluster_name"),
    "a text for a table": ('auth = "jwt"\n', "auth"),
    "a table for a list": ('[partitions]\nname = "a"\n', "partitions"),
    "none off loopback": (
        'cluster_name = "c"\n[auth]\nplugin = "none"\nmode = "permissive"\n',
        'plugin = "none"',
    ),
    "required without a key": ('[auth]\nplugin = "jwt"\nmode = "required"\n', "needs a key"),
    "required with none": ('[auth]\nplugin = "none"\nmode = "required"\n', "cannot work"),
    "a short key": ('[auth]\nplugin = "jwt"\nmode = "required"\njwt_key = "abc"\n', "bytes"),
    "a missing key file": ('[auth]\nplugin = "jwt"\nmode = "required"\njwt_key_file = "/nope"\n', "/nope"),
    "an unknown plugin": (f'[auth]\nplugin = "munge"\njwt_key = "{KEY}"\n', "munge"),
    "an unknown mode": (f'[auth]\nmode = "off"\njwt_key = "{KEY}"\n', "off"),
    "a bad address": ('[controller]\nlisten_addr = "nonsense:port"\n', "listen_addr"),
    "a port too far": ('[controller]\nlisten_addr = "127.0.0.1:99999"\n', "99999"),
    "a negative size": ('[[nodes]]\nnames = "n1"\ncpus = -1\n', "cpus"),
    "a huge size": ('[[nodes]]\nnames = "n1"\ncpus = 1\nmemory_mb = 99999999999999999999\n', "memory_mb"),
    "many hosts": ('[[nodes]]\nnames = "n[0-99999999]"\ncpus = 1\n', "not a hostlist"),
    "a bad host list": ('[[nodes]]\nnames = "n[1-"\ncpus = 1\n', "n[1-"),
    "an unknown section": ("[autth]\n", "autth"),
}


def start(program: str, *argv: str, cluster: Any) -> "subprocess.CompletedProcess[str]":
    """Run a daemon that must end by itself."""
    return subprocess.run(
        [program, "-D", *argv], env=cluster.env, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize("program", ["spurctld", "spurd"])
@pytest.mark.parametrize("word", CONFIGS)
def test_a_configuration_that_must_not_be_served(
    target: Any, tmp_path: Path, word: str, program: str
) -> None:
    text, part = CONFIGS[word]
    conf = tmp_path / "spur.conf"
    name = b"" if "cluster_name" in str(text) else b'cluster_name = "c"\n'
    conf.write_bytes(name + (text if isinstance(text, bytes) else text.encode()))
    if program == "spurd" and word in ("a bad address", "a port too far"):
        extra = ["--listen", "nonsense:port" if word == "a bad address" else "127.0.0.1:99999"]
        part = "listen"
    else:
        extra = ["--listen", "0.0.0.0:0"]
        if word in ("a bad address", "a port too far"):
            extra = []
    argv = ["--config", str(conf), "--state-dir", str(tmp_path / "s"), *extra]
    done = start(program, *argv, cluster=target.cluster)
    assert done.returncode not in (0, None)
    assert "Traceback" not in done.stderr
    assert part in done.stderr, done.stderr
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert errors, done.stderr
    assert all(len(line) < 1000 for line in errors)
    assert "READY" not in done.stdout
    assert not list((tmp_path / "s").rglob("*")) if (tmp_path / "s").exists() else True


def test_a_key_that_others_can_read_is_refused(target: Any, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o644)
    conf = tmp_path / "spur.conf"
    conf.write_text(
        f'cluster_name = "c"\n[auth]\nplugin = "jwt"\nmode = "required"\njwt_key_file = "{key}"\n'
    )
    for program in ("spurctld", "spurd"):
        argv = ["--config", str(conf), "--state-dir", str(tmp_path / "s"), "--listen", "127.0.0.1:0"]
        done = start(program, *argv, cluster=target.cluster)
        assert done.returncode != 0
        assert str(key) in done.stderr
        assert KEY not in done.stderr + done.stdout


def test_a_key_in_a_file_that_others_can_read_is_told(target: Any, tmp_path: Path) -> None:
    """`jwt_key` itself in a world-readable spur.conf: refused, or at the very least said."""
    conf = tmp_path / "spur.conf"
    conf.write_text(f'cluster_name = "c"\n[auth]\nplugin = "jwt"\nmode = "required"\njwt_key = "{KEY}"\n')
    conf.chmod(0o644)
    argv = ["--config", str(conf), "--state-dir", str(tmp_path / "s"), "--listen", "127.0.0.1:99999"]
    done = start("spurctld", *argv, cluster=target.cluster)
    assert done.returncode != 0
    assert KEY not in done.stderr + done.stdout


def test_a_second_daemon_on_the_same_state(target: Any) -> None:
    """Two controllers, or two agents, on one directory would each undo the other's work."""
    cluster = target.cluster
    for program, name in (("spurctld", "spurctld-1"), ("spurd", "spurd-node1")):
        argv = ["--config", str(cluster.folder / "spur.conf"), "--listen", "127.0.0.1:0"]
        argv += ["--state-dir", str(cluster.folder / "state" / name)]
        argv += ["-N", "node1"] if program == "spurd" else []
        done = start(program, *argv, cluster=cluster)
        assert done.returncode != 0, program
        assert "Traceback" not in done.stderr
        assert done.stderr.strip()
    target.works()


@pytest.fixture
def strict(tmp_path_factory: pytest.TempPathFactory, helpers: Any) -> Iterator[Any]:
    """A cluster that takes no jobs of root."""
    cluster = helpers.Cluster(helpers.open_folder(tmp_path_factory.mktemp("st")) / "c", 1, 2)
    conf = cluster.folder / "spur.conf"
    conf.write_text(conf.read_text().replace("allow_root_jobs = true", "allow_root_jobs = false"))
    for name in ("spurctld-1", "spurd-node1"):
        cluster.restart(name)
    helpers.until(cluster.idle, "the node is back")
    found = helpers.Target(cluster)
    yield found
    found.close()
    cluster.down()


@pytest.mark.root
@pytest.mark.node
def test_jobs_of_root_are_refused_everywhere(strict: Any, helpers: Any, tmp_path: Path) -> None:
    assert os.geteuid() == 0
    mark = tmp_path / "ran"
    script = f"#!/bin/sh\n: > {mark}\n".encode()
    answer = strict.submit(strict.user_token("root"), script=script, hold=False)
    assert answer[:2] == (
        "INVALID_ARGUMENT",
        "Invalid user id: jobs of root are not allowed here ([auth] allow_root_jobs)",
    )
    # The agent refuses, whatever a controller wants.
    rid = RuntimeId(900009, 1, STEP_BATCH)
    for user, uid, gid in (("root", 0, 0), ("nobody", 0, 65534)):
        spec = helpers.launch_spec(rid, uid, gid, "node1", user=user, script=script)
        request = agent_pb2.LaunchJobRequest(
            spec=spec,
            target_node="node1",
            launch_token=strict.statement(spec, rid, uid, gid, "node1"),
            term=1,
        )
        request.term = _term(strict, helpers, request)
        answer = helpers.ask(strict.agent().LaunchJob, request, strict.controller_token())
        assert answer.code == "PERMISSION_DENIED", answer
        assert "allow_root_jobs" in answer.text
    assert not mark.exists()
    job = strict.submit(strict.user_token(helpers.stranger), script=b"#!/bin/sh\ntrue\n", hold=False)
    assert job.code == "OK"
    strict.cluster.wait(str(job.message.job_id), "COMPLETED")


def _term(target: Any, helpers: Any, request: Any) -> int:
    probe = agent_pb2.LaunchJobRequest()
    probe.CopyFrom(request)
    probe.term = 0
    answer = helpers.ask(target.agent().LaunchJob, probe, target.controller_token())
    return int(answer.text.rpartition(" ")[2])

"""The program itself: flags, readiness, signals, errors in one line and exit codes."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

GOOD = """
cluster_name = "t"
[auth]
plugin = "none"
allow_root_jobs = true
mode = "disabled"
[[partitions]]
name = "debug"
default = true
nodes = "ALL"
"""


def command(*words):
    return [sys.executable, "-I", "-m", "spur_ctld.main", *words]


def run(*words, timeout=30):
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=timeout)


@pytest.fixture
def conf(tmp_path):
    path = tmp_path / "spur.conf"
    path.write_text(GOOD)
    return path


def start(conf, tmp_path, *more, env=None):
    words = ("-D", "-f", str(conf), "--state-dir", str(tmp_path / "state"), "--listen", "127.0.0.1:0", *more)
    return subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def test_ready_and_a_clean_stop(conf, tmp_path):
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "n.sock"))
    notify.settimeout(30)
    process = start(conf, tmp_path, env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "n.sock")})
    try:
        line = process.stdout.readline()
        program, name, address = line.split()
        assert (program, name) == ("READY", "spurctld")
        host, _, port = address.rpartition(":")
        assert host == "127.0.0.1"
        assert notify.recv(100) == b"READY=1\n"
        socket.create_connection((host, int(port)), 5).close()
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=10)
        assert time.monotonic() - begun < 5
        assert process.returncode == 0
        assert out == ""
        assert all(line.startswith("at=") and " event=" in line for line in err.splitlines()), err
        assert "Traceback" not in err
    finally:
        process.kill()
        process.communicate()
        notify.close()


def test_logs_as_json(conf, tmp_path):
    import json

    conf.write_text(GOOD + '[logging]\nformat = "json"\n')
    process = start(conf, tmp_path)
    try:
        assert process.stdout.readline().startswith("READY")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=10)
        events = [json.loads(line) for line in err.splitlines()]
        assert "started" in {event["event"] for event in events}
    finally:
        process.kill()
        process.communicate()


def test_the_port_is_in_use(conf, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("-f", str(conf), "--state-dir", str(tmp_path / "s"), "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == (
        f"spurctld: error: cannot listen on 127.0.0.1:{port}: "
        "the port is in use or the address is not this host's"
    )
    assert "Traceback" not in done.stderr


def test_a_second_controller_on_the_same_directory(conf, tmp_path):
    process = start(conf, tmp_path)
    try:
        assert process.stdout.readline().startswith("READY")
        done = run("-f", str(conf), "--state-dir", str(tmp_path / "state"), "--listen", "127.0.0.1:0")
        assert done.returncode == 1
        assert str(tmp_path / "state") in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--frobnicate",), "unrecognized arguments: --frobnicate"),
        (("--rest-listen", "x:1"), "--rest-listen is not available in this release"),
        (("--raft-listen", "x:1"), "--raft-listen: a single controller opens no such port"),
        (("--node-id", "2"), "--node-id 2: must be the position of this controller in"),
        (("--metrics-listen", "x:1"), "--metrics-listen is not available in this release"),
        (("--log-level", "loud"), "invalid choice: 'loud'"),
        (("-f", "/nonexistent/spur.conf"), "/nonexistent/spur.conf: no such file"),
    ],
)
def test_bad_command_lines(words, text):
    done = run(*words)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("spurctld: error: ")
    assert text in done.stderr


def test_all_problems_of_a_configuration_at_once(conf):
    conf.write_text(GOOD.replace('"debug"', '"de bug"') + "[controller]\nmax_batch_requeue = 0\nbogus = 1\n")
    for words in (("--check-config",), ()):
        done = run("-f", str(conf), *words)
        assert done.returncode == 1
        lines = done.stderr.splitlines()
        assert len(lines) >= 3
        assert all(line.startswith("spurctld: error: ") for line in lines)


def test_a_good_configuration(conf):
    done = run("-f", str(conf), "--check-config", "--listen", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (0, f"{conf}: ok\n")


def test_auth_posture_refuses(conf):
    done = run("-f", str(conf), "--listen", "0.0.0.0:0")
    assert done.returncode == 1
    assert "loopback only" in done.stderr.splitlines()[-1]


def test_a_state_directory_that_cannot_be(conf, tmp_path):
    (tmp_path / "file").write_text("")
    done = run("-f", str(conf), "--state-dir", str(tmp_path / "file" / "x"), "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert f"state directory {tmp_path}/file/x:" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_version():
    done = run("-V")
    assert done.returncode == 0
    assert done.stdout.startswith("spurctld ")


async def test_a_stop_ends_open_streams(conf, tmp_path):
    from grpc import StatusCode, aio

    from spur_proto import common_pb2, controller_pb2_grpc
    from spur_proto import controller_pb2 as pb

    process = start(conf, tmp_path)
    try:
        address = process.stdout.readline().split()[2]
        me = (("x-spur-user", "root"),)
        async with aio.insecure_channel(address) as channel:
            stub = controller_pb2_grpc.SlurmControllerStub(channel)
            spec = common_pb2.JobSpec(script=b"#!/bin/sh\n", hold=True)
            job = await stub.SubmitJob(pb.SubmitJobRequest(spec=spec), metadata=me)
            call = stub.WatchJob(pb.WatchJobRequest(job_id=job.job_id), metadata=me)
            assert (await call.read()).job.reason == "JobHeldUser"
            process.send_signal(signal.SIGTERM)
            assert await call.code() is StatusCode.UNAVAILABLE
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.communicate()

"""Starting: what is found on disk, what is refused, and being a node of the cluster."""

import json
import os
import shutil
import signal
import socket

import pytest

from spur_agent import options, settings
from spur_agent.options import UsageError
from spur_core.errors import ConfigError
from spur_core.ids import RuntimeId
from spur_core.linux import procfs
from spur_proto import controller_pb2 as pb
from spur_proto_lite import journal
from spur_proto_lite.exits import ExitRecord

pytestmark = pytest.mark.node


async def test_the_scan_survives_everything_that_can_lie_there(agent, controller, spec_of, gate, base, tools):
    stale, corrupt, torn = tools.batch(60), tools.batch(61), tools.batch(62)
    fifo = gate()
    tasks = {}
    for rid in (stale, corrupt, torn):
        assert (await agent.launch(spec_of(rid, f"sleep 500 & read x < {fifo}", cpus=0))).success
        found = tools.descriptor_of(agent, rid.dirname())
        tasks[rid] = procfs.identity(found["task_pid"])
    await agent.kill(signal.SIGKILL)
    sessions = agent.state / "runtime" / "sessions"
    # Row by row of the table of classes, beside one that goes on running.
    for rid in (stale, corrupt):
        found = tools.descriptor_of(agent, rid.dirname())
        os.kill(found["stepd_pid"], signal.SIGKILL)
    (sessions / corrupt.dirname() / "descriptor.json").write_bytes(b"{")
    with (sessions / torn.dirname() / "journal").open("ab") as file:
        file.write(b'{"seq": 99, "at"')
    (sessions / "not-a-session").mkdir()
    (sessions / ".gone-9.9.9").mkdir()
    (sessions / "70.1.4294967291").mkdir(mode=0o700)
    old = sessions / "71.1.4294967291"
    shutil.copytree(sessions / torn.dirname(), old, ignore=shutil.ignore_patterns("ctl.sock", "journal"))
    found = json.loads((old / "descriptor.json").read_bytes())
    found.update(job_id=71, boot_id="another-boot", cgroup=[])
    (old / "descriptor.json").write_text(json.dumps(found))
    writer = journal.JournalWriter(str(old / "journal"))
    writer.append(journal.STARTED, 5.0, {})
    writer.append(
        journal.EXIT_OBSERVED, 9.0, {"exit": ExitRecord(code=6, started_at=5.0, ended_at=9.0).to_json()}
    )
    writer.close()
    done = sessions / "72.1.4294967291"
    shutil.copytree(old, done)
    writer = journal.JournalWriter(str(done / "journal"))
    writer.append(journal.ACKNOWLEDGED, 10.0)
    writer.close()
    bad = sessions / "73.1.4294967291"
    shutil.copytree(old, bad)
    (bad / "journal").write_bytes(b"garbage\n" + (old / "journal").read_bytes())

    verdict = pb.RECOVERY_VERDICT_KEEP
    controller.recover = lambda entry: verdict
    await agent.start()
    held = await tools.until(
        lambda: len(controller.registrations) > 1 and controller.registrations[-1].held, "registration"
    )
    said = {(h.rid.job_id, h.state) for h in held}
    assert said - {(71, "finished")} == {(62, "live"), (60, "lost"), (61, "lost"), (73, "lost")}
    for rid in (stale, corrupt):
        if os.geteuid() == 0 or rid == stale:
            await tools.until(lambda rid=rid: not procfs.is_alive(tasks[rid]), f"{rid} killed")
        assert not (await agent.probe(rid)).active
    assert procfs.is_alive(tasks[torn])
    await tools.until(lambda: controller.reports, "report of the boot before")
    assert (controller.reports[0].rid.job_id, controller.reports[0].exit.code) == (71, 6)
    assert (controller.reports[0].started_at, controller.reports[0].ended_at) == (5.0, 9.0)
    assert not (await agent.probe(tools.batch(73))).active
    verdict = pb.RECOVERY_VERDICT_FORGET
    controller.recover = lambda entry: verdict if entry.rid.job_id != 62 else pb.RECOVERY_VERDICT_KEEP
    await tools.until(lambda: agent.sessions == [torn.dirname()], "only the running one is left")
    aside = sorted(os.listdir(agent.state / "runtime" / "quarantine"))
    assert [name.rpartition(".")[0] for name in aside] == [
        corrupt.dirname(),
        "73.1.4294967291",
        "not-a-session",
    ]
    assert (await agent.probe(torn)).state == "live"


async def test_a_supervisor_that_was_never_started_is_cleared(agent, controller, spec_of, base, tools):
    """The agent died between spawning and `start`: nothing of the user's ran, nothing may run later."""
    from spur_agent import bring_up, claim, spawner
    from spur_agent.allocation import Grant
    from spur_proto import agent_pb2
    from spur_proto_lite.launch_spec import LaunchSpec
    from spur_proto_lite.paths import StatePaths

    await agent.kill(signal.SIGKILL)
    rid = tools.batch(63)
    paths = StatePaths(str(agent.state)).session(rid)
    spec = LaunchSpec(rid=rid, script="#!/bin/sh\n", cgroup_root="none")
    bring_up.write_session(
        paths, spec, claim.make("x", Grant((), 0), agent_pb2.LaunchSpec(job_lifetime=True), epilog=False)
    )
    found = await spawner.ExecSource(str(tools.BIN / "spurstepd"), os.environ).spawn(paths.dir)
    who = procfs.Identity(found.pid, found.start_ticks, procfs.boot_id())
    await tools.until(lambda: os.path.exists(paths.control), "supervisor ready")
    await agent.start()
    await tools.until(lambda: not procfs.is_alive(who), "supervisor gone")
    assert agent.sessions == []
    assert not (await agent.probe(rid)).active


async def test_the_lower_attempt_of_two_is_ended(agent, controller, spec_of, gate, tools):
    controller.refuse = tools.grpc.StatusCode.UNAVAILABLE
    low = RuntimeId(64, 1, tools.STEP_BATCH)
    assert (await agent.launch(spec_of(low, "sleep 1000"))).success
    await agent.kill(signal.SIGKILL)
    sessions = agent.state / "runtime" / "sessions"
    high = sessions / "64.2.4294967291"
    shutil.copytree(sessions / low.dirname(), high, ignore=shutil.ignore_patterns("ctl.sock", "journal"))
    found = json.loads((high / "descriptor.json").read_bytes())
    found.update(run_attempt=2, boot_id="another-boot", cgroup=[])
    (high / "descriptor.json").write_text(json.dumps(found))
    writer = journal.JournalWriter(str(high / "journal"))
    writer.append(journal.STARTED, 5.0, {})
    writer.append(journal.EXIT_OBSERVED, 9.0, {"exit": ExitRecord(code=1).to_json()})
    writer.close()
    await agent.start()
    probe = await agent.probe(low)
    assert (probe.state, probe.exit.signal) == ("finished", signal.SIGKILL)
    controller.refuse = None
    await tools.until(lambda: not agent.sessions, "both reported")
    assert {r.rid.run_attempt for r in controller.reports} == {1, 2}


async def test_the_node_token_is_used_and_renewed_when_it_is_refused(agent, controller, tools):
    await tools.until(lambda: len(controller.beats) >= 1, "beat")
    assert controller.headers["Heartbeat"][0] != controller.headers["RegisterAgent"][0]
    assert all(controller.headers["RegisterAgent"])
    controller.unauthenticated_beats = 1
    await tools.until(lambda: len(controller.registrations) == 2, "registered again")
    controller.register_again = True
    await tools.until(lambda: len(controller.registrations) == 3, "registered again when asked to")
    beats = len(controller.beats)
    await tools.until(lambda: len(controller.beats) > beats, "beats go on")
    assert controller.beats[-1].has_snapshot
    assert controller.beats[-1].free_memory_mb > 0


async def test_another_controller_is_tried_and_the_start_needs_none(make_agent, controller, tools):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = taken.getsockname()[1]
        port = controller.port
        await controller.stop()
        agent = make_agent(controllers=f"127.0.0.1:{dead},http://127.0.0.1:{port}")
        await agent.start()
        await tools.until(lambda: "register_failed" in agent.log_text(), "no controller yet")
        await controller.start()
        await tools.until(lambda: controller.registrations, "registration")


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda agent: (agent.state / "runtime").mkdir(parents=True, mode=0o755), "mode 0755"),
        (lambda agent: (agent.state.mkdir(), (agent.state / "runtime").symlink_to("/tmp")), "symbolic link"),
        (lambda agent: agent.state.write_text("a file"), "state directory"),
        (lambda agent: agent.config.write_text("cluster_name = "), "n1.conf"),
        (lambda agent: agent.config.write_text('cluster_name = "x"\nfoo = 1'), "foo"),
        (lambda agent: agent.config.write_text('cluster_name = "x"\n[auth]\nmode = "required"'), "key"),
        (lambda agent: agent.config.unlink(), "no such file"),
        (lambda agent: setattr(agent, "extra", ("--token", "abc")), "--token"),
        (lambda agent: setattr(agent, "extra", ("--frobnicate",)), "--frobnicate"),
        (lambda agent: setattr(agent, "extra", ("--label", "=x")), "--label"),
        (lambda agent: setattr(agent, "environ", {"SPUR_STEPD": "0"}), "SPUR_STEPD"),
    ],
)
async def test_mistakes_are_one_line_and_status_1(make_agent, prepare, said):
    agent = make_agent()
    prepare(agent)
    process = await agent.spawn()
    assert await process.wait() == 1
    text = agent.log_text()
    assert "Traceback" not in text
    errors = [line for line in text.splitlines() if line.startswith("spurd: error: ")]
    assert len(errors) >= 1
    assert said in errors[0]
    if agent.state.is_file():
        agent.state.unlink()


async def test_a_taken_port_is_refused(make_agent, agent, tools):
    second = make_agent("n2")
    process = await second.spawn(listen=agent.address)
    assert await process.wait() == 1
    assert "cannot listen on" in second.log_text()
    assert "Traceback" not in second.log_text()


async def test_a_loose_parent_and_a_long_state_directory_are_tolerated(
    make_agent, controller, spec_of, base, tools
):
    agent = make_agent()
    agent.state = base / ("d" * 100) / ("e" * 60)
    agent.state.mkdir(parents=True)
    agent.state.chmod(0o777)
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    answer = await agent.launch(spec_of(tools.batch(65), "exit 2"))
    assert answer.success, answer.error
    await tools.until(lambda: controller.reports, "report")
    # By push and not by replay: the socket is found at its long path.
    assert "notified" in agent.log_text()
    await tools.until(lambda: not agent.sessions, "end")


async def test_sighup_is_survived(agent, tools):
    os.kill(agent.pid, signal.SIGHUP)
    await tools.until(lambda: "reload_unavailable" in agent.log_text(), "log line")
    assert agent.running


def resolved(*argv, **environ):
    return settings.resolve(options.parse(argv), environ)


def test_flags_variables_and_configuration_in_that_order(tmp_path):
    conf = tmp_path / "spur.conf"
    conf.write_text(
        'cluster_name = "c"\n[auth]\nplugin = "none"\nmode = "disabled"\n'
        '[controller]\nhosts = ["a", "b"]\n[agent]\nlisten_addr = "127.0.0.1:7000"\n'
        f'state_dir = "{tmp_path}/s"\n'
    )
    base = ("-f", str(conf))
    plain = resolved(*base)
    assert plain.controllers == ("a:6817", "b:6817")
    assert (plain.listen, plain.state_dir, plain.key) == ("127.0.0.1:7000", f"{tmp_path}/s", None)
    env = {"SPUR_CONTROLLER_ADDR": "x", "SPUR_STEPD_STATE_DIR": "/v", "SPUR_NODE_LABELS": "a=1,b="}
    found = resolved(*base, **env)
    assert (found.controllers, found.state_dir, found.labels) == (("x:6817",), "/v", {"a": "1", "b": ""})
    found = resolved(*base, "--controller", " http://y:1/ ,z", "--state-dir", "/w", "--label", "k=v=w", **env)
    assert (found.controllers, found.state_dir, found.labels) == (("y:1", "z:6817"), "/w", {"k": "v=w"})


@pytest.mark.parametrize(
    "argv", [("--listen", "nonsense"), ("--controller", ","), ("--log-level", "loud"), ("extra",)]
)
def test_bad_flags(argv, tmp_path):
    conf = tmp_path / "spur.conf"
    conf.write_text('cluster_name = "c"\n[auth]\nplugin = "none"\nmode = "disabled"\n')
    with pytest.raises(UsageError):
        resolved("-f", str(conf), "--listen", "127.0.0.1:0", *argv)


def test_plugin_none_serves_loopback_only(tmp_path):
    conf = tmp_path / "spur.conf"
    conf.write_text('cluster_name = "c"\n[auth]\nplugin = "none"\nmode = "disabled"\n')
    with pytest.raises(ConfigError, match="loopback"):
        resolved("-f", str(conf), "--listen", "0.0.0.0:0")


@pytest.mark.parametrize(
    ("explicit", "listen", "address"),
    [
        ("10.1.2.3", "[::]:1", "10.1.2.3"),
        ("", "127.0.0.1:1", "127.0.0.1"),
        ("", "[::1]:1", "::1"),
        ("no.such.host.invalid", "[::]:1", "no.such.host.invalid"),
    ],
)
def test_advertised_address(explicit, listen, address):
    assert settings.advertised_address(explicit, listen) == address

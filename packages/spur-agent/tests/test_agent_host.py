"""The agent on its host: exact ends of supervisors, directories, locks, groups, the unit's kill mode."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from spur_agent import bring_up, claim, halt, killmode, own_groups, spawner
from spur_core.linux import cgroup, cgroup_layout, procfs
from spur_proto_lite import control, framing, journal, unixsock
from spur_proto_lite.launch_spec import LaunchSpec
from spur_proto_lite.paths import StatePaths

pytestmark = pytest.mark.node


# -- ending supervisors


@pytest.fixture
def sleeper():
    script = "import time; print(1, flush=True); time.sleep(1000)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    process.stdout.read(1)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


async def test_v08_a_stop_reaches_nobody_but_the_supervisor_it_means(sleeper):
    who = procfs.identity(sleeper.pid)
    # A recycled pid: same number, other ticks; another boot; and a pid of nobody.
    for stranger in (
        who._replace(start_ticks=who.start_ticks - 1),
        who._replace(boot_id="another-boot"),
        who._replace(pid=0),
        who._replace(pid=-1),
    ):
        await halt.stop(stranger)
        assert procfs.is_alive(who)
    await halt.stop(who)
    assert sleeper.wait() == -signal.SIGTERM
    # One that has exited, with a pid that is not 0: nothing is sent, nothing is raised.
    await halt.stop(who)


async def test_a_stop_without_patience_leaves_no_time_for_an_orderly_end(sleeper):
    await halt.stop(procfs.identity(sleeper.pid), 0.0)
    assert sleeper.wait() == -signal.SIGKILL


@pytest.fixture
def prepared(base, user, tools):
    """A supervisor that is ready and waits for `start`."""

    async def make(rid, script, **changes):
        (base / "held" / "runtime" / "sessions").mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in (base / "held" / "runtime", base / "held" / "runtime" / "sessions"):
            path.chmod(0o700)
        paths = StatePaths(str(base / "held")).session(rid)
        spec = LaunchSpec(
            rid=rid,
            script=f"#!/bin/sh\n{script}\n",
            env={"PATH": "/usr/bin:/bin", "SPUR_JOB_ID": str(rid.job_id)},
            work_dir=str(base / "work"),
            uid=user.uid,
            gid=user.gid,
            user=user.name,
            cgroup_root="none",
            **changes,
        )
        (base / "held").chmod(0o755)
        made = claim.Claim(wire_sha256="x")
        bring_up.write_session(paths, spec, made)
        found = await spawner.ExecSource(str(tools.BIN / "spurstepd"), os.environ).spawn(paths.dir)
        who = procfs.Identity(found.pid, found.start_ticks, procfs.boot_id())
        await tools.until(lambda: os.path.exists(paths.control), "ready")
        return who, paths

    return make


def send_start(paths, rid):
    """What a dead agent has sent: it is in the socket, nobody waits for the answer."""
    fd = unixsock.connect(paths.control, 1.0)
    os.write(fd, framing.encode_message(control.encode_request(1, control.START, rid, {})))
    return fd


async def test_a_supervisor_that_has_not_begun_is_put_down(prepared, base, tools):
    rid = tools.batch(500)
    who, paths = await prepared(rid, "echo ran > ran")
    assert await halt.put_down(who, paths)
    assert not procfs.is_alive(who)
    assert not (base / "work" / "ran").exists()


async def test_a_start_that_lies_unread_in_a_stopped_supervisor_never_runs(prepared, base, tools):
    rid = tools.batch(501)
    who, paths = await prepared(rid, "echo ran > ran")
    os.kill(who.pid, signal.SIGSTOP)
    await tools.until(lambda: procfs.stat(who.pid).state == "T", "stopped")
    fd = send_start(paths, rid)
    assert await halt.put_down(who, paths)
    os.close(fd)
    assert not procfs.is_alive(who)
    assert not (base / "work" / "ran").exists()


async def test_a_supervisor_that_has_begun_goes_on(prepared, base, gate, tools):
    rid, fifo = tools.batch(502), gate()
    who, paths = await prepared(rid, f"read x < {fifo}; echo ran > ran")
    fd = send_start(paths, rid)
    await tools.until(lambda: journal.story(journal.read(paths.journal).entries).started_at, "begun")
    assert not await halt.put_down(who, paths)
    assert procfs.is_alive(who)
    assert await halt.put_down(who, paths) is False
    tools.open_gate(fifo)
    await tools.until((base / "work" / "ran").exists, "it ran")
    os.close(fd)
    await tools.until(lambda: journal.story(journal.read(paths.journal).entries).exit, "over")
    await halt.stop(who)


async def test_a_scan_that_races_with_a_dead_agents_start_takes_the_step_back(
    make_agent, controller, prepared, base, gate, tools
):
    """The supervisor says `ready`, and reads the dead agent's `start` right after that."""
    rid, fifo = tools.batch(503), gate()
    agent = make_agent()
    agent.state = base / "held"
    who, paths = await prepared(rid, f"read x < {fifo}; exit 3")

    class Relay:
        """Stands before the supervisor: answers the first `hello` itself, as the supervisor would have a
        moment ago, and lets the dead agent's request through after that."""

        def __init__(self):
            self.fds = []
            self.real = f"{paths.dir}/real.sock"
            os.rename(paths.control, self.real)

        async def start(self):
            self.server = await asyncio.start_unix_server(self.serve, paths.control)

        async def serve(self, reader, writer):
            from spur_agent.link import read_message

            request = control.decode_request(await read_message(reader))
            said = control.HelloReply(
                rid=rid,
                state="ready",
                stepd_pid=who.pid,
                stepd_start_ticks=who.start_ticks,
                boot_id=who.boot_id,
            )
            self.server.close()
            os.rename(self.real, paths.control)
            self.fds.append(send_start(paths, rid))
            await tools.until(
                lambda: journal.story(journal.read(paths.journal).entries).started_at, "it has begun"
            )
            writer.write(framing.encode_message(control.encode_reply(request, said)))
            await writer.drain()
            writer.close()

    relay = Relay()
    await relay.start()
    await agent.start()
    assert (await agent.probe(rid)).state == "live"
    assert procfs.is_alive(who)
    assert "session_changed" in agent.log_text()
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 3
    for fd in relay.fds:
        os.close(fd)
    await tools.until(lambda: not agent.sessions, "deleted")


async def test_a_mute_supervisor_that_never_began_is_cleared(
    make_agent, controller, prepared, base, tools, monkeypatch
):
    from spur_agent.allocation import AllocationTable
    from spur_agent.classify import Found
    from spur_agent.controller import ControllerLink, NodeCredential
    from spur_agent.keeper import Keeper
    from spur_agent.ledger import Ledger
    from spur_agent.scan import Scan
    from spur_agent.sessions import SessionTable

    rid = tools.batch(504)
    who, paths = await prepared(rid, "echo ran > ran")
    os.kill(who.pid, signal.SIGSTOP)
    fd = send_start(paths, rid)
    places, table = StatePaths(str(base / "held")), SessionTable()
    allocation = AllocationTable(range(2), 100, {})
    link = ControllerLink(["127.0.0.1:1"], NodeCredential(None, "n1", "test"))
    keeper = Keeper("n1", places, table, allocation, Ledger(places.ledger), link, procfs.boot_id(), None)
    scan = Scan(places, table, allocation, keeper, procfs.boot_id())
    scan.answer_secs = 0.2
    counts = await scan.run()
    assert counts[Found.UNRESPONSIVE] == 1
    assert not procfs.is_alive(who)
    assert not os.path.exists(paths.dir)
    assert len(table) == 0
    assert not (base / "work" / "ran").exists()
    os.close(fd)
    await keeper.stop()


# -- directories and locks


@pytest.mark.parametrize("loose", ["mode", "link"])
async def test_v10_a_loose_or_symlinked_runtime_is_refused_and_not_repaired(make_agent, base, loose):
    agent = make_agent()
    agent.state.mkdir()
    runtime = agent.state / "runtime"
    if loose == "mode":
        runtime.mkdir(mode=0o700)
        runtime.chmod(0o750)
    else:
        (base / "elsewhere").mkdir(mode=0o700)
        runtime.symlink_to(base / "elsewhere")
    process = await agent.spawn()
    assert await asyncio.wait_for(process.wait(), 20) == 1
    assert "runtime" in agent.log_text()
    if loose == "mode":
        assert runtime.stat().st_mode & 0o777 == 0o750
    else:
        assert runtime.is_symlink()
        assert not os.listdir(base / "elsewhere")


async def test_v10_a_loose_parent_is_accepted_as_it_is(make_agent, controller, tools):
    agent = make_agent()
    agent.state.mkdir()
    agent.state.chmod(0o777)
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    assert agent.state.stat().st_mode & 0o777 == 0o777
    assert (agent.state / "runtime").stat().st_mode & 0o777 == 0o700


async def test_v24_two_agents_with_state_directories_of_their_own_both_run(
    make_agent, controller, spec_of, base, tools
):
    one, two = make_agent("n1"), make_agent("n2")
    await one.start()
    await two.start()
    await tools.until(lambda: len({r.node for r in controller.registrations}) == 2, "both registered")
    rid = tools.batch(510)
    for agent in (one, two):
        answer = await agent.launch(spec_of(rid, "exit 3", node=agent.name, stdout_path=f"{agent.name}.txt"))
        assert answer.success, answer.error
    await tools.until(lambda: len(controller.reports) == 2, "both reported")
    assert {r.node for r in controller.reports} == {"n1", "n2"}
    await tools.until(lambda: not one.sessions and not two.sessions, "deleted")


async def test_v24_a_second_agent_in_the_same_state_directory_is_refused(make_agent, agent):
    second = make_agent("n2")
    second.state = agent.state
    process = await second.spawn()
    assert await asyncio.wait_for(process.wait(), 20) == 1
    assert "another spurd works in this state directory" in second.log_text()
    assert "Traceback" not in second.log_text()
    assert agent.running
    second.state = second.state.parent / "unused"


# -- farewell


async def test_a_stopping_agent_names_what_goes_on_and_signals_nobody(
    agent, controller, spec_of, gate, base, tools
):
    rid, fifo = tools.batch(511), gate()
    script = f"trap 'echo hurt > hurt' TERM HUP INT CONT; read x < {fifo}; exit 2"
    assert (await agent.launch(spec_of(rid, script))).success
    assert await agent.kill(signal.SIGTERM) == 0
    held = controller.farewells[0].held
    assert [(h.rid.job_id, h.rid.run_attempt, h.rid.step_id, h.state) for h in held] == [(*rid, "live")]
    await agent.start()
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")
    assert (controller.reports[0].exit.code, (base / "work" / "hurt").exists()) == (2, False)


# -- kill mode


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/spurd.service\n", "spurd.service"),
        ("0::/system.slice/spurd.service/sub\n", "spurd.service"),
        ("12:memory:/x.service\n1:name=systemd:/system.slice/a.service\n", "a.service"),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/b.service\n", "b.service"),
        ("0::/user.slice/session-3.scope\n", ""),
        ("0::/\n", ""),
        ("nonsense\n", ""),
        ("", ""),
    ],
)
def test_the_unit_is_read_off_the_control_group(text, unit):
    assert killmode.unit_of(text) == unit


@pytest.mark.parametrize(
    ("unit", "mode", "outside", "bad"),
    [
        ("a.service", "control-group", False, True),
        ("a.service", "mixed", False, True),
        ("a.service", "", False, True),
        ("a.service", "process", False, False),
        ("a.service", "none", False, False),
        ("a.service", "control-group", True, False),
        ("", "control-group", False, False),
    ],
)
def test_v25_only_a_unit_that_would_kill_steps_is_complained_about(unit, mode, outside, bad):
    said = killmode.complaint(unit, mode, outside)
    assert bool(said) is bad
    if bad:
        assert "KillMode=process" in said
        assert unit in said


def test_the_complaint_is_an_error_that_names_the_setting(tmp_path, monkeypatch, caplog):
    (tmp_path / "cgroup").write_text("0::/system.slice/spurd.service\n")
    systemctl = tmp_path / "systemctl"
    systemctl.write_text('#!/bin/sh\n[ "$5" = spurd.service ] && echo control-group\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    killmode.check(outside=False, cgroup_file=str(tmp_path / "cgroup"))
    assert "KillMode=process" in caplog.text
    assert "KillMode=control-group" in caplog.text
    caplog.clear()
    killmode.check(outside=True, cgroup_file=str(tmp_path / "cgroup"))
    killmode.check(outside=False, cgroup_file=str(tmp_path / "nothing"))
    systemctl.write_text("#!/bin/sh\necho process\n")
    killmode.check(outside=False, cgroup_file=str(tmp_path / "cgroup"))
    assert not caplog.records


# -- groups of dead agents


@pytest.fixture
def own_root(base):
    """Groups as an agent with a state directory of its own has them; none without the right to make any."""
    setting = own_groups.setting("auto", str(base / "mine"))
    root, why = cgroup_layout.choose_root(cgroup_layout.detect(), setting)
    if root is None or setting == "auto":
        pytest.fail(f"this test needs control groups that it may make: {why}")
    yield root
    for top in own_groups.tops(root):
        cgroup.remove((top,))


@pytest.mark.root
def test_groups_of_dead_agents_go_and_those_of_living_ones_stay(own_root, base):
    mine = own_groups.OwnGroups(own_root)
    mine.hold()
    parents = [os.path.dirname(top) for top in own_groups.tops(own_root)]
    dead, alive, busy, foreign = "spur_00000001", "spur_00000002", "spur_00000003", "spur_00000004"
    try:
        for parent in parents:
            for name in (dead, alive, busy, foreign):
                os.makedirs(f"{parent}/{name}/stepd")
            os.makedirs(f"{parent}/{dead}/job_7.1/step_0")
            os.makedirs(f"{parent}/{foreign}/something")
        root = own_root._replace(
            unified=own_root.unified and f"{os.path.dirname(own_root.unified)}/{alive}",
            v1={name: f"{os.path.dirname(top)}/{alive}" for name, top in own_root.v1.items()},
        )
        other = own_groups.OwnGroups(root)
        other.hold()
        process = subprocess.Popen(["/bin/sleep", "1000"])
        # On hybrid hosts only the tree without controllers takes everybody in a group that was just made.
        with open(f"{parents[0]}/{busy}/stepd/cgroup.procs", "w") as file:
            file.write(str(process.pid))
        removed = mine.sweep()
        assert sorted(removed) == sorted(f"{parent}/{dead}" for parent in parents)
        for parent in parents:
            assert not os.path.exists(f"{parent}/{dead}")
            for name in (alive, busy, foreign):
                assert os.path.isdir(f"{parent}/{name}/stepd")
        process.kill()
        process.wait()
        other.release(empty=False)
        assert {os.path.basename(path) for path in mine.sweep()} == {alive, busy}
    finally:
        for parent in parents:
            for name in (dead, alive, busy, foreign):
                cgroup.remove((f"{parent}/{name}",))
    assert all(os.path.isdir(top) for top in own_groups.tops(own_root)[:1])
    mine.release(empty=True)
    assert not any(os.path.exists(top) for top in own_groups.tops(own_root))


async def test_an_agent_that_is_stopped_with_nothing_held_leaves_no_groups(agent, controller, spec_of, tools):
    assert (await agent.launch(spec_of(tools.batch(520), "exit 0"))).success
    await tools.until(lambda: controller.reports and not agent.sessions, "over")
    root, _ = cgroup_layout.choose_root(cgroup_layout.detect(), own_groups.setting("auto", str(agent.state)))
    assert await agent.kill(signal.SIGTERM) == 0
    assert not any(os.path.exists(top) for top in own_groups.tops(root))

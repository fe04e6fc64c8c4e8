"""The administrator's scripts: which run, in what environment, how often, and what their failure does."""

import asyncio
import errno
import json
import os
import signal
import time

import pytest

from spur_agent import hook_env, hooks
from spur_agent.allocation import Grant
from spur_agent.environment import NodeContext
from spur_agent.hooks import BrokenHook, HookFailed, find
from spur_agent.prolog import PrologFailed, PrologInterrupted, Prologs
from spur_agent.share import whole
from spur_core.ids import STEP_BATCH, STEP_EXTERN, RuntimeId
from spur_core.linux import procfs
from spur_proto import agent_pb2 as pb
from spur_proto import common_pb2

pytestmark = pytest.mark.node


def script(path, body="exit 0", mode=0o755):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(mode)
    return path


# -- which


def test_a_file_a_directory_and_a_pattern(tmp_path):
    folder = tmp_path / "prolog.d"
    folder.mkdir()
    folder.chmod(0o755)
    for name in ("10-a.sh", "20-b.sh", "30-c.sh", ".hidden"):
        script(folder / name)
    assert find("") == ()
    assert find(str(folder / "10-a.sh")) == (str(folder / "10-a.sh"),)
    down = tuple(str(folder / name) for name in ("30-c.sh", "20-b.sh", "10-a.sh"))
    assert find(str(folder)) == down
    assert find(f"{folder}/*.sh") == down
    assert find(f"{folder}/[12]*.sh") == down[1:]
    assert find(f"{folder}/*.py") == ()


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.chmod(0o644), "not executable"),
        (lambda path: path.chmod(0o775), "writable"),
        (lambda path: path.chmod(0o757), "writable"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "not a regular file"),
    ],
)
def test_what_others_could_change_or_nobody_can_run_is_refused(tmp_path, spoil, word):
    path = script(tmp_path / "hook")
    spoil(path)
    with pytest.raises(BrokenHook, match=rf"{path}: .*{word}"):
        find(str(path))
    with pytest.raises(BrokenHook, match=r"\[hooks\] task_prolog: "):
        hooks.find_all(hooks.Hooks(task_prolog=str(path)))


def test_a_directory_that_others_can_write_is_refused(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    script(folder / "one")
    folder.chmod(0o777)
    for setting in (str(folder), f"{folder}/*"):
        with pytest.raises(BrokenHook, match="writable"):
            find(setting)
    folder.chmod(0o755)
    with pytest.raises(BrokenHook, match="must belong to root"):
        find(str(folder), owners=frozenset({os.geteuid() + 1}))
    with pytest.raises(BrokenHook, match="No such file"):
        find(str(tmp_path / "nowhere" / "x"))


def test_whoever_can_put_another_script_in_its_place_is_kept_out(tmp_path):
    """A single file, too: its folder, the folder behind a link, and the link itself must be trusted."""
    real, shown = tmp_path / "real", tmp_path / "shown"
    for folder in (real, shown):
        folder.mkdir()
    path = script(real / "hook")
    link = shown / "hook"
    link.symlink_to(path)
    assert find(str(path)) == (str(path),)
    assert find(str(link)) == (str(link),)
    for folder in (real, shown):
        folder.chmod(0o777)
        with pytest.raises(BrokenHook, match=rf"{folder}: .*writable"):
            find(str(link))
        folder.chmod(0o1777)  # others cannot rename there
        assert find(str(link)) == (str(link),)
        folder.chmod(0o755)
    with pytest.raises(BrokenHook, match="must belong to root"):
        find(str(link), owners=frozenset({os.geteuid() + 1}))


@pytest.mark.root
def test_a_link_of_somebody_elses_is_refused(tmp_path):
    path = script(tmp_path / "hook")
    link = tmp_path / "link"
    link.symlink_to(path)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(BrokenHook, match=rf"{link}: a link of uid 65534"):
        find(str(link))


# -- running


async def test_scripts_run_in_order_and_stop_at_the_first_failure(tmp_path, caplog):
    out = tmp_path / "out"
    first = script(tmp_path / "1", f"echo one $MARK $PWD >> {out}; echo said >&2; printf unfinished >&2")
    bad = script(tmp_path / "2", f"echo two >> {out}; exit 7")
    last = script(tmp_path / "3", f"echo three >> {out}")
    caplog.set_level("INFO")
    env = {"MARK": "m", "PATH": "/usr/bin:/bin"}
    pids = []

    async def note(pid):
        pids.append(pid)

    with pytest.raises(HookFailed, match=rf"{bad}: exit status 7"):
        await hooks.run([str(p) for p in (first, bad, last)], env, str(tmp_path), 10, note)
    assert out.read_text().splitlines() == [f"one m {tmp_path}", "two"]
    assert len(pids) == 2
    assert "line=said" in caplog.text
    assert "line=unfinished" in caplog.text
    # Without a usable directory it runs elsewhere.
    await hooks.run([str(first)], env, "/no/such/directory", 10)
    assert out.read_text().splitlines()[-1] == "one m /tmp"


@pytest.mark.parametrize(
    ("body", "text"), [("kill -9 $$", "killed by signal 9"), ("exec /no/such", "status 127")]
)
async def test_bad_ends_are_told(tmp_path, body, text):
    with pytest.raises(HookFailed, match=text):
        await hooks.run([str(script(tmp_path / "x", body))], {"PATH": "/bin"}, "/tmp", 10)


async def test_a_script_that_takes_too_long_is_killed_with_what_it_started(tmp_path):
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    path = script(tmp_path / "x", f"sleep 1000 & echo $! > {fifo}; wait")
    running = asyncio.create_task(hooks.run([str(path)], {"PATH": "/usr/bin:/bin"}, "/tmp", 0.5))
    child = procfs.identity(int(await asyncio.to_thread(fifo.read_text)))
    with pytest.raises(HookFailed, match=r"killed after 0\.5 s"):
        await running
    deadline = time.monotonic() + 10
    while child is not None and procfs.is_alive(child):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_a_daemon_that_a_script_leaves_holds_nobody_up(tmp_path):
    pid = tmp_path / "pid"
    path = script(tmp_path / "x", f"setsid sleep 1000 & echo $! > {pid}")
    begun = time.monotonic()
    await hooks.run([str(path)], {"PATH": "/usr/bin:/bin"}, "/tmp", 60)
    assert time.monotonic() - begun < 30
    os.kill(int(pid.read_text()), signal.SIGKILL)


async def test_a_flood_on_stderr_blocks_nobody(tmp_path):
    path = script(tmp_path / "x", "head -c 3000000 /dev/zero >&2")
    await hooks.run([str(path)], {"PATH": "/usr/bin:/bin"}, "/tmp", 60)


# -- environment


async def test_a_script_that_nobody_could_note_down_is_killed(tmp_path):
    """A later agent could not find it."""
    pids = []

    async def note(pid):
        pids.append(pid)
        raise OSError(errno.ENOSPC, "no room")

    with pytest.raises(OSError, match="no room"):
        await hooks.run([str(script(tmp_path / "1", "exec sleep 60"))], {"PATH": "/bin"}, "/tmp", 60, note)
    assert not os.path.exists(f"/proc/{pids[0]}")


def test_what_a_script_is_told():
    wire = pb.LaunchSpec(
        rid=common_pb2.RuntimeId(job_id=9, run_attempt=1, step_id=STEP_BATCH),
        uid=1001,
        gid=100,
        partition="p",
        work_dir="/w",
        nodes=["n2", "n1"],
        environment=[b"SECRET=1"],
    )
    here = NodeContext("n1", "/opt", "/etc/spur/spur.conf", None)
    env = hook_env.node_env(wire, whole(Grant((0, 1), 70)), here, hook_env.PROLOG)
    for name, value in {
        "JOB_ID": "9",
        "JOB_PARTITION": "p",
        "JOB_NODELIST": "n[1-2]",
        "CPUS_ON_NODE": "2",
        "JOB_USER": "1001",
        "JOB_UID": "1001",
        "JOB_GID": "100",
        "JOB_WORK_DIR": "/w",
        "JOB_GPUS": "",
        "JOB_MEMORY_MB": "70",
        "SCRIPT_CONTEXT": "prolog_slurmd",
    }.items():
        assert env[f"SLURM_{name}"] == env[f"SPUR_{name}"] == value, name
    assert (env["SLURMD_NODENAME"], env["PATH"]) == ("n1", hook_env.PATH)
    assert "SECRET" not in env
    assert "SLURM_STEP_ID" not in env


# -- once


async def test_a_prolog_runs_once_and_its_failure_is_remembered(tmp_path):
    runs = []

    async def good(started):
        runs.append("good")

    async def bad(started):
        runs.append("bad")
        raise HookFailed("x: exit status 1")

    async def cut(started):
        runs.append("cut")
        raise asyncio.CancelledError

    one = Prologs(str(tmp_path), "boot")
    await one.once((1, 1), good)
    await one.once((1, 1), good)
    await Prologs(str(tmp_path), "boot").once((1, 1), good)
    assert runs == ["good"]
    with pytest.raises(PrologFailed) as error:
        await one.once((1, 2), bad)
    assert error.value.fresh
    with pytest.raises(PrologFailed, match="exit status 1") as error:
        await Prologs(str(tmp_path), "boot").once((1, 2), good)
    assert not error.value.fresh
    with pytest.raises(asyncio.CancelledError):
        await one.once((2, 1), cut)
    with pytest.raises(PrologInterrupted):
        await Prologs(str(tmp_path), "boot").once((2, 1), good)
    assert runs == ["good", "bad", "cut"]
    # After a reboot everything is as if it had never been.
    await Prologs(str(tmp_path), "later boot").once((2, 1), good)
    (tmp_path / "prologs" / "3.1").write_text("{")
    with pytest.raises(PrologInterrupted):
        await one.once((3, 1), good)
    assert runs == ["good", "bad", "cut", "good"]


async def test_a_mark_names_the_script_that_runs(tmp_path):
    one = Prologs(str(tmp_path), "boot")

    async def run(started):
        await started(os.getpid())
        said = json.loads((tmp_path / "prologs" / "1.1").read_text())
        assert (said["stage"], said["pid"]) == ("running", os.getpid())

    await one.once((1, 1), run)
    assert json.loads((tmp_path / "prologs" / "1.1").read_text())["stage"] == "done"


def test_marks_are_forgotten(tmp_path):
    marks = Prologs(str(tmp_path), "boot")
    folder = tmp_path / "prologs"
    folder.mkdir(0o700)
    for name in ("1.1", "1.2", "2.1", "3.1", "4.7", "junk"):
        (folder / name).write_text("{}")
    os.utime(folder / "3.1", (1, 1))
    os.utime(folder / "2.1", (1, 1))
    # One that goes while it is looked at, as when two launches forget at once.
    (folder / "5.1").symlink_to("gone")
    marks.prune({(2, 1), (4, 8)})
    assert sorted(os.listdir(folder)) == ["1.2", "2.1", "5.1", "junk"]


# -- the agent


async def begin(make_agent, controller, tools, hooks_text, extra=""):
    agent = make_agent(config=tools.config_text(f"{extra}\n[hooks]\n{hooks_text}"))
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    return agent


async def test_the_prolog_runs_once_before_anything_of_the_job(make_agent, controller, spec_of, base, tools):
    folder = base / "prolog.d"
    folder.mkdir()
    folder.chmod(0o755)
    log = base / "log"
    for name in ("1", "2"):
        script(folder / name, f"echo prolog{name} $SLURM_JOB_ID $SPUR_SCRIPT_CONTEXT $(id -u) $PWD >> {log}")
    agent = await begin(make_agent, controller, tools, f'prolog = "{folder}"')
    log.touch()
    log.chmod(0o666)
    spec = spec_of(tools.batch(90), f"echo job >> {log}; sleep 1000")
    assert (await agent.launch(spec)).success
    assert (await agent.launch(spec)).success
    await tools.until(lambda: "job" in log.read_text(), "job runs")
    where = f"90 prolog_slurmd {os.geteuid()} {base / 'work'}"
    assert log.read_text().splitlines() == [f"prolog2 {where}", f"prolog1 {where}", "job"]
    # The next attempt has its own, after the first one is gone.
    assert (await agent.launch(spec_of(tools.batch(90, 2), "exit 0"))).success
    assert log.read_text().count("prolog1") == 2
    await tools.until(lambda: not agent.sessions, "end")


async def test_a_failing_prolog_fails_the_launch_and_drains_the_node(
    make_agent, controller, spec_of, base, tools
):
    log = base / "log"
    bad = script(base / "prolog", f"echo run >> {log}; exit 3")
    agent = await begin(make_agent, controller, tools, f'prolog = "{bad}"')
    spec = spec_of(tools.batch(91), f"echo job >> {log}")
    answer = await agent.launch(spec)
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_PROLOG)
    assert f"{bad}: exit status 3" in answer.error
    again = await agent.launch(spec)
    assert (again.failure, again.error) == (answer.failure, answer.error)
    assert log.read_text() == "run\n"
    assert [d.reason for d in controller.drains] == ["Prolog error"]
    assert agent.sessions == []
    assert not (await agent.probe(tools.batch(91))).active
    script(bad, "exit 0")
    assert (await agent.launch(spec_of(tools.batch(92), cpus=1))).success
    await tools.until(lambda: controller.reports, "report")


async def test_a_script_that_somebody_could_change_is_not_run(make_agent, controller, spec_of, base, tools):
    path = script(base / "prolog", f"echo run >> {base}/log", mode=0o777)
    agent = await begin(make_agent, controller, tools, f'prolog = "{path}"')
    assert "hook_broken" in agent.log_text()
    answer = await agent.launch(spec_of(tools.batch(93)))
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_NODE)
    assert f"[hooks] prolog: {path}: must not be writable" in answer.error
    assert [d.reason for d in controller.drains] == [answer.error]
    assert not (base / "log").exists()
    assert agent.sessions == []


async def test_a_prolog_that_takes_too_long_is_killed(make_agent, controller, spec_of, base, tools):
    path = script(base / "prolog", "sleep 1000")
    agent = await begin(make_agent, controller, tools, f'prolog = "{path}"\ntimeout_secs = 1')
    answer = await agent.launch(spec_of(tools.batch(94)))
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_PROLOG)
    assert "killed after 1 s" in answer.error


async def test_an_agent_that_dies_in_the_prolog_neither_repeats_nor_trusts_it(
    make_agent, controller, spec_of, gate, base, tools
):
    fifo, log = gate("prolog-gate"), base / "log"
    path = script(base / "prolog", f"echo $$ >> {log}; read x < {fifo}; sleep 1000")
    agent = await begin(make_agent, controller, tools, f'prolog = "{path}"')
    spec = spec_of(tools.batch(95), "exit 0")
    launching = asyncio.create_task(agent.launch(spec))
    await tools.until(lambda: log.exists() and log.read_text().endswith("\n"), "prolog runs")
    mark = agent.state / "runtime" / "prologs" / "95.1"
    await tools.until(lambda: json.loads(mark.read_bytes())["pid"], "mark names the script")
    who = procfs.identity(int(log.read_text()))
    assert who is not None
    await agent.kill(signal.SIGKILL)
    await asyncio.gather(launching, return_exceptions=True)
    assert procfs.is_alive(who)
    await agent.start()
    await tools.until(lambda: not procfs.is_alive(who), "what was left of the prolog is killed")
    await tools.until(lambda: len(controller.registrations) > 1, "registration")
    answer = await agent.launch(spec)
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_NODE)
    assert "restarted while the prolog" in answer.error
    assert len(log.read_text().splitlines()) == 1
    assert controller.drains == []
    # The next attempt begins anew.
    script(path, f"echo next >> {log}")
    assert (await agent.launch(spec_of(tools.batch(95, 2), "exit 0"))).success
    assert log.read_text().splitlines()[1:] == ["next"]
    await tools.until(lambda: not agent.sessions, "end")
    assert not mark.exists()


async def test_an_agent_that_dies_after_the_prolog_does_not_run_it_again(
    make_agent, controller, spec_of, base, tools
):
    log = base / "log"
    path = script(base / "prolog", f"echo run >> {log}")
    agent = make_agent(config=tools.config_text(f'[hooks]\nprolog = "{path}"'))
    agent.environ = {
        "SPUR_TEST_FAULTS": "1",
        "SPUR_FAULT": "crash_after:prolog",
        "SPUR_FAULT_ONCE": str(base / "fault"),
    }
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    spec = spec_of(tools.batch(96), "exit 0")
    await asyncio.gather(agent.launch(spec), return_exceptions=True)
    assert await agent.kill(signal.SIGCONT) == -signal.SIGKILL
    assert log.read_text() == "run\n"
    await agent.start()
    await tools.until(lambda: len(controller.registrations) > 1, "registration")
    assert (await agent.launch(spec)).success
    assert log.read_text() == "run\n"
    await tools.until(lambda: controller.reports, "report")


async def test_a_stopping_agent_ends_its_prolog(make_agent, controller, spec_of, gate, base, tools):
    fifo, log = gate("prolog-gate"), base / "log"
    path = script(base / "prolog", f"echo $$ >> {log}; read x < {fifo}")
    agent = await begin(make_agent, controller, tools, f'prolog = "{path}"')
    launching = asyncio.create_task(agent.launch(spec_of(tools.batch(97))))
    await tools.until(lambda: log.exists() and log.read_text().endswith("\n"), "prolog runs")
    who = procfs.identity(int(log.read_text()))
    assert await agent.kill(signal.SIGTERM) == 0
    await asyncio.gather(launching, return_exceptions=True)
    assert who is not None
    await tools.until(lambda: not procfs.is_alive(who), "prolog ended")
    assert agent.sessions == []


async def test_the_supervisor_is_told_of_epilog_and_task_scripts(
    make_agent, controller, spec_of, gate, base, tools
):
    names = ("epilog", "task_prolog", "task_epilog")
    paths = {name: script(base / name) for name in names}
    text = "\n".join(f'{name} = "{path}"' for name, path in paths.items())
    agent = await begin(
        make_agent, controller, tools, f"{text}\ntimeout_secs = 77", "[agent]\nepilog_timeout_secs = 33"
    )
    parent, step = RuntimeId(98, 1, STEP_EXTERN), RuntimeId(98, 1, 0)
    held = spec_of(parent, "", hold=True, cpus=2)
    held.ClearField("script")
    assert (await agent.launch(held)).success
    fifo = gate()
    spec = spec_of(step, f"read x < {fifo}", cpus=1)
    spec.shape.task_prolog, spec.shape.task_epilog = "/bin/true", "/bin/echo"
    request = tools.launch_request(spec, "n1")
    made = pb.RunCommandRequest(
        spec=request.spec, target_node="n1", launch_token=request.launch_token, term=1
    )
    answer = await agent.call("RunCommand", made)
    assert answer.success, answer.error
    found = json.loads((agent.session_dir(parent) / "launch.json").read_text())
    assert found["epilog"]["paths"] == [str(paths["epilog"])]
    assert found["epilog"]["timeout_secs"] == 33
    assert found["epilog"]["env"]["SLURM_SCRIPT_CONTEXT"] == "epilog_slurmd"
    assert found["agent"]["epilog"]
    found = json.loads((agent.session_dir(step) / "launch.json").read_text())
    assert found["epilog"]["paths"] == []
    assert found["task_prolog"]["paths"] == [str(paths["task_prolog"]), "/bin/true"]
    assert found["task_epilog"]["paths"] == ["/bin/echo", str(paths["task_epilog"])]
    assert found["task_prolog"]["timeout_secs"] == 77
    assert found["task_prolog"]["env"]["SPUR_SCRIPT_CONTEXT"] == "prolog_task"
    assert found["task_epilog"]["env"]["SLURM_SCRIPT_CONTEXT"] == "epilog_task"
    assert not found["agent"]["job_lifetime"]
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")

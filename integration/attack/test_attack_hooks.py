"""Scripts of the site that run as root around users' jobs, and what users can do to them."""

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.node]

#: Writes down what it was given, floods both its outputs, and leaves a daemon behind.
HOOK = """#!/usr/bin/python3
import json, os, subprocess, sys
where = sys.argv[0] + "." + os.environ["SPUR_JOB_ID"]
fds = sorted(map(int, os.listdir("/proc/self/fd")))[:-1]
with open(where + ".new", "w") as file:
    json.dump({"env": dict(os.environ), "cwd": os.getcwd(), "uids": os.getresuid(), "groups": os.getgroups(),
               "fds": fds}, file)
os.rename(where + ".new", where)
os.write(2, b"x" * 3_000_000 + b"\\n\\x1b[2J forged=line\\r\\n")
os.write(1, b"y" * 3_000_000)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, helpers: Any) -> Iterator[tuple[Any, Path]]:
    """A cluster whose nodes have a prolog, an epilog and a task prolog."""
    folder = helpers.open_folder(tmp_path_factory.mktemp("hooks"))
    scripts = folder / "scripts"
    scripts.mkdir()
    for name in ("prolog", "epilog"):
        (scripts / name).write_text(HOOK)
        (scripts / name).chmod(0o755)
    (scripts / "task").write_text("#!/bin/sh\necho export FROM_PROLOG=yes\necho print printed\n")
    (scripts / "task").chmod(0o755)
    cluster = helpers.Cluster(folder / "c", 1, 4)
    config = folder / "c" / "spur.conf"
    lines = f'\n[hooks]\nprolog = "{scripts}/prolog"\nepilog = "{scripts}/epilog"\n'
    lines += f'task_prolog = "{scripts}/task"\ntimeout_secs = 8\n'
    config.write_text(config.read_text() + lines)
    cluster.kill("spurd-node1")
    cluster.restart("spurd-node1")
    target = helpers.Target(cluster)
    yield target, scripts
    target.close()
    cluster.down()


def run(target: Any, helpers: Any, script: str, **fields: Any) -> str:
    """As the stranger, to its end."""
    answer = target.submit(target.user_token(helpers.stranger), script=script.encode(), hold=False, **fields)
    assert answer.code == "OK", answer
    job = str(answer.message.job_id)
    target.cluster.wait(job, secs=60)
    return job


def test_users_texts_are_values_and_never_names(site: tuple[Any, Path], helpers: Any) -> None:
    """Whatever a job is called: root's scripts have the system's path, nothing of the job's."""
    target, scripts = site
    name = "x\nLD_PRELOAD=/tmp/evil.so\nPATH=/tmp\x1b]0;$(id)`id`;"
    env = [b"LD_PRELOAD=/tmp/evil.so", b"PATH=/tmp", b"BASH_ENV=/tmp/x", b"SPUR_SCRIPT_CONTEXT=x", b"IFS=/"]
    env += [b"BASH_FUNC_echo%%=() { id; }", b"SLURM_JOB_UID=0", b"SPUR_JOB_USER=root"]
    job = run(
        target, helpers, "#!/bin/sh\nexit 0\n", name=name, comment="a\nPATH=/x", environment=env,
        work_dir="/tmp", account="",
    )  # fmt: skip
    user = pwd.getpwnam(helpers.stranger)
    for word in ("prolog", "epilog"):
        told = scripts / f"{word}.{job}"
        helpers.until(told.exists, f"the {word} ran")
        found = json.loads(told.read_text())
        given = found["env"]
        assert given["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        assert given["SPUR_JOB_NAME"] == name
        assert given["SPUR_JOB_UID"] == str(user.pw_uid)
        assert given["SPUR_JOB_USER"] == helpers.stranger
        assert given["SPUR_SCRIPT_CONTEXT"] == f"{word}_slurmd"
        foreign = [
            key for key in given if not key.startswith(("SPUR", "SLURM")) and key not in ("PATH", "LC_CTYPE")
        ]
        assert foreign == [], word
        assert found["uids"] == [0, 0, 0]
        assert set(found["groups"]) <= {0}
        assert set(found["fds"]) <= {0, 1, 2}


def test_a_flood_of_a_scripts_output_goes_nowhere(site: tuple[Any, Path], helpers: Any) -> None:
    """Six MiB each time; the logs keep what they have room for, a line each, and no control characters."""
    target, _ = site
    before = len(target.logs())
    for _ in range(3):
        job = run(target, helpers, "#!/bin/sh\n")
        assert target.cluster.state(job) == "COMPLETED"
    assert len(target.logs()) - before < 2 << 20
    assert "\x1b" not in target.logs()
    for path in (target.cluster.folder / "state").rglob("stepd.log"):
        assert path.stat().st_size < 2 << 20
        assert b"\x1b" not in path.read_bytes()


def test_a_task_prolog_changes_the_task_alone(site: tuple[Any, Path], helpers: Any, tmp_path: Path) -> None:
    """One that preloads, floods or lies: run as the user, and it reaches nothing of the supervisor's."""
    target, scripts = site
    helpers.open_folder(tmp_path)
    out = tmp_path / "out"
    out.touch()
    out.chmod(0o666)
    task = scripts / "task"
    before = task.read_text()
    try:
        task.write_text(
            "#!/bin/sh\nid -u >&2\necho export LD_PRELOAD=/nowhere/evil.so\necho export SPUR_STEPD=0\n"
            "echo export A=B=C\necho export =x\necho export\necho unset\n"
            "echo unset HOME\necho 'export A B=1'\n"
            "echo print one\nprintf 'print \\033[2J\\n'\nprintf 'export Z=\\000\\n'\n"
        )
        job = run(target, helpers, "#!/bin/sh\necho $LD_PRELOAD-$A-$HOME-\n", stdout_path=str(out))
        assert target.cluster.state(job) == "COMPLETED"
        assert "/nowhere/evil.so-B=C--" in out.read_text()
        assert f"{pwd.getpwnam(helpers.stranger).pw_uid}\n" in out.read_text()
        (out).write_text("")
        # Output without end: it is stopped, and the task with it.
        task.write_text("#!/bin/sh\nexec yes export A=1\n")
        job = run(target, helpers, "#!/bin/sh\necho ran\n", stdout_path=str(out))
        assert target.cluster.state(job) == "FAILED"
        assert "ran" not in out.read_text().split()
    finally:
        task.write_text(before)


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "word"), [("group", "epilog"), ("link", "prolog"), ("folder", "prolog")])
def test_scripts_that_others_could_change_are_not_run(
    site: tuple[Any, Path], helpers: Any, spoil: str, word: str
) -> None:
    """Not even once: the job does not start there, and the node says what to mend."""
    target, scripts = site
    script = scripts / word
    uid = pwd.getpwnam(helpers.stranger).pw_uid
    undo: list[Any] = []
    if spoil == "group":
        script.chmod(0o775)
        undo.append(lambda: script.chmod(0o755))
    elif spoil == "link":
        script.rename(scripts / "real")
        script.symlink_to(scripts / "real")
        os.chown(script, uid, -1, follow_symlinks=False)
        undo.append(lambda: (scripts / "real").rename(script))
    else:
        scripts.chmod(0o777)
        undo.append(lambda: scripts.chmod(0o755))
    answer = target.submit(target.user_token(helpers.stranger), script=b"#!/bin/sh\n", hold=False)
    job = str(answer.message.job_id)
    try:
        helpers.until(
            lambda: (
                "hook" in target.cluster.ok("sinfo", "-h", "-o", "%E").lower()
                or "rolog" in target.cluster.ok("sinfo", "-h", "-o", "%E")
            ),
            "the node says why",
        )
        assert target.cluster.state(job) in ("PENDING", "FAILED")
        assert not (scripts / f"{word}.{job}").exists()
    finally:
        for act in undo:
            act()
        target.cluster.ok("scancel", job)
        target.cluster.run("scontrol", "update", "nodename=node1", "state=resume")
        helpers.until(target.cluster.idle, "idle again")


def test_the_cluster_has_not_noticed(site: tuple[Any, Path]) -> None:
    site[0].works()

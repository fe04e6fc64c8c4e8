"""Three controllers of an older release are replaced one after the other by this one, while people submit.

The older release is this one, told to know and to announce only what the first version of commands has
(`SPUR_TEST_COMMAND_VERSION`).
"""

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from testkit import group_state

from spur_ctld.raft_tools.survey import survey
from spur_ctld.state import codec, versions
from spur_ctld.state.ops import RaiseCommandVersion

pytestmark = pytest.mark.slow

OLD, NEW = versions.FIRST, versions.COMMAND_VERSION
EXIT_TOO_OLD = 78


class Submitter(threading.Thread):
    """Submits one job after the other, each by one command that goes on until it has an answer.

    Attributes:
        codes: job -> exit code of its script.
        failed: commands that did not end well.
    """

    def __init__(self, cluster: Any) -> None:
        super().__init__()
        self._cluster = cluster
        self._over = threading.Event()
        self.codes: dict[str, int] = {}
        self.failed: list[str] = []
        self.start()

    def run(self) -> None:
        code = 0
        while not self._over.wait(0.05):
            code = (code + 1) % 3
            script = self._cluster.body(f"sleep 0.{code}; exit {code}")
            done, secs = self._cluster.timed("sbatch", "--parsable", "-o", "/dev/null", "--wrap", script)
            if done.returncode or done.stdout.strip() in self.codes:
                self.failed.append(f"after {secs:.1f} s: {done.stdout} {done.stderr}")
            else:
                self.codes[done.stdout.strip()] = code

    def stop(self) -> None:
        """Let it finish what it is at."""
        self._over.set()
        self.join()


def used(cluster: Any) -> int:
    """The version of commands that the leader says the group uses."""
    told = cluster.view().told
    return told.command_version if told is not None else 0


def end(cluster: Any, name: str) -> None:
    """A planned stop."""
    os.kill(cluster.pid(name), signal.SIGTERM)
    cluster.until(lambda: not cluster.running(name), f"{name} has stopped", 20)
    cluster.leader()


def upgrade(cluster: Any, name: str) -> None:
    """The new release on the old one's directory."""
    cluster.older.pop(name)
    cluster.start(name, wait=True)
    cluster.until(lambda: level(cluster), "it has caught up", 20)


def level(cluster: Any) -> bool:
    """Whether every controller is as far as the leader was a moment ago."""
    told = cluster.view().told
    answers = [one.answer for one in cluster.view().members]
    return all(one is not None and one.leader_id and one.applied >= told.applied for one in answers)


def ask_for_what_is_new(cluster: Any, job: str) -> "subprocess.CompletedProcess[str]":
    """Change something that the older release does not know of jobs."""
    done: subprocess.CompletedProcess[str] = cluster.run(
        "scontrol", "update", f"jobid={job}", "contiguous=yes"
    )
    return done


def operations(state_dir: Path) -> dict[int, Any]:
    """What that member's log holds, by place."""
    entries = survey(state_dir).entries
    return {entry.index: codec.decode_op(entry.data) for entry in entries if entry.data is not None}


def test_an_upgrade_under_load(ha: Any) -> None:
    cluster = ha(nodes=2, older=OLD)
    held = cluster.ok("sbatch", "--parsable", "--hold", "--wrap", "true").strip()
    assert used(cluster) == OLD
    assert "Commands of version" not in cluster.ok("scontrol", "ping")
    first, second = cluster.followers()
    last = cluster.leader()
    people = Submitter(cluster)
    try:
        for name, waits_for in ((first, (second, last)), (second, (last,))):
            end(cluster, name)
            upgrade(cluster, name)
            numbers = sorted(cluster.controllers.index(one) + 1 for one in waits_for)
            who = ", ".join(f"{number} (version {OLD})" for number in numbers)
            assert f"Commands of version {NEW} wait for controller {who}" in cluster.ok("scontrol", "ping")
            assert used(cluster) == OLD
        # The old leader takes what it knows of a request, and passes over the rest, as it always did.
        assert cluster.leader() == last
        end(cluster, last)
        assert cluster.leader() in (first, second)
        # The new one leads; what the third is when it comes back is not known.
        refused = ask_for_what_is_new(cluster, held)
        assert refused.returncode != 0
        assert "until every controller runs a release that knows it" in refused.stderr, refused
        assert "(DOWN)" in cluster.ok("scontrol", "ping")
        # What the older release knew goes on as before: none of it asks for anything new by itself.
        once = f'[ "$SLURM_PROCID" != 0 ] || {{ {cluster.body("true")}; }}'
        job = cluster.submit("exit 7")
        people.codes[job] = 7
        ran = cluster.ok("srun", "-n2", "sh", "-c", f"{once}; echo $SLURM_JOB_ID.$SLURM_PROCID").split()
        stepped = ran[0].partition(".")[0]
        people.codes[stepped] = 0
        assert sorted(ran) == [f"{stepped}.0", f"{stepped}.1"]
        cluster.until(lambda: cluster.state_or_nothing(job) == "FAILED", "the job has run", 20)
        assert used(cluster) == OLD
        upgrade(cluster, last)
        cluster.until(lambda: used(cluster) == NEW, "everything new can be used", 10)
        done = ask_for_what_is_new(cluster, held)
        assert done.returncode == 0, done.stderr
        assert "Commands of version" not in cluster.ok("scontrol", "ping")
    finally:
        people.stop()
    assert people.failed == []
    assert len(people.codes) > 10
    cluster.ok("scancel", held)
    cluster.settle()
    assert cluster.faults(people.codes, {held}) == []
    counted = cluster.ok("sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobID").split()
    assert sorted(counted) == sorted([*people.codes, held]), "each exactly once, and nothing else"

    cluster.until(lambda: level(cluster), "all are level", 20)
    view = cluster.view()
    assert [alarm for one in view.members for alarm in one.answer.alarms] == []
    an_old_one_comes_back(cluster, cluster.followers()[0])

    dirs = [cluster.state_dir(name) for name in cluster.controllers]
    index = view.told.applied
    assert group_state.same_log(dirs, index) == []
    assert len({group_state.digest_at(path, index) for path in dirs}) == 1
    log = operations(dirs[0])
    (raised,) = [at for at, op in log.items() if isinstance(op, RaiseCommandVersion)]
    assert [at for at, op in log.items() if at < raised and versions.needed(op) > OLD] == []


def an_old_one_comes_back(cluster: Any, name: str) -> None:
    """It ends before it takes part, and says why."""
    end(cluster, name)
    cluster.older[name] = OLD
    before = len(cluster.log(name).read_text())
    cluster.start(name)
    cluster.until(lambda: not cluster.running(name), "the old release has ended", 20)
    assert cluster._children[name].returncode == EXIT_TOO_OLD
    said = cluster.log(name).read_text()[before:]
    assert f"command version {NEW}, this release knows up to {OLD}: install the newer release" in said
    assert "READY" not in (cluster.folder / "run" / f"{name}.ready").read_text()
    assert cluster.run("squeue").returncode == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_leader_dies_around_the_raise(ha: Any, when: str) -> None:
    """Whoever leads next ends the upgrade, once; nothing of the dead one's is needed for it."""
    cluster = ha(nodes=1, older=OLD)
    held = cluster.ok("sbatch", "--parsable", "--hold", "--wrap", "true").strip()
    last = cluster.leader()
    doomed, second = cluster.followers()
    end(cluster, doomed)
    cluster.older.pop(doomed)
    cluster.start(doomed, wait=True, faults=f"crash_{when}:RaiseCommandVersion")
    end(cluster, second)
    upgrade(cluster, second)
    cluster.lead(doomed)
    end(cluster, last)
    cluster.older.pop(last)
    cluster.start(last)
    cluster.until(lambda: not cluster.running(doomed), "the leader has died", 20)
    cluster.leader(other_than=doomed)
    if when == "after":
        cluster.until(lambda: used(cluster) == NEW, "the next leader goes on with what is new", 20)
    else:
        assert used(cluster) == OLD, "what the dead one will be is not known"
    cluster.start(doomed, wait=True)
    cluster.until(lambda: used(cluster) == NEW, "everything new can be used", 20)
    cluster.until(lambda: level(cluster), "all are level", 20)
    done = ask_for_what_is_new(cluster, held)
    assert done.returncode == 0, done.stderr
    cluster.ok("srun", "true")
    cluster.ok("scancel", held)
    cluster.settle()
    for name in cluster.controllers:
        ops = operations(cluster.state_dir(name)).values()
        assert sum(isinstance(op, RaiseCommandVersion) for op in ops) == 1, name

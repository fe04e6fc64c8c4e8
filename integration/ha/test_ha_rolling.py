"""Three controllers restarted one after the other, as for an upgrade, while people and jobs are at work."""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow


class People:
    """Commands of every kind, one after the other from several hands, and what became of them.

    Attributes:
        failed: those that did not end as they must.
        codes: job -> exit code of its script.
        cancelled: jobs that were cancelled.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.failed: list[str] = []
        self.counts: Counter[str] = Counter()
        self.codes: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.slowest = 0.0
        self._over = threading.Event()
        works: list[Callable[[random.Random], None]] = [self._submit, self._look, self._step, self._change]
        self._hands = [threading.Thread(target=self._hand, args=(work,)) for work in works]
        for hand in self._hands:
            hand.start()

    def stop(self) -> None:
        """Let each finish what it is at."""
        self._over.set()
        for hand in self._hands:
            hand.join()

    def _hand(self, work: Callable[[random.Random], None]) -> None:
        chance = random.Random(work.__name__)
        while not self._over.wait(0.05):
            try:
                work(chance)
            except Exception as error:
                self.failed.append(f"{work.__name__} broke: {error!r}")
                return

    def _command(self, *argv: str, code: int = 0) -> str:
        """Run it with the controllers in any order; its output."""
        names = random.sample(self.cluster.controllers, 3)
        done, secs = self.cluster.timed(*argv, **self.cluster.only(*names))
        self.slowest = max(self.slowest, secs)
        self.counts[argv[0]] += 1
        if done.returncode != code:
            self.failed.append(f"{argv}: exit {done.returncode} after {secs:.1f} s: {done.stderr}")
        out: str = done.stdout
        return out

    def _sbatch(self, script: str, *options: str) -> str:
        words = ("sbatch", "--parsable", "-o", "/dev/null", *options)
        return self._command(*words, "--wrap", self.cluster.body(script)).strip()

    def _submit(self, chance: random.Random) -> None:
        code = chance.choice((0, 1, 5))
        job = self._sbatch(f"sleep {chance.choice((0, 0.2, 1))}; exit {code}")
        if job:
            self.codes[job] = code

    def _look(self, chance: random.Random) -> None:
        views = (("squeue", "-h"), ("sinfo", "-h"), ("sacct", "-n", "-X"), ("scontrol", "show", "nodes"))
        self._command(*chance.choice(views))

    def _step(self, chance: random.Random) -> None:
        code = chance.choice((0, 3, 9))
        script = f"{once(self.cluster)}; echo rank $SLURM_PROCID; exit {code}"
        out = self._command("srun", "-n2", "sh", "-c", script, code=code)
        if sorted(out.split("\n")) != ["", "rank 0", "rank 1"]:
            self.failed.append(f"srun printed {out!r}")

    def _change(self, chance: random.Random) -> None:
        job = self._sbatch("exit 0", "--hold")
        if not job:
            return
        if chance.random() < 0.5:
            self.cancelled.add(job)
            self._command("scancel", job)
        else:
            self.codes[job] = 0
            self._command("scontrol", "update", f"jobid={job}", "comment=mine")
            self._command("scontrol", "release", job)


def ahead(cluster: Any, argv: tuple[str, ...], script: str) -> Any:
    """Begin a command that stays with its job."""
    return cluster.begin(*argv, f"{once(cluster)}; {script}")


def test_a_rolling_restart_fails_no_command_and_touches_no_job(ha: Any) -> None:
    cluster = ha(cpus=16)
    gate = cluster.work / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    stay = {
        cluster.submit(f"{wait}; exit {code}", "-N", str(nodes)): code for nodes, code in ((1, 4), (3, 6))
    }
    clients = {
        5: ahead(cluster, ("srun", "-N2", "-n2", "sh", "-c"), f"{wait}; echo rank $SLURM_PROCID; exit 5"),
        6: ahead(cluster, ("salloc", "-n1", "sh", "-c"), f"srun sh -c '{wait}; exit 6'"),
        7: ahead(cluster, ("sbatch", "--wait", "-o", "/dev/null", "--wrap"), f"{wait}; exit 7"),
    }
    running = ("squeue", "-h", "-t", "R", "-o", "%i")
    cluster.until(lambda: len(cluster.ok(*running).split()) == len(stay) + len(clients), "all run")
    before = sorted(cluster.ok(*running).split())
    people = People(cluster)
    try:
        terms = []
        for name in cluster.controllers:
            os.kill(cluster.pid(name), signal.SIGTERM)
            cluster.until(lambda name=name: not cluster.running(name), f"{name} has stopped", 20)
            cluster.start(name, wait=True)
            cluster.leader()
            terms.append(cluster.view().told.term)
            cluster.until(lambda name=name: level(cluster), "it has caught up", 20)
    finally:
        people.stop()
    assert people.failed == []
    assert set(before) <= set(cluster.ok(*running).split()), "what ran before runs on"
    assert cluster.down_nodes() == []
    assert min(people.counts[name] for name in ("sbatch", "srun", "scontrol")) > 0
    # Handed over, not waited for: at most one term for each that led, none for a follower.
    assert terms[-1] - terms[0] <= 3
    gate.touch()
    for code, client in clients.items():
        out, err = client.communicate(timeout=60)
        assert client.returncode == code, (client.args, out, err)
        if code == 5:
            assert sorted(out.split("\n")) == ["", "rank 0", "rank 1"]
    cluster.settle()
    assert cluster.faults(stay | people.codes, people.cancelled) == []
    restarts = cluster.ok("sacct", "-D", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o", "Restarts")
    assert set(restarts.split()) == {"0"}
    print(f"{dict(people.counts)}, slowest {people.slowest:.1f} s")


def once(cluster: Any) -> str:
    """The first rank notes the run."""
    return f'[ "${{SLURM_PROCID:-0}}" != 0 ] || {{ {cluster.body("true")}; }}'


def level(cluster: Any) -> bool:
    """Whether every controller answers and knows the leader."""
    answers = [one.answer for one in cluster.view().members]
    return all(answer is not None and answer.leader_id for answer in answers)

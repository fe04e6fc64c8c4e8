"""Kill daemons at random under load, then look whether anything was lost, doubled, hurt or left behind.

    python integration/crash/soak.py [--minutes N | --seconds N] [--seed S] [--only ACTION,...]

The seed is printed; with the same seed the same things are killed in the same order, the instants of the
machine permitting.  Exit 1 and a list of faults when something is wrong; the cluster's folder then stays.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from testkit.crash_cluster import CONTROLLER, CrashCluster, supervisor_in


class Soak:
    """One run: submitters, a killer, and the judgement at the end.

    Args:
        seconds: how long daemons are killed.
        only: names of the actions to take; empty = all.
    """

    def __init__(self, cluster: CrashCluster, seed: int, seconds: float, only: frozenset[str]) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.seconds = seconds
        self.codes: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.deeds: list[str] = []
        self._seed = seed
        self._over = threading.Event()
        weights: dict[Callable[[], str], int] = {
            self.kill_agent: 6,
            self.kill_controller: 4,
            self.kill_supervisor: 3,
            self.kill_agent_and_supervisor: 2,
            self.strike: 8,
            self.kill_spawner: 1,
            self.kill_everything: 1,
            self.cancel: 3,
            self.cancel_many: 1,
            self.requeue: 3,
        }
        self._weights = {act: n for act, n in weights.items() if not only or act.__name__ in only}

    def run(self) -> list[str]:
        """Do it all; the faults found."""
        submitters = [threading.Thread(target=self._submit, args=(n,)) for n in range(2)]
        for thread in submitters:
            thread.start()
        deadline = time.monotonic() + self.seconds
        acts, weights = list(self._weights), list(self._weights.values())
        while time.monotonic() < deadline:
            (act,) = self.random.choices(acts, weights)
            with contextlib.suppress(OSError):
                self._note(f"{act.__name__} {act()}")
            self._over.wait(self.random.uniform(0.1, 2.0))
        self._over.set()
        for thread in submitters:
            thread.join()
        try:
            self.cluster.settle()
        except AssertionError as error:
            return [str(error), *self.cluster.faults({}, set())]
        return self.cluster.faults(self.codes, self.cancelled)

    def _note(self, deed: str) -> None:
        self.deeds.append(f"{time.strftime('%H:%M:%S')} {deed}")

    def _submit(self, number: int) -> None:
        """Many short jobs, a few long ones; at most a few dozen wait at a time."""
        chance = random.Random(self._seed * 10 + number)
        while not self._over.is_set():
            code = chance.choice((0, 0, 0, 1, 7))
            secs = chance.uniform(3, 8) if chance.random() < 0.15 else chance.choice((0, 0, 0.05, 0.3))
            nodes = "2" if chance.random() < 0.1 else "1"
            job = self.cluster.submit(f"sleep {secs:.2f}; exit {code}", "-N", nodes)
            if job:
                self.codes[job] = code
            self._over.wait(chance.uniform(0.0, 0.3))

    # -- what is done to it

    def _back(self, *names: str) -> None:
        """Start again, sometimes later."""
        self._over.wait(self.random.choice((0.0, 0.0, 0.5, 1.5)))
        for name in names:
            self.cluster.start(name)

    def kill_agent(self) -> str:
        name = self.random.choice(self.cluster.agents)
        self.cluster.kill(name)
        self._back(name)
        return name

    def kill_controller(self) -> str:
        self.cluster.kill(CONTROLLER)
        self._back(CONTROLLER)
        return ""

    def _supervisor(self) -> int:
        found = self.cluster.supervisors()
        return self.random.choice(found) if found else 0

    def kill_supervisor(self) -> str:
        pid = self._supervisor()
        if pid:
            os.kill(pid, signal.SIGKILL)
        return str(pid)

    def kill_agent_and_supervisor(self) -> str:
        pid = self._supervisor()
        self.cluster.kill(*self.cluster.agents)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._back(*self.cluster.agents)
        return str(pid)

    def strike(self) -> str:
        """Kill just when a launch, a run or an exit is half-way."""
        cluster = self.cluster
        mark = self.random.choice(
            ("directory", "descriptor", "Prepared", "Started", "Started", "ExitObserved")
        )
        victims = self.random.choice(
            ("agent", "agent", "supervisor", "supervisor", "both", "controller", "all")
        )
        session = cluster.moment(mark, 3.0)
        if not session:
            return f"nothing reached {mark}"
        agent = cluster.agent_of(session)
        if victims in ("supervisor", "both", "all"):
            pid = supervisor_in(cluster.session(agent, session))
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        daemons = {"agent": [agent], "both": [agent], "controller": [CONTROLLER], "supervisor": []}
        names = daemons.get(victims, cluster.layout.daemons)
        cluster.kill(*names)
        self._back(*names)
        return f"{victims} at {mark} of {session}"

    def kill_spawner(self) -> str:
        pid = self.cluster.spawner(self.random.choice(self.cluster.agents))
        if pid:
            os.kill(pid, signal.SIGKILL)
        return str(pid)

    def kill_everything(self) -> str:
        self.cluster.kill(*self.cluster.layout.daemons)
        self._back(*self.cluster.layout.daemons)
        return ""

    def _some(self, most: int) -> list[str]:
        jobs = list(self.codes)[-40:]
        return self.random.sample(jobs, min(most, len(jobs)))

    def cancel(self) -> str:
        return self._cancel(self._some(1))

    def cancel_many(self) -> str:
        agent = self.random.choice(self.cluster.agents)
        self.cluster.kill(agent)
        said = self._cancel(self._some(15))
        self.cluster.start(agent)
        return said

    def _cancel(self, jobs: list[str]) -> str:
        self.cancelled.update(jobs)
        if jobs:
            self.cluster.run("scancel", *jobs)
        return " ".join(jobs)

    def requeue(self) -> str:
        jobs = self._some(1)
        if jobs and self.cluster.state_or_nothing(jobs[0]) == "RUNNING":
            self.cluster.run("scontrol", "requeue", jobs[0])
            return jobs[0]
        return "nothing"


def soak(seconds: float, seed: int, only: frozenset[str] = frozenset()) -> tuple[list[str], Path]:
    """One run on a new cluster; (faults, the folder, which is gone when there are none)."""
    base = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp"))
    base.chmod(0o755)
    cluster = CrashCluster(base / "c")
    cluster.start_all()
    run = Soak(cluster, seed, seconds, only)
    try:
        faults = run.run()
    finally:
        cluster.stop()
        (base / "deeds").write_text("\n".join(run.deeds) + "\n")
    runs = cluster.noted()
    print(f"soak: {len(run.codes)} jobs, {len(runs)} runs, {len(run.deeds)} deeds, {len(faults)} faults")
    if not faults:
        shutil.rmtree(base)
    return faults, base


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SPUR_SOAK_MINUTES", "5")))
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="", metavar="ACTION,...")
    said = parser.parse_args()
    seconds = said.seconds if said.seconds is not None else said.minutes * 60
    print(f"soak: seed {said.seed}, {seconds:g} s", flush=True)
    faults, where = soak(seconds, said.seed, frozenset(filter(None, said.only.split(","))))
    for fault in faults:
        print(f"soak: {fault}")
    if faults:
        print(f"soak: logs are in {where}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

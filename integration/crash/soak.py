"""Kill daemons at random under load, then look whether anything was lost, doubled, hurt or left behind.

    python integration/crash/soak.py [--scenario NAME|all] [--minutes N] [--seed S]
    python integration/crash/soak.py --scenario replication [--rounds N] [--seed S]

mixed: daemons and supervisors, one and several at once, at random and at chosen instants, under batch jobs.
agents: an agent every 2 s, under jobs of every kind; nothing may come of it.
supervisors: one of a certain step every second, under jobs of every kind; each step's policy must come of it.
controllers: one of three, or an agent, every 5 s; the history must tell what the jobs wrote.
replication: three members of the replicated log alone, killed, paused and cut off; not part of `all`.

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
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
    sys.path.insert(0, str(Path(__file__).resolve().parent))

import replication_soak
from deaths import AgentDeaths, Deaths, SupervisorDeaths
from failover_soak import FailoverDeaths
from testkit.crash_cluster import CONTROLLER, CrashCluster, supervisor_in
from testkit.ha_cluster import HaCluster


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
        self.summary = ""
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
        self.summary = f"{len(self.codes)} jobs, {len(self.cluster.noted())} runs, {len(self.deeds)} deeds"
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


class Scenario(NamedTuple):
    """A named soak: how many nodes and controllers it has, and what it takes to make one run."""

    nodes: int
    cpus: int
    make: Callable[[Any, int, float, frozenset[str]], "Soak | Deaths | FailoverDeaths"]
    controllers: int = 1

    def cluster(self, folder: Path) -> CrashCluster:
        """A new one, not started."""
        if self.controllers == 1:
            return CrashCluster(folder, nodes=self.nodes, cpus=self.cpus)
        # A controller that is killed every few seconds has no time to check what it did hours ago.
        return HaCluster(folder, self.nodes, self.controllers, cpus=self.cpus, paranoid=False)


def _deaths(kind: type[AgentDeaths | SupervisorDeaths]) -> Scenario:
    """200 short and 20 long jobs in three minutes, as many less in less time."""

    def make(cluster: CrashCluster, seed: int, seconds: float, _: frozenset[str]) -> Deaths:
        part = min(1.0, seconds / 180)
        return kind(cluster, seed, seconds, max(20, round(200 * part)), max(4, round(20 * part)))

    return Scenario(4, 32, make)


def _failovers(cluster: HaCluster, seed: int, seconds: float, _: frozenset[str]) -> FailoverDeaths:
    """1,000 jobs in five minutes, as many less in less time."""
    return FailoverDeaths(cluster, seed, seconds, max(30, round(1000 * min(1.0, seconds / 300))))


SCENARIOS = {
    "mixed": Scenario(2, 8, Soak),
    "agents": _deaths(AgentDeaths),
    "supervisors": _deaths(SupervisorDeaths),
    "controllers": Scenario(4, 16, _failovers, controllers=3),
}


def soak(
    seconds: float, seed: int, scenario: str, only: frozenset[str] = frozenset()
) -> tuple[list[str], Path]:
    """One run on a new cluster; (faults, the folder, which is gone when there are none)."""
    base = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp"))
    base.chmod(0o755)
    chosen = SCENARIOS[scenario]
    cluster = chosen.cluster(base / "c")
    try:
        cluster.start_all()
        run = chosen.make(cluster, seed, seconds, only)
        try:
            faults = run.run()
        finally:
            (base / "deeds").write_text("\n".join(run.deeds) + "\n")
    finally:
        cluster.stop()
    print(f"soak: {run.summary}, {len(faults)} faults")
    if not faults:
        shutil.rmtree(base)
    return faults, base


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scenario", choices=(*SCENARIOS, "replication", "all"), default="mixed")
    parser.add_argument("--rounds", type=int, default=30, help="of the replication scenario")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SPUR_SOAK_MINUTES", "3")))
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="", metavar="ACTION,...", help="of the mixed scenario")
    said = parser.parse_args()
    if said.scenario == "replication":
        return replication_soak.soak(said.rounds, said.seed)
    seconds = said.seconds if said.seconds is not None else said.minutes * 60
    bad = False
    for scenario in SCENARIOS if said.scenario == "all" else (said.scenario,):
        print(f"soak: {scenario}, seed {said.seed}, {seconds:g} s", flush=True)
        faults, where = soak(seconds, said.seed, scenario, frozenset(filter(None, said.only.split(","))))
        for fault in faults:
            print(f"soak: {fault}")
        if faults:
            bad = True
            print(f"soak: logs are in {where}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

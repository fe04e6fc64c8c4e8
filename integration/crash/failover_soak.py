"""Controllers and agents are killed at random, under jobs submitted through changing controllers."""

import contextlib
import random
import threading
import time
from collections import Counter

from failover_judge import FailoverJudgement, History
from failover_load import FailoverLoad
from testkit import group_state
from testkit.ha_cluster import HaCluster

#: After the last death everything must end by itself within this.
END_SECS = 180.0
#: While jobs are still being submitted there are deaths for so many times as long as was asked for.
LONGEST = 3
#: What is killed, in this proportion.
VICTIMS = {"leader": 4, "controller": 3, "agent": 6, "two controllers": 1, "leader and agent": 2}


class FailoverDeaths:
    """One run: the load, the deaths, and the judgement.

    Args:
        seconds: how long there are deaths; longer while jobs are still being submitted.
        jobs: how many are submitted, in nine tenths of that time if the machine can do it.
        period: seconds between two deaths.
    """

    def __init__(self, cluster: HaCluster, seed: int, seconds: float, jobs: int, period: float = 5.0) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.seconds = seconds
        self.period = period
        self.load = FailoverLoad(cluster, seed + 1, jobs)
        self.deeds: list[str] = []
        self.kinds: Counter[str] = Counter()
        self.summary = ""
        self.history: History
        self._due: dict[str, float] = {}
        self._fallen: list[str] = []

    def run(self) -> list[str]:
        """Do it all; the faults found."""
        loader = threading.Thread(target=self.load.run, args=(self.seconds * 0.9,))
        began = time.monotonic()
        next_at = began + self.period / 2
        loader.start()
        while self._goes_on(next_at - began, loader):
            self._raise_until(next_at)
            now = time.monotonic()
            next_at = max(next_at, now - self.period) + self.period
            self.deeds.append(f"{now - began:6.1f} {self._strike()}")
        deadly = time.monotonic() - began
        self._raise_until(max(self._due.values(), default=0.0))
        loader.join(END_SECS)
        if loader.is_alive():
            self.load.give_up()
            loader.join()
        took = time.monotonic() - began
        self.deeds += self.load.slow
        faults = [*self._fallen]
        try:
            self.cluster.settle(END_SECS)
        except AssertionError as error:
            faults.append(str(error))
        self.history = History.of(self.cluster)
        judgement = FailoverJudgement(self.load, self.history)
        faults += [*self.load.failed, *judgement.faults()]
        faults += [*self._same(), *self._records(), *self.cluster.left(), *self.cluster.files_left()]
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        self.summary = (
            f"{judgement.summary()}, {len(self.deeds)} deaths ({kinds}) in {deadly:.0f} s,"
            f" all submitted after {took:.0f} s, slowest command {self.load.slowest:.1f} s"
        )
        return faults

    # -- deaths

    def _goes_on(self, elapsed: float, loader: threading.Thread) -> bool:
        """Whether there is another death: a slow machine has more of them, but not without end."""
        return elapsed < self.seconds or (loader.is_alive() and elapsed < LONGEST * self.seconds)

    def _strike(self) -> str:
        kind = self.random.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        pauses = [self.random.choice((0.0, 0.5, 1.5, 3.0, 6.0)) for _ in range(2)]
        controllers, agents = [*self.cluster.controllers], [*self.cluster.agents]
        self.random.shuffle(controllers)
        self.random.shuffle(agents)
        leader = ""
        if "leader" in kind:
            with contextlib.suppress(Exception):
                leader = self.cluster.leads()
        leader = leader or controllers[0]
        names = {
            "leader": [leader],
            "controller": controllers[:1],
            "agent": agents[:1],
            "two controllers": controllers[:2],
            "leader and agent": [leader, agents[0]],
        }[kind]
        names = [name for name in names if self.cluster.running(name)]
        self.cluster.kill(*names)
        now = time.monotonic()
        for name, pause in zip(names, pauses, strict=False):
            # Two at once leave no majority: not for long.
            self._due[name] = now + (min(pause, 1.5) if kind == "two controllers" else pause)
        self.kinds[kind] += 1
        told = " ".join(f"{name} (back in {self._due[name] - now:g} s)" for name in names)
        return f"{kind}: {told or 'nobody, it was dead already'}"

    def _raise_until(self, deadline: float) -> None:
        """Start the dead whose pause is over, until then."""
        pause = threading.Event()
        while (now := time.monotonic()) < deadline:
            for name in self.cluster.layout.daemons:
                if name not in self._due and not self.cluster.running(name):
                    self._fallen.append(f"{name} died by itself, see its log")
                    self._due[name] = now + 1.0
                elif self._due.get(name, deadline) <= now:
                    del self._due[name]
                    self.cluster.start(name)
            pause.wait(min(0.1, deadline - now))

    # -- what must be true of the group

    def _same(self) -> list[str]:
        """All members hold one log and one state, and nobody has complained of another."""
        cluster = self.cluster
        alarms = [line for one in cluster.view().members if one.answer for line in one.answer.alarms]
        places: list[int] = []

        def level() -> bool:
            answers = [one.answer for one in cluster.view().members]
            places[:] = [answer.applied for answer in answers if answer is not None]
            return len(places) == len(cluster.controllers) and len(set(places)) == 1

        try:
            cluster.until(level, "all members hold the same entries", 30)
        except AssertionError as error:
            alarms.append(f"{error}: {places}")
        index = min(places)
        dirs = [cluster.layout.state(name) for name in cluster.controllers]
        digests = {path.name: group_state.digest_at(path, index) for path in dirs}
        if len(set(digests.values())) > 1:
            alarms.append(f"states differ at entry {index}: {digests}")
        self.deeds.append(f"       all at entry {index}, digest {next(iter(digests.values()))}")
        return alarms + group_state.same_log(dirs, index)

    def _records(self) -> list[str]:
        """No step is on record, nothing is allocated, no node is set aside."""
        steps = self.cluster.ok("squeue", "-h", "-s", "-a").splitlines()
        cpus = self.cluster.ok("sinfo", "-h", "-N", "-o", "%N %C").splitlines()
        held = [line for line in cpus if not line.split()[1].startswith("0/")]
        return [
            *(f"step on record: {line}" for line in steps),
            *(f"CPUs held: {line}" for line in held),
            *(f"node {name} is set aside" for name in self.cluster.down_nodes()),
        ]

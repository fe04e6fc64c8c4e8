"""Soaks with one kind of death each: agents, or supervisors, killed in a steady rhythm under a known load."""

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from testkit.crash_cluster import CrashCluster, living_supervisor, supervisor_in
from workload import Judgement, Kill, Workload

BATCH = 4294967291
EXTERN = 4294967292
#: No job is queued again more often than this by us: after five it would be held.
MOST_PER_JOB = 2
#: A run that began so long ago is known to everybody: its launch has been answered and its client attached.
KNOWN_SECS = 1.5
#: An extern step must have a new supervisor after so long.
RESTORED_SECS = 15.0
#: After the last death everything that runs must end by itself within this.
END_SECS = 180.0


class Deaths:
    """One run: a load in a known order, deaths in a rhythm, and the judgement.

    Args:
        seconds: how long there are deaths.
        short, long: number of jobs.
        period: seconds between two deaths.
    """

    def __init__(
        self, cluster: CrashCluster, seed: int, seconds: float, short: int, long: int, period: float
    ) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.seconds = seconds
        self.period = period
        self.load = Workload(cluster, seed + 1, longest=seconds * 0.7)
        self.deeds: list[str] = []
        self.kills: list[Kill] = []
        self.summary = ""
        self._plan = self.load.plan(short, long)
        self._over = threading.Event()
        self._broken: list[str] = []

    def strike(self) -> str:
        """One death; what was done, "" when nothing could be."""
        raise NotImplementedError

    def more_faults(self) -> list[str]:
        """What this kind of death asks for beside the judgement of the load."""
        return []

    def more_summary(self) -> str:
        """What the deaths were."""
        return ""

    def run(self) -> list[str]:
        """Do it all; the faults found."""
        submitter = threading.Thread(target=self._submit)
        began = time.monotonic()
        submitter.start()
        next_at = began + self.period / 2
        while next_at - began < self.seconds:
            self._over.wait(max(0.0, next_at - time.monotonic()))
            if self.deeds and time.monotonic() - next_at > self.period:
                next_at = time.monotonic()  # the machine is slow: keep the rhythm, not the count
            next_at += self.period
            with contextlib.suppress(OSError):
                if deed := self.strike():
                    self.deeds.append(f"{time.monotonic() - began:6.1f} {deed}")
        submitter.join()
        faults = [*self._broken, *self.load.wait_clients(END_SECS)]
        try:
            self.cluster.settle(END_SECS)
        except AssertionError as error:
            faults.append(str(error))
        judgement = Judgement(self.load, self.kills)
        faults += [*self.load.refused, *judgement.faults(), *self.more_faults()]
        faults += [*self.cluster.left(), *self.cluster.files_left()]
        self.summary = f"{judgement.summary()}, {len(self.deeds)} deaths{self.more_summary()}"
        return faults

    def _submit(self) -> None:
        """Everything in three quarters of the time, evenly."""
        began = time.monotonic()
        each = self.seconds * 0.75 / len(self._plan)
        try:
            for number, submit in enumerate(self._plan):
                self._over.wait(max(0.0, began + number * each - time.monotonic()))
                submit()
        except Exception as error:
            self._broken.append(f"submitting broke: {error!r}")


class AgentDeaths(Deaths):
    """An agent is killed and started again at once: nothing may come of it."""

    def __init__(self, cluster: CrashCluster, seed: int, seconds: float, short: int, long: int) -> None:
        super().__init__(cluster, seed, seconds, short, long, period=2.0)

    def strike(self) -> str:
        name = self.random.choice(self.cluster.agents)
        self.cluster.kill(name)
        self.cluster.start(name)
        return name


class SupervisorDeaths(Deaths):
    """A supervisor of a step that certainly runs is killed: 13.7 says what must come of it."""

    def __init__(self, cluster: CrashCluster, seed: int, seconds: float, short: int, long: int) -> None:
        super().__init__(cluster, seed, seconds, short, long, period=1.0)
        self.kinds: Counter[str] = Counter()
        self._externs: dict[Path, tuple[int, float]] = {}
        self._unrestored: list[str] = []

    def strike(self) -> str:
        self._look_at_externs()
        found: dict[str, list[Path]] = {}
        for session in self.cluster.sessions():
            if kind := self._kind(session):
                found.setdefault(kind, []).append(session)
        if not found:
            return ""
        # Every kind gets its share, the rarest first.
        kind = min(sorted(found), key=lambda kind: (self.kinds[kind], self.random.random()))
        return self._kill(kind, self.random.choice(sorted(found[kind])))

    def _kind(self, session: Path) -> str:
        """What step it is, "" when it is none that may be killed now."""
        try:
            job, _, step = session.name.split(".")
            spec = json.loads((session / "launch.json").read_text())
            journal = (session / "journal").read_text()
        except (OSError, ValueError):
            return ""
        if '"Started"' not in journal or sum(kill.job == job for kill in self.kills) >= MOST_PER_JOB:
            return ""
        run = f"{job}.{spec.get('restart_count', 0)}"
        if '"ExitObserved"' in journal:
            return "ended"
        if int(step) == BATCH:
            kind, began = ("companion" if spec.get("hold") else "batch"), [f"{run}.began"]
        elif int(step) == EXTERN:
            kind, began = "extern", [f"{run}.began"]
        else:
            alone = spec.get("job_lifetime", False)
            kind = "alone" if alone else "numbered"
            began = [f"{run}.{step}.{task['rank']}.began" for task in spec.get("tasks", [])]
        try:
            times = [(self.load.truth / name).stat().st_mtime for name in began]
        except OSError:
            return ""
        return kind if times and max(times) < time.time() - KNOWN_SECS else ""

    def _kill(self, kind: str, session: Path) -> str:
        """Stop it, look what is on record, then kill it: so it is certain what it had written."""
        pid = living_supervisor(session)
        if pid is None:
            return ""
        os.kill(pid, signal.SIGSTOP)
        self.cluster.until(lambda: _stopped(pid), "it is stopped", 5)
        try:
            spec = json.loads((session / "launch.json").read_text())
            ended = '"ExitObserved"' in (session / "journal").read_text()
        except OSError:
            os.kill(pid, signal.SIGCONT)  # acknowledged meanwhile
            return ""
        job, _, step = session.name.split(".")
        os.kill(pid, signal.SIGKILL)
        self.kills.append(Kill(job, spec.get("restart_count", 0), int(step), spec["node"], ended))
        self.kinds[kind] += 1
        if kind == "extern" and not ended:
            self._externs[session] = (pid, time.monotonic())
        return f"{kind} {session.name} on {spec['node']}{', ended' if ended else ''}"

    def _look_at_externs(self) -> None:
        for session, (pid, at) in list(self._externs.items()):
            if not session.exists() or supervisor_in(session) not in (None, pid):
                del self._externs[session]
            elif time.monotonic() - at > RESTORED_SECS:
                del self._externs[session]
                self._unrestored.append(f"the supervisor of {session.name} was not replaced")

    def more_faults(self) -> list[str]:
        self._look_at_externs()
        return self._unrestored

    def more_summary(self) -> str:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return f" ({told})"


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
    except OSError:
        return True

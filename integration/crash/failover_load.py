"""A load of small batch jobs that note their own truth, submitted through whichever controller answers.

Every run of a script writes two lines, each with one O_APPEND write to one file, so that the order of the
lines is the order of what happened:

    began TOKEN JOB RESTARTS ATTEMPT TASK NODE PID
    ends TOKEN JOB RESTARTS PID CODE

TOKEN names the submission, and is the job's name; ATTEMPT is that of the run's control group, `-` where
there is none; TASK is the array index, `-` outside of arrays.
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from testkit.ha_cluster import HaCluster

#: Of every submission; what is named here fills the plan in this proportion.
KINDS = {
    "noop": 30,
    "sleep": 18,
    "failing": 14,
    "wide": 4,
    "array": 4,
    "dependent": 12,
    "requeued": 7,
    "cancelled": 5,
    "later": 4,
}
TASKS = 5
#: Runs that are to be broken off take so long by themselves.
LONG_SECS = 900.0
#: Commands look for a controller for so long: a group may be without a majority for a while.
RETRY_SECS = 60
#: A command that takes longer is noted.
SLOW_SECS = 15.0

SCRIPT = r"""#!/bin/bash
# TOKEN CODE SECONDS UNTIL: CODE `task` = the array index; runs with fewer restarts than UNTIL take long.
restarts=${{SLURM_RESTART_COUNT:-0}} attempt=-
while read -r line; do
    case $line in */job_$SLURM_JOB_ID.*) line=${{line##*/job_$SLURM_JOB_ID.}}; attempt=${{line%%/*}};; esac
done < /proc/self/cgroup
code=$2 secs=$3
[ "$code" = task ] && code=$SLURM_ARRAY_TASK_ID
[ "$restarts" -lt "$4" ] && secs={long}
echo "began $1 $SLURM_JOB_ID $restarts $attempt ${{SLURM_ARRAY_TASK_ID:--}} $SLURMD_NODENAME $$" >> {truth}
[ "$secs" = 0 ] || sleep "$secs"
echo "ends $1 $SLURM_JOB_ID $restarts $$ $code" >> {truth}
exit "$code"
"""


class Submission(NamedTuple):
    """One call of sbatch.

    code: of every run; None = each task its index.  tasks: 0 = no array.  requeues: how often it is to be
    sent back.  after: the token it waits for, by the condition `how`; "" = nothing.
    """

    token: str
    kind: str
    code: int | None
    secs: str
    tasks: int = 0
    requeues: int = 0
    how: str = ""
    after: str = ""


class Run(NamedTuple):
    """A run as it noted itself.  line: of its first word in the file of truth."""

    token: str
    job: str
    restarts: int
    attempt: str
    task: str
    node: str
    pid: str
    line: int


class End(NamedTuple):
    """What a run was about to end with."""

    pid: str
    code: int
    line: int


class Truth:
    """What the jobs wrote.

    Attributes:
        runs: (job, restarts) -> every beginning noted for it.
        ends: the same of ends.
    """

    def __init__(self, text: str) -> None:
        self.runs: dict[tuple[str, int], list[Run]] = defaultdict(list)
        self.ends: dict[tuple[str, int], list[End]] = defaultdict(list)
        self.broken: list[str] = []
        for at, line in enumerate(text.splitlines()):
            words = line.split(" ")
            if words[0] == "began" and len(words) == 8:
                _, token, job, restarts, attempt, task, node, pid = words
                run = Run(token, job, int(restarts), attempt, task, node, pid, at)
                self.runs[job, run.restarts].append(run)
            elif words[0] == "ends" and len(words) == 6:
                self.ends[words[2], int(words[3])].append(End(words[4], int(words[5]), at))
            else:
                self.broken.append(line)


def plan(chance: random.Random, jobs: int) -> list[Submission]:
    """Submissions that come to about `jobs` jobs, the same for the same chance."""
    kinds, weights = list(KINDS), list(KINDS.values())
    found: list[Submission] = []
    count = 0
    while count < jobs:
        # Each kind once at first: a short plan has them all.
        (kind,) = [kinds[len(found)]] if len(found) < len(kinds) else chance.choices(kinds, weights)
        found.append(_one(chance, kind, f"s{len(found)}", found))
        count += found[-1].tasks or 1
    return found


def _one(chance: random.Random, kind: str, token: str, before: Sequence[Submission]) -> Submission:
    code = chance.choice((0, 0, 0, 1, 3, 42))
    secs = f"{chance.uniform(0.1, 4):.2f}"
    if kind == "noop":
        return Submission(token, kind, 0, "0")
    if kind == "failing":
        return Submission(token, kind, chance.choice((1, 2, 7, 99, 255)), chance.choice(("0", "0.5")))
    if kind == "array":
        return Submission(token, kind, None, chance.choice(("0", secs)), tasks=TASKS)
    if kind == "requeued":
        return Submission(token, kind, code, "0.3", requeues=chance.choice((1, 1, 2)))
    if kind == "dependent":
        # What a requeue or a cancellation makes of the other is not known beforehand.
        others = [one.token for one in before[-20:] if one.kind not in ("requeued", "cancelled")]
        how = chance.choice(("afterok", "afterany", "afternotok"))
        return Submission(
            token, kind, code, chance.choice(("0", "0.5")), how=how, after=chance.choice(others)
        )
    if kind == "later":
        return Submission(token, kind, code, "0")
    return Submission(token, kind, code, secs)


class FailoverLoad:
    """Submits the plan, sends back and cancels what is meant to be.

    Attributes:
        ids: token -> job id that sbatch printed.
        requeued: job -> commands that sent it back and succeeded.
        failed: commands that did not succeed, with what they said.
        slowest: seconds of the slowest command.
        slow: commands that took long, with the second in which they began.
    """

    def __init__(self, cluster: HaCluster, seed: int, jobs: int) -> None:
        self.cluster = cluster
        self.plan = plan(random.Random(seed), jobs)
        self.ids: dict[str, str] = {}
        self.requeued: dict[str, int] = defaultdict(int)
        self.failed: list[str] = []
        self.slowest = 0.0
        self.slow: list[str] = []
        self._began = time.monotonic()
        self._seed = seed
        self._truth = cluster.work / "truth"
        self._truth.touch()
        self._truth.chmod(0o666)
        self._script = cluster.work / "job"
        self._script.write_text(SCRIPT.format(truth=self._truth, long=LONG_SECS))
        self._script.chmod(0o755)
        self._submitted = threading.Event()
        self._over = threading.Event()

    def truth(self) -> Truth:
        """As it is on disk now."""
        return Truth(self._truth.read_text())

    def run(self, secs: float, hands: int = 4) -> None:
        """Submit everything, evenly over `secs`; return when the last command has ended."""
        others = [
            threading.Thread(target=self._watched, args=(work,)) for work in (self._cancel, self._send_back)
        ]
        submitters = [
            threading.Thread(target=self._watched, args=(self._submit, hand, hands, secs))
            for hand in range(hands)
        ]
        for thread in (*others, *submitters):
            thread.start()
        for thread in submitters:
            thread.join()
        self._submitted.set()
        for thread in others:
            thread.join()

    def give_up(self) -> None:
        """Submit and send back nothing any more."""
        self.failed.append("not everything could be submitted and sent back in time")
        self._over.set()

    def _watched(self, work: Callable[..., None], *args: object) -> None:
        try:
            work(*args)
        except Exception as error:
            self.failed.append(f"the load broke: {error!r}")

    def _command(self, chance: random.Random, *argv: str) -> str | None:
        """Run it with the controllers in an order of its own; its output, None when it failed."""
        names = list(self.cluster.controllers)
        chance.shuffle(names)
        env = self.cluster.only(*names) | {"SPUR_RETRY_SECS": str(RETRY_SECS)}
        at = time.monotonic() - self._began
        done, secs = self.cluster.timed(*argv, **env)
        if secs > SLOW_SECS:
            self.slow.append(f"{at:6.1f} took {secs:.1f} s, {' '.join(names)}: {' '.join(argv)}")
        self.slowest = max(self.slowest, secs)
        if done.returncode:
            self.failed.append(f"{' '.join(argv)}: exit {done.returncode} after {secs:.1f} s: {done.stderr}")
            return None
        return done.stdout

    def _submit(self, hand: int, hands: int, secs: float) -> None:
        chance = random.Random(self._seed * 100 + hand)
        began = time.monotonic()
        each = secs / len(self.plan)
        for at, one in enumerate(self.plan):
            if at % hands != hand:
                continue
            if self._over.wait(max(0.0, began + at * each - time.monotonic())):
                return
            options = self._options(one)
            if options is None:
                continue
            code = "task" if one.code is None else str(one.code)
            until = one.requeues or (10 if one.kind == "cancelled" else 0)
            words = (str(self._script), one.token, code, one.secs, str(until))
            out = self._command(
                chance, "sbatch", "--parsable", "-o", "/dev/null", "-J", one.token, *options, *words
            )
            if out is not None:
                self.ids[one.token] = out.strip()

    def _options(self, one: Submission) -> list[str] | None:
        """What sbatch is told beside the script; None when what it would wait for was not taken."""
        if one.kind == "wide":
            return ["-N2"]
        if one.tasks:
            return [f"--array=0-{one.tasks - 1}"]
        if one.kind == "later":
            return ["--begin=now+3"]
        if not one.after:
            return []
        deadline = time.monotonic() + 2 * RETRY_SECS
        while one.after not in self.ids:  # another hand is at it
            if time.monotonic() > deadline:
                self.failed.append(f"{one.token} waits for {one.after}, which was never taken")
                return None
            self._over.wait(0.1)
        return ["--kill-on-invalid-dep=yes", "-d", f"{one.how}:{self.ids[one.after]}"]

    def _cancel(self) -> None:
        """Cancel what is meant to be, at any moment of its life."""
        chance = random.Random(self._seed * 100 + 98)
        left = {one.token for one in self.plan if one.kind == "cancelled"}
        due: dict[str, float] = {}
        while not self._over.wait(0.1):
            submitted = self._submitted.is_set()
            for token in sorted(left & self.ids.keys()):
                if time.monotonic() > due.setdefault(token, time.monotonic() + chance.uniform(0, 4)):
                    left.remove(token)
                    self._command(chance, "scancel", self.ids[token])
            if submitted and not left & self.ids.keys():
                return

    def _send_back(self) -> None:
        """Requeue runs that have noted their beginning."""
        chance = random.Random(self._seed * 100 + 99)
        wanted = {one.token: one.requeues for one in self.plan if one.requeues}
        due: dict[tuple[str, int], float] = {}
        seen: set[tuple[str, int]] = set()
        while not self._over.wait(0.1):
            submitted = self._submitted.is_set()
            for key, (run, *_) in list(self.truth().runs.items()):
                if wanted.get(run.token, 0) <= 0 or key in seen:
                    continue
                if time.monotonic() > due.setdefault(key, time.monotonic() + chance.uniform(0.2, 3)):
                    seen.add(key)
                    wanted[run.token] -= 1
                    if self._command(chance, "scontrol", "requeue", run.job) is not None:
                        self.requeued[run.job] += 1
            if submitted and not any(left > 0 and token in self.ids for token, left in wanted.items()):
                return

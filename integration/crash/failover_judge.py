"""What the history tells of each job and attempt, beside what they wrote themselves."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from failover_load import FailoverLoad, Run, Submission, Truth
from testkit import group_state
from testkit.ha_cluster import HaCluster

from spur_core.grammar.hostlist import expand
from spur_core.states import TERMINAL_STATES

#: How long the history may be behind the queue.
BEHIND_SECS = 60.0
_FIELDS = "JobIDRaw,JobID,JobName,State,ExitCode,Restarts,NodeList,Start"
_ENDS = frozenset(state.name for state in TERMINAL_STATES)


class Row(NamedTuple):
    """One run in the history.  began: it has a start.  batch: state and exit code of its batch step."""

    job: str
    shown: str
    token: str
    state: str
    status: str
    restarts: int
    nodes: tuple[str, ...]
    began: bool
    batch: tuple[str, str] | None


class History(NamedTuple):
    """What is told once everything has ended.

    rows: job -> its runs, oldest first.  attempts: (job, attempt, restarts) of every run that has a start.
    undone: (job, attempt) of every launch that was taken back.  late: complaints.
    """

    rows: dict[str, list[Row]]
    attempts: list[tuple[str, int, int]]
    undone: set[tuple[str, int]]
    late: list[str]

    @classmethod
    def of(cls, cluster: HaCluster) -> "History":
        """Ask sacct until nothing is under way in it, then the database and the members' logs."""
        rows: dict[str, list[Row]] = {}
        late = []

        def told() -> bool:
            rows.clear()
            rows.update(_sacct(cluster))
            return all(row.state in (*_ENDS, "REQUEUED") for runs in rows.values() for row in runs)

        try:
            cluster.until(told, "the history tells every end", BEHIND_SECS)
        except AssertionError as error:
            late.append(str(error))
        dirs = [cluster.layout.state(name) for name in cluster.controllers]
        undone = set().union(*(group_state.undone_launches(path) for path in dirs))
        return cls(rows, _attempts(cluster), undone, late)


class FailoverJudgement:
    """Compares; the truth is read when it is made."""

    def __init__(self, load: FailoverLoad, history: History) -> None:
        self._load = load
        self._truth: Truth = load.truth()
        self._rows, self._attempts, self._undone, late = history
        self._faults = [*late]

    def faults(self) -> list[str]:
        """Everything that does not agree."""
        self._faults += [f"not understood: {line}" for line in self._truth.broken]
        by_token: dict[str, dict[str, list[Row]]] = defaultdict(dict)
        for job, rows in self._rows.items():
            by_token[rows[0].token][job] = rows
        for one in self._load.plan:
            self._submission(one, by_token.pop(one.token, {}))
        self._faults += [f"{token} is in the history, nobody's" for token in by_token]
        known = self._rows.keys()
        self._faults += [
            f"job {job} began, but is not known" for job, _ in self._truth.runs if job not in known
        ]
        self._attempts_agree()
        return self._faults

    def summary(self) -> str:
        """Numbers for the report."""
        finals = Counter(rows[-1].state for rows in self._rows.values())
        told = ", ".join(f"{count} {state}" for state, count in sorted(finals.items()))
        runs = sum(map(len, self._truth.runs.values()))
        requeues = sum(self._load.requeued.values())
        return (
            f"{len(self._rows)} jobs ({told}), {runs} runs, {requeues} requeues by hand,"
            f" {len(self._undone)} launches taken back"
        )

    # -- one submission

    def _submission(self, one: Submission, jobs: dict[str, list[Row]]) -> None:
        """It exists once, under the id that was printed."""
        printed = self._load.ids.get(one.token)
        if printed is None:
            if jobs:
                self._faults.append(f"{one.token}: nobody was told of {sorted(jobs)}")
            return
        if one.tasks:
            shown = sorted(rows[0].shown for rows in jobs.values())
            wanted = sorted(f"{printed}_{task}" for task in range(one.tasks))
        else:
            shown, wanted = sorted(jobs), [printed]
        if shown != wanted:
            self._faults.append(f"{one.token}: printed {wanted}, the history has {shown}")
            return
        for job, rows in jobs.items():
            self._job(one, job, rows)

    def _job(self, one: Submission, job: str, rows: list[Row]) -> None:
        again = self._load.requeued[job]
        undone = sum(name == job for name, _ in self._undone)
        last = rows[-1]
        what = f"{one.kind} {one.token}, job {job}"
        if not again <= last.restarts <= again + undone:
            self._faults.append(
                f"{what}: {last.restarts} restarts, {again} requeues, {undone} launches taken back"
            )
        if len(rows) != len({row.restarts for row in rows}):
            self._faults.append(f"{what}: two runs under one number of restarts: {rows}")
        wanted = self._verdict(one, last)
        if (last.state, last.status) != wanted:
            self._faults.append(f"{what}: told {last.state} {last.status}, meant {wanted}")
        for row in rows[:-1]:
            if row.state != "REQUEUED" and not (again and row.state in ("COMPLETED", "FAILED")):
                self._faults.append(f"{what}: {row}")
        told = {row.restarts for row in rows}
        for (name, restarts), runs in self._truth.runs.items():
            if name == job and restarts not in told and not all(map(self._taken_back, runs)):
                self._faults.append(f"{what}: the history does not have {runs}")
        for row in rows:
            self._run(what, one, row)
        if one.after and last.began:
            self._order(what, one, job)

    def _verdict(self, one: Submission, last: Row) -> tuple[str, str]:
        if one.kind == "cancelled" or (one.after and not self._met(one)):
            return ("CANCELLED", "0:0")
        code = int(last.shown.rpartition("_")[2]) if one.code is None else one.code
        return ("FAILED" if code else "COMPLETED", f"{code}:0")

    def _met(self, one: Submission) -> bool:
        """Whether what it waited for came to be; by what is known of the other beforehand."""
        (other,) = [found for found in self._load.plan if found.token == one.after]
        ran = not other.after or self._met(other)
        well = ran and other.code == 0
        return {"afterok": well, "afternotok": not well, "afterany": True}[one.how]

    def _run(self, what: str, one: Submission, row: Row) -> None:
        """One run: begun once where the history says, ended as it says."""
        key = (row.job, row.restarts)
        runs, ends = self._truth.runs.get(key, []), self._truth.ends.get(key, [])
        what = f"{what} restart {row.restarts}"
        # A script may be cancelled before its first word, and before the controller knew that it runs; it may
        # be requeued while another node's part of its launch is still on its way.
        early = row.state == "CANCELLED" and one.kind == "cancelled"
        early = early or (row.state == "REQUEUED" and not row.began and self._load.requeued[row.job] > 0)
        if len(runs) > 1 or (len(runs) != row.began and not early):
            self._faults.append(f"{what}: told {row}, began {runs}")
        for run in runs:
            there = row.nodes[:1] == (run.node,) or (early and not row.began)
            if run.token != one.token or not there:
                self._faults.append(f"{what}: told {row}, began as {run}")
            if one.tasks and run.task != row.shown.rpartition("_")[2]:
                self._faults.append(f"{what}: is told as {row.shown}, but was task {run.task}")
        if row.state in ("COMPLETED", "FAILED"):
            told = (row.state, row.status)
            if [f"{end.code}:0" for end in ends] != [row.status] or [e.pid for e in ends] != [
                run.pid for run in runs
            ]:
                self._faults.append(f"{what}: told {told}, ended {ends}")
            if row.batch != told:
                self._faults.append(f"{what}: told {told}, its batch step {row.batch}")
        elif ends and not (row.state == "REQUEUED" and self._load.requeued[row.job]):
            self._faults.append(f"{what}: told {row.state}, ended {ends}")

    def _order(self, what: str, one: Submission, job: str) -> None:
        """What it waited for had ended before it began."""
        begun = min(
            (r.line for (name, _), rs in self._truth.runs.items() if name == job for r in rs), default=0
        )
        others = {run.job for run in self._runs_of(one.after)}
        ended = [e.line for (name, _), es in self._truth.ends.items() if name in others for e in es]
        late = [line for line in ended if line > begun]
        if late:
            self._faults.append(f"{what} began before {one.after} had ended")

    def _taken_back(self, run: Run) -> bool:
        """Whether its launch was, on another node: then the history may not have it."""
        return any(job == run.job and run.attempt in ("-", str(attempt)) for job, attempt in self._undone)

    # -- the attempts

    def _attempts_agree(self) -> None:
        """Every run that noted its attempt has its row under exactly that attempt, and no other has it."""
        told = {(job, attempt): restarts for job, attempt, restarts in self._attempts}
        if len(told) != len(self._attempts):
            self._faults.append("an attempt has two rows in the database")
        seen: Counter[tuple[str, int]] = Counter()
        for run in self._every_run():
            if run.attempt == "-":
                continue
            key = (run.job, int(run.attempt))
            seen[key] += 1
            if told.get(key) != run.restarts and not self._taken_back(run):
                self._faults.append(f"{run}: the database has restart {told.get(key)} under that attempt")
        self._faults += [f"attempt {key} ran {count} times" for key, count in seen.items() if count > 1]

    def _every_run(self) -> Iterable[Run]:
        return (run for runs in self._truth.runs.values() for run in runs)

    def _runs_of(self, token: str) -> list[Run]:
        return [run for run in self._every_run() if run.token == token]


def _sacct(cluster: HaCluster) -> dict[str, list[Row]]:
    out = cluster.ok("sacct", "-D", "-a", "-n", "-P", "-S", "now-1days", "-o", _FIELDS)
    found: dict[str, list[Row]] = defaultdict(list)
    for line in out.splitlines():
        job, shown, token, state, status, restarts, nodes, start = line.split("|")
        state = state.split(" ")[0]
        if "." in job:
            rows = found[job.partition(".")[0]]
            if job.endswith(".batch"):
                rows[-1] = rows[-1]._replace(batch=(state, status))
            continue
        began = start not in ("None", "Unknown")
        names = tuple(expand(nodes)) if began else ()
        found[job].append(Row(job, shown, token, state, status, int(restarts or 0), names, began, None))
    return dict(found)


def _attempts(cluster: HaCluster) -> list[tuple[str, int, int]]:
    """(job, attempt, restarts) of every run that has a start, from the database itself."""
    path = cluster.folder / "state" / "accounting.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        rows = db.execute("select job_id, attempt, restarts from jobs where start_at is not null").fetchall()
    return [(str(job), attempt, restarts) for job, attempt, restarts in rows]

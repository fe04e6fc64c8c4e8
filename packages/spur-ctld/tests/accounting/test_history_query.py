"""What `sacct` asks, answered on both databases from rows that real operations made."""

from collections.abc import Callable
from typing import Any

import pytest

from spur_core.errors import GrammarError
from spur_core.states import JobState
from spur_ctld.accounting import history
from spur_ctld.accounting.service import hide
from spur_ctld.state import ops
from spur_proto import accounting_pb2 as pb

Ask = Callable[..., Any]


@pytest.fixture
async def ask(cluster: Any, database: str, make_writer: Any) -> Ask:
    """Put a small history into the database and return a way to query it.

    1 COMPLETED 110-120 (alice), 2 FAILED 210-220 (bob), 3 RUNNING since 310 (alice),
    4 PENDING since 400 (alice), array 5: task 0 is over as job 6, 1-3 wait.
    """
    one = cluster.submit(at=100, name="a", account="phys")
    cluster.start(one, at=110)
    cluster.end(one, at=120)
    two = cluster.submit(at=200, name="b", user="bob", uid=1001)
    cluster.start(two, at=210)
    cluster.end(two, code=2, at=220)
    three = cluster.submit(at=300, name="c")
    cluster.start(three, at=310)
    cluster.submit(at=400, name="d")
    array = cluster.submit_array(at=500, name="e", ranges=((0, 3, 1),), throttle=2)
    part = ops.Slice(node="n1", cpus=1)
    cluster.apply(ops.DispatchBegin(at=510, job_id=array, attempt=1, partition="p", slices=(part,), task=0))
    cluster.apply(ops.DispatchCommit(at=510, job_id=array + 1, attempt=1, start_at=510))
    cluster.end(array + 1, at=520)
    writer = await make_writer(database)
    await writer.flushed(20)

    async def query(**fields: Any) -> Any:
        return await history.find(writer.engine, "c1", pb.GetJobHistoryRequest(**fields))

    return query


def ids(response: Any) -> list[int]:
    return [job.job_id for job in response.jobs]


async def test_everything_oldest_first_with_steps(ask: Ask) -> None:
    found = await ask()
    assert ids(found) == [1, 2, 3, 4, 5, 6]
    assert [step.name for step in found.jobs[0].steps] == ["batch"]
    assert not found.jobs[3].steps
    assert found.jobs[4].array_pending == "1-3%2"
    assert (found.jobs[5].array_job_id, found.jobs[5].array_task_id) == (5, 0)
    assert not found.jobs[2].HasField("end_at")


@pytest.mark.parametrize(
    ("states", "start", "end", "wanted"),
    [
        ((), 115, 130, [1]),  # running in the window
        ((), 305, 306, [3]),  # eligible in the window
        ((), 1000, 2000, [3, 4, 5]),  # not over yet
        ((JobState.RUNNING,), 400, 401, [3]),
        ((JobState.RUNNING,), 115, 116, [1]),  # it was running then
        ((JobState.PENDING,), 205, 206, [2]),  # it was waiting then
        ((JobState.COMPLETED,), 0, 1000, [1, 6]),
        ((JobState.COMPLETED,), 200, 1000, [6]),
        ((JobState.FAILED, JobState.COMPLETED), 0, 1000, [1, 2, 6]),
    ],
)
async def test_windows_and_states(
    ask: Ask, states: tuple[int, ...], start: float, end: float, wanted: list[int]
) -> None:
    found = await ask(states=list(states), window_start=start, window_end=end)
    assert ids(found) == wanted


async def test_filters_are_joined(ask: Ask) -> None:
    assert ids(await ask(users=["bob"])) == [2]
    assert ids(await ask(accounts=["phys"], users=["alice"])) == [1]
    assert ids(await ask(names=["c", "d"])) == [3, 4]
    assert ids(await ask(partitions=["other"])) == []


async def test_an_array_is_found_by_its_id_and_by_its_tasks(ask: Ask) -> None:
    assert ids(await ask(jobs=[pb.HistoryTarget(job_id=5)])) == [5, 6]
    assert ids(await ask(jobs=[pb.HistoryTarget(job_id=5, array_tasks="0")])) == [6]
    assert ids(await ask(jobs=[pb.HistoryTarget(job_id=5, array_tasks="0,2")])) == [5, 6]
    assert ids(await ask(jobs=[pb.HistoryTarget(job_id=6), pb.HistoryTarget(job_id=2)])) == [2, 6]


async def test_pages_join_up(ask: Ask) -> None:
    seen: list[int] = []
    token = ""
    while True:
        page = await ask(page_size=2, page_token=token)
        seen += ids(page)
        token = page.next_page_token
        if not token:
            break
    assert seen == [1, 2, 3, 4, 5, 6]
    with pytest.raises(GrammarError, match="page_token"):
        await ask(page_token="x")


async def test_only_the_latest_run_unless_asked(cluster: Any, database: str, make_writer: Any) -> None:
    job = cluster.submit(at=100)
    cluster.start(job, at=110)
    cluster.apply(ops.Requeue(at=115, targets=(ops.Target(job),), who=ops.Who(uid=0, admin=True)))
    cluster.end(job, signal=15, at=116)
    writer = await make_writer(database)
    await writer.flushed(20)
    latest = await history.find(writer.engine, "c1", pb.GetJobHistoryRequest())
    assert [(row.run_attempt, row.state) for row in latest.jobs] == [(2, JobState.PENDING)]
    both = await history.find(writer.engine, "c1", pb.GetJobHistoryRequest(duplicates=True))
    assert [(row.run_attempt, row.state) for row in both.jobs] == [
        (1, JobState.REQUEUED),
        (2, JobState.PENDING),
    ]


def test_other_peoples_jobs_are_blanked_or_left_out() -> None:
    def answer() -> Any:
        mine = pb.JobHistory(job_id=1, user="alice", work_dir="/a", comment="c")
        other = pb.JobHistory(job_id=2, user="bob", work_dir="/b", submit_line="sbatch x")
        other.steps.add(step_id=0, name="secret")
        return pb.GetJobHistoryResponse(jobs=[mine, other])

    def may(name: str) -> bool:
        return name == "alice"

    redacted = answer()
    hide(redacted, "redacted", may)
    assert (redacted.jobs[0].work_dir, redacted.jobs[1].work_dir) == ("/a", "")
    assert (redacted.jobs[1].submit_line, redacted.jobs[1].steps[0].name) == ("", "")
    hidden = answer()
    hide(hidden, "owner_only", may)
    assert ids(hidden) == [1]
    full = answer()
    hide(full, "full", may)
    assert full == answer()

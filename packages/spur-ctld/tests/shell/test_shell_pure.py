"""Decisions of the shell that need no loop: what is due, who calls, what a launch says, what lists mean."""

import msgspec
import pytest

from spur_auth import mint
from spur_auth.kinds import NOBODY
from spur_core.errors import AccessDenied, SpurError, Unsupported
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_core.states import JobState, NodeAvail
from spur_ctld.api import caller, grpc_errors
from spur_ctld.dispatch.agents import Launched
from spur_ctld.dispatch.fencing import grace_left
from spur_ctld.dispatch.launch_spec import ClusterFacts, build, run_length
from spur_ctld.dispatch.launcher import Failure, verdict
from spur_ctld.node_memory import ABSENCE_SECS, Held, NodeMemory
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.ops import DispatchAbort, DispatchCommit
from spur_ctld.state.records import UNLIMITED, Exit, Fence, Job, Node, NodeExit, Partition, Request, Slice
from spur_ctld.timers import due
from spur_proto import agent_pb2

KEY = b"0123456789abcdef0123456789abcdef"


def job(job_id=1, state=JobState.RUNNING, limit=60, **fields):
    request = fields.pop("request", None) or Request(name="j", user="u", uid=1, gid=1, time_limit=limit)
    base = {
        "submit_at": 0.0,
        "run_attempt": 1,
        "start_at": 1000.0,
        "dispatch_at": 999.0,
        "slices": (Slice(node="n1", cpus=1, ranks=(0,)),),
        "held": ("n1",),
        "partition": "p",
    }
    return Job(job_id=job_id, request=request, state=state, **{**base, **fields})


FENCE = Fence(outcome=JobState.CANCELLED, targets=("n1",), reason="None", at=100.0, why="cancelled")


@pytest.mark.parametrize(
    ("record", "end"),
    [
        (job(), 1060.0),
        (job(suspended_secs=5.0), 1065.0),
        (job(limit=None), None),
        (job(limit=UNLIMITED), None),
        (job(state=JobState.SUSPENDED), None),
        (job(state=JobState.COMPLETING), None),
        (job(fence=FENCE), None),
        (job(start_at=None), None),
    ],
)
def test_when_a_limit_ends(record, end):
    assert due.limit_end(record, 0) == end


def test_limits_due_and_the_next_one():
    parts = {"p": Partition(name="p", over_time_limit=30)}
    records = [job(1), job(2, start_at=2000.0), job(3, time_signalled_at=5.0), job(4, partition="q")]
    assert due.unsignalled(records, parts, 0, 1060.0) == ([due.Overdue(4, 1)], 1090.0)
    assert due.unsignalled(records, parts, 0, 1090.0) == ([due.Overdue(1, 1), due.Overdue(4, 1)], 2090.0)


@pytest.mark.parametrize(
    ("asked", "at"), [("USR1@20", 1040.0), ("B:USR1@20", 1040.0), ("USR1", 1000.0), ("USR1@900", 160.0)]
)
def test_signals_ahead_of_the_limit(asked, at):
    request = Request(name="j", user="u", uid=1, gid=1, time_limit=60, warn_signal=asked)
    record = job(request=request)
    assert due.unwarned([record], at - 1) == ([], at)
    assert due.unwarned([record, job(2)], at) == ([due.Overdue(1, 1)], None)
    assert due.unwarned([record], 1059.0) == ([due.Overdue(1, 1)], None)
    assert due.unwarned([record], 1060.0) == ([], None)
    late = [
        job(request=request, warned_at=5.0),
        job(request=request, time_signalled_at=5.0),
        job(request=request, state=JobState.SUSPENDED, suspended_at=1010.0),
        job(request=msgspec.structs.replace(request, time_limit=None)),
    ]
    assert due.unwarned(late, 1050.0) == ([], None)
    assert due.unwarned([job(request=request, suspended_secs=7.0)], at) == ([], at + 7.0)


def test_outliving_the_kill():
    record = job(time_signalled_at=1060.0)
    assert due.outlived_kill([record], 30, 1100.0) == ([], 1105.0)
    assert due.outlived_kill([record], 30, 1105.0) == ([due.Overdue(1, 1)], None)
    assert due.outlived_kill([job(time_signalled_at=1.0, fence=FENCE)], 30, 9e9) == ([], None)


def test_hanging_completion():
    record = job(state=JobState.COMPLETING, exits={"n1": NodeExit(exit=Exit(), at=50.0)})
    assert due.hanging([record], 300, 349.0) == ([], 350.0)
    assert due.hanging([record], 300, 350.0) == ([due.Overdue(1, 1)], None)
    assert due.hanging([job(state=JobState.COMPLETING, fence=FENCE)], 300, 9e9) == ([], None)


def test_begin_times():
    asked = Request(name="j", user="u", uid=1, gid=1, begin_at=500.0)
    assert due.eligible_by_time(job(1, state=JobState.PENDING, request=asked)) == 500.0
    assert due.eligible_by_time(job(1, state=JobState.PENDING, request=asked, not_before=900.0)) == 900.0
    assert due.eligible_by_time(job(1, state=JobState.PENDING, not_before=400.0)) == 400.0
    assert due.eligible_by_time(job(1, state=JobState.PENDING)) is None
    assert due.eligible_by_time(job(1, request=asked)) is None


@pytest.mark.parametrize(
    ("avail", "silent", "down"),
    [
        (NodeAvail.UP, 90, False),
        (NodeAvail.UP, 91, True),
        (NodeAvail.SILENT, 299, False),
        (NodeAvail.SILENT, 301, True),
        (NodeAvail.DOWN, 9999, False),
        (NodeAvail.UNKNOWN, 9999, False),
    ],
)
def test_silence(avail, silent, down):
    nodes = [Node(name="n1", avail=avail), Node(name="never-heard", avail=NodeAvail.UP)]
    found = due.silent_nodes(nodes, {"n1": 0.0}, 90, 300, float(silent))
    assert [s.node for s in found] == (["n1"] if down else [])


def test_what_is_forgotten():
    ended = [job(i, state=JobState.COMPLETED, end_at=100.0, held=()) for i in (1, 2, 3)]
    ended.append(job(4, state=JobState.COMPLETED, end_at=100.0, held=(), array_job_id=9, array_task_id=0))
    assert due.forgotten(ended, {2, 9}, 0, 219.0) == []
    assert due.forgotten(ended, {2, 9}, 0, 220.0) == [1, 3]
    assert due.forgotten(ended, (), 0, 220.0, most=2) == [1, 2]
    assert due.forgotten([job(1)], (), 0, 9e9) == []


@pytest.mark.parametrize(
    ("why", "now", "grace"),
    [
        ("cancelled", 100.0, 30),
        ("cancelled", 112.0, 18),
        ("cancelled", 900.0, 0),
        ("node_fail", 100.0, 0),
        ("launch", 100.0, 0),
    ],
)
def test_grace_only_shrinks(why, now, grace):
    fence = Fence(outcome=JobState.CANCELLED, targets=(), reason="", at=100.0, why=why)
    assert grace_left(fence, 30, now) == grace


OK = Launched(True, 0, "", "/o", "/e", 5.0)
JOB, NODE = agent_pb2.LAUNCH_FAILURE_JOB, agent_pb2.LAUNCH_FAILURE_NODE


def test_verdicts_over_a_launch():
    assert isinstance(verdict(1, 2, ["a", "b"], {"a": OK, "b": OK}, 9.0), DispatchCommit)
    for answers, outcome, clear in (
        ({"a": OK, "b": Failure(NODE, "x", True)}, "retry", ("b",)),
        ({"a": OK, "b": Failure(0, "x", False)}, "retry", ()),
        ({"a": Failure(NODE, "y", True), "b": Failure(JOB, "x", True)}, "fail", ("a", "b")),
    ):
        op = verdict(1, 2, ["a", "b"], answers, 9.0)
        assert isinstance(op, DispatchAbort)
        assert (op.outcome, op.clear, op.attempt) == (outcome, clear, 2)
    assert op.desc == "b: x (0 of 2 nodes confirmed)"


def test_run_lengths():
    assert run_length([2, 2, 2, 1]) == "2(x3),1"
    assert run_length([1]) == "1"
    assert run_length([]) == ""


def test_a_launch_spec():
    record = job(
        request=Request(
            name="j",
            user="u",
            uid=7,
            gid=8,
            env=b"A=1\0B=",
            umask=0o22,
            time_limit=60,
            srun=True,
            num_tasks=3,
        ),
        slices=(Slice(node="n1", cpus=2, ranks=(0, 1)), Slice(node="n2", cpus=2, ranks=(2,))),
        held=("n1", "n2"),
        array_job_id=5,
        array_task_id=0,
        array_count=3,
    )
    one, two = build(record, ClusterFacts("c", 30), 1000.0)
    assert (one.node_index, two.node_index) == (0, 1)
    assert list(two.slice.ranks) == [2]
    assert list(one.environment) == [b"A=1", b"B="]
    assert (one.umask, one.end_at, one.tasks_per_node_text, one.spool_output) == (0o22, 1060.0, "2,1", True)
    assert one.HasField("array_task_id")
    assert one.array_task_id == 0
    assert one.rid.step_id == 0
    assert one.rid.HasField("step_id")
    batch = job(slices=record.slices, limit=None)
    (only,) = build(batch, ClusterFacts("c", 30), 1000.0)
    assert only.rid.step_id == STEP_BATCH
    assert only.end_at == 0.0
    assert list(only.nodes) == ["n1", "n2"]
    assert not only.HasField("umask")


def state_with(*records):
    state = ClusterState.empty()
    for record in records:
        state.put_job(record)
    state.next_job_id = 100
    return state


def test_reconciliation_by_exact_identity():
    memory = NodeMemory()
    state = state_with(job(1), job(2, state=JobState.COMPLETED, held=(), end_at=5.0), job(3))
    held = [
        Held(RuntimeId(1, 1, STEP_BATCH), "live"),
        Held(RuntimeId(2, 1, STEP_BATCH), "live"),
        Held(RuntimeId(3, 2, STEP_BATCH), "live"),
        Held(RuntimeId(500, 1, 0), "live"),
        Held(RuntimeId(50, 1, 0), "live"),
        Held(RuntimeId(51, 1, 0), "finished"),
    ]
    found = memory.compare(state, "n1", held, 0.0)
    # 3.2 is newer than what is known here: never killed.  500 was never issued here; 50 was, and is gone.
    assert found.obsolete == ((2, 1, STEP_BATCH), (50, 1, 0))
    assert found.lost == ()
    (missing,) = memory.compare(state, "n1", held, ABSENCE_SECS).lost
    assert missing.rid == (3, 1, STEP_BATCH)
    one = Held(RuntimeId(1, 1, STEP_BATCH), "live")
    memory.compare(state, "n1", [Held(RuntimeId(3, 1, STEP_BATCH), "finished"), one], ABSENCE_SECS + 1)
    assert memory.compare(state, "n1", [one], ABSENCE_SECS + 2).lost == ()


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("ipv4:127.0.0.1:4000", True),
        ("ipv4:10.0.0.1:4000", False),
        ("ipv6:%5B::1%5D:4000", True),
        ("ipv6:[::1]:4000", True),
        ("ipv6:[::ffff:127.0.0.1]:4000", True),
        ("ipv6:[2001:db8::1]:4000", False),
        ("unix:/run/x", True),
        ("", False),
    ],
)
def test_loopback_peers(peer, local):
    assert caller.is_loopback_peer(peer) == local


def test_claims_are_believed_only_locally_and_only_where_trusted():
    open_rules = caller.rules("none", "disabled", None)
    method = "/slurm.SlurmController/SubmitJob"
    said = caller.identify(open_rules, method, None, "alice", "ipv4:127.0.0.1:1", 0.0)
    assert (said.name, said.verified) == ("alice", False)
    with pytest.raises(AccessDenied):
        caller.identify(open_rules, method, None, "alice", "ipv4:10.0.0.9:1", 0.0)
    assert caller.identify(open_rules, method, None, None, "ipv4:10.0.0.9:1", 0.0) is NOBODY
    required = caller.rules("jwt", "required", KEY)
    with pytest.raises(SpurError):
        caller.identify(required, method, None, "alice", "ipv4:127.0.0.1:1", 0.0)
    token = mint.mint_user(KEY, "bob", 5, 60, 0.0)
    both = caller.identify(required, method, f"Bearer {token}", "alice", "ipv4:127.0.0.1:1", 0.0)
    assert (both.name, both.verified) == ("bob", True)
    with pytest.raises(Unsupported):
        caller.identify(open_rules, "/slurm.SlurmController/Nonsense", None, None, "", 0.0)


def test_an_asserted_root_administers_only_an_open_cluster():
    from spur_auth.kinds import asserted_user

    root = asserted_user("root")
    assert caller.caller_is_admin(root, 0, caller.rules("none", "disabled", None))
    assert not caller.caller_is_admin(root, 0, caller.rules("jwt", "permissive", KEY))
    assert not caller.caller_is_admin(asserted_user("bob"), 5, caller.rules("none", "disabled", None))


def test_the_controllers_own_user_administers_it():
    """Slurm's SlurmUser; the name alone proves nothing."""
    method = "/slurm.SlurmController/UpdateNode"
    required = caller.rules("jwt", "required", KEY, owner_uid=5)
    token = mint.mint_user(KEY, "bob", 5, 60, 0.0)
    bob = caller.identify(required, method, f"Bearer {token}", None, "ipv4:127.0.0.1:1", 0.0)
    assert caller.caller_is_admin(bob, 5, required)
    assert not caller.caller_is_admin(bob, 6, required)
    assert not caller.caller_is_admin(bob, 5, caller.rules("jwt", "required", KEY))


def test_every_error_family_has_a_status():
    import grpc

    from spur_core import errors

    assert grpc_errors.status_of(errors.NoSuchJob(1)) is grpc.StatusCode.NOT_FOUND
    assert grpc_errors.status_of(errors.GrammarError("x")) is grpc.StatusCode.INVALID_ARGUMENT
    assert grpc_errors.status_of(errors.Unreachable("x")) is grpc.StatusCode.UNAVAILABLE
    assert grpc_errors.status_of(grpc_errors.Refused("busy", "x")) is grpc.StatusCode.UNAVAILABLE
    assert grpc_errors.status_of(grpc_errors.Refused("new_word", "x")) is grpc.StatusCode.FAILED_PRECONDITION
    status, text, code = grpc_errors.outcome(ValueError("secret detail"), "/x")
    assert (status, code) == (grpc.StatusCode.INTERNAL, "broken_state")
    assert "secret" not in text


def test_remembered_rows_are_what_a_fresh_encoding_is():
    from spur_ctld.api.job_rows import JobRows
    from spur_ctld.api.job_view import job_message, redact
    from spur_proto import controller_pb2 as pb

    rows = JobRows()
    records = [
        job(1),
        job(2, state=JobState.COMPLETED, end_at=1030.0, held=()),
        job(3, state=JobState.PENDING, start_at=None),
    ]
    for now in (1010.0, 1050.0):
        for redacted in (False, True):
            data = b"".join(rows.row(record, now, redacted=redacted) for record in records)
            shown = pb.GetJobsResponse.FromString(data).jobs
            for record, message in zip(records, shown, strict=True):
                fresh = job_message(record, now)
                if redacted:
                    redact(fresh)
                assert message == fresh
    rows.forget({})

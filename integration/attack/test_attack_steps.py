"""Steps of other users' jobs, and floods of one's own: at the controller and, signed, at the agent."""

import pwd
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from spur_core.ids import STEP_EXTERN, RuntimeId
from spur_proto import agent_pb2, common_pb2
from spur_proto import controller_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.node]

DENIED = "Access/permission denied"


class Victim(NamedTuple):
    """A user's allocation with a step that runs."""

    token: str
    job: int
    node: str
    step: int


@pytest.fixture(scope="module")
def victim(target: Any, helpers: Any) -> Iterator[Victim]:
    token = target.user_token(helpers.victim)
    job, node = target.allocate(token)
    made = target.step(token, job, "sleep", "600", overlap=True, request_id="mine")
    assert made.code == "OK", made
    yield Victim(token, job, node, made.message.step.rid.step_id)
    target.cluster.run("scancel", str(job))


def runs(target: Any, victim: Victim) -> bool:
    """The victim's step has not noticed anything."""
    listed = target.cluster.ok("squeue", "-s", "-h", "-j", str(victim.job), "-o", "%i").split()
    return f"{victim.job}.{victim.step}" in listed


# -- at the controller ------------------------------------------------------------------------------------


def test_no_step_in_another_users_job(target: Any, stranger: str, victim: Victim) -> None:
    for fields in ({}, {"overlap": True}, {"interactive": True}, {"request_id": "mine"}):
        answer = target.step(stranger, victim.job, "id", **{"wait_secs": 0, **fields})
        assert answer[:2] == ("PERMISSION_DENIED", DENIED), (fields, answer)
    assert runs(target, victim)


def test_a_request_id_belongs_to_its_user_and_job(target: Any, stranger: str, victim: Victim) -> None:
    """The same id of another user's request makes a step of one's own, and tells nothing of his."""
    job, _ = target.allocate(stranger)
    answer = target.step(stranger, job, "sleep", "600", overlap=True, request_id="mine")
    assert answer.code == "OK", answer
    assert answer.message.step.rid.job_id == job
    again = target.step(victim.token, victim.job, "sleep", "1", overlap=True, request_id="mine")
    assert again.message.step.rid.step_id == victim.step
    # Ids that are made to look like another's key.
    uid = pwd.getpwnam(again.message.step.user).pw_uid
    forged = f"mine\x00step:{uid}:{victim.job}:mine"
    for word in (f"step:{uid}:{victim.job}:mine", f":{uid}:{victim.job}:mine", forged):
        answer = target.step(stranger, job, "true", overlap=True, request_id=word, wait_secs=0)
        assert answer.code in ("OK", "INVALID_ARGUMENT")
        assert answer.message is None or answer.message.step.rid.job_id == job
    target.cluster.ok("scancel", str(job))


def test_a_job_of_anothers_cannot_be_ended_held_or_kept(
    target: Any, stranger: str, victim: Victim, helpers: Any
) -> None:
    ended = pb.CompleteJobRequest(job_id=victim.job, exit=common_pb2.ExitStatus(code=0))
    for call, request in (
        (target.ctl.CompleteJob, ended),
        (target.ctl.JobKeepalive, pb.JobKeepaliveRequest(job_id=victim.job)),
    ):
        answer = helpers.ask(call, request, stranger)
        assert answer[:2] == ("PERMISSION_DENIED", DENIED), (call, answer)
    whole, step = pb.JobTarget(job_id=victim.job), pb.JobTarget(job_id=victim.job, step_id=victim.step)
    extern = pb.JobTarget(job_id=victim.job, step_id=STEP_EXTERN)
    for call, request in (
        (target.ctl.SuspendJob, pb.SuspendJobRequest(targets=[whole, step])),
        (target.ctl.ResumeJob, pb.ResumeJobRequest(targets=[whole, step])),
        (target.ctl.CancelJob, pb.CancelJobRequest(targets=[step, extern, whole])),
        (target.ctl.CancelJob, pb.CancelJobRequest(targets=[step, extern], signal=9)),
        (target.ctl.CancelJob, pb.CancelJobRequest(targets=[step], signal=9, full=True)),
    ):
        answer = helpers.ask(call, request, stranger)
        assert answer.code == "OK"
        assert {result.text for result in answer.message.results} == {DENIED}, request
    assert runs(target, victim)


def test_ends_are_told_by_nodes_alone(target: Any, stranger: str, victim: Victim, helpers: Any) -> None:
    """Neither the job's own user nor another node ends a step or reports its supervisor lost."""
    other = {"node1": "node2", "node2": "node1"}[victim.node]
    rid = common_pb2.RuntimeId(job_id=victim.job, run_attempt=1, step_id=victim.step)
    report = pb.ReportJobStatusRequest(node=victim.node, rid=rid, exit=common_pb2.ExitStatus(code=0))
    stale = pb.RecoveryEntry(rid=rid, state=pb.RECOVERY_STATE_STALE)
    old = time.time() - 8 * 86400
    expired = target.node_token(victim.node, now=old)
    for token in (None, stranger, victim.token, target.node_token(other), target.controller_token(), expired):
        answer = helpers.ask(target.ctl.ReportJobStatus, report, token)
        assert answer.code in ("UNAUTHENTICATED", "PERMISSION_DENIED"), answer
        for inside in ("", token or "", "x"):
            recovery = pb.ReportStepdRecoveryRequest(
                hostname=victim.node, node_token=inside, entries=[stale], boot_id="x"
            )
            answer = helpers.ask(target.ctl.ReportStepdRecovery, recovery, token)
            assert answer.code in ("UNAUTHENTICATED", "PERMISSION_DENIED"), answer
    # The other node's own report, in its own name, of what does not run there.
    answer = helpers.ask(
        target.ctl.ReportJobStatus,
        pb.ReportJobStatusRequest(node=other, rid=rid, exit=common_pb2.ExitStatus(code=0)),
        target.node_token(other),
    )
    assert answer.message.verdict == pb.REPORT_VERDICT_WRONG_NODE
    assert runs(target, victim)


# -- at the agent -----------------------------------------------------------------------------------------


class Order:
    """A RunCommand for a step of the victim's job, as the controller would sign it, to be spoilt."""

    def __init__(self, target: Any, helpers: Any, victim: Victim) -> None:
        self.target, self.helpers, self.victim = target, helpers, victim
        self.user = pwd.getpwnam(helpers.victim)
        self.rid = RuntimeId(victim.job, 1, 777)
        self.uid, self.gid, self.node = self.user.pw_uid, self.user.pw_gid, victim.node
        self.caller: str | None = target.controller_token()
        self.term = 0
        self.term = int(self.fire().text.rpartition(" ")[2])

    def spec(self) -> bytes:
        part = common_pb2.NodeSlice(node=self.node, cpus=1, memory_mb=1)
        return bytes(
            self.helpers.launch_spec(
                self.rid,
                self.uid,
                self.gid,
                self.node,
                script=b"",
                argv=[b"/usr/bin/touch", b"/tmp/spur-attack-step-ran"],
                job_slice=part,
                spool_output=True,
                step_nodes=[self.node],
            )
        )

    def fire(self, statement: str | None = None, spec: bytes | None = None) -> Any:
        spec = self.spec() if spec is None else spec
        if statement is None:
            statement = self.target.statement(spec, self.rid, self.uid, self.gid, self.node)
        request = agent_pb2.RunCommandRequest(
            spec=spec, target_node=self.node, launch_token=statement, term=self.term
        )
        return self.helpers.ask(self.target.agent(self.victim.node).RunCommand, request, self.caller)


@pytest.fixture
def order(target: Any, helpers: Any, victim: Victim) -> Order:
    return Order(target, helpers, victim)


def test_a_step_is_launched_by_the_controller_alone(order: Order, target: Any, stranger: str) -> None:
    for caller in (None, stranger, order.victim.token, target.node_token(order.node)):
        order.caller = caller
        assert order.fire().code == "UNAUTHENTICATED"


def test_a_signed_step_runs_only_as_the_jobs_user_in_the_jobs_attempt(order: Order, helpers: Any) -> None:
    """Even a statement that is genuine: uid, gid and attempt are those of the job that is here."""
    me = pwd.getpwnam(helpers.stranger)
    genuine = order.rid
    for uid, gid, rid in (
        (me.pw_uid, me.pw_gid, genuine),
        (order.uid, me.pw_gid, genuine),
        (0, 0, genuine),
        (order.uid, order.gid, RuntimeId(order.victim.job, 2, 777)),
        (order.uid, order.gid, RuntimeId(order.victim.job, 0, 777)),
        (order.uid, order.gid, RuntimeId(order.victim.job + 5000, 1, 777)),
    ):
        order.uid, order.gid, order.rid = uid, gid, rid
        answer = order.fire()
        assert answer.code != "OK" or not answer.message.success, (uid, gid, rid, answer)
        order.uid, order.gid, order.rid = order.user.pw_uid, order.user.pw_gid, genuine


def test_a_statement_holds_for_one_step_on_one_node(order: Order, target: Any) -> None:
    spec = order.spec()
    good = {"spec": spec, "rid": order.rid, "uid": order.uid, "gid": order.gid, "node": order.node}
    for change, word in (
        ({"rid": RuntimeId(order.victim.job, 1, 778)}, "rid"),
        ({"rid": RuntimeId(order.victim.job + 1, 1, 777)}, "rid"),
        ({"rid": RuntimeId(order.victim.job, 2, 777)}, "rid"),
        ({"uid": order.uid + 1}, "uid"),
        ({"gid": 0}, "gid"),
        ({"node": "node9"}, "node"),
        ({"spec": spec + b"\x40\x00"}, "spec digest"),
    ):
        answer = order.fire(target.statement(**{**good, **change}), spec)
        assert answer.code == "PERMISSION_DENIED", (change, answer)
        assert f"another {word}" in answer.text
    expired = target.statement(**good, now=time.time() - 7200)
    assert "expired" in order.fire(expired, spec).text
    order.term -= 1
    assert "is over" in order.fire().text


# -- floods -----------------------------------------------------------------------------------------------


def test_waiting_for_steps_costs_nobody_anything(target: Any, stranger: str, helpers: Any) -> None:
    """Thousands of requests that have to wait, each with another id."""
    job, _ = target.allocate(stranger)
    assert target.step(stranger, job, "sleep", "600").code == "OK"  # takes everything
    with target.responsive():
        for number in range(3000):
            request = pb.CreateJobStepRequest(
                job_id=job, argv=[b"true"], num_tasks=1, request_id=f"flood-{number}", wait_secs=0.0
            )
            answer = helpers.ask(target.ctl.CreateJobStep, request, stranger)
            assert answer.code in ("OK", "RESOURCE_EXHAUSTED"), answer
            assert answer.code != "OK" or answer.message.busy
    with target.responsive():
        target.cluster.ok("scancel", str(job))
        target.cluster.wait(str(job))


@pytest.mark.parametrize(
    "fields",
    [
        {"num_tasks": 2**32 - 1},
        {"num_tasks": 2**32 - 1, "overcommit": True, "overlap": True},
        {"num_tasks": 1_000_000, "overcommit": True, "overlap": True},
        {"num_tasks": 0},
        {"min_nodes": 2**32 - 1},
        {"min_nodes": 0, "max_nodes": 0},
        {"cpus_per_task": 2**32 - 1},
        {"tasks_per_node": 2**32 - 1},
        {"memory_per_node_mb": 2**64 - 1},
        {"relative": 2**32 - 1},
        {"nodelist": "n[0-1000000]"},
        {"nodelist": "[" * 60000},
        {"exclude": "n[0-65535]," * 100},
        {"distribution": "x" * 200},
        {"gres": ["gpu:99999999999999999999"]},
        {"rlimits": ["NOFILE=x"]},
        {"name": "x" * 5000},
        {"name": "a\0b"},
        {"work_dir": "relative"},
        {"umask": 0o7777},
        {"environment": [b"A=\0"]},
        {"environment": [b"=x"]},
        {"argv": [b"a\0b"]},
        {"argv": []},
        {"argv": [b"x" * 5_000_000]},
    ],
    ids=lambda fields: ",".join(fields),
)
def test_absurd_steps(target: Any, stranger: str, own: int, fields: dict[str, Any]) -> None:
    with target.responsive():
        answer = target.step(stranger, own, **{"overlap": True, "wait_secs": 0.0, **fields})
    assert answer.code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "NOT_FOUND"), (
        answer
    )
    assert len(answer.text) < 1100


@pytest.fixture(scope="module")
def own(target: Any, stranger: str) -> Iterator[int]:
    job, _ = target.allocate(stranger)
    yield job
    target.cluster.run("scancel", str(job))


def test_names_make_no_rows_and_drive_no_terminal(target: Any, stranger: str, own: int) -> None:
    """Of jobs and steps, with line breaks and control sequences, in every listing and every log."""
    evil = "x\n  99999 debug forged root R\x1b]0;title\x07\x1b[2J\u202e\x9b1m\r\u2028"
    answer = target.submit(stranger, name=evil, comment=evil, command=evil, submit_line=evil)
    assert answer.code == "OK", answer
    job = str(answer.message.job_id)
    made = target.step(stranger, own, "sleep", "600", overlap=True, name=evil, submit_line=evil)
    assert made.code == "OK", made
    step = f"{own}.{made.message.step.rid.step_id}"
    for command in (
        f"squeue -h -j {job}",
        f"squeue -h -j {job} -o %i|%j|%k|%o",
        f"squeue -h -j {job} -O jobid,name,comment,command",
        f"squeue -h -s -j {step}",
        f"sacct -n -X -j {job} -o jobid,jobname%60,comment,submitline",
        f"sacct -n -X -P -j {job} -o jobid,jobname,comment,submitline",
        f"scontrol -o show job {job}",
        f"scontrol -o show step {step}",
    ):
        said = target.cluster.ok(*command.split())
        assert said.count("\n") == 1, (command, said)
        assert said[:-1].isprintable(), (command, said)
    for command in (f"scontrol show job {job}", f"scontrol show step {step}"):
        said = target.cluster.ok(*command.split())
        assert all(line.isprintable() for line in said.split("\n")), (command, said)
        assert not [line for line in said.splitlines() if line.strip().startswith("99999")]
    target.cluster.ok("scancel", job, step)
    assert all(line.isprintable() for line in target.logs().split("\n"))
    assert "event=forged" not in target.logs()


def test_the_cluster_has_not_noticed(target: Any, victim: Victim) -> None:
    assert runs(target, victim)
    target.works()

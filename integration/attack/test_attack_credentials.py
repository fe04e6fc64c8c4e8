"""Who is let in, and to whose jobs: at the controller and at the agent itself."""

import base64
import json
import time
from typing import Any

import pytest

from spur_auth import mint
from spur_auth.keys import derive
from spur_proto import agent_pb2, common_pb2
from spur_proto import controller_pb2 as pb

DENIED = "Access/permission denied"


@pytest.fixture(scope="module")
def owned(target: Any) -> Any:
    """A running job of the administrator's whose output goes to an attached client."""
    answer = target.submit(
        target.user_token(target.user),
        script=b"",
        argv=[b"/bin/sh", b"-c", b"echo secret-output; exec sleep 600"],
        srun_job=True,
        hold=False,
    )
    assert answer.code == "OK", answer
    job = str(answer.message.job_id)
    target.cluster.wait(job, "RUNNING")
    yield int(job)
    target.cluster.run("scancel", job)


def rid(job: int, step: int = 0) -> Any:
    return common_pb2.RuntimeId(job_id=job, run_attempt=1, step_id=step)


def test_changes_to_another_users_job_are_refused(
    target: Any, stranger: str, owned: int, helpers: Any
) -> None:
    targets = [pb.JobTarget(job_id=owned)]
    calls = [
        (target.ctl.CancelJob, pb.CancelJobRequest(targets=targets)),
        (target.ctl.CancelJob, pb.CancelJobRequest(targets=targets, signal=9)),
        (target.ctl.CancelJob, pb.CancelJobRequest(targets=targets, signal=10, full=True)),
        (target.ctl.UpdateJob, pb.UpdateJobRequest(targets=targets, time_limit_secs=60)),
        (target.ctl.UpdateJob, pb.UpdateJobRequest(targets=targets, hold=pb.HOLD_ACTION_HOLD)),
        (target.ctl.UpdateJob, pb.UpdateJobRequest(targets=targets, hold=pb.HOLD_ACTION_RELEASE)),
        (target.ctl.RequeueJob, pb.RequeueJobRequest(targets=targets)),
        (target.ctl.RequeueJob, pb.RequeueJobRequest(targets=targets, hold=True)),
    ]
    for call, request in calls:
        answer = helpers.ask(call, request, stranger)
        assert answer.code == "OK"
        assert [result.text for result in answer.message.results] == [DENIED], request
    assert target.cluster.state(str(owned)) == "RUNNING"


def test_nodes_are_not_for_users(target: Any, stranger: str, helpers: Any) -> None:
    for call, request in (
        (target.ctl.UpdateNode, pb.UpdateNodeRequest(names="node1", state="down", reason="mine")),
        (target.ctl.DrainNode, pb.DrainNodeRequest(node="node1", reason="mine")),
    ):
        assert helpers.ask(call, request, stranger)[:2] == ("PERMISSION_DENIED", DENIED)


def test_output_of_another_users_job_is_refused_by_the_agent(
    target: Any, stranger: str, owned: int, helpers: Any
) -> None:
    agent = target.agent("node1" if _node(target, owned) == "node1" else "node2")
    for attempt in (rid(owned), common_pb2.RuntimeId(job_id=owned)):
        answer = helpers.drain(agent.StreamJobOutput, agent_pb2.StreamJobOutputRequest(rid=attempt), stranger)
        assert (answer.code, answer.text, answer.message) == ("PERMISSION_DENIED", DENIED, [])
        init = agent_pb2.InteractiveSessionRequest(init=agent_pb2.SessionInit(rid=attempt))
        kill = agent_pb2.InteractiveSessionRequest(signal=9)
        answer = helpers.drain(agent.InteractiveSession, iter([init, kill]), stranger)
        assert (answer.code, answer.text, answer.message) == ("PERMISSION_DENIED", DENIED, [])
    assert target.cluster.state(str(owned)) == "RUNNING"


def test_nobody_looks_into_another_users_job_or_runs_anything_in_it(
    target: Any, stranger: str, owned: int, helpers: Any
) -> None:
    agent = target.agent(_node(target, owned))
    mark = target.cluster.work / "intruder"
    for attempt in (
        rid(owned),
        common_pb2.RuntimeId(job_id=owned),
        common_pb2.RuntimeId(job_id=owned, step_id=0),
    ):
        for init in (
            agent_pb2.SessionInit(rid=attempt, mode="SESSION_MODE_WATCHER", want_input=True),
            agent_pb2.SessionInit(rid=attempt, mode="SESSION_MODE_EXEC", argv=[b"touch", str(mark).encode()]),
            agent_pb2.SessionInit(rid=attempt, mode="SESSION_MODE_EXEC", argv=[b"sh"], pty=True),
        ):
            first = agent_pb2.InteractiveSessionRequest(init=init)
            answer = helpers.drain(agent.InteractiveSession, iter([first]), stranger)
            assert (answer.code, answer.text, answer.message) == ("PERMISSION_DENIED", DENIED, []), init
    assert not mark.exists()
    assert target.cluster.state(str(owned)) == "RUNNING"


def _node(target: Any, job: int) -> str:
    return str(target.cluster.ok("squeue", "-h", "-j", str(job), "-o", "%N").strip())


def test_agents_take_orders_from_the_controller_only(
    target: Any, stranger: str, owned: int, helpers: Any
) -> None:
    node = _node(target, owned)
    agent = target.agent(node)
    owner = target.user_token(target.user)
    for token in (None, stranger, owner, target.node_token(node), target.node_token("node9")):
        for call, request in (
            (agent.CancelJob, agent_pb2.AgentCancelJobRequest(rid=rid(owned), term=99)),
            (agent.ProbeStepd, agent_pb2.ProbeStepdRequest(rid=rid(owned))),
            (agent.LaunchJob, agent_pb2.LaunchJobRequest(target_node=node, term=99)),
        ):
            answer = helpers.ask(call, request, token)
            assert answer.code == "UNAUTHENTICATED", (answer, token)
    assert target.cluster.state(str(owned)) == "RUNNING"


def test_users_are_no_nodes(target: Any, stranger: str, helpers: Any) -> None:
    admin = target.user_token(target.user)
    calls = (
        (target.ctl.RegisterAgent, pb.RegisterAgentRequest(node="node1", cpus=1, port=1)),
        (target.ctl.Heartbeat, pb.HeartbeatRequest(node="node1")),
        (target.ctl.DeregisterAgent, pb.DeregisterAgentRequest(node="node1")),
        (target.ctl.ReportJobStatus, pb.ReportJobStatusRequest(node="node1", rid=rid(1))),
    )
    for token in (stranger, admin, target.controller_token()):
        # An administrator may register a node by hand, as he may set it down.
        for call, request in calls[token == admin :]:
            answer = helpers.ask(call, request, token)
            assert answer.code == "UNAUTHENTICATED", answer
            assert "credential is required" in answer.text


def test_the_name_of_a_live_node_cannot_be_had(target: Any, owned: int, stranger: str, helpers: Any) -> None:
    """Not with a user's token, not with another node's, and not with the cluster's own key."""
    here = _node(target, owned)
    other = {"node1": "node2", "node2": "node1"}[here]
    before = target.cluster.ok("scontrol", "show", "node", here)
    thief = pb.RegisterAgentRequest(
        node=here, hostname="thief", address="127.0.0.1", port=9, cpus=64, memory_mb=64, boot_id="another"
    )
    for token, code in (
        (stranger, "UNAUTHENTICATED"),
        (target.user_token(here), "UNAUTHENTICATED"),
        (target.node_token(other), "PERMISSION_DENIED"),
        (target.copied_node_token(here), "PERMISSION_DENIED"),
        (target.copied_node_token(here, "guessed"), "PERMISSION_DENIED"),
    ):
        assert helpers.ask(target.ctl.RegisterAgent, thief, token).code == code
    stale = pb.RecoveryEntry(rid=rid(owned), state=pb.RECOVERY_STATE_STALE)
    report = pb.ReportStepdRecoveryRequest(hostname=here, entries=[stale])
    beat = pb.HeartbeatRequest(node=here, has_snapshot=True)
    ended = pb.ReportJobStatusRequest(node=here, rid=rid(owned), epilog_error="x")
    for call, request in (
        (target.ctl.ReportStepdRecovery, report),
        (target.ctl.Heartbeat, beat),
        (target.ctl.ReportJobStatus, ended),
        (target.ctl.DeregisterAgent, pb.DeregisterAgentRequest(node=here)),
        (target.ctl.DrainNode, pb.DrainNodeRequest(node=here, reason="x")),
    ):
        for token in (target.copied_node_token(here), target.copied_node_token(here, "guessed")):
            answer = helpers.ask(call, request, token)
            assert answer.code == "UNAUTHENTICATED", (call, answer)
            assert answer.text == f"node {here} is registered by another agent; register again"
    assert target.cluster.state(str(owned)) == "RUNNING"
    after = target.cluster.ok("scontrol", "show", "node", here)
    assert [_line(after, word) for word in ("NodeAddr", "CPUTot", "State")] == [
        _line(before, word) for word in ("NodeAddr", "CPUTot", "State")
    ]


def _line(text: str, word: str) -> str:
    return next(part for part in text.split() if part.startswith(f"{word}="))


def test_nodes_are_no_users_and_speak_for_themselves_only(target: Any, owned: int, helpers: Any) -> None:
    here = _node(target, owned)
    other = {"node1": "node2", "node2": "node1"}[here]
    token = target.node_token(other)
    assert target.submit(token).code == "UNAUTHENTICATED"
    for call, request in (
        (target.ctl.GetJobs, pb.GetJobsRequest()),
        (target.ctl.CancelJob, pb.CancelJobRequest(targets=[pb.JobTarget(job_id=owned)])),
        (target.ctl.UpdateNode, pb.UpdateNodeRequest(names=here, state="down", reason="x")),
    ):
        assert helpers.ask(call, request, token).code == "UNAUTHENTICATED"
    for call, request in (
        (target.ctl.RegisterAgent, pb.RegisterAgentRequest(node=here, cpus=1, port=1)),
        (target.ctl.Heartbeat, pb.HeartbeatRequest(node=here)),
        (target.ctl.DeregisterAgent, pb.DeregisterAgentRequest(node=here)),
        (target.ctl.DrainNode, pb.DrainNodeRequest(node=here, reason="x")),
        (target.ctl.ReportJobStatus, pb.ReportJobStatusRequest(node=here, rid=rid(owned))),
    ):
        answer = helpers.ask(call, request, token)
        assert answer[:2] == ("PERMISSION_DENIED", DENIED), (call, answer)
    # About a job that does not run on it a node may talk, and is told so.
    answer = helpers.ask(
        target.ctl.ReportJobStatus, pb.ReportJobStatusRequest(node=other, rid=rid(owned)), token
    )
    assert answer.message.verdict == pb.REPORT_VERDICT_WRONG_NODE
    assert target.cluster.state(str(owned)) == "RUNNING"


def _encode(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def bad_tokens(target: Any) -> dict[str, tuple[str | None, str]]:
    """Word -> (token, part of the sentence that refuses it)."""
    now = int(time.time())
    claims = {"aud": "spur:user", "kind": "user", "iat": now, "exp": now + 600, "sub": "root", "iss": "local"}
    none = {"alg": "none", "typ": "JWT"}
    genuine = target.user_token("root")
    head, body, tail = genuine.split(".")
    middle = json.loads(base64.urlsafe_b64decode(body + "=="))
    middle["exp"] += 10**6
    return {
        "missing": (None, "no credential was sent"),
        "empty": ("", "Bearer and one token"),
        "words": ("a b", "Bearer and one token"),
        "no token": ("abc", "not a JSON web token"),
        "long": ("a." * 100 + "b" * 9000, "longer than 8192"),
        "none": (f"{_encode(none)}.{_encode(claims)}.", "algorithm 'none'"),
        "none, signed": (f"{_encode(none)}.{_encode(claims)}.{tail}", "algorithm 'none'"),
        "changed": (f"{head}.{_encode(middle)}.{tail}", "signature"),
        "another key": (mint.mint_user(b"k" * 32, "root", 0, 600, now, cluster="local"), "signature"),
        "raw key": (mint.mint_user(derive(target.key, "user"), "root", 0, 600, now), "signature"),
        "expired": (target.user_token("root", now=now - 7200), "expired"),
        "not yet": (target.user_token("root", now=now + 7200), "not valid"),
        "infinite": (_signed(target.key, claims | {"exp": 1e400}), "exp"),
        "no subject": (_signed(target.key, claims | {"sub": ""}), "names nobody"),
        "audience": (_signed(target.key, claims | {"aud": "spur:node"}), "spur:node"),
        "kind list": (_signed(target.key, claims | {"kind": "admin"}), "kind"),
    }


def _signed(key: bytes, claims: dict[str, Any]) -> str:
    import jwt

    return jwt.encode(claims, derive(key, "user"), algorithm="HS256")


def test_bad_tokens_are_refused_with_their_reason(target: Any, owned: int, helpers: Any) -> None:
    agent = target.agent(_node(target, owned))
    for word, (token, reason) in bad_tokens(target).items():
        stream = agent_pb2.StreamJobOutputRequest(rid=rid(owned))
        for answer in (
            helpers.ask(target.ctl.GetJobs, pb.GetJobsRequest(), token),
            helpers.drain(agent.StreamJobOutput, stream, token),
        ):
            assert not answer.message
            if word == "long" and answer.code == "RESOURCE_EXHAUSTED":
                continue  # above its limit for headers gRPC itself may refuse, by chance
            assert answer.code == "UNAUTHENTICATED", (word, answer)
            assert reason in answer.text, (word, answer)


def test_a_name_without_a_token_is_nobody(target: Any, owned: int, helpers: Any) -> None:
    for name in ("root", target.user):
        claim = [("x-spur-user", name)]
        for call, request in (
            (target.ctl.GetJobs, pb.GetJobsRequest()),
            (target.ctl.CancelJob, pb.CancelJobRequest(targets=[pb.JobTarget(job_id=owned)])),
        ):
            assert helpers.ask(call, request, None, metadata=claim).code == "UNAUTHENTICATED"
    # Nor does a claim change whom a token names.
    answer = helpers.ask(
        target.ctl.CancelJob,
        pb.CancelJobRequest(targets=[pb.JobTarget(job_id=owned)]),
        target.user_token(helpers.stranger),
        metadata=[("x-spur-user", "root")],
    )
    assert answer.message.results[0].text == DENIED


def test_the_uid_in_a_token_gives_no_rights(target: Any, owned: int, helpers: Any) -> None:
    token = mint.mint_user(target.key, helpers.stranger, 0, 600, time.time(), cluster="local")
    answer = helpers.ask(
        target.ctl.CancelJob, pb.CancelJobRequest(targets=[pb.JobTarget(job_id=owned)]), token
    )
    assert answer.code != "OK" or answer.message.results[0].text == DENIED
    assert target.cluster.state(str(owned)) == "RUNNING"
    drain = helpers.ask(target.ctl.DrainNode, pb.DrainNodeRequest(node="node1", reason="x"), token)
    assert drain.code == "PERMISSION_DENIED"

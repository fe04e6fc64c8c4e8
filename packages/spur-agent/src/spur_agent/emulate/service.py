"""The gRPC service SlurmAgent of all virtual nodes, at one address."""

import hashlib
import logging
import time
from typing import Any, Final

from google.protobuf.message import DecodeError

from spur_agent import local_spec, trust
from spur_agent.emulate import script
from spur_agent.emulate.steps import Steps
from spur_agent.terms import Terms
from spur_core.errors import RequestError, Unsupported, WrongState
from spur_core.ids import RuntimeId
from spur_proto import agent_pb2 as pb
from spur_proto import agent_pb2_grpc

log = logging.getLogger(__name__)

#: What these signals do to a process that has no handler for them.
_HARMLESS: Final = frozenset({17, 18, 19, 20, 21, 22, 23, 28})
_TERM: Final = 15


class EmulatedService(agent_pb2_grpc.SlurmAgentServicer):
    """Callers have been authenticated by the gate."""

    def __init__(self, nodes: frozenset[str], rules: trust.Rules, terms: Terms, steps: Steps) -> None:
        self._nodes = nodes
        self._rules = rules
        self._terms = terms
        self._steps = steps

    def _checked(
        self, request: pb.LaunchJobRequest | pb.RunCommandRequest
    ) -> tuple[RuntimeId, pb.LaunchSpec, str]:
        """As a real agent judges a launch.

        Raises:
            RequestError, AccessDenied, WrongState, CredentialError: it is refused.
        """
        if request.target_node not in self._nodes:
            raise WrongState(f"the launch is for node {request.target_node!r}, which is not emulated here")
        wire = pb.LaunchSpec()
        try:
            wire.ParseFromString(request.spec)
        except DecodeError:
            raise RequestError("the launch spec is no message of that type") from None
        rid = local_spec.rid_of(wire)
        digest = hashlib.sha256(request.spec).hexdigest()
        trust.check_statement(
            self._rules,
            request.launch_token,
            rid,
            wire.uid,
            wire.gid,
            digest,
            request.target_node,
            time.time(),
        )
        self._terms.check(request.term)
        return rid, wire, digest

    async def LaunchJob(self, request: pb.LaunchJobRequest, context: Any) -> pb.LaunchJobResponse:
        rid, wire, digest = self._checked(request)
        doing = None
        if not wire.hold:
            doing = script.of_script(wire.script) if wire.script else script.of_words(wire.argv)
        step = self._steps.begin(request.target_node, rid, digest, doing, lifetime=True)
        return pb.LaunchJobResponse(success=True, started_at=step.started_at)

    async def RunCommand(self, request: pb.RunCommandRequest, context: Any) -> pb.RunCommandResponse:
        rid, wire, digest = self._checked(request)
        doing = None if wire.hold else script.of_words(wire.argv)
        step = self._steps.begin(request.target_node, rid, digest, doing, lifetime=False)
        return pb.RunCommandResponse(success=True, started_at=step.started_at)

    async def CancelJob(self, request: pb.AgentCancelJobRequest, context: Any) -> pb.AgentCancelJobResponse:
        rid = request.rid
        if not rid.job_id or not rid.run_attempt:
            raise RequestError("rid: job and attempt must be given")
        self._terms.check(request.term)
        step_id = rid.step_id if rid.HasField("step_id") else None
        number = request.signal if request.HasField("signal") else _TERM
        found = self._steps.named(rid.job_id, rid.run_attempt, step_id)
        for step in found:
            if number not in _HARMLESS and not (request.steps_only and step.lifetime):
                self._steps.kill(step, number)
        return pb.AgentCancelJobResponse(active=bool(found))

    async def SuspendJob(
        self, request: pb.AgentSuspendJobRequest, context: Any
    ) -> pb.AgentSuspendJobResponse:
        raise Unsupported("an emulated node runs nothing that could be suspended")

    async def ProbeStepd(self, request: pb.ProbeStepdRequest, context: Any) -> pb.ProbeStepdResponse:
        rid = request.rid
        if not rid.job_id or not rid.run_attempt or not rid.HasField("step_id"):
            raise RequestError("rid: job, attempt and step must be given")
        if request.term:
            self._terms.check(request.term)
        found = self._steps.named(rid.job_id, rid.run_attempt, rid.step_id)
        if not found:
            return pb.ProbeStepdResponse(active=False)
        step = next((one for one in found if one.exit is None), found[0])
        answer = pb.ProbeStepdResponse(active=True, state="live", started_at=step.started_at)
        if step.exit is not None:
            answer.state = "finished"
            answer.exit.CopyFrom(step.exit)
        return answer

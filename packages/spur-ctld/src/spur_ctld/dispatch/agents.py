"""Calls to node agents: one channel per address, a fresh controller token on every call.

Every call names the run exactly.  An error of the other side becomes one of ours: `Unreachable` when it
may or may not have happened, `AgentRefused` when the agent said no and certainly did nothing.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import grpc
from grpc import aio

from spur_auth import mint
from spur_core.errors import SpurError, Unreachable
from spur_core.ids import RuntimeId
from spur_ctld.api.grpc_errors import CODE_KEY
from spur_ctld.dispatch import exact
from spur_ctld.dispatch.launch_spec import rid_message
from spur_ctld.replication.errors import NotLeader
from spur_proto import agent_pb2 as pb
from spur_proto import agent_pb2_grpc

#: A controller token is used for at most this many seconds; it lives for 300.
_TOKEN_USE_SECS: Final = 200.0
#: Launching may wait for an older attempt to go (30 s) and for a supervisor to get ready (10 s).
LAUNCH_TIMEOUT_SECS: Final = 60.0
CALL_TIMEOUT_SECS: Final = 5.0

_OPTIONS: Final = (
    ("grpc.max_send_message_length", 32 << 20),
    ("grpc.max_receive_message_length", 32 << 20),
    # An agent that comes back shall be reached at once, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 60000),
    # Each address has a channel of its own; sharing sub-channels would share their back-off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
#: The agent answered and did nothing.
_CERTAIN: Final = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)


#: gRPC's words for a call that it could not even begin to send.
_UNSENT: Final = "failed to connect to all addresses"


class AgentRefused(SpurError):
    """The agent said no; nothing was done.

    Attributes:
        for_request: the request itself is what cannot be; another node would say the same.
    """

    code = "agent_refused"

    def __init__(self, text: str, *, for_request: bool = False) -> None:
        super().__init__(text)
        self.for_request = for_request


class AgentUnreached(Unreachable):
    """There was no connection, so the call never left."""

    code = "agent_unreached"


class AgentBusy(Unreachable):
    """The agent answered that it cannot answer yet (a launch, or its scan, is under way)."""

    code = "agent_busy"


class Launched(NamedTuple):
    """A node's answer to a launch."""

    success: bool
    failure: int
    error: str
    stdout_path: str
    stderr_path: str
    started_at: float


def _answered(error: aio.AioRpcError) -> bool:
    """Whether the refusal comes from the agent itself, not from a connection that failed."""
    trailing: Any = error.trailing_metadata()
    return any(key == CODE_KEY for key, _ in trailing or ())


class Credentials:
    """Makes the controller's tokens; without a key calls carry none.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, key: bytes | None, cluster: str, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._cluster = cluster
        self._clock = clock
        self._token = ""
        self._minted_at = 0.0

    def metadata(self) -> Sequence[tuple[str, str]]:
        """What goes with every call."""
        token = self.token()
        return (("authorization", f"Bearer {token}"),) if token else ()

    def token(self) -> str:
        """A controller's token; empty without a key."""
        if self._key is None:
            return ""
        now = self._clock()
        if not self._token or not 0 <= now - self._minted_at < _TOKEN_USE_SECS:
            self._token = mint.mint_controller(self._key, now, cluster=self._cluster)
            self._minted_at = now
        return self._token

    def launch_token(self, rid: RuntimeId, uid: int, gid: int, spec: bytes, node: str) -> str:
        """The signed statement over exactly these bytes; empty without a key."""
        if self._key is None:
            return ""
        digest = hashlib.sha256(spec).hexdigest()
        return mint.mint_launch(
            self._key, rid, uid, gid, digest, node, now=self._clock(), cluster=self._cluster
        )


class AgentPool:
    """Talks to agents by address (`host:port`).

    Args:
        term: the term in which this controller leads; agents refuse lower ones.  It must never become a term
            in which another controller leads, or orders of a deposed leader would pass for the new one's.
    """

    def __init__(self, credentials: Credentials, term: Callable[[], int]) -> None:
        self._credentials = credentials
        self._term = term
        self._channels: dict[str, Any] = {}
        self._stubs: dict[str, agent_pb2_grpc.SlurmAgentStub] = {}
        self._over = False
        #: Calls under way.
        self.calling = 0

    def _stub(self, address: str) -> agent_pb2_grpc.SlurmAgentStub:
        stub = self._stubs.get(address)
        if stub is None:
            channel = aio.insecure_channel(address, options=_OPTIONS)
            self._channels[address] = channel
            stub = self._stubs[address] = agent_pb2_grpc.SlurmAgentStub(channel)
        return stub

    async def forget(self, address: str) -> None:
        """Close the channel of an address that no node has any more."""
        channel = self._channels.pop(address, None)
        self._stubs.pop(address, None)
        if channel is not None:
            await channel.close()

    def dismiss(self) -> None:
        """No call leaves from now on: this controller leads no longer."""
        self._over = True

    async def close(self) -> None:
        """Close every channel; calls in flight end with `Unreachable`."""
        self._over = True
        for address in list(self._channels):
            await self.forget(address)

    async def _call(self, address: str, name: str, rid: Any, request: Any, timeout: float) -> Any:
        """One call about exactly the run that `rid`, the message, names."""
        exact.require(name, rid)
        if self._over:
            raise NotLeader
        if not address:
            raise Unreachable("the node has no address: its agent never registered")
        self.calling += 1
        try:
            method = getattr(self._stub(address), name)
            return await method(request, timeout=timeout, metadata=self._credentials.metadata())
        except aio.AioRpcError as error:
            text = f"{name} on {address}: {error.details() or error.code().name}"
            if error.code() in _CERTAIN:
                bad = error.code() is grpc.StatusCode.INVALID_ARGUMENT
                raise AgentRefused(text, for_request=bad) from None
            if error.code() is grpc.StatusCode.UNAVAILABLE and _answered(error):
                raise AgentBusy(text) from None
            raise (AgentUnreached if _UNSENT in text else Unreachable)(text) from None
        finally:
            self.calling -= 1

    async def launch(self, address: str, node: str, spec: pb.LaunchSpec) -> Launched:
        """Start a node's part of an attempt; a repeat of the same spec is absorbed by the agent."""
        request = pb.LaunchJobRequest(**self._signed(node, spec))
        answer = await self._call(address, "LaunchJob", spec.rid, request, LAUNCH_TIMEOUT_SECS)
        return Launched(
            answer.success,
            answer.failure,
            answer.error,
            answer.stdout_path,
            answer.stderr_path,
            answer.started_at,
        )

    def _signed(self, node: str, spec: pb.LaunchSpec) -> dict[str, Any]:
        """The fields of a launch request: the exact bytes, and the statement over them."""
        data = spec.SerializeToString()
        rid = RuntimeId(spec.rid.job_id, spec.rid.run_attempt, spec.rid.step_id)
        return {
            "spec": data,
            "target_node": node,
            "launch_token": self._credentials.launch_token(rid, spec.uid, spec.gid, data, node),
            "term": self._term(),
        }

    async def run_command(self, address: str, node: str, spec: pb.LaunchSpec) -> Launched:
        """Start a node's part of one more step of an attempt that is there; a repeat is absorbed."""
        request = pb.RunCommandRequest(**self._signed(node, spec))
        answer = await self._call(address, "RunCommand", spec.rid, request, LAUNCH_TIMEOUT_SECS)
        return Launched(answer.success, answer.failure, answer.error, "", "", answer.started_at)

    async def suspend(self, address: str, job_id: int, attempt: int, *, resume: bool) -> int:
        """Stop every step of the attempt there, or let it go on; how many there are."""
        request = pb.AgentSuspendJobRequest(resume=resume, term=self._term())
        request.rid.job_id, request.rid.run_attempt = job_id, attempt
        answer = await self._call(address, "SuspendJob", request.rid, request, CALL_TIMEOUT_SECS)
        return int(answer.steps)

    async def end(self, address: str, job_id: int, attempt: int, grace_secs: int, reason: str) -> bool:
        """TERM, grace, KILL for every step of the attempt.  True: something of it is (still) there."""
        request = pb.AgentCancelJobRequest(grace_secs=grace_secs, reason=reason, term=self._term())
        request.rid.job_id, request.rid.run_attempt = job_id, attempt
        answer = await self._call(address, "CancelJob", request.rid, request, CALL_TIMEOUT_SECS)
        return bool(answer.active)

    async def signal(
        self,
        address: str,
        job_id: int,
        attempt: int,
        signal: int,
        *,
        step_id: int | None = None,
        batch_only: bool = False,
        steps_only: bool = False,
    ) -> bool:
        """Deliver one signal; the job goes on.  False: nothing of that run is there."""
        request = pb.AgentCancelJobRequest(
            signal=signal, batch_only=batch_only, steps_only=steps_only, term=self._term()
        )
        request.rid.job_id, request.rid.run_attempt = job_id, attempt
        if step_id is not None:
            request.rid.step_id = step_id
        answer = await self._call(address, "CancelJob", request.rid, request, CALL_TIMEOUT_SECS)
        return bool(answer.active)

    async def end_step(self, address: str, rid: RuntimeId, grace_secs: int, reason: str) -> bool:
        """TERM, grace, KILL for one step."""
        request = pb.AgentCancelJobRequest(
            rid=rid_message(rid), grace_secs=grace_secs, reason=reason, term=self._term()
        )
        answer = await self._call(address, "CancelJob", request.rid, request, CALL_TIMEOUT_SECS)
        return bool(answer.active)

    async def probe(self, address: str, rid: RuntimeId) -> pb.ProbeStepdResponse:
        """What the agent holds of `rid`; not active means certainly not running there."""
        request = pb.ProbeStepdRequest(rid=rid_message(rid), term=self._term())
        answer: pb.ProbeStepdResponse = await self._call(
            address, "ProbeStepd", request.rid, request, CALL_TIMEOUT_SECS
        )
        return answer

"""The gRPC service SlurmAgent: each RPC handed to the part that answers it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from spur_agent.control_calls import ControlCalls
from spur_agent.launch import Launcher
from spur_agent.streams import Streams
from spur_core.errors import BusyError
from spur_proto import agent_pb2 as pb
from spur_proto import agent_pb2_grpc

#: A launch may overtake the answer to the registration that led to it by so much.
_REGISTRATION_SECS: Final = 5.0


class AgentService(agent_pb2_grpc.SlurmAgentServicer):
    """Callers have been authenticated by the gate."""

    def __init__(
        self, launcher: Launcher, control: ControlCalls, streams: Streams, registered: asyncio.Event
    ) -> None:
        self._launcher = launcher
        self._control = control
        self._streams = streams
        self._registered = registered

    async def LaunchJob(self, request: pb.LaunchJobRequest, context: Any) -> pb.LaunchJobResponse:
        await self._ready()
        return await self._launcher.launch(request)

    async def RunCommand(self, request: pb.RunCommandRequest, context: Any) -> pb.RunCommandResponse:
        await self._ready()
        return await self._launcher.run_command(request)

    async def _ready(self) -> None:
        if not self._registered.is_set():
            # Only then is the controller's term known, and the controller knows what is here.
            try:
                async with asyncio.timeout(_REGISTRATION_SECS):
                    await self._registered.wait()
            except TimeoutError:
                raise BusyError("the agent is not registered yet") from None

    async def CancelJob(self, request: pb.AgentCancelJobRequest, context: Any) -> pb.AgentCancelJobResponse:
        return await self._control.cancel(request)

    async def SuspendJob(
        self, request: pb.AgentSuspendJobRequest, context: Any
    ) -> pb.AgentSuspendJobResponse:
        return await self._control.suspend(request)

    async def ProbeStepd(self, request: pb.ProbeStepdRequest, context: Any) -> pb.ProbeStepdResponse:
        return await self._control.probe(request)

    def StreamJobOutput(
        self, request: pb.StreamJobOutputRequest, context: Any
    ) -> AsyncIterator[pb.StreamJobOutputResponse]:
        return self._streams.output(request)

    def InteractiveSession(
        self, request_iterator: AsyncIterator[pb.InteractiveSessionRequest], context: Any
    ) -> AsyncIterator[pb.InteractiveSessionResponse]:
        return self._streams.interactive(request_iterator)

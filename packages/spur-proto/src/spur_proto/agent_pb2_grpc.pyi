"""Types of the gRPC code of spur_proto/agent.proto.  Written by tools/protoc_gen_grpc_python.py; do not edit."""

from collections.abc import AsyncIterator, Awaitable
from typing import overload, type_check_only

import grpc
import grpc.aio

from spur_proto import agent_pb2

class SlurmAgentStub:
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> SlurmAgentStub: ...
    @overload
    def __new__(cls, channel: grpc.Channel) -> SlurmAgentBlockingStub: ...
    LaunchJob: grpc.aio.UnaryUnaryMultiCallable[agent_pb2.LaunchJobRequest, agent_pb2.LaunchJobResponse]
    RunCommand: grpc.aio.UnaryUnaryMultiCallable[agent_pb2.RunCommandRequest, agent_pb2.RunCommandResponse]
    CancelJob: grpc.aio.UnaryUnaryMultiCallable[agent_pb2.AgentCancelJobRequest, agent_pb2.AgentCancelJobResponse]
    SuspendJob: grpc.aio.UnaryUnaryMultiCallable[agent_pb2.AgentSuspendJobRequest, agent_pb2.AgentSuspendJobResponse]
    ProbeStepd: grpc.aio.UnaryUnaryMultiCallable[agent_pb2.ProbeStepdRequest, agent_pb2.ProbeStepdResponse]
    StreamJobOutput: grpc.aio.UnaryStreamMultiCallable[agent_pb2.StreamJobOutputRequest, agent_pb2.StreamJobOutputResponse]
    InteractiveSession: grpc.aio.StreamStreamMultiCallable[agent_pb2.InteractiveSessionRequest, agent_pb2.InteractiveSessionResponse]

@type_check_only
class SlurmAgentBlockingStub(SlurmAgentStub):
    LaunchJob: grpc.UnaryUnaryMultiCallable[agent_pb2.LaunchJobRequest, agent_pb2.LaunchJobResponse]  # type: ignore[assignment]
    RunCommand: grpc.UnaryUnaryMultiCallable[agent_pb2.RunCommandRequest, agent_pb2.RunCommandResponse]  # type: ignore[assignment]
    CancelJob: grpc.UnaryUnaryMultiCallable[agent_pb2.AgentCancelJobRequest, agent_pb2.AgentCancelJobResponse]  # type: ignore[assignment]
    SuspendJob: grpc.UnaryUnaryMultiCallable[agent_pb2.AgentSuspendJobRequest, agent_pb2.AgentSuspendJobResponse]  # type: ignore[assignment]
    ProbeStepd: grpc.UnaryUnaryMultiCallable[agent_pb2.ProbeStepdRequest, agent_pb2.ProbeStepdResponse]  # type: ignore[assignment]
    StreamJobOutput: grpc.UnaryStreamMultiCallable[agent_pb2.StreamJobOutputRequest, agent_pb2.StreamJobOutputResponse]  # type: ignore[assignment]
    InteractiveSession: grpc.StreamStreamMultiCallable[agent_pb2.InteractiveSessionRequest, agent_pb2.InteractiveSessionResponse]  # type: ignore[assignment]

class SlurmAgentServicer:
    def LaunchJob(self, request: agent_pb2.LaunchJobRequest, context: grpc.aio.ServicerContext[agent_pb2.LaunchJobRequest, agent_pb2.LaunchJobResponse]) -> Awaitable[agent_pb2.LaunchJobResponse]: ...
    def RunCommand(self, request: agent_pb2.RunCommandRequest, context: grpc.aio.ServicerContext[agent_pb2.RunCommandRequest, agent_pb2.RunCommandResponse]) -> Awaitable[agent_pb2.RunCommandResponse]: ...
    def CancelJob(self, request: agent_pb2.AgentCancelJobRequest, context: grpc.aio.ServicerContext[agent_pb2.AgentCancelJobRequest, agent_pb2.AgentCancelJobResponse]) -> Awaitable[agent_pb2.AgentCancelJobResponse]: ...
    def SuspendJob(self, request: agent_pb2.AgentSuspendJobRequest, context: grpc.aio.ServicerContext[agent_pb2.AgentSuspendJobRequest, agent_pb2.AgentSuspendJobResponse]) -> Awaitable[agent_pb2.AgentSuspendJobResponse]: ...
    def ProbeStepd(self, request: agent_pb2.ProbeStepdRequest, context: grpc.aio.ServicerContext[agent_pb2.ProbeStepdRequest, agent_pb2.ProbeStepdResponse]) -> Awaitable[agent_pb2.ProbeStepdResponse]: ...
    def StreamJobOutput(self, request: agent_pb2.StreamJobOutputRequest, context: grpc.aio.ServicerContext[agent_pb2.StreamJobOutputRequest, agent_pb2.StreamJobOutputResponse]) -> AsyncIterator[agent_pb2.StreamJobOutputResponse]: ...
    def InteractiveSession(self, request_iterator: AsyncIterator[agent_pb2.InteractiveSessionRequest], context: grpc.aio.ServicerContext[agent_pb2.InteractiveSessionRequest, agent_pb2.InteractiveSessionResponse]) -> AsyncIterator[agent_pb2.InteractiveSessionResponse]: ...

def add_SlurmAgentServicer_to_server(servicer: SlurmAgentServicer, server: grpc.aio.Server) -> None: ...

"""Types of the gRPC code of spur_proto/raft_internal.proto.  Written by tools/protoc_gen_grpc_python.py; do not edit."""

from collections.abc import AsyncIterator, Awaitable
from typing import overload, type_check_only

import grpc
import grpc.aio

from spur_proto import raft_internal_pb2

class RaftInternalStub:
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> RaftInternalStub: ...
    @overload
    def __new__(cls, channel: grpc.Channel) -> RaftInternalBlockingStub: ...
    Messages: grpc.aio.StreamUnaryMultiCallable[raft_internal_pb2.Frame, raft_internal_pb2.MessagesEnd]
    Snapshot: grpc.aio.StreamUnaryMultiCallable[raft_internal_pb2.SnapshotChunk, raft_internal_pb2.SnapshotDone]
    Forward: grpc.aio.UnaryUnaryMultiCallable[raft_internal_pb2.ForwardRequest, raft_internal_pb2.ForwardReply]
    Status: grpc.aio.UnaryUnaryMultiCallable[raft_internal_pb2.StatusRequest, raft_internal_pb2.StatusReply]

@type_check_only
class RaftInternalBlockingStub(RaftInternalStub):
    Messages: grpc.StreamUnaryMultiCallable[raft_internal_pb2.Frame, raft_internal_pb2.MessagesEnd]  # type: ignore[assignment]
    Snapshot: grpc.StreamUnaryMultiCallable[raft_internal_pb2.SnapshotChunk, raft_internal_pb2.SnapshotDone]  # type: ignore[assignment]
    Forward: grpc.UnaryUnaryMultiCallable[raft_internal_pb2.ForwardRequest, raft_internal_pb2.ForwardReply]  # type: ignore[assignment]
    Status: grpc.UnaryUnaryMultiCallable[raft_internal_pb2.StatusRequest, raft_internal_pb2.StatusReply]  # type: ignore[assignment]

class RaftInternalServicer:
    def Messages(self, request_iterator: AsyncIterator[raft_internal_pb2.Frame], context: grpc.aio.ServicerContext[raft_internal_pb2.Frame, raft_internal_pb2.MessagesEnd]) -> Awaitable[raft_internal_pb2.MessagesEnd]: ...
    def Snapshot(self, request_iterator: AsyncIterator[raft_internal_pb2.SnapshotChunk], context: grpc.aio.ServicerContext[raft_internal_pb2.SnapshotChunk, raft_internal_pb2.SnapshotDone]) -> Awaitable[raft_internal_pb2.SnapshotDone]: ...
    def Forward(self, request: raft_internal_pb2.ForwardRequest, context: grpc.aio.ServicerContext[raft_internal_pb2.ForwardRequest, raft_internal_pb2.ForwardReply]) -> Awaitable[raft_internal_pb2.ForwardReply]: ...
    def Status(self, request: raft_internal_pb2.StatusRequest, context: grpc.aio.ServicerContext[raft_internal_pb2.StatusRequest, raft_internal_pb2.StatusReply]) -> Awaitable[raft_internal_pb2.StatusReply]: ...

def add_RaftInternalServicer_to_server(servicer: RaftInternalServicer, server: grpc.aio.Server) -> None: ...

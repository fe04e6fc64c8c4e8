"""Types of the gRPC code of spur_proto/accounting.proto.  Written by tools/protoc_gen_grpc_python.py; do not edit."""

from collections.abc import AsyncIterator, Awaitable
from typing import overload, type_check_only

import grpc
import grpc.aio

from spur_proto import accounting_pb2

class SlurmAccountingStub:
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> SlurmAccountingStub: ...
    @overload
    def __new__(cls, channel: grpc.Channel) -> SlurmAccountingBlockingStub: ...
    GetJobHistory: grpc.aio.UnaryUnaryMultiCallable[accounting_pb2.GetJobHistoryRequest, accounting_pb2.GetJobHistoryResponse]

@type_check_only
class SlurmAccountingBlockingStub(SlurmAccountingStub):
    GetJobHistory: grpc.UnaryUnaryMultiCallable[accounting_pb2.GetJobHistoryRequest, accounting_pb2.GetJobHistoryResponse]  # type: ignore[assignment]

class SlurmAccountingServicer:
    def GetJobHistory(self, request: accounting_pb2.GetJobHistoryRequest, context: grpc.aio.ServicerContext[accounting_pb2.GetJobHistoryRequest, accounting_pb2.GetJobHistoryResponse]) -> Awaitable[accounting_pb2.GetJobHistoryResponse]: ...

def add_SlurmAccountingServicer_to_server(servicer: SlurmAccountingServicer, server: grpc.aio.Server) -> None: ...

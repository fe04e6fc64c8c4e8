"""Types of the gRPC code of spur_proto/controller.proto.  Written by tools/protoc_gen_grpc_python.py; do not edit."""

from collections.abc import AsyncIterator, Awaitable
from typing import overload, type_check_only

import grpc
import grpc.aio

from spur_proto import controller_pb2

class SlurmControllerStub:
    @overload
    def __new__(cls, channel: grpc.aio.Channel) -> SlurmControllerStub: ...
    @overload
    def __new__(cls, channel: grpc.Channel) -> SlurmControllerBlockingStub: ...
    SubmitJob: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.SubmitJobRequest, controller_pb2.SubmitJobResponse]
    GetJobs: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.GetJobsRequest, controller_pb2.GetJobsResponse]
    WatchJob: grpc.aio.UnaryStreamMultiCallable[controller_pb2.WatchJobRequest, controller_pb2.WatchJobResponse]
    CancelJob: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.CancelJobRequest, controller_pb2.CancelJobResponse]
    UpdateJob: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.UpdateJobRequest, controller_pb2.UpdateJobResponse]
    RequeueJob: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.RequeueJobRequest, controller_pb2.RequeueJobResponse]
    SuspendJob: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.SuspendJobRequest, controller_pb2.SuspendJobResponse]
    ResumeJob: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.ResumeJobRequest, controller_pb2.ResumeJobResponse]
    CompleteJob: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.CompleteJobRequest, controller_pb2.CompleteJobResponse]
    JobKeepalive: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.JobKeepaliveRequest, controller_pb2.JobKeepaliveResponse]
    CreateJobStep: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.CreateJobStepRequest, controller_pb2.CreateJobStepResponse]
    GetJobSteps: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.GetJobStepsRequest, controller_pb2.GetJobStepsResponse]
    WatchStep: grpc.aio.UnaryStreamMultiCallable[controller_pb2.WatchStepRequest, controller_pb2.WatchStepResponse]
    GetNodes: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.GetNodesRequest, controller_pb2.GetNodesResponse]
    UpdateNode: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.UpdateNodeRequest, controller_pb2.UpdateNodeResponse]
    GetPartitions: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.GetPartitionsRequest, controller_pb2.GetPartitionsResponse]
    GetConfig: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.GetConfigRequest, controller_pb2.GetConfigResponse]
    GetTopology: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.GetTopologyRequest, controller_pb2.GetTopologyResponse]
    CreatePartition: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.CreatePartitionRequest, controller_pb2.CreatePartitionResponse]
    UpdatePartition: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.UpdatePartitionRequest, controller_pb2.UpdatePartitionResponse]
    DeletePartition: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.DeletePartitionRequest, controller_pb2.DeletePartitionResponse]
    CreateReservation: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.CreateReservationRequest, controller_pb2.CreateReservationResponse]
    UpdateReservation: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.UpdateReservationRequest, controller_pb2.UpdateReservationResponse]
    DeleteReservation: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.DeleteReservationRequest, controller_pb2.DeleteReservationResponse]
    ListReservations: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.ListReservationsRequest, controller_pb2.ListReservationsResponse]
    GetLicenses: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.GetLicensesRequest, controller_pb2.GetLicensesResponse]
    GetPriorities: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.GetPrioritiesRequest, controller_pb2.GetPrioritiesResponse]
    Ping: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.PingRequest, controller_pb2.PingResponse]
    Takeover: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.TakeoverRequest, controller_pb2.TakeoverResponse]
    GetStatistics: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.GetStatisticsRequest, controller_pb2.GetStatisticsResponse]
    RegisterAgent: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.RegisterAgentRequest, controller_pb2.RegisterAgentResponse]
    Heartbeat: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.HeartbeatRequest, controller_pb2.HeartbeatResponse]
    DeregisterAgent: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.DeregisterAgentRequest, controller_pb2.DeregisterAgentResponse]
    DrainNode: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.DrainNodeRequest, controller_pb2.DrainNodeResponse]
    ReportJobStatus: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.ReportJobStatusRequest, controller_pb2.ReportJobStatusResponse]
    ReportStepdRecovery: grpc.aio.UnaryUnaryMultiCallable[controller_pb2.ReportStepdRecoveryRequest, controller_pb2.ReportStepdRecoveryResponse]

@type_check_only
class SlurmControllerBlockingStub(SlurmControllerStub):
    SubmitJob: grpc.UnaryUnaryMultiCallable[controller_pb2.SubmitJobRequest, controller_pb2.SubmitJobResponse]  # type: ignore[assignment]
    GetJobs: grpc.UnaryUnaryMultiCallable[controller_pb2.GetJobsRequest, controller_pb2.GetJobsResponse]  # type: ignore[assignment]
    WatchJob: grpc.UnaryStreamMultiCallable[controller_pb2.WatchJobRequest, controller_pb2.WatchJobResponse]  # type: ignore[assignment]
    CancelJob: grpc.UnaryUnaryMultiCallable[controller_pb2.CancelJobRequest, controller_pb2.CancelJobResponse]  # type: ignore[assignment]
    UpdateJob: grpc.UnaryUnaryMultiCallable[controller_pb2.UpdateJobRequest, controller_pb2.UpdateJobResponse]  # type: ignore[assignment]
    RequeueJob: grpc.UnaryUnaryMultiCallable[controller_pb2.RequeueJobRequest, controller_pb2.RequeueJobResponse]  # type: ignore[assignment]
    SuspendJob: grpc.UnaryUnaryMultiCallable[controller_pb2.SuspendJobRequest, controller_pb2.SuspendJobResponse]  # type: ignore[assignment]
    ResumeJob: grpc.UnaryUnaryMultiCallable[controller_pb2.ResumeJobRequest, controller_pb2.ResumeJobResponse]  # type: ignore[assignment]
    CompleteJob: grpc.UnaryUnaryMultiCallable[controller_pb2.CompleteJobRequest, controller_pb2.CompleteJobResponse]  # type: ignore[assignment]
    JobKeepalive: grpc.UnaryUnaryMultiCallable[controller_pb2.JobKeepaliveRequest, controller_pb2.JobKeepaliveResponse]  # type: ignore[assignment]
    CreateJobStep: grpc.UnaryUnaryMultiCallable[controller_pb2.CreateJobStepRequest, controller_pb2.CreateJobStepResponse]  # type: ignore[assignment]
    GetJobSteps: grpc.UnaryUnaryMultiCallable[controller_pb2.GetJobStepsRequest, controller_pb2.GetJobStepsResponse]  # type: ignore[assignment]
    WatchStep: grpc.UnaryStreamMultiCallable[controller_pb2.WatchStepRequest, controller_pb2.WatchStepResponse]  # type: ignore[assignment]
    GetNodes: grpc.UnaryUnaryMultiCallable[controller_pb2.GetNodesRequest, controller_pb2.GetNodesResponse]  # type: ignore[assignment]
    UpdateNode: grpc.UnaryUnaryMultiCallable[controller_pb2.UpdateNodeRequest, controller_pb2.UpdateNodeResponse]  # type: ignore[assignment]
    GetPartitions: grpc.UnaryUnaryMultiCallable[controller_pb2.GetPartitionsRequest, controller_pb2.GetPartitionsResponse]  # type: ignore[assignment]
    GetConfig: grpc.UnaryUnaryMultiCallable[controller_pb2.GetConfigRequest, controller_pb2.GetConfigResponse]  # type: ignore[assignment]
    GetTopology: grpc.UnaryUnaryMultiCallable[controller_pb2.GetTopologyRequest, controller_pb2.GetTopologyResponse]  # type: ignore[assignment]
    CreatePartition: grpc.UnaryUnaryMultiCallable[controller_pb2.CreatePartitionRequest, controller_pb2.CreatePartitionResponse]  # type: ignore[assignment]
    UpdatePartition: grpc.UnaryUnaryMultiCallable[controller_pb2.UpdatePartitionRequest, controller_pb2.UpdatePartitionResponse]  # type: ignore[assignment]
    DeletePartition: grpc.UnaryUnaryMultiCallable[controller_pb2.DeletePartitionRequest, controller_pb2.DeletePartitionResponse]  # type: ignore[assignment]
    CreateReservation: grpc.UnaryUnaryMultiCallable[controller_pb2.CreateReservationRequest, controller_pb2.CreateReservationResponse]  # type: ignore[assignment]
    UpdateReservation: grpc.UnaryUnaryMultiCallable[controller_pb2.UpdateReservationRequest, controller_pb2.UpdateReservationResponse]  # type: ignore[assignment]
    DeleteReservation: grpc.UnaryUnaryMultiCallable[controller_pb2.DeleteReservationRequest, controller_pb2.DeleteReservationResponse]  # type: ignore[assignment]
    ListReservations: grpc.UnaryUnaryMultiCallable[controller_pb2.ListReservationsRequest, controller_pb2.ListReservationsResponse]  # type: ignore[assignment]
    GetLicenses: grpc.UnaryUnaryMultiCallable[controller_pb2.GetLicensesRequest, controller_pb2.GetLicensesResponse]  # type: ignore[assignment]
    GetPriorities: grpc.UnaryUnaryMultiCallable[controller_pb2.GetPrioritiesRequest, controller_pb2.GetPrioritiesResponse]  # type: ignore[assignment]
    Ping: grpc.UnaryUnaryMultiCallable[controller_pb2.PingRequest, controller_pb2.PingResponse]  # type: ignore[assignment]
    Takeover: grpc.UnaryUnaryMultiCallable[controller_pb2.TakeoverRequest, controller_pb2.TakeoverResponse]  # type: ignore[assignment]
    GetStatistics: grpc.UnaryUnaryMultiCallable[controller_pb2.GetStatisticsRequest, controller_pb2.GetStatisticsResponse]  # type: ignore[assignment]
    RegisterAgent: grpc.UnaryUnaryMultiCallable[controller_pb2.RegisterAgentRequest, controller_pb2.RegisterAgentResponse]  # type: ignore[assignment]
    Heartbeat: grpc.UnaryUnaryMultiCallable[controller_pb2.HeartbeatRequest, controller_pb2.HeartbeatResponse]  # type: ignore[assignment]
    DeregisterAgent: grpc.UnaryUnaryMultiCallable[controller_pb2.DeregisterAgentRequest, controller_pb2.DeregisterAgentResponse]  # type: ignore[assignment]
    DrainNode: grpc.UnaryUnaryMultiCallable[controller_pb2.DrainNodeRequest, controller_pb2.DrainNodeResponse]  # type: ignore[assignment]
    ReportJobStatus: grpc.UnaryUnaryMultiCallable[controller_pb2.ReportJobStatusRequest, controller_pb2.ReportJobStatusResponse]  # type: ignore[assignment]
    ReportStepdRecovery: grpc.UnaryUnaryMultiCallable[controller_pb2.ReportStepdRecoveryRequest, controller_pb2.ReportStepdRecoveryResponse]  # type: ignore[assignment]

class SlurmControllerServicer:
    def SubmitJob(self, request: controller_pb2.SubmitJobRequest, context: grpc.aio.ServicerContext[controller_pb2.SubmitJobRequest, controller_pb2.SubmitJobResponse]) -> Awaitable[controller_pb2.SubmitJobResponse]: ...
    def GetJobs(self, request: controller_pb2.GetJobsRequest, context: grpc.aio.ServicerContext[controller_pb2.GetJobsRequest, controller_pb2.GetJobsResponse]) -> Awaitable[controller_pb2.GetJobsResponse]: ...
    def WatchJob(self, request: controller_pb2.WatchJobRequest, context: grpc.aio.ServicerContext[controller_pb2.WatchJobRequest, controller_pb2.WatchJobResponse]) -> AsyncIterator[controller_pb2.WatchJobResponse]: ...
    def CancelJob(self, request: controller_pb2.CancelJobRequest, context: grpc.aio.ServicerContext[controller_pb2.CancelJobRequest, controller_pb2.CancelJobResponse]) -> Awaitable[controller_pb2.CancelJobResponse]: ...
    def UpdateJob(self, request: controller_pb2.UpdateJobRequest, context: grpc.aio.ServicerContext[controller_pb2.UpdateJobRequest, controller_pb2.UpdateJobResponse]) -> Awaitable[controller_pb2.UpdateJobResponse]: ...
    def RequeueJob(self, request: controller_pb2.RequeueJobRequest, context: grpc.aio.ServicerContext[controller_pb2.RequeueJobRequest, controller_pb2.RequeueJobResponse]) -> Awaitable[controller_pb2.RequeueJobResponse]: ...
    def SuspendJob(self, request: controller_pb2.SuspendJobRequest, context: grpc.aio.ServicerContext[controller_pb2.SuspendJobRequest, controller_pb2.SuspendJobResponse]) -> Awaitable[controller_pb2.SuspendJobResponse]: ...
    def ResumeJob(self, request: controller_pb2.ResumeJobRequest, context: grpc.aio.ServicerContext[controller_pb2.ResumeJobRequest, controller_pb2.ResumeJobResponse]) -> Awaitable[controller_pb2.ResumeJobResponse]: ...
    def CompleteJob(self, request: controller_pb2.CompleteJobRequest, context: grpc.aio.ServicerContext[controller_pb2.CompleteJobRequest, controller_pb2.CompleteJobResponse]) -> Awaitable[controller_pb2.CompleteJobResponse]: ...
    def JobKeepalive(self, request: controller_pb2.JobKeepaliveRequest, context: grpc.aio.ServicerContext[controller_pb2.JobKeepaliveRequest, controller_pb2.JobKeepaliveResponse]) -> Awaitable[controller_pb2.JobKeepaliveResponse]: ...
    def CreateJobStep(self, request: controller_pb2.CreateJobStepRequest, context: grpc.aio.ServicerContext[controller_pb2.CreateJobStepRequest, controller_pb2.CreateJobStepResponse]) -> Awaitable[controller_pb2.CreateJobStepResponse]: ...
    def GetJobSteps(self, request: controller_pb2.GetJobStepsRequest, context: grpc.aio.ServicerContext[controller_pb2.GetJobStepsRequest, controller_pb2.GetJobStepsResponse]) -> Awaitable[controller_pb2.GetJobStepsResponse]: ...
    def WatchStep(self, request: controller_pb2.WatchStepRequest, context: grpc.aio.ServicerContext[controller_pb2.WatchStepRequest, controller_pb2.WatchStepResponse]) -> AsyncIterator[controller_pb2.WatchStepResponse]: ...
    def GetNodes(self, request: controller_pb2.GetNodesRequest, context: grpc.aio.ServicerContext[controller_pb2.GetNodesRequest, controller_pb2.GetNodesResponse]) -> Awaitable[controller_pb2.GetNodesResponse]: ...
    def UpdateNode(self, request: controller_pb2.UpdateNodeRequest, context: grpc.aio.ServicerContext[controller_pb2.UpdateNodeRequest, controller_pb2.UpdateNodeResponse]) -> Awaitable[controller_pb2.UpdateNodeResponse]: ...
    def GetPartitions(self, request: controller_pb2.GetPartitionsRequest, context: grpc.aio.ServicerContext[controller_pb2.GetPartitionsRequest, controller_pb2.GetPartitionsResponse]) -> Awaitable[controller_pb2.GetPartitionsResponse]: ...
    def GetConfig(self, request: controller_pb2.GetConfigRequest, context: grpc.aio.ServicerContext[controller_pb2.GetConfigRequest, controller_pb2.GetConfigResponse]) -> Awaitable[controller_pb2.GetConfigResponse]: ...
    def GetTopology(self, request: controller_pb2.GetTopologyRequest, context: grpc.aio.ServicerContext[controller_pb2.GetTopologyRequest, controller_pb2.GetTopologyResponse]) -> Awaitable[controller_pb2.GetTopologyResponse]: ...
    def CreatePartition(self, request: controller_pb2.CreatePartitionRequest, context: grpc.aio.ServicerContext[controller_pb2.CreatePartitionRequest, controller_pb2.CreatePartitionResponse]) -> Awaitable[controller_pb2.CreatePartitionResponse]: ...
    def UpdatePartition(self, request: controller_pb2.UpdatePartitionRequest, context: grpc.aio.ServicerContext[controller_pb2.UpdatePartitionRequest, controller_pb2.UpdatePartitionResponse]) -> Awaitable[controller_pb2.UpdatePartitionResponse]: ...
    def DeletePartition(self, request: controller_pb2.DeletePartitionRequest, context: grpc.aio.ServicerContext[controller_pb2.DeletePartitionRequest, controller_pb2.DeletePartitionResponse]) -> Awaitable[controller_pb2.DeletePartitionResponse]: ...
    def CreateReservation(self, request: controller_pb2.CreateReservationRequest, context: grpc.aio.ServicerContext[controller_pb2.CreateReservationRequest, controller_pb2.CreateReservationResponse]) -> Awaitable[controller_pb2.CreateReservationResponse]: ...
    def UpdateReservation(self, request: controller_pb2.UpdateReservationRequest, context: grpc.aio.ServicerContext[controller_pb2.UpdateReservationRequest, controller_pb2.UpdateReservationResponse]) -> Awaitable[controller_pb2.UpdateReservationResponse]: ...
    def DeleteReservation(self, request: controller_pb2.DeleteReservationRequest, context: grpc.aio.ServicerContext[controller_pb2.DeleteReservationRequest, controller_pb2.DeleteReservationResponse]) -> Awaitable[controller_pb2.DeleteReservationResponse]: ...
    def ListReservations(self, request: controller_pb2.ListReservationsRequest, context: grpc.aio.ServicerContext[controller_pb2.ListReservationsRequest, controller_pb2.ListReservationsResponse]) -> Awaitable[controller_pb2.ListReservationsResponse]: ...
    def GetLicenses(self, request: controller_pb2.GetLicensesRequest, context: grpc.aio.ServicerContext[controller_pb2.GetLicensesRequest, controller_pb2.GetLicensesResponse]) -> Awaitable[controller_pb2.GetLicensesResponse]: ...
    def GetPriorities(self, request: controller_pb2.GetPrioritiesRequest, context: grpc.aio.ServicerContext[controller_pb2.GetPrioritiesRequest, controller_pb2.GetPrioritiesResponse]) -> Awaitable[controller_pb2.GetPrioritiesResponse]: ...
    def Ping(self, request: controller_pb2.PingRequest, context: grpc.aio.ServicerContext[controller_pb2.PingRequest, controller_pb2.PingResponse]) -> Awaitable[controller_pb2.PingResponse]: ...
    def Takeover(self, request: controller_pb2.TakeoverRequest, context: grpc.aio.ServicerContext[controller_pb2.TakeoverRequest, controller_pb2.TakeoverResponse]) -> Awaitable[controller_pb2.TakeoverResponse]: ...
    def GetStatistics(self, request: controller_pb2.GetStatisticsRequest, context: grpc.aio.ServicerContext[controller_pb2.GetStatisticsRequest, controller_pb2.GetStatisticsResponse]) -> Awaitable[controller_pb2.GetStatisticsResponse]: ...
    def RegisterAgent(self, request: controller_pb2.RegisterAgentRequest, context: grpc.aio.ServicerContext[controller_pb2.RegisterAgentRequest, controller_pb2.RegisterAgentResponse]) -> Awaitable[controller_pb2.RegisterAgentResponse]: ...
    def Heartbeat(self, request: controller_pb2.HeartbeatRequest, context: grpc.aio.ServicerContext[controller_pb2.HeartbeatRequest, controller_pb2.HeartbeatResponse]) -> Awaitable[controller_pb2.HeartbeatResponse]: ...
    def DeregisterAgent(self, request: controller_pb2.DeregisterAgentRequest, context: grpc.aio.ServicerContext[controller_pb2.DeregisterAgentRequest, controller_pb2.DeregisterAgentResponse]) -> Awaitable[controller_pb2.DeregisterAgentResponse]: ...
    def DrainNode(self, request: controller_pb2.DrainNodeRequest, context: grpc.aio.ServicerContext[controller_pb2.DrainNodeRequest, controller_pb2.DrainNodeResponse]) -> Awaitable[controller_pb2.DrainNodeResponse]: ...
    def ReportJobStatus(self, request: controller_pb2.ReportJobStatusRequest, context: grpc.aio.ServicerContext[controller_pb2.ReportJobStatusRequest, controller_pb2.ReportJobStatusResponse]) -> Awaitable[controller_pb2.ReportJobStatusResponse]: ...
    def ReportStepdRecovery(self, request: controller_pb2.ReportStepdRecoveryRequest, context: grpc.aio.ServicerContext[controller_pb2.ReportStepdRecoveryRequest, controller_pb2.ReportStepdRecoveryResponse]) -> Awaitable[controller_pb2.ReportStepdRecoveryResponse]: ...

def add_SlurmControllerServicer_to_server(servicer: SlurmControllerServicer, server: grpc.aio.Server) -> None: ...

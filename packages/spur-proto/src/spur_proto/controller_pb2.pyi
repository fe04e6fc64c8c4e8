from spur_proto import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HoldAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOLD_ACTION_UNSPECIFIED: _ClassVar[HoldAction]
    HOLD_ACTION_HOLD: _ClassVar[HoldAction]
    HOLD_ACTION_USER_HOLD: _ClassVar[HoldAction]
    HOLD_ACTION_RELEASE: _ClassVar[HoldAction]

class ReportVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPORT_VERDICT_UNSPECIFIED: _ClassVar[ReportVerdict]
    REPORT_VERDICT_ACCEPTED: _ClassVar[ReportVerdict]
    REPORT_VERDICT_FINAL: _ClassVar[ReportVerdict]
    REPORT_VERDICT_UNKNOWN: _ClassVar[ReportVerdict]
    REPORT_VERDICT_RETRY: _ClassVar[ReportVerdict]
    REPORT_VERDICT_WRONG_NODE: _ClassVar[ReportVerdict]

class RecoveryState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOVERY_STATE_UNSPECIFIED: _ClassVar[RecoveryState]
    RECOVERY_STATE_LIVE: _ClassVar[RecoveryState]
    RECOVERY_STATE_STALE: _ClassVar[RecoveryState]
    RECOVERY_STATE_FINISHED: _ClassVar[RecoveryState]
    RECOVERY_STATE_CORRUPT: _ClassVar[RecoveryState]

class RecoveryVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOVERY_VERDICT_UNSPECIFIED: _ClassVar[RecoveryVerdict]
    RECOVERY_VERDICT_KEEP: _ClassVar[RecoveryVerdict]
    RECOVERY_VERDICT_WAIT: _ClassVar[RecoveryVerdict]
    RECOVERY_VERDICT_FENCE: _ClassVar[RecoveryVerdict]
    RECOVERY_VERDICT_FORGET: _ClassVar[RecoveryVerdict]
    RECOVERY_VERDICT_RESTORE: _ClassVar[RecoveryVerdict]
HOLD_ACTION_UNSPECIFIED: HoldAction
HOLD_ACTION_HOLD: HoldAction
HOLD_ACTION_USER_HOLD: HoldAction
HOLD_ACTION_RELEASE: HoldAction
REPORT_VERDICT_UNSPECIFIED: ReportVerdict
REPORT_VERDICT_ACCEPTED: ReportVerdict
REPORT_VERDICT_FINAL: ReportVerdict
REPORT_VERDICT_UNKNOWN: ReportVerdict
REPORT_VERDICT_RETRY: ReportVerdict
REPORT_VERDICT_WRONG_NODE: ReportVerdict
RECOVERY_STATE_UNSPECIFIED: RecoveryState
RECOVERY_STATE_LIVE: RecoveryState
RECOVERY_STATE_STALE: RecoveryState
RECOVERY_STATE_FINISHED: RecoveryState
RECOVERY_STATE_CORRUPT: RecoveryState
RECOVERY_VERDICT_UNSPECIFIED: RecoveryVerdict
RECOVERY_VERDICT_KEEP: RecoveryVerdict
RECOVERY_VERDICT_WAIT: RecoveryVerdict
RECOVERY_VERDICT_FENCE: RecoveryVerdict
RECOVERY_VERDICT_FORGET: RecoveryVerdict
RECOVERY_VERDICT_RESTORE: RecoveryVerdict

class SubmitJobRequest(_message.Message):
    __slots__ = ("spec", "request_id", "test_only")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TEST_ONLY_FIELD_NUMBER: _ClassVar[int]
    spec: _common_pb2.JobSpec
    request_id: str
    test_only: bool
    def __init__(self, spec: _Optional[_Union[_common_pb2.JobSpec, _Mapping]] = ..., request_id: _Optional[str] = ..., test_only: bool = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("job_id", "warnings", "test_result")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    TEST_RESULT_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    test_result: str
    def __init__(self, job_id: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., test_result: _Optional[str] = ...) -> None: ...

class JobTarget(_message.Message):
    __slots__ = ("job_id", "array_tasks", "step_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASKS_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    array_tasks: str
    step_id: int
    def __init__(self, job_id: _Optional[int] = ..., array_tasks: _Optional[str] = ..., step_id: _Optional[int] = ...) -> None: ...

class TargetResult(_message.Message):
    __slots__ = ("target", "code", "text")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    target: JobTarget
    code: str
    text: str
    def __init__(self, target: _Optional[_Union[JobTarget, _Mapping]] = ..., code: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class GetJobsRequest(_message.Message):
    __slots__ = ("jobs", "states", "users", "partitions", "accounts", "names", "nodes", "qos", "page_size", "page_token", "detail", "script")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobTarget]
    states: _containers.RepeatedScalarFieldContainer[_common_pb2.JobState]
    users: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[str]
    accounts: _containers.RepeatedScalarFieldContainer[str]
    names: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    qos: _containers.RepeatedScalarFieldContainer[str]
    page_size: int
    page_token: str
    detail: bool
    script: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobTarget, _Mapping]]] = ..., states: _Optional[_Iterable[_Union[_common_pb2.JobState, str]]] = ..., users: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[str]] = ..., accounts: _Optional[_Iterable[str]] = ..., names: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ..., qos: _Optional[_Iterable[str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., detail: bool = ..., script: bool = ...) -> None: ...

class GetJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token", "server_time")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.JobInfo]
    next_page_token: str
    server_time: float
    def __init__(self, jobs: _Optional[_Iterable[_Union[_common_pb2.JobInfo, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., server_time: _Optional[float] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class WatchJobResponse(_message.Message):
    __slots__ = ("job", "nodes")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    job: _common_pb2.JobInfo
    nodes: _containers.RepeatedCompositeFieldContainer[NodeAddress]
    def __init__(self, job: _Optional[_Union[_common_pb2.JobInfo, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[NodeAddress, _Mapping]]] = ...) -> None: ...

class NodeAddress(_message.Message):
    __slots__ = ("node", "address")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("targets", "signal", "batch_only", "full")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    BATCH_ONLY_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[JobTarget]
    signal: int
    batch_only: bool
    full: bool
    def __init__(self, targets: _Optional[_Iterable[_Union[JobTarget, _Mapping]]] = ..., signal: _Optional[int] = ..., batch_only: bool = ..., full: bool = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TargetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TargetResult, _Mapping]]] = ...) -> None: ...

class UpdateJobRequest(_message.Message):
    __slots__ = ("targets", "hold", "partition", "account", "qos", "comment", "name", "priority", "nice", "time_limit_secs", "time_limit_delta_secs", "dependency", "begin_at", "min_nodes", "max_nodes", "num_tasks", "cpus_per_task", "memory_per_node_mb", "memory_per_cpu_mb", "req_nodelist", "exc_nodelist", "constraint", "requeue", "array_throttle", "gres", "stdout_path", "stderr_path", "work_dir", "wishes", "tasks_per_node", "deadline_at", "wckey", "stdin_path", "exclusive", "reservation", "licenses", "site_factor")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    NICE_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_SECS_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_DELTA_SECS_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_AT_FIELD_NUMBER: _ClassVar[int]
    MIN_NODES_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PER_NODE_MB_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PER_CPU_MB_FIELD_NUMBER: _ClassVar[int]
    REQ_NODELIST_FIELD_NUMBER: _ClassVar[int]
    EXC_NODELIST_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    REQUEUE_FIELD_NUMBER: _ClassVar[int]
    ARRAY_THROTTLE_FIELD_NUMBER: _ClassVar[int]
    GRES_FIELD_NUMBER: _ClassVar[int]
    STDOUT_PATH_FIELD_NUMBER: _ClassVar[int]
    STDERR_PATH_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    WISHES_FIELD_NUMBER: _ClassVar[int]
    TASKS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    WCKEY_FIELD_NUMBER: _ClassVar[int]
    STDIN_PATH_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    LICENSES_FIELD_NUMBER: _ClassVar[int]
    SITE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[JobTarget]
    hold: HoldAction
    partition: str
    account: str
    qos: str
    comment: str
    name: str
    priority: int
    nice: int
    time_limit_secs: int
    time_limit_delta_secs: int
    dependency: str
    begin_at: float
    min_nodes: int
    max_nodes: int
    num_tasks: int
    cpus_per_task: int
    memory_per_node_mb: int
    memory_per_cpu_mb: int
    req_nodelist: str
    exc_nodelist: str
    constraint: str
    requeue: bool
    array_throttle: int
    gres: str
    stdout_path: str
    stderr_path: str
    work_dir: str
    wishes: _common_pb2.JobWishes
    tasks_per_node: int
    deadline_at: float
    wckey: str
    stdin_path: str
    exclusive: bool
    reservation: str
    licenses: str
    site_factor: int
    def __init__(self, targets: _Optional[_Iterable[_Union[JobTarget, _Mapping]]] = ..., hold: _Optional[_Union[HoldAction, str]] = ..., partition: _Optional[str] = ..., account: _Optional[str] = ..., qos: _Optional[str] = ..., comment: _Optional[str] = ..., name: _Optional[str] = ..., priority: _Optional[int] = ..., nice: _Optional[int] = ..., time_limit_secs: _Optional[int] = ..., time_limit_delta_secs: _Optional[int] = ..., dependency: _Optional[str] = ..., begin_at: _Optional[float] = ..., min_nodes: _Optional[int] = ..., max_nodes: _Optional[int] = ..., num_tasks: _Optional[int] = ..., cpus_per_task: _Optional[int] = ..., memory_per_node_mb: _Optional[int] = ..., memory_per_cpu_mb: _Optional[int] = ..., req_nodelist: _Optional[str] = ..., exc_nodelist: _Optional[str] = ..., constraint: _Optional[str] = ..., requeue: bool = ..., array_throttle: _Optional[int] = ..., gres: _Optional[str] = ..., stdout_path: _Optional[str] = ..., stderr_path: _Optional[str] = ..., work_dir: _Optional[str] = ..., wishes: _Optional[_Union[_common_pb2.JobWishes, _Mapping]] = ..., tasks_per_node: _Optional[int] = ..., deadline_at: _Optional[float] = ..., wckey: _Optional[str] = ..., stdin_path: _Optional[str] = ..., exclusive: bool = ..., reservation: _Optional[str] = ..., licenses: _Optional[str] = ..., site_factor: _Optional[int] = ...) -> None: ...

class UpdateJobResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TargetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TargetResult, _Mapping]]] = ...) -> None: ...

class RequeueJobRequest(_message.Message):
    __slots__ = ("targets", "hold", "incomplete_only")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_ONLY_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[JobTarget]
    hold: bool
    incomplete_only: bool
    def __init__(self, targets: _Optional[_Iterable[_Union[JobTarget, _Mapping]]] = ..., hold: bool = ..., incomplete_only: bool = ...) -> None: ...

class RequeueJobResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TargetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TargetResult, _Mapping]]] = ...) -> None: ...

class GetNodesRequest(_message.Message):
    __slots__ = ("names", "partitions")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[str]] = ...) -> None: ...

class GetNodesResponse(_message.Message):
    __slots__ = ("nodes", "server_time")
    NODES_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[_common_pb2.NodeInfo]
    server_time: float
    def __init__(self, nodes: _Optional[_Iterable[_Union[_common_pb2.NodeInfo, _Mapping]]] = ..., server_time: _Optional[float] = ...) -> None: ...

class UpdateNodeRequest(_message.Message):
    __slots__ = ("names", "state", "reason", "weight", "comment")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    names: str
    state: str
    reason: str
    weight: int
    comment: str
    def __init__(self, names: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., weight: _Optional[int] = ..., comment: _Optional[str] = ...) -> None: ...

class UpdateNodeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPartitionsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetPartitionsResponse(_message.Message):
    __slots__ = ("partitions", "server_time")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.PartitionInfo]
    server_time: float
    def __init__(self, partitions: _Optional[_Iterable[_Union[_common_pb2.PartitionInfo, _Mapping]]] = ..., server_time: _Optional[float] = ...) -> None: ...

class GetConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class GetConfigResponse(_message.Message):
    __slots__ = ("entries", "server_time")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    server_time: float
    def __init__(self, entries: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ..., server_time: _Optional[float] = ...) -> None: ...

class PingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PingResponse(_message.Message):
    __slots__ = ("hostname", "server_time", "version", "cluster_name", "role", "member_id", "leader_id", "leader_address", "term", "members", "applied", "leader_silent_secs", "alarms", "command_version", "scheduler")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    LEADER_SILENT_SECS_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    server_time: float
    version: str
    cluster_name: str
    role: str
    member_id: int
    leader_id: int
    leader_address: str
    term: int
    members: _containers.RepeatedCompositeFieldContainer[ControllerInfo]
    applied: int
    leader_silent_secs: float
    alarms: _containers.RepeatedScalarFieldContainer[str]
    command_version: int
    scheduler: SchedulerFigures
    def __init__(self, hostname: _Optional[str] = ..., server_time: _Optional[float] = ..., version: _Optional[str] = ..., cluster_name: _Optional[str] = ..., role: _Optional[str] = ..., member_id: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_address: _Optional[str] = ..., term: _Optional[int] = ..., members: _Optional[_Iterable[_Union[ControllerInfo, _Mapping]]] = ..., applied: _Optional[int] = ..., leader_silent_secs: _Optional[float] = ..., alarms: _Optional[_Iterable[str]] = ..., command_version: _Optional[int] = ..., scheduler: _Optional[_Union[SchedulerFigures, _Mapping]] = ...) -> None: ...

class SchedulerFigures(_message.Message):
    __slots__ = ("cycles", "last_secs", "most_secs", "total_secs", "last_at", "last_depth", "total_depth", "queue", "backfill_cycles", "backfill_last_secs", "backfill_most_secs", "backfill_total_secs", "backfill_last_at", "backfill_last_depth", "backfill_total_depth", "started", "first_at", "backfilled", "backfilled_ever", "whole", "total_queue", "last_planned", "total_planned")
    CYCLES_FIELD_NUMBER: _ClassVar[int]
    LAST_SECS_FIELD_NUMBER: _ClassVar[int]
    MOST_SECS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SECS_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_DEPTH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_DEPTH_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_CYCLES_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_LAST_SECS_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_MOST_SECS_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_TOTAL_SECS_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_LAST_AT_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_LAST_DEPTH_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_TOTAL_DEPTH_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_FIELD_NUMBER: _ClassVar[int]
    BACKFILLED_FIELD_NUMBER: _ClassVar[int]
    BACKFILLED_EVER_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_QUEUE_FIELD_NUMBER: _ClassVar[int]
    LAST_PLANNED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PLANNED_FIELD_NUMBER: _ClassVar[int]
    cycles: int
    last_secs: float
    most_secs: float
    total_secs: float
    last_at: float
    last_depth: int
    total_depth: int
    queue: int
    backfill_cycles: int
    backfill_last_secs: float
    backfill_most_secs: float
    backfill_total_secs: float
    backfill_last_at: float
    backfill_last_depth: int
    backfill_total_depth: int
    started: int
    first_at: float
    backfilled: int
    backfilled_ever: int
    whole: int
    total_queue: int
    last_planned: int
    total_planned: int
    def __init__(self, cycles: _Optional[int] = ..., last_secs: _Optional[float] = ..., most_secs: _Optional[float] = ..., total_secs: _Optional[float] = ..., last_at: _Optional[float] = ..., last_depth: _Optional[int] = ..., total_depth: _Optional[int] = ..., queue: _Optional[int] = ..., backfill_cycles: _Optional[int] = ..., backfill_last_secs: _Optional[float] = ..., backfill_most_secs: _Optional[float] = ..., backfill_total_secs: _Optional[float] = ..., backfill_last_at: _Optional[float] = ..., backfill_last_depth: _Optional[int] = ..., backfill_total_depth: _Optional[int] = ..., started: _Optional[int] = ..., first_at: _Optional[float] = ..., backfilled: _Optional[int] = ..., backfilled_ever: _Optional[int] = ..., whole: _Optional[int] = ..., total_queue: _Optional[int] = ..., last_planned: _Optional[int] = ..., total_planned: _Optional[int] = ...) -> None: ...

class ControllerInfo(_message.Message):
    __slots__ = ("id", "address", "client_address", "leader", "reachable", "match", "command_version", "version")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    COMMAND_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    id: int
    address: str
    client_address: str
    leader: bool
    reachable: bool
    match: int
    command_version: int
    version: str
    def __init__(self, id: _Optional[int] = ..., address: _Optional[str] = ..., client_address: _Optional[str] = ..., leader: bool = ..., reachable: bool = ..., match: _Optional[int] = ..., command_version: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class TakeoverRequest(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: int
    def __init__(self, member: _Optional[int] = ...) -> None: ...

class TakeoverResponse(_message.Message):
    __slots__ = ("leader_id", "leader_address")
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    leader_id: int
    leader_address: str
    def __init__(self, leader_id: _Optional[int] = ..., leader_address: _Optional[str] = ...) -> None: ...

class HeldStep(_message.Message):
    __slots__ = ("rid", "state")
    RID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    state: str
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., state: _Optional[str] = ...) -> None: ...

class RegisterAgentRequest(_message.Message):
    __slots__ = ("node", "hostname", "version", "address", "port", "boot_id", "boot_at", "agent_start_at", "arch", "os", "cpus", "memory_mb", "sockets", "cores_per_socket", "threads_per_core", "tmp_disk_mb", "gres", "labels", "held", "inventory")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_AT_FIELD_NUMBER: _ClassVar[int]
    AGENT_START_AT_FIELD_NUMBER: _ClassVar[int]
    ARCH_FIELD_NUMBER: _ClassVar[int]
    OS_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    SOCKETS_FIELD_NUMBER: _ClassVar[int]
    CORES_PER_SOCKET_FIELD_NUMBER: _ClassVar[int]
    THREADS_PER_CORE_FIELD_NUMBER: _ClassVar[int]
    TMP_DISK_MB_FIELD_NUMBER: _ClassVar[int]
    GRES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    INVENTORY_FIELD_NUMBER: _ClassVar[int]
    node: str
    hostname: str
    version: str
    address: str
    port: int
    boot_id: str
    boot_at: float
    agent_start_at: float
    arch: str
    os: str
    cpus: int
    memory_mb: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    tmp_disk_mb: int
    gres: _containers.RepeatedCompositeFieldContainer[_common_pb2.GresCount]
    labels: _containers.ScalarMap[str, str]
    held: _containers.RepeatedCompositeFieldContainer[HeldStep]
    inventory: NodeInventory
    def __init__(self, node: _Optional[str] = ..., hostname: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[str] = ..., port: _Optional[int] = ..., boot_id: _Optional[str] = ..., boot_at: _Optional[float] = ..., agent_start_at: _Optional[float] = ..., arch: _Optional[str] = ..., os: _Optional[str] = ..., cpus: _Optional[int] = ..., memory_mb: _Optional[int] = ..., sockets: _Optional[int] = ..., cores_per_socket: _Optional[int] = ..., threads_per_core: _Optional[int] = ..., tmp_disk_mb: _Optional[int] = ..., gres: _Optional[_Iterable[_Union[_common_pb2.GresCount, _Mapping]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., held: _Optional[_Iterable[_Union[HeldStep, _Mapping]]] = ..., inventory: _Optional[_Union[NodeInventory, _Mapping]] = ...) -> None: ...

class NodeInventory(_message.Message):
    __slots__ = ("sockets", "devices")
    SOCKETS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    sockets: _containers.RepeatedCompositeFieldContainer[SocketCpus]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceSet]
    def __init__(self, sockets: _Optional[_Iterable[_Union[SocketCpus, _Mapping]]] = ..., devices: _Optional[_Iterable[_Union[DeviceSet, _Mapping]]] = ...) -> None: ...

class SocketCpus(_message.Message):
    __slots__ = ("threads",)
    THREADS_FIELD_NUMBER: _ClassVar[int]
    threads: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, threads: _Optional[_Iterable[str]] = ...) -> None: ...

class DeviceSet(_message.Message):
    __slots__ = ("name", "type", "indices", "link", "near")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    NEAR_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    indices: str
    link: str
    near: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., indices: _Optional[str] = ..., link: _Optional[str] = ..., near: _Optional[str] = ...) -> None: ...

class RegisterAgentResponse(_message.Message):
    __slots__ = ("node_token", "cluster_name", "heartbeat_secs", "term", "controllers", "term_proof")
    NODE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CONTROLLERS_FIELD_NUMBER: _ClassVar[int]
    TERM_PROOF_FIELD_NUMBER: _ClassVar[int]
    node_token: str
    cluster_name: str
    heartbeat_secs: int
    term: int
    controllers: _containers.RepeatedScalarFieldContainer[str]
    term_proof: bytes
    def __init__(self, node_token: _Optional[str] = ..., cluster_name: _Optional[str] = ..., heartbeat_secs: _Optional[int] = ..., term: _Optional[int] = ..., controllers: _Optional[_Iterable[str]] = ..., term_proof: _Optional[bytes] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("node", "cpu_load", "free_memory_mb", "boot_id", "has_snapshot", "held")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CPU_LOAD_FIELD_NUMBER: _ClassVar[int]
    FREE_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    node: str
    cpu_load: int
    free_memory_mb: int
    boot_id: str
    has_snapshot: bool
    held: _containers.RepeatedCompositeFieldContainer[HeldStep]
    def __init__(self, node: _Optional[str] = ..., cpu_load: _Optional[int] = ..., free_memory_mb: _Optional[int] = ..., boot_id: _Optional[str] = ..., has_snapshot: bool = ..., held: _Optional[_Iterable[_Union[HeldStep, _Mapping]]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("register_again", "term", "term_proof")
    REGISTER_AGAIN_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    TERM_PROOF_FIELD_NUMBER: _ClassVar[int]
    register_again: bool
    term: int
    term_proof: bytes
    def __init__(self, register_again: bool = ..., term: _Optional[int] = ..., term_proof: _Optional[bytes] = ...) -> None: ...

class DeregisterAgentRequest(_message.Message):
    __slots__ = ("node", "reason", "held")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    node: str
    reason: str
    held: _containers.RepeatedCompositeFieldContainer[HeldStep]
    def __init__(self, node: _Optional[str] = ..., reason: _Optional[str] = ..., held: _Optional[_Iterable[_Union[HeldStep, _Mapping]]] = ...) -> None: ...

class DeregisterAgentResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("node", "reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node: str
    reason: str
    def __init__(self, node: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DrainNodeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResourceUsage(_message.Message):
    __slots__ = ("user_secs", "system_secs", "max_rss_kb")
    USER_SECS_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_SECS_FIELD_NUMBER: _ClassVar[int]
    MAX_RSS_KB_FIELD_NUMBER: _ClassVar[int]
    user_secs: float
    system_secs: float
    max_rss_kb: int
    def __init__(self, user_secs: _Optional[float] = ..., system_secs: _Optional[float] = ..., max_rss_kb: _Optional[int] = ...) -> None: ...

class ReportJobStatusRequest(_message.Message):
    __slots__ = ("rid", "node", "exit", "started_at", "ended_at", "usage", "stdout_path", "stderr_path", "tasks", "epilog_error")
    RID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    STDOUT_PATH_FIELD_NUMBER: _ClassVar[int]
    STDERR_PATH_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    EPILOG_ERROR_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    node: str
    exit: _common_pb2.ExitStatus
    started_at: float
    ended_at: float
    usage: ResourceUsage
    stdout_path: str
    stderr_path: str
    tasks: _containers.RepeatedCompositeFieldContainer[TaskExit]
    epilog_error: str
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., node: _Optional[str] = ..., exit: _Optional[_Union[_common_pb2.ExitStatus, _Mapping]] = ..., started_at: _Optional[float] = ..., ended_at: _Optional[float] = ..., usage: _Optional[_Union[ResourceUsage, _Mapping]] = ..., stdout_path: _Optional[str] = ..., stderr_path: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[TaskExit, _Mapping]]] = ..., epilog_error: _Optional[str] = ...) -> None: ...

class TaskExit(_message.Message):
    __slots__ = ("rank", "exit")
    RANK_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    exit: _common_pb2.ExitStatus
    def __init__(self, rank: _Optional[int] = ..., exit: _Optional[_Union[_common_pb2.ExitStatus, _Mapping]] = ...) -> None: ...

class ReportJobStatusResponse(_message.Message):
    __slots__ = ("verdict",)
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: ReportVerdict
    def __init__(self, verdict: _Optional[_Union[ReportVerdict, str]] = ...) -> None: ...

class SuspendJobRequest(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[JobTarget]
    def __init__(self, targets: _Optional[_Iterable[_Union[JobTarget, _Mapping]]] = ...) -> None: ...

class SuspendJobResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TargetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TargetResult, _Mapping]]] = ...) -> None: ...

class ResumeJobRequest(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[JobTarget]
    def __init__(self, targets: _Optional[_Iterable[_Union[JobTarget, _Mapping]]] = ...) -> None: ...

class ResumeJobResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TargetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TargetResult, _Mapping]]] = ...) -> None: ...

class CompleteJobRequest(_message.Message):
    __slots__ = ("job_id", "exit")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    exit: _common_pb2.ExitStatus
    def __init__(self, job_id: _Optional[int] = ..., exit: _Optional[_Union[_common_pb2.ExitStatus, _Mapping]] = ...) -> None: ...

class CompleteJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JobKeepaliveRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class JobKeepaliveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateJobStepRequest(_message.Message):
    __slots__ = ("job_id", "request_id", "name", "argv", "environment", "work_dir", "umask", "rlimits", "label", "num_tasks", "min_nodes", "max_nodes", "cpus_per_task", "tasks_per_node", "distribution", "exact", "overlap", "nodelist", "exclude", "relative", "memory_per_node_mb", "memory_per_cpu_mb", "gres", "shape", "interactive", "time_limit_secs", "immediate", "wait_secs", "submit_line", "submit_host", "stdin_path", "overcommit", "gres_per_task")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    RLIMITS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    MIN_NODES_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    TASKS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    NODELIST_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PER_NODE_MB_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PER_CPU_MB_FIELD_NUMBER: _ClassVar[int]
    GRES_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    INTERACTIVE_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_SECS_FIELD_NUMBER: _ClassVar[int]
    IMMEDIATE_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECS_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_LINE_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_HOST_FIELD_NUMBER: _ClassVar[int]
    STDIN_PATH_FIELD_NUMBER: _ClassVar[int]
    OVERCOMMIT_FIELD_NUMBER: _ClassVar[int]
    GRES_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    request_id: str
    name: str
    argv: _containers.RepeatedScalarFieldContainer[bytes]
    environment: _containers.RepeatedScalarFieldContainer[bytes]
    work_dir: str
    umask: int
    rlimits: _containers.RepeatedScalarFieldContainer[str]
    label: bool
    num_tasks: int
    min_nodes: int
    max_nodes: int
    cpus_per_task: int
    tasks_per_node: int
    distribution: str
    exact: bool
    overlap: bool
    nodelist: str
    exclude: str
    relative: int
    memory_per_node_mb: int
    memory_per_cpu_mb: int
    gres: _containers.RepeatedScalarFieldContainer[str]
    shape: _common_pb2.StepShape
    interactive: bool
    time_limit_secs: int
    immediate: bool
    wait_secs: float
    submit_line: str
    submit_host: str
    stdin_path: str
    overcommit: bool
    gres_per_task: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[int] = ..., request_id: _Optional[str] = ..., name: _Optional[str] = ..., argv: _Optional[_Iterable[bytes]] = ..., environment: _Optional[_Iterable[bytes]] = ..., work_dir: _Optional[str] = ..., umask: _Optional[int] = ..., rlimits: _Optional[_Iterable[str]] = ..., label: bool = ..., num_tasks: _Optional[int] = ..., min_nodes: _Optional[int] = ..., max_nodes: _Optional[int] = ..., cpus_per_task: _Optional[int] = ..., tasks_per_node: _Optional[int] = ..., distribution: _Optional[str] = ..., exact: bool = ..., overlap: bool = ..., nodelist: _Optional[str] = ..., exclude: _Optional[str] = ..., relative: _Optional[int] = ..., memory_per_node_mb: _Optional[int] = ..., memory_per_cpu_mb: _Optional[int] = ..., gres: _Optional[_Iterable[str]] = ..., shape: _Optional[_Union[_common_pb2.StepShape, _Mapping]] = ..., interactive: bool = ..., time_limit_secs: _Optional[int] = ..., immediate: bool = ..., wait_secs: _Optional[float] = ..., submit_line: _Optional[str] = ..., submit_host: _Optional[str] = ..., stdin_path: _Optional[str] = ..., overcommit: bool = ..., gres_per_task: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateJobStepResponse(_message.Message):
    __slots__ = ("busy", "text", "step", "nodes")
    BUSY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    busy: bool
    text: str
    step: _common_pb2.StepInfo
    nodes: _containers.RepeatedCompositeFieldContainer[NodeAddress]
    def __init__(self, busy: bool = ..., text: _Optional[str] = ..., step: _Optional[_Union[_common_pb2.StepInfo, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[NodeAddress, _Mapping]]] = ...) -> None: ...

class GetJobStepsRequest(_message.Message):
    __slots__ = ("jobs", "users", "partitions", "nodes")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobTarget]
    users: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobTarget, _Mapping]]] = ..., users: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class GetJobStepsResponse(_message.Message):
    __slots__ = ("steps", "server_time")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[_common_pb2.StepInfo]
    server_time: float
    def __init__(self, steps: _Optional[_Iterable[_Union[_common_pb2.StepInfo, _Mapping]]] = ..., server_time: _Optional[float] = ...) -> None: ...

class WatchStepRequest(_message.Message):
    __slots__ = ("rid",)
    RID_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ...) -> None: ...

class WatchStepResponse(_message.Message):
    __slots__ = ("step", "nodes")
    STEP_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    step: _common_pb2.StepInfo
    nodes: _containers.RepeatedCompositeFieldContainer[NodeAddress]
    def __init__(self, step: _Optional[_Union[_common_pb2.StepInfo, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[NodeAddress, _Mapping]]] = ...) -> None: ...

class RecoveryEntry(_message.Message):
    __slots__ = ("rid", "state", "detail")
    RID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    state: RecoveryState
    detail: str
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., state: _Optional[_Union[RecoveryState, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class RecoveryAnswer(_message.Message):
    __slots__ = ("rid", "verdict", "verdict_id")
    RID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_ID_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    verdict: RecoveryVerdict
    verdict_id: str
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., verdict: _Optional[_Union[RecoveryVerdict, str]] = ..., verdict_id: _Optional[str] = ...) -> None: ...

class ReportStepdRecoveryRequest(_message.Message):
    __slots__ = ("hostname", "node_token", "boot_id", "entries")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    NODE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    node_token: str
    boot_id: str
    entries: _containers.RepeatedCompositeFieldContainer[RecoveryEntry]
    def __init__(self, hostname: _Optional[str] = ..., node_token: _Optional[str] = ..., boot_id: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[RecoveryEntry, _Mapping]]] = ...) -> None: ...

class ReportStepdRecoveryResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[RecoveryAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[RecoveryAnswer, _Mapping]]] = ...) -> None: ...

class CreateReservationRequest(_message.Message):
    __slots__ = ("name", "start_at", "end_at", "duration_secs", "nodes", "node_count", "core_counts", "features", "partition", "flags", "users", "accounts", "groups", "licenses", "max_start_delay_secs", "purge_comp_secs", "comment", "time_float")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    END_AT_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CORE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LICENSES_FIELD_NUMBER: _ClassVar[int]
    MAX_START_DELAY_SECS_FIELD_NUMBER: _ClassVar[int]
    PURGE_COMP_SECS_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    TIME_FLOAT_FIELD_NUMBER: _ClassVar[int]
    name: str
    start_at: float
    end_at: float
    duration_secs: int
    nodes: str
    node_count: int
    core_counts: _containers.RepeatedScalarFieldContainer[int]
    features: str
    partition: str
    flags: _containers.RepeatedScalarFieldContainer[str]
    users: _containers.RepeatedScalarFieldContainer[str]
    accounts: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    licenses: str
    max_start_delay_secs: int
    purge_comp_secs: int
    comment: str
    time_float: bool
    def __init__(self, name: _Optional[str] = ..., start_at: _Optional[float] = ..., end_at: _Optional[float] = ..., duration_secs: _Optional[int] = ..., nodes: _Optional[str] = ..., node_count: _Optional[int] = ..., core_counts: _Optional[_Iterable[int]] = ..., features: _Optional[str] = ..., partition: _Optional[str] = ..., flags: _Optional[_Iterable[str]] = ..., users: _Optional[_Iterable[str]] = ..., accounts: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., licenses: _Optional[str] = ..., max_start_delay_secs: _Optional[int] = ..., purge_comp_secs: _Optional[int] = ..., comment: _Optional[str] = ..., time_float: bool = ...) -> None: ...

class CreateReservationResponse(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListChange(_message.Message):
    __slots__ = ("replace", "set", "add", "remove")
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    replace: bool
    set: _containers.RepeatedScalarFieldContainer[str]
    add: _containers.RepeatedScalarFieldContainer[str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, replace: bool = ..., set: _Optional[_Iterable[str]] = ..., add: _Optional[_Iterable[str]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateReservationRequest(_message.Message):
    __slots__ = ("name", "start_at", "end_at", "duration_secs", "duration_delta_secs", "nodes", "node_count", "core_counts", "features", "partition", "flags", "users", "accounts", "groups", "licenses", "max_start_delay_secs", "purge_comp_secs", "comment", "skip")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    END_AT_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECS_FIELD_NUMBER: _ClassVar[int]
    DURATION_DELTA_SECS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CORE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LICENSES_FIELD_NUMBER: _ClassVar[int]
    MAX_START_DELAY_SECS_FIELD_NUMBER: _ClassVar[int]
    PURGE_COMP_SECS_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    name: str
    start_at: float
    end_at: float
    duration_secs: int
    duration_delta_secs: int
    nodes: ListChange
    node_count: int
    core_counts: _containers.RepeatedScalarFieldContainer[int]
    features: str
    partition: str
    flags: ListChange
    users: ListChange
    accounts: ListChange
    groups: ListChange
    licenses: str
    max_start_delay_secs: int
    purge_comp_secs: int
    comment: str
    skip: bool
    def __init__(self, name: _Optional[str] = ..., start_at: _Optional[float] = ..., end_at: _Optional[float] = ..., duration_secs: _Optional[int] = ..., duration_delta_secs: _Optional[int] = ..., nodes: _Optional[_Union[ListChange, _Mapping]] = ..., node_count: _Optional[int] = ..., core_counts: _Optional[_Iterable[int]] = ..., features: _Optional[str] = ..., partition: _Optional[str] = ..., flags: _Optional[_Union[ListChange, _Mapping]] = ..., users: _Optional[_Union[ListChange, _Mapping]] = ..., accounts: _Optional[_Union[ListChange, _Mapping]] = ..., groups: _Optional[_Union[ListChange, _Mapping]] = ..., licenses: _Optional[str] = ..., max_start_delay_secs: _Optional[int] = ..., purge_comp_secs: _Optional[int] = ..., comment: _Optional[str] = ..., skip: bool = ...) -> None: ...

class UpdateReservationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteReservationRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteReservationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListReservationsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListReservationsResponse(_message.Message):
    __slots__ = ("reservations", "server_time")
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    reservations: _containers.RepeatedCompositeFieldContainer[_common_pb2.ReservationInfo]
    server_time: float
    def __init__(self, reservations: _Optional[_Iterable[_Union[_common_pb2.ReservationInfo, _Mapping]]] = ..., server_time: _Optional[float] = ...) -> None: ...

class GetLicensesRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetLicensesResponse(_message.Message):
    __slots__ = ("licenses", "server_time")
    LICENSES_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    licenses: _containers.RepeatedCompositeFieldContainer[_common_pb2.LicenseInfo]
    server_time: float
    def __init__(self, licenses: _Optional[_Iterable[_Union[_common_pb2.LicenseInfo, _Mapping]]] = ..., server_time: _Optional[float] = ...) -> None: ...

class GetPrioritiesRequest(_message.Message):
    __slots__ = ("job_ids", "users", "partitions", "page_token")
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    users: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[str]
    page_token: str
    def __init__(self, job_ids: _Optional[_Iterable[int]] = ..., users: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[str]] = ..., page_token: _Optional[str] = ...) -> None: ...

class PriorityFactors(_message.Message):
    __slots__ = ("age", "assoc", "fairshare", "job_size", "partition", "qos", "tres")
    class TresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    AGE_FIELD_NUMBER: _ClassVar[int]
    ASSOC_FIELD_NUMBER: _ClassVar[int]
    FAIRSHARE_FIELD_NUMBER: _ClassVar[int]
    JOB_SIZE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    TRES_FIELD_NUMBER: _ClassVar[int]
    age: float
    assoc: float
    fairshare: float
    job_size: float
    partition: float
    qos: float
    tres: _containers.ScalarMap[str, float]
    def __init__(self, age: _Optional[float] = ..., assoc: _Optional[float] = ..., fairshare: _Optional[float] = ..., job_size: _Optional[float] = ..., partition: _Optional[float] = ..., qos: _Optional[float] = ..., tres: _Optional[_Mapping[str, float]] = ...) -> None: ...

class JobPriority(_message.Message):
    __slots__ = ("job_id", "user", "uid", "account", "qos", "partition", "priority", "nice", "site_factor", "normalized", "weighted", "set_by_hand", "array_job_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    NICE_FIELD_NUMBER: _ClassVar[int]
    SITE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_FIELD_NUMBER: _ClassVar[int]
    WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    SET_BY_HAND_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    user: str
    uid: int
    account: str
    qos: str
    partition: str
    priority: int
    nice: int
    site_factor: int
    normalized: PriorityFactors
    weighted: PriorityFactors
    set_by_hand: bool
    array_job_id: int
    def __init__(self, job_id: _Optional[int] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ..., account: _Optional[str] = ..., qos: _Optional[str] = ..., partition: _Optional[str] = ..., priority: _Optional[int] = ..., nice: _Optional[int] = ..., site_factor: _Optional[int] = ..., normalized: _Optional[_Union[PriorityFactors, _Mapping]] = ..., weighted: _Optional[_Union[PriorityFactors, _Mapping]] = ..., set_by_hand: bool = ..., array_job_id: _Optional[int] = ...) -> None: ...

class GetPrioritiesResponse(_message.Message):
    __slots__ = ("jobs", "weights", "priority_type", "server_time", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_TYPE_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobPriority]
    weights: PriorityFactors
    priority_type: str
    server_time: float
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobPriority, _Mapping]]] = ..., weights: _Optional[_Union[PriorityFactors, _Mapping]] = ..., priority_type: _Optional[str] = ..., server_time: _Optional[float] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetTopologyRequest(_message.Message):
    __slots__ = ("node", "switch_name")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SWITCH_NAME_FIELD_NUMBER: _ClassVar[int]
    node: str
    switch_name: str
    def __init__(self, node: _Optional[str] = ..., switch_name: _Optional[str] = ...) -> None: ...

class GetTopologyResponse(_message.Message):
    __slots__ = ("plugin", "switches")
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    switches: _containers.RepeatedCompositeFieldContainer[TopologySwitch]
    def __init__(self, plugin: _Optional[str] = ..., switches: _Optional[_Iterable[_Union[TopologySwitch, _Mapping]]] = ...) -> None: ...

class TopologySwitch(_message.Message):
    __slots__ = ("name", "level", "link_speed", "nodes", "switches", "block_index", "block_size")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LINK_SPEED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_INDEX_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    link_speed: int
    nodes: str
    switches: str
    block_index: int
    block_size: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., link_speed: _Optional[int] = ..., nodes: _Optional[str] = ..., switches: _Optional[str] = ..., block_index: _Optional[int] = ..., block_size: _Optional[int] = ...) -> None: ...

class PartitionChange(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class CreatePartitionRequest(_message.Message):
    __slots__ = ("name", "changes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    changes: _containers.RepeatedCompositeFieldContainer[PartitionChange]
    def __init__(self, name: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[PartitionChange, _Mapping]]] = ...) -> None: ...

class CreatePartitionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdatePartitionRequest(_message.Message):
    __slots__ = ("name", "changes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    changes: _containers.RepeatedCompositeFieldContainer[PartitionChange]
    def __init__(self, name: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[PartitionChange, _Mapping]]] = ...) -> None: ...

class UpdatePartitionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeletePartitionRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeletePartitionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatisticsRequest(_message.Message):
    __slots__ = ("reset",)
    RESET_FIELD_NUMBER: _ClassVar[int]
    reset: bool
    def __init__(self, reset: bool = ...) -> None: ...

class GetStatisticsResponse(_message.Message):
    __slots__ = ("at", "since", "calls_open", "agent_calls_open", "accounting_queue", "jobs_submitted", "jobs_started", "jobs_completed", "jobs_canceled", "jobs_failed", "jobs_pending", "jobs_running", "clock_micros", "scheduler", "by_method", "by_user")
    AT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    CALLS_OPEN_FIELD_NUMBER: _ClassVar[int]
    AGENT_CALLS_OPEN_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTING_QUEUE_FIELD_NUMBER: _ClassVar[int]
    JOBS_SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    JOBS_STARTED_FIELD_NUMBER: _ClassVar[int]
    JOBS_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    JOBS_CANCELED_FIELD_NUMBER: _ClassVar[int]
    JOBS_FAILED_FIELD_NUMBER: _ClassVar[int]
    JOBS_PENDING_FIELD_NUMBER: _ClassVar[int]
    JOBS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MICROS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    BY_METHOD_FIELD_NUMBER: _ClassVar[int]
    BY_USER_FIELD_NUMBER: _ClassVar[int]
    at: float
    since: float
    calls_open: int
    agent_calls_open: int
    accounting_queue: int
    jobs_submitted: int
    jobs_started: int
    jobs_completed: int
    jobs_canceled: int
    jobs_failed: int
    jobs_pending: int
    jobs_running: int
    clock_micros: int
    scheduler: SchedulerFigures
    by_method: _containers.RepeatedCompositeFieldContainer[CallCount]
    by_user: _containers.RepeatedCompositeFieldContainer[CallCount]
    def __init__(self, at: _Optional[float] = ..., since: _Optional[float] = ..., calls_open: _Optional[int] = ..., agent_calls_open: _Optional[int] = ..., accounting_queue: _Optional[int] = ..., jobs_submitted: _Optional[int] = ..., jobs_started: _Optional[int] = ..., jobs_completed: _Optional[int] = ..., jobs_canceled: _Optional[int] = ..., jobs_failed: _Optional[int] = ..., jobs_pending: _Optional[int] = ..., jobs_running: _Optional[int] = ..., clock_micros: _Optional[int] = ..., scheduler: _Optional[_Union[SchedulerFigures, _Mapping]] = ..., by_method: _Optional[_Iterable[_Union[CallCount, _Mapping]]] = ..., by_user: _Optional[_Iterable[_Union[CallCount, _Mapping]]] = ...) -> None: ...

class CallCount(_message.Message):
    __slots__ = ("name", "uid", "count", "total_secs", "most_secs", "last_secs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SECS_FIELD_NUMBER: _ClassVar[int]
    MOST_SECS_FIELD_NUMBER: _ClassVar[int]
    LAST_SECS_FIELD_NUMBER: _ClassVar[int]
    name: str
    uid: int
    count: int
    total_secs: float
    most_secs: float
    last_secs: float
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[int] = ..., count: _Optional[int] = ..., total_secs: _Optional[float] = ..., most_secs: _Optional[float] = ..., last_secs: _Optional[float] = ...) -> None: ...

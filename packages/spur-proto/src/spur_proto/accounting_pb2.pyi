from spur_proto import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HistoryTarget(_message.Message):
    __slots__ = ("job_id", "array_tasks", "step_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASKS_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    array_tasks: str
    step_id: int
    def __init__(self, job_id: _Optional[int] = ..., array_tasks: _Optional[str] = ..., step_id: _Optional[int] = ...) -> None: ...

class GetJobHistoryRequest(_message.Message):
    __slots__ = ("jobs", "users", "accounts", "partitions", "names", "nodes", "states", "window_start", "window_end", "duplicates", "without_steps", "qos", "page_size", "page_token", "all_users")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_START_FIELD_NUMBER: _ClassVar[int]
    WINDOW_END_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_STEPS_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ALL_USERS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[HistoryTarget]
    users: _containers.RepeatedScalarFieldContainer[str]
    accounts: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[str]
    names: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    states: _containers.RepeatedScalarFieldContainer[_common_pb2.JobState]
    window_start: float
    window_end: float
    duplicates: bool
    without_steps: bool
    qos: _containers.RepeatedScalarFieldContainer[str]
    page_size: int
    page_token: str
    all_users: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[HistoryTarget, _Mapping]]] = ..., users: _Optional[_Iterable[str]] = ..., accounts: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[str]] = ..., names: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ..., states: _Optional[_Iterable[_Union[_common_pb2.JobState, str]]] = ..., window_start: _Optional[float] = ..., window_end: _Optional[float] = ..., duplicates: bool = ..., without_steps: bool = ..., qos: _Optional[_Iterable[str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., all_users: bool = ...) -> None: ...

class GetJobHistoryResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token", "server_time")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobHistory]
    next_page_token: str
    server_time: float
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobHistory, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., server_time: _Optional[float] = ...) -> None: ...

class JobHistory(_message.Message):
    __slots__ = ("db_index", "job_id", "run_attempt", "array_job_id", "array_task_id", "array_pending", "cluster", "name", "user", "uid", "gid", "account", "partition", "qos", "state", "reason", "exit", "derived_exit", "submit_at", "eligible_at", "start_at", "end_at", "suspended_secs", "time_limit_secs", "req_cpus", "alloc_cpus", "req_nodes", "alloc_nodes", "req_mem_mb", "req_mem_per_cpu", "nodelist", "req_tres", "alloc_tres", "priority", "work_dir", "submit_line", "comment", "constraint", "stdout_path", "stderr_path", "stdin_path", "kill_uid", "restarts", "wckey", "flags", "reservation", "req_reservation", "licenses", "steps")
    DB_INDEX_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_PENDING_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    DERIVED_EXIT_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_AT_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_AT_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    END_AT_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_SECS_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_SECS_FIELD_NUMBER: _ClassVar[int]
    REQ_CPUS_FIELD_NUMBER: _ClassVar[int]
    ALLOC_CPUS_FIELD_NUMBER: _ClassVar[int]
    REQ_NODES_FIELD_NUMBER: _ClassVar[int]
    ALLOC_NODES_FIELD_NUMBER: _ClassVar[int]
    REQ_MEM_MB_FIELD_NUMBER: _ClassVar[int]
    REQ_MEM_PER_CPU_FIELD_NUMBER: _ClassVar[int]
    NODELIST_FIELD_NUMBER: _ClassVar[int]
    REQ_TRES_FIELD_NUMBER: _ClassVar[int]
    ALLOC_TRES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_LINE_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    STDOUT_PATH_FIELD_NUMBER: _ClassVar[int]
    STDERR_PATH_FIELD_NUMBER: _ClassVar[int]
    STDIN_PATH_FIELD_NUMBER: _ClassVar[int]
    KILL_UID_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    WCKEY_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    REQ_RESERVATION_FIELD_NUMBER: _ClassVar[int]
    LICENSES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    db_index: int
    job_id: int
    run_attempt: int
    array_job_id: int
    array_task_id: int
    array_pending: str
    cluster: str
    name: str
    user: str
    uid: int
    gid: int
    account: str
    partition: str
    qos: str
    state: _common_pb2.JobState
    reason: str
    exit: _common_pb2.ExitStatus
    derived_exit: _common_pb2.ExitStatus
    submit_at: float
    eligible_at: float
    start_at: float
    end_at: float
    suspended_secs: float
    time_limit_secs: int
    req_cpus: int
    alloc_cpus: int
    req_nodes: int
    alloc_nodes: int
    req_mem_mb: int
    req_mem_per_cpu: bool
    nodelist: str
    req_tres: str
    alloc_tres: str
    priority: int
    work_dir: str
    submit_line: str
    comment: str
    constraint: str
    stdout_path: str
    stderr_path: str
    stdin_path: str
    kill_uid: int
    restarts: int
    wckey: str
    flags: str
    reservation: str
    req_reservation: str
    licenses: str
    steps: _containers.RepeatedCompositeFieldContainer[StepHistory]
    def __init__(self, db_index: _Optional[int] = ..., job_id: _Optional[int] = ..., run_attempt: _Optional[int] = ..., array_job_id: _Optional[int] = ..., array_task_id: _Optional[int] = ..., array_pending: _Optional[str] = ..., cluster: _Optional[str] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., account: _Optional[str] = ..., partition: _Optional[str] = ..., qos: _Optional[str] = ..., state: _Optional[_Union[_common_pb2.JobState, str]] = ..., reason: _Optional[str] = ..., exit: _Optional[_Union[_common_pb2.ExitStatus, _Mapping]] = ..., derived_exit: _Optional[_Union[_common_pb2.ExitStatus, _Mapping]] = ..., submit_at: _Optional[float] = ..., eligible_at: _Optional[float] = ..., start_at: _Optional[float] = ..., end_at: _Optional[float] = ..., suspended_secs: _Optional[float] = ..., time_limit_secs: _Optional[int] = ..., req_cpus: _Optional[int] = ..., alloc_cpus: _Optional[int] = ..., req_nodes: _Optional[int] = ..., alloc_nodes: _Optional[int] = ..., req_mem_mb: _Optional[int] = ..., req_mem_per_cpu: bool = ..., nodelist: _Optional[str] = ..., req_tres: _Optional[str] = ..., alloc_tres: _Optional[str] = ..., priority: _Optional[int] = ..., work_dir: _Optional[str] = ..., submit_line: _Optional[str] = ..., comment: _Optional[str] = ..., constraint: _Optional[str] = ..., stdout_path: _Optional[str] = ..., stderr_path: _Optional[str] = ..., stdin_path: _Optional[str] = ..., kill_uid: _Optional[int] = ..., restarts: _Optional[int] = ..., wckey: _Optional[str] = ..., flags: _Optional[str] = ..., reservation: _Optional[str] = ..., req_reservation: _Optional[str] = ..., licenses: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[StepHistory, _Mapping]]] = ...) -> None: ...

class StepHistory(_message.Message):
    __slots__ = ("step_id", "name", "state", "exit", "start_at", "end_at", "num_tasks", "alloc_cpus", "num_nodes", "nodelist", "alloc_tres", "user_secs", "system_secs", "max_rss_kb", "max_rss_node", "layout")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    END_AT_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    ALLOC_CPUS_FIELD_NUMBER: _ClassVar[int]
    NUM_NODES_FIELD_NUMBER: _ClassVar[int]
    NODELIST_FIELD_NUMBER: _ClassVar[int]
    ALLOC_TRES_FIELD_NUMBER: _ClassVar[int]
    USER_SECS_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_SECS_FIELD_NUMBER: _ClassVar[int]
    MAX_RSS_KB_FIELD_NUMBER: _ClassVar[int]
    MAX_RSS_NODE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    name: str
    state: _common_pb2.JobState
    exit: _common_pb2.ExitStatus
    start_at: float
    end_at: float
    num_tasks: int
    alloc_cpus: int
    num_nodes: int
    nodelist: str
    alloc_tres: str
    user_secs: float
    system_secs: float
    max_rss_kb: int
    max_rss_node: str
    layout: str
    def __init__(self, step_id: _Optional[int] = ..., name: _Optional[str] = ..., state: _Optional[_Union[_common_pb2.JobState, str]] = ..., exit: _Optional[_Union[_common_pb2.ExitStatus, _Mapping]] = ..., start_at: _Optional[float] = ..., end_at: _Optional[float] = ..., num_tasks: _Optional[int] = ..., alloc_cpus: _Optional[int] = ..., num_nodes: _Optional[int] = ..., nodelist: _Optional[str] = ..., alloc_tres: _Optional[str] = ..., user_secs: _Optional[float] = ..., system_secs: _Optional[float] = ..., max_rss_kb: _Optional[int] = ..., max_rss_node: _Optional[str] = ..., layout: _Optional[str] = ...) -> None: ...

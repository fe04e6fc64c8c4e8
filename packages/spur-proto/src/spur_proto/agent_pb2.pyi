from spur_proto import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LaunchFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LAUNCH_FAILURE_UNSPECIFIED: _ClassVar[LaunchFailure]
    LAUNCH_FAILURE_JOB: _ClassVar[LaunchFailure]
    LAUNCH_FAILURE_NODE: _ClassVar[LaunchFailure]
    LAUNCH_FAILURE_RESOURCES: _ClassVar[LaunchFailure]
    LAUNCH_FAILURE_PROLOG: _ClassVar[LaunchFailure]

class OutputStream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_STREAM_UNSPECIFIED: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDOUT: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDERR: _ClassVar[OutputStream]

class SessionMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_MODE_UNSPECIFIED: _ClassVar[SessionMode]
    SESSION_MODE_OWNER: _ClassVar[SessionMode]
    SESSION_MODE_WATCHER: _ClassVar[SessionMode]
    SESSION_MODE_EXEC: _ClassVar[SessionMode]
LAUNCH_FAILURE_UNSPECIFIED: LaunchFailure
LAUNCH_FAILURE_JOB: LaunchFailure
LAUNCH_FAILURE_NODE: LaunchFailure
LAUNCH_FAILURE_RESOURCES: LaunchFailure
LAUNCH_FAILURE_PROLOG: LaunchFailure
OUTPUT_STREAM_UNSPECIFIED: OutputStream
OUTPUT_STREAM_STDOUT: OutputStream
OUTPUT_STREAM_STDERR: OutputStream
SESSION_MODE_UNSPECIFIED: SessionMode
SESSION_MODE_OWNER: SessionMode
SESSION_MODE_WATCHER: SessionMode
SESSION_MODE_EXEC: SessionMode

class LaunchSpec(_message.Message):
    __slots__ = ("rid", "cluster_name", "job_name", "user", "uid", "gid", "partition", "account", "qos", "script", "argv", "script_args", "environment", "work_dir", "stdout_path", "stderr_path", "stdin_path", "open_mode", "umask", "spool_output", "label", "rlimits", "nodes", "node_index", "slice", "total_tasks", "cpus_per_task", "tasks_per_node", "tasks_given", "tasks_per_node_text", "cpus_per_node_text", "memory_per_node_mb", "memory_per_cpu_mb", "array_job_id", "array_task_id", "array_task_count", "array_task_min", "array_task_max", "array_task_step", "restarts", "start_at", "end_at", "submit_host", "submit_dir", "dependency", "kill_wait_secs", "cpus_per_task_given", "hold", "job_lifetime", "shape", "job_slice", "step_nodes", "step_node_index", "step_tasks_per_node_text", "step_name", "distribution", "overlap", "exact", "step_tasks", "job_tasks", "srun_host", "srun_address", "comment", "wishes", "gpus_per_node_text", "reservation", "licenses", "topology_addr", "topology_addr_pattern")
    RID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_ARGS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    STDOUT_PATH_FIELD_NUMBER: _ClassVar[int]
    STDERR_PATH_FIELD_NUMBER: _ClassVar[int]
    STDIN_PATH_FIELD_NUMBER: _ClassVar[int]
    OPEN_MODE_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    SPOOL_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    RLIMITS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TASKS_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    TASKS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    TASKS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    TASKS_PER_NODE_TEXT_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_NODE_TEXT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PER_NODE_MB_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PER_CPU_MB_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_COUNT_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_MIN_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_MAX_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_STEP_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    END_AT_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_HOST_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_DIR_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCY_FIELD_NUMBER: _ClassVar[int]
    KILL_WAIT_SECS_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_GIVEN_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    JOB_LIFETIME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    JOB_SLICE_FIELD_NUMBER: _ClassVar[int]
    STEP_NODES_FIELD_NUMBER: _ClassVar[int]
    STEP_NODE_INDEX_FIELD_NUMBER: _ClassVar[int]
    STEP_TASKS_PER_NODE_TEXT_FIELD_NUMBER: _ClassVar[int]
    STEP_NAME_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    STEP_TASKS_FIELD_NUMBER: _ClassVar[int]
    JOB_TASKS_FIELD_NUMBER: _ClassVar[int]
    SRUN_HOST_FIELD_NUMBER: _ClassVar[int]
    SRUN_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    WISHES_FIELD_NUMBER: _ClassVar[int]
    GPUS_PER_NODE_TEXT_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    LICENSES_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ADDR_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ADDR_PATTERN_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    cluster_name: str
    job_name: str
    user: str
    uid: int
    gid: int
    partition: str
    account: str
    qos: str
    script: bytes
    argv: _containers.RepeatedScalarFieldContainer[bytes]
    script_args: _containers.RepeatedScalarFieldContainer[bytes]
    environment: _containers.RepeatedScalarFieldContainer[bytes]
    work_dir: str
    stdout_path: str
    stderr_path: str
    stdin_path: str
    open_mode: str
    umask: int
    spool_output: bool
    label: bool
    rlimits: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    node_index: int
    slice: _common_pb2.NodeSlice
    total_tasks: int
    cpus_per_task: int
    tasks_per_node: int
    tasks_given: bool
    tasks_per_node_text: str
    cpus_per_node_text: str
    memory_per_node_mb: int
    memory_per_cpu_mb: int
    array_job_id: int
    array_task_id: int
    array_task_count: int
    array_task_min: int
    array_task_max: int
    array_task_step: int
    restarts: int
    start_at: float
    end_at: float
    submit_host: str
    submit_dir: str
    dependency: str
    kill_wait_secs: int
    cpus_per_task_given: bool
    hold: bool
    job_lifetime: bool
    shape: _common_pb2.StepShape
    job_slice: _common_pb2.NodeSlice
    step_nodes: _containers.RepeatedScalarFieldContainer[str]
    step_node_index: int
    step_tasks_per_node_text: str
    step_name: str
    distribution: str
    overlap: bool
    exact: bool
    step_tasks: int
    job_tasks: int
    srun_host: str
    srun_address: str
    comment: str
    wishes: _common_pb2.JobWishes
    gpus_per_node_text: str
    reservation: str
    licenses: str
    topology_addr: str
    topology_addr_pattern: str
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., cluster_name: _Optional[str] = ..., job_name: _Optional[str] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., partition: _Optional[str] = ..., account: _Optional[str] = ..., qos: _Optional[str] = ..., script: _Optional[bytes] = ..., argv: _Optional[_Iterable[bytes]] = ..., script_args: _Optional[_Iterable[bytes]] = ..., environment: _Optional[_Iterable[bytes]] = ..., work_dir: _Optional[str] = ..., stdout_path: _Optional[str] = ..., stderr_path: _Optional[str] = ..., stdin_path: _Optional[str] = ..., open_mode: _Optional[str] = ..., umask: _Optional[int] = ..., spool_output: bool = ..., label: bool = ..., rlimits: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ..., node_index: _Optional[int] = ..., slice: _Optional[_Union[_common_pb2.NodeSlice, _Mapping]] = ..., total_tasks: _Optional[int] = ..., cpus_per_task: _Optional[int] = ..., tasks_per_node: _Optional[int] = ..., tasks_given: bool = ..., tasks_per_node_text: _Optional[str] = ..., cpus_per_node_text: _Optional[str] = ..., memory_per_node_mb: _Optional[int] = ..., memory_per_cpu_mb: _Optional[int] = ..., array_job_id: _Optional[int] = ..., array_task_id: _Optional[int] = ..., array_task_count: _Optional[int] = ..., array_task_min: _Optional[int] = ..., array_task_max: _Optional[int] = ..., array_task_step: _Optional[int] = ..., restarts: _Optional[int] = ..., start_at: _Optional[float] = ..., end_at: _Optional[float] = ..., submit_host: _Optional[str] = ..., submit_dir: _Optional[str] = ..., dependency: _Optional[str] = ..., kill_wait_secs: _Optional[int] = ..., cpus_per_task_given: bool = ..., hold: bool = ..., job_lifetime: bool = ..., shape: _Optional[_Union[_common_pb2.StepShape, _Mapping]] = ..., job_slice: _Optional[_Union[_common_pb2.NodeSlice, _Mapping]] = ..., step_nodes: _Optional[_Iterable[str]] = ..., step_node_index: _Optional[int] = ..., step_tasks_per_node_text: _Optional[str] = ..., step_name: _Optional[str] = ..., distribution: _Optional[str] = ..., overlap: bool = ..., exact: bool = ..., step_tasks: _Optional[int] = ..., job_tasks: _Optional[int] = ..., srun_host: _Optional[str] = ..., srun_address: _Optional[str] = ..., comment: _Optional[str] = ..., wishes: _Optional[_Union[_common_pb2.JobWishes, _Mapping]] = ..., gpus_per_node_text: _Optional[str] = ..., reservation: _Optional[str] = ..., licenses: _Optional[str] = ..., topology_addr: _Optional[str] = ..., topology_addr_pattern: _Optional[str] = ...) -> None: ...

class LaunchJobRequest(_message.Message):
    __slots__ = ("spec", "target_node", "launch_token", "term")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TARGET_NODE_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    spec: bytes
    target_node: str
    launch_token: str
    term: int
    def __init__(self, spec: _Optional[bytes] = ..., target_node: _Optional[str] = ..., launch_token: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class LaunchJobResponse(_message.Message):
    __slots__ = ("success", "failure", "error", "stdout_path", "stderr_path", "started_at")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STDOUT_PATH_FIELD_NUMBER: _ClassVar[int]
    STDERR_PATH_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    success: bool
    failure: LaunchFailure
    error: str
    stdout_path: str
    stderr_path: str
    started_at: float
    def __init__(self, success: bool = ..., failure: _Optional[_Union[LaunchFailure, str]] = ..., error: _Optional[str] = ..., stdout_path: _Optional[str] = ..., stderr_path: _Optional[str] = ..., started_at: _Optional[float] = ...) -> None: ...

class RunCommandRequest(_message.Message):
    __slots__ = ("spec", "target_node", "launch_token", "term")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TARGET_NODE_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    spec: bytes
    target_node: str
    launch_token: str
    term: int
    def __init__(self, spec: _Optional[bytes] = ..., target_node: _Optional[str] = ..., launch_token: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class RunCommandResponse(_message.Message):
    __slots__ = ("success", "failure", "error", "started_at")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    success: bool
    failure: LaunchFailure
    error: str
    started_at: float
    def __init__(self, success: bool = ..., failure: _Optional[_Union[LaunchFailure, str]] = ..., error: _Optional[str] = ..., started_at: _Optional[float] = ...) -> None: ...

class AgentSuspendJobRequest(_message.Message):
    __slots__ = ("rid", "resume", "term")
    RID_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    resume: bool
    term: int
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., resume: bool = ..., term: _Optional[int] = ...) -> None: ...

class AgentSuspendJobResponse(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    def __init__(self, steps: _Optional[int] = ...) -> None: ...

class AgentCancelJobRequest(_message.Message):
    __slots__ = ("rid", "signal", "grace_secs", "reason", "batch_only", "term", "steps_only")
    RID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BATCH_ONLY_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    STEPS_ONLY_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    signal: int
    grace_secs: int
    reason: str
    batch_only: bool
    term: int
    steps_only: bool
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., signal: _Optional[int] = ..., grace_secs: _Optional[int] = ..., reason: _Optional[str] = ..., batch_only: bool = ..., term: _Optional[int] = ..., steps_only: bool = ...) -> None: ...

class AgentCancelJobResponse(_message.Message):
    __slots__ = ("active",)
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    active: bool
    def __init__(self, active: bool = ...) -> None: ...

class ProbeStepdRequest(_message.Message):
    __slots__ = ("rid", "term")
    RID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    term: int
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., term: _Optional[int] = ...) -> None: ...

class ProbeStepdResponse(_message.Message):
    __slots__ = ("active", "state", "exit", "started_at")
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    active: bool
    state: str
    exit: _common_pb2.ExitStatus
    started_at: float
    def __init__(self, active: bool = ..., state: _Optional[str] = ..., exit: _Optional[_Union[_common_pb2.ExitStatus, _Mapping]] = ..., started_at: _Optional[float] = ...) -> None: ...

class StreamOffset(_message.Message):
    __slots__ = ("rank", "stream", "offset")
    RANK_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    rank: int
    stream: OutputStream
    offset: int
    def __init__(self, rank: _Optional[int] = ..., stream: _Optional[_Union[OutputStream, str]] = ..., offset: _Optional[int] = ...) -> None: ...

class StreamJobOutputRequest(_message.Message):
    __slots__ = ("rid", "offsets")
    RID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    offsets: _containers.RepeatedCompositeFieldContainer[StreamOffset]
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., offsets: _Optional[_Iterable[_Union[StreamOffset, _Mapping]]] = ...) -> None: ...

class OutputChunk(_message.Message):
    __slots__ = ("rank", "stream", "offset", "data")
    RANK_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    rank: int
    stream: OutputStream
    offset: int
    data: bytes
    def __init__(self, rank: _Optional[int] = ..., stream: _Optional[_Union[OutputStream, str]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class StepExit(_message.Message):
    __slots__ = ("exit", "ranks")
    EXIT_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    exit: _common_pb2.ExitStatus
    ranks: _containers.RepeatedCompositeFieldContainer[RankExit]
    def __init__(self, exit: _Optional[_Union[_common_pb2.ExitStatus, _Mapping]] = ..., ranks: _Optional[_Iterable[_Union[RankExit, _Mapping]]] = ...) -> None: ...

class RankExit(_message.Message):
    __slots__ = ("rank", "exit")
    RANK_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    exit: _common_pb2.ExitStatus
    def __init__(self, rank: _Optional[int] = ..., exit: _Optional[_Union[_common_pb2.ExitStatus, _Mapping]] = ...) -> None: ...

class StreamJobOutputResponse(_message.Message):
    __slots__ = ("output", "exit")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    output: OutputChunk
    exit: StepExit
    def __init__(self, output: _Optional[_Union[OutputChunk, _Mapping]] = ..., exit: _Optional[_Union[StepExit, _Mapping]] = ...) -> None: ...

class WindowSize(_message.Message):
    __slots__ = ("rows", "cols")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    cols: int
    def __init__(self, rows: _Optional[int] = ..., cols: _Optional[int] = ...) -> None: ...

class SessionInit(_message.Message):
    __slots__ = ("rid", "offsets", "mode", "want_input", "window", "argv", "environment", "pty", "work_dir")
    RID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    WANT_INPUT_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    PTY_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    rid: _common_pb2.RuntimeId
    offsets: _containers.RepeatedCompositeFieldContainer[StreamOffset]
    mode: SessionMode
    want_input: bool
    window: WindowSize
    argv: _containers.RepeatedScalarFieldContainer[bytes]
    environment: _containers.RepeatedScalarFieldContainer[bytes]
    pty: bool
    work_dir: str
    def __init__(self, rid: _Optional[_Union[_common_pb2.RuntimeId, _Mapping]] = ..., offsets: _Optional[_Iterable[_Union[StreamOffset, _Mapping]]] = ..., mode: _Optional[_Union[SessionMode, str]] = ..., want_input: bool = ..., window: _Optional[_Union[WindowSize, _Mapping]] = ..., argv: _Optional[_Iterable[bytes]] = ..., environment: _Optional[_Iterable[bytes]] = ..., pty: bool = ..., work_dir: _Optional[str] = ...) -> None: ...

class InteractiveSessionRequest(_message.Message):
    __slots__ = ("init", "stdin", "stdin_eof", "signal", "consumed", "resize", "stdin_offset")
    INIT_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    STDIN_EOF_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_FIELD_NUMBER: _ClassVar[int]
    RESIZE_FIELD_NUMBER: _ClassVar[int]
    STDIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    init: SessionInit
    stdin: bytes
    stdin_eof: bool
    signal: int
    consumed: StreamOffset
    resize: WindowSize
    stdin_offset: int
    def __init__(self, init: _Optional[_Union[SessionInit, _Mapping]] = ..., stdin: _Optional[bytes] = ..., stdin_eof: bool = ..., signal: _Optional[int] = ..., consumed: _Optional[_Union[StreamOffset, _Mapping]] = ..., resize: _Optional[_Union[WindowSize, _Mapping]] = ..., stdin_offset: _Optional[int] = ...) -> None: ...

class SessionReady(_message.Message):
    __slots__ = ("stdin_offset", "writer", "pty")
    STDIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    PTY_FIELD_NUMBER: _ClassVar[int]
    stdin_offset: int
    writer: bool
    pty: bool
    def __init__(self, stdin_offset: _Optional[int] = ..., writer: bool = ..., pty: bool = ...) -> None: ...

class InteractiveSessionResponse(_message.Message):
    __slots__ = ("output", "exit", "ready", "stdin_accepted", "task_exit")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    STDIN_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TASK_EXIT_FIELD_NUMBER: _ClassVar[int]
    output: OutputChunk
    exit: StepExit
    ready: SessionReady
    stdin_accepted: int
    task_exit: RankExit
    def __init__(self, output: _Optional[_Union[OutputChunk, _Mapping]] = ..., exit: _Optional[_Union[StepExit, _Mapping]] = ..., ready: _Optional[_Union[SessionReady, _Mapping]] = ..., stdin_accepted: _Optional[int] = ..., task_exit: _Optional[_Union[RankExit, _Mapping]] = ...) -> None: ...

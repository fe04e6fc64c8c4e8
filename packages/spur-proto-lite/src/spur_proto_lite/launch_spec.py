"""`launch.json`: everything a supervisor needs, so that it never asks back."""

from __future__ import annotations

from spur_core.ids import RuntimeId, is_numbered
from spur_proto_lite import jsontext
from spur_proto_lite.errors import BadDocument, NewerFormat
from spur_proto_lite.record import EMPTY, Record, nests
from spur_proto_lite.versions import LAUNCH_FORMAT

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class TaskSpec(Record):
    """One task of this node.  `env` is laid over the step's environment."""

    #: Global rank in the step.
    rank: int
    #: Place among this node's tasks, from 0.
    local_rank: int
    env: Mapping[str, str] = EMPTY
    #: A command of its own (multi-prog); empty = the step's.
    argv: tuple[str, ...] = ()
    #: CPUs that the task is bound to; empty = those of the step.
    cpu_ids: tuple[int, ...] = ()


nests(TaskSpec)


#: Tasks of one step on one node (Slurm: 512).  What is said about all of them, their exits for example, must
#: fit into one message.
MOST_TASKS = 8192


class HookSpec(Record):
    """Scripts that run one after the other, each with a time limit of its own, seconds."""

    paths: tuple[str, ...] = ()
    #: All of it for an epilog; of a task's scripts what is laid over the task's.
    env: Mapping[str, str] = EMPTY
    timeout_secs: float = 600.0


nests(HookSpec)


class RlimitSpec(Record):
    """One resource limit: the name without `RLIMIT_`, soft and hard; -1 = unlimited."""

    name: str
    soft: int
    hard: int


nests(RlimitSpec)


class LaunchSpec(Record):
    """One step on one node.

    A batch step has `script`, any step may have `argv` instead.  Texts are in surrogateescape form.
    An empty pattern means: the default (`stdout_pattern`), follow stdout (`stderr_pattern`), `/dev/null`
    (`stdin_pattern`).
    """

    rid: RuntimeId
    version: int = LAUNCH_FORMAT

    node: str = ""
    #: This node's place in the allocation, from 0 (`%n`).
    node_id: int = 0
    nodelist: str = ""
    n_nodes: int = 1
    partition: str = ""
    job_name: str = ""
    #: None: the job is no array task.
    array_job_id: int | None = None
    array_task_id: int | None = None
    #: How often the job has been requeued (`%r`); above 0 output files are appended to only with
    #: `open_mode` "append".
    restart_count: int = 0

    #: Body of the batch script, shebang included; "" = run `argv`.
    script: str = ""
    #: Arguments of the script.
    script_args: tuple[str, ...] = ()
    #: Program (looked up in the job's PATH) and its arguments.
    argv: tuple[str, ...] = ()
    #: The whole environment; nothing is added but each task's numbers and `tasks[].env`.
    env: Mapping[str, str] = EMPTY
    #: May be "": per-job scratch.
    work_dir: str = ""

    stdout_pattern: str = ""
    stderr_pattern: str = ""
    stdin_pattern: str = ""
    #: "truncate" or "append".
    open_mode: str = "truncate"
    #: Output goes to the session's spools and to whoever attaches; input comes from there.
    spool_output: bool = False
    #: Output lines carry their rank.  The attached client writes the labels, so this needs `spool_output`.
    label: bool = False

    uid: int = 0
    gid: int = 0
    user: str = ""
    #: Supplementary groups, `gid` included or not.
    groups: tuple[int, ...] = ()
    allow_root_jobs: bool = False
    umask: int = 0o022
    rlimits: tuple[RlimitSpec, ...] = ()
    no_new_privs: bool = True

    #: CPUs of the whole job on this node and of this step; 0 = not limited.
    cpus: int = 0
    cpu_ids: tuple[int, ...] = ()
    #: MiB of this step on this node; 0 = not limited.
    memory_mb: int = 0
    gpu_ids: tuple[int, ...] = ()
    #: For example "gpu:a100:2".
    gres: str = ""
    #: Limits of the job as a whole on this node, when they differ from the step's; 0 = the step's.
    job_cpus: int = 0
    job_cpu_ids: tuple[int, ...] = ()
    job_memory_mb: int = 0

    #: Empty = one task of rank 0, unless `hold`.
    tasks: tuple[TaskSpec, ...] = ()

    #: No task at all: the step holds an allocation, or its place on a further node, until it is ended.
    hold: bool = False
    #: The attempt's part on this node ends with this step: its end ends all its other steps here, and then
    #: the epilog runs.
    job_lifetime: bool = False
    step_name: str = ""

    #: The (single) task gets a terminal, which the supervisor keeps.
    pty: bool = False
    pty_rows: int = 24
    pty_cols: int = 80
    #: Seconds that a terminal without a client is kept before it is hung up.
    pty_detach_grace_secs: float = 300.0
    #: The only rank that gets the attached input; None = all, -1 = none.
    stdin_rank: int | None = None
    #: Tell what each task is bound to.
    cpu_bind_verbose: bool = False
    #: "pmi2": the tasks get a PMI exchange; "" or "none": nothing.
    mpi: str = ""
    #: Tasks of the whole step, for `mpi`.
    mpi_size: int = 0

    #: As root, after the attempt's end on this node (`job_lifetime` only).
    epilog: HookSpec = HookSpec()
    #: As the user, around each task: the node's scripts, then (prolog) or before (epilog) srun's own.
    task_prolog: HookSpec = HookSpec()
    task_epilog: HookSpec = HookSpec()

    #: Nodes that should hold a supervisor of this step.
    cohort: tuple[str, ...] = ()

    #: Seconds between SIGTERM and SIGKILL of a teardown that names no grace of its own.
    kill_wait_secs: int = 5
    #: Seconds after readiness in which `start` must come.
    start_timeout_secs: float = 60.0
    #: "auto", "none", or a path below every hierarchy's mount ("spurtest_1" or "/spurtest_1").
    cgroup_root: str = "auto"
    #: Root of the private script directory; "" = the state directory's own.
    spool_dir: str = ""
    #: Directory for scratch and the fallback of the spool.
    tmp_dir: str = "/tmp"  # noqa: S108
    #: Largest spool of one stream, bytes; at the cap the task waits until somebody has read.
    spool_limit: int = 64 << 20

    @property
    def is_numbered(self) -> bool:
        return is_numbered(self.rid.step_id)

    def task_list(self) -> tuple[TaskSpec, ...]:
        """The tasks; one of rank 0 when none is listed, none at all of a step that only holds."""
        if self.hold:
            return ()
        return self.tasks or (TaskSpec(rank=0, local_rank=0),)

    def encode(self) -> bytes:
        """The text of `launch.json`."""
        return jsontext.encode(self.to_json())

    @classmethod
    def decode(cls, data: bytes) -> LaunchSpec:
        """The spec in the text of `launch.json`.

        Raises:
            NewerFormat: written by a newer release.
            BadDocument: damaged.
        """
        try:
            value = jsontext.decode(data)
        except (ValueError, RecursionError) as error:
            raise BadDocument(f"launch.json: not JSON: {error}") from None
        if isinstance(value, dict):
            version = value.get("version", LAUNCH_FORMAT)
            if isinstance(version, int) and version > LAUNCH_FORMAT:
                raise NewerFormat(
                    f"launch.json has format {version}; {LAUNCH_FORMAT} is the newest known here"
                )
        spec = cls.from_json(value)
        if len(spec.tasks) > MOST_TASKS:
            raise BadDocument(f"launch.json: {len(spec.tasks)} tasks; at most {MOST_TASKS} run on one node")
        return spec

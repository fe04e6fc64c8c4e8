"""`descriptor.json`: how an agent finds a supervisor again after a restart."""

from __future__ import annotations

from spur_core.ids import STEP_BATCH, RuntimeId
from spur_proto_lite import jsontext
from spur_proto_lite.errors import BadDocument, NewerFormat
from spur_proto_lite.record import Record, rid_from_json
from spur_proto_lite.versions import DESCRIPTOR_FORMAT, PROTOCOL_MAX


class Descriptor(Record):
    """One session as it lies on disk.

    On disk the identity is three top-level keys; one written before `step_id` existed is the batch step.
    """

    rid: RuntimeId
    version: int = DESCRIPTOR_FORMAT
    #: Control protocol that the supervisor speaks.
    protocol: int = PROTOCOL_MAX

    stepd_pid: int
    #: Field 22 of `/proc/PID/stat`.
    stepd_start_ticks: int
    boot_id: str
    #: The first task; None before `start`.
    task_pid: int | None = None
    task_start_ticks: int | None = None
    pgid: int | None = None
    #: Absolute group directories: one in v2, one per controller in v1, both on hybrid hosts.
    cgroup: tuple[str, ...] = ()

    node: str = ""
    cohort: tuple[str, ...] = ()
    step_nodes: int = 1
    uid: int = 0
    gid: int = 0
    user: str = ""
    partition: str = ""
    nodelist: str = ""
    mpi: str = ""

    cpus: int = 0
    cpu_ids: tuple[int, ...] = ()
    memory_mb: int = 0
    gpu_ids: tuple[int, ...] = ()
    gres: str = ""

    #: Resolved; "" before `start`.
    stdout_path: str = ""
    stderr_path: str = ""
    stdin_path: str = ""
    work_dir: str = ""
    rootfs: str = ""
    rootfs_mode: str = ""
    namespaces: tuple[str, ...] = ()

    #: Digest of `launch.json`.
    spec_sha256: str = ""
    #: Wall clock, informative only.
    created_at: float = 0.0

    def encode(self) -> bytes:
        """The text of `descriptor.json`."""
        value = self.to_json()
        del value["rid"]
        value.update(job_id=self.rid.job_id, run_attempt=self.rid.run_attempt, step_id=self.rid.step_id)
        return jsontext.encode(value)

    @classmethod
    def decode(cls, data: bytes, expected: RuntimeId | None = None) -> Descriptor:
        """The descriptor in `data`.

        Args:
            expected: the identity in the directory's name, which must be the same.

        Raises:
            NewerFormat: written by a newer release; to be fenced, never guessed.
            BadDocument: damaged, or of another identity.
        """
        try:
            value = jsontext.decode(data)
        except (ValueError, RecursionError) as error:
            raise BadDocument(f"descriptor.json: not JSON: {error}") from None
        if not isinstance(value, dict):
            raise BadDocument("descriptor.json: an object is needed")
        version = value.get("version", DESCRIPTOR_FORMAT)
        if isinstance(version, int) and version > DESCRIPTOR_FORMAT:
            raise NewerFormat(
                f"descriptor.json has format {version}; {DESCRIPTOR_FORMAT} is the newest known here"
            )
        rid = rid_from_json({"step_id": STEP_BATCH, **value})
        if expected is not None and rid != expected:
            raise BadDocument(f"descriptor.json: names {rid}, its directory {expected}")
        found = dict(value)
        found["rid"] = {"job_id": rid.job_id, "run_attempt": rid.run_attempt, "step_id": rid.step_id}
        return cls.from_json(found)

"""What the whole group takes from the configuration file."""

from spur_ctld.state.records import Record


class Settings(Record, frozen=True, kw_only=True):
    """The part of the configuration that `apply` depends on, replicated with the entry that set it."""

    cluster_name: str = "spur"
    first_job_id: int = 1
    max_array_size: int = 1001
    max_job_count: int = 1_000_000
    max_batch_requeue: int = 5
    max_launch_backoff: int = 300
    scheduler_interval: int = 1
    retention: int = 3600
    kill_wait: int = 30
    enforce_part_limits: str = "NO"
    default_priority: int = 1000
    hold_on_prolog_fail: bool = True
    #: `[licenses]`, by name.
    licenses: tuple[tuple[str, int], ...] = ()
    #: Digest of all that the file says.  What was changed by hand stands while it is the same.
    source: str = ""

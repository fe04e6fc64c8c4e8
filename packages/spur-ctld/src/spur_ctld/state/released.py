"""Which fields the operations and the records inside of them had, by the version in which they came.

Recorded when a release is made: `python -m spur_ctld.state.versions` prints what is not recorded yet.  Of a
record that is not named here everything is new.
"""

from typing import Final

#: Version -> operation or record -> fields that came with it.  The first one holds what came before, too.
FIELDS: Final[dict[int, dict[str, str]]] = {
    3: {
        "AllocComplete": "at key job_id who exit",
        "Cancel": "at key targets who",
        "ClientSeen": "at key job_id attempt",
        "Configure": "at key settings partitions nodes",
        "Deadline": "at key job_ids",
        "DispatchAbort": "at key job_id attempt reason desc outcome clear",
        "DispatchBegin": "at key job_id attempt partition slices task everywhere",
        "DispatchCommit": "at key job_id attempt start_at stdout_real stderr_real",
        "Exit": "code signal oom core",
        "FenceBegin": "at key job_id attempt outcome reason desc why kill_uid recovery exit",
        "FenceConfirm": "at key job_id attempt node",
        "Gres": "name count type",
        "Hold": "at key targets who mode",
        "Node": (
            "name avail drain fail locked_down reason reason_at reason_uid cpus memory_mb gres "
            "sockets cores_per_socket threads_per_core tmp_disk_mb weight features labels address "
            "port hostname version arch os boot_id boot_at agent_start_at registered_at last_busy_at "
            "comment holder"
        ),
        "NodeBack": "at key name",
        "NodeComplete": (
            "at key job_id attempt step_id node exit started_at ended_at usage stdout_real stderr_real"
        ),
        "NodeDown": "at key name reason who",
        "NodeRegister": "at key node held_by",
        "NodeSilent": "at key name reason",
        "NodeUpdate": "at key names who state reason weight comment",
        "OutboxAck": "at key rows steps",
        "Partition": (
            "name default state nodes selector max_time default_time max_nodes min_nodes "
            "priority_tier allow_accounts deny_accounts allow_qos deny_qos preempt_mode "
            "def_mem_per_cpu def_mem_per_node max_mem_per_node over_time_limit all_nodes"
        ),
        "PendingReasons": "at key reasons cancel",
        "Purge": "at key job_ids answers_before",
        "Request": (
            "name user uid gid group account qos comment wckey partitions min_nodes max_nodes "
            "num_tasks tasks_given tasks_per_node cpus_per_task cpus_per_task_given "
            "memory_per_node_mb memory_per_cpu_mb gres exclusive nodelist exclude constraint script "
            "argv script_args env work_dir stdout stderr stdin open_mode umask rlimits srun label "
            "command submit_line submit_host submit_dir time_limit begin_at deadline_at dependency "
            "requeue kill_on_invalid_dependency nice warn_signal alloc_only distribution task_nodes "
            "shape by_nodes"
        ),
        "Requeue": "at key targets who hold incomplete_only",
        "Settings": (
            "cluster_name first_job_id max_array_size max_job_count max_batch_requeue "
            "max_launch_backoff scheduler_interval retention kill_wait enforce_part_limits "
            "default_priority hold_on_prolog_fail"
        ),
        "Slice": "node cpus memory_mb gres ranks",
        "StepAsk": (
            "num_tasks min_nodes max_nodes cpus_per_task tasks_per_node distribution exact overlap "
            "overcommit nodelist exclude relative memory_per_node_mb memory_per_cpu_mb gres"
        ),
        "StepCancel": "at key job_id attempt step_id who why text hard clear",
        "StepCreate": (
            "at key job_id attempt who ask request_id name interactive pty time_limit submit_host submit_line"
        ),
        "StepForget": "at key job_id attempt step_id",
        "StepGone": "at key job_id attempt step_id node exit lost text",
        "StepLaunched": "at key job_id attempt step_id start_at",
        "Submit": "at key request request_id array array_throttle priority held held_by_admin",
        "Suspend": "at key targets who resume",
        "SuspendTold": "at key job_id attempt nodes suspended",
        "Target": "job_id tasks",
        "TimeLimitSignalled": "at key job_id attempt",
        "Update": "at key targets who changes priority array_throttle time_limit_delta",
        "Usage": "user_secs system_secs max_rss_kb",
        "Who": "uid user admin",
    },
}


def since(kind: str, field: str) -> int | None:
    """The version in which the field came; None = since the last release, or `kind` did."""
    for version, kinds in FIELDS.items():
        if field in kinds.get(kind, "").split():
            return version
    return None


def known(kind: str) -> bool:
    """Whether a release had that operation or record."""
    return any(kind in kinds for kinds in FIELDS.values())

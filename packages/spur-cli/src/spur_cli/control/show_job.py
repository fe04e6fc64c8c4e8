"""`scontrol show job`."""

from typing import TYPE_CHECKING

from spur_cli.control.layout import Style, null, record
from spur_cli.nodes import fields
from spur_cli.queue import names, shape
from spur_core.grammar import duration, filepattern

if TYPE_CHECKING:
    from spur_proto import common_pb2

    Job = common_pb2.JobInfo


def text(job: "Job", style: Style) -> str:
    """The record of one job."""
    lines = [_first(job)]
    lines.append(
        f"UserId={job.user or job.uid}({job.uid}) GroupId={job.group or job.gid}({job.gid}) MCS_label=N/A"
    )
    wckey = f" WCKey={job.wckey}" if job.wckey else ""
    lines.append(
        f"Priority={job.priority} Nice={job.nice} Account={null(job.account)} QOS={null(job.qos)}{wckey}"
    )
    reason = names.reason_of(job).replace(" ", "_")
    lines.append(f"JobState={names.state_name(job.state)} Reason={reason} Dependency={null(job.dependency)}")
    lines.append(
        f"Requeue={int(job.requeue)} Restarts={job.restarts} BatchFlag={int(job.batch)} Reboot=0"
        f" ExitCode={job.exit.code}:{job.exit.signal}"
    )
    if style.detail:
        lines.append(f"DerivedExitCode={job.derived_exit.code}:{job.derived_exit.signal}")
    if style.detail and job.waits_for:
        lines.append(f"WaitsFor={job.waits_for}")
    lines += _times(job, style)
    host = job.submit_host or "N/A"
    lines.append(f"Partition={null(job.partition)} AllocNode:Sid={host}:0")
    lines.append(f"ReqNodeList={null(job.req_nodelist)} ExcNodeList={null(job.exc_nodelist)}")
    planned = f" SchedNodeList={job.sched_nodes}" if job.sched_nodes else ""
    lines.append(f"NodeList={null(job.nodelist)}{planned}")
    if job.batch_host:
        lines.append(f"BatchHost={job.batch_host}")
    lines += _resources(job, style)
    lines += _rest(job, style)
    return record([*lines, ""], style)


def _first(job: "Job") -> str:
    line = f"JobId={job.job_id} "
    if job.HasField("array_job_id"):
        task = job.array_pending or (str(job.array_task_id) if job.HasField("array_task_id") else "N/A")
        line += f"ArrayJobId={job.array_job_id} ArrayTaskId={task} "
        if job.array_throttle:
            line += f"ArrayTaskThrottle={job.array_throttle} "
    return f"{line}JobName={job.name}"


def _times(job: "Job", style: Style) -> list[str]:
    limit = "Partition_Limit"
    if job.HasField("time_limit_secs"):
        limit = duration.limit_long(names.time_limit(job))
    least = "N/A"
    if job.wishes.HasField("time_min_secs"):
        least = duration.limit_long(job.wishes.time_min_secs)
    start = job.start_at if job.HasField("start_at") else 0.0
    end = job.end_at if job.HasField("end_at") else 0.0
    deadline = style.moment(job.deadline_at, "N/A") if job.HasField("deadline_at") else "N/A"
    suspended = style.moment(job.suspend_at, "None") if job.HasField("suspend_at") else "None"
    looked_at = style.moment(job.last_sched_at) if job.HasField("last_sched_at") else "Unknown"
    return [
        f"RunTime={duration.long_form(job.run_secs)} TimeLimit={limit} TimeMin={least}",
        f"SubmitTime={style.moment(job.submit_at)} EligibleTime={style.moment(job.eligible_at)}",
        f"AccrueTime={style.moment(job.eligible_at)}",
        f"StartTime={style.moment(start)} EndTime={style.moment(end)} Deadline={deadline}",
        *_preemption(job, style),
        f"SuspendTime={suspended} SecsPreSuspend=0 LastSchedEval={looked_at} Scheduler=Main",
    ]


def _preemption(job: "Job", style: Style) -> list[str]:
    """Where jobs are preempted, or this one was."""
    if not job.HasField("preempt_eligible_at") and not job.HasField("preempt_at"):
        return []
    eligible = (
        style.moment(job.preempt_eligible_at, "None") if job.HasField("preempt_eligible_at") else "None"
    )
    at = style.moment(job.preempt_at, "None") if job.HasField("preempt_at") else "None"
    by = f" PreemptedFor={job.preempted_by}" if job.HasField("preempted_by") else ""
    return [f"PreemptEligibleTime={eligible} PreemptTime={at}{by}"]


def _resources(job: "Job", style: Style) -> list[str]:
    cores, threads = shape.number(job, "cores_per_socket"), shape.number(job, "threads_per_core")
    lines = [
        f"NumNodes={job.num_nodes or job.min_nodes} NumCPUs={job.num_cpus} NumTasks={job.num_tasks}"
        f" CPUs/Task={max(job.cpus_per_task, 1)} ReqB:S:C:T=0:0:{cores}:{threads}",
        f"ReqTRES={null(job.req_tres)}",
        f"AllocTRES={null(job.alloc_tres)}",
        f"Socks/Node={shape.number(job, 'sockets_per_node')} NtasksPerN:B:S:C={shape.tasks_of_parts(job)}"
        " CoreSpec=*",
    ]
    if style.detail:
        asked = [*job.gres, *job.wishes.gres_total, *job.wishes.gres_per_task, *job.wishes.gres_per_socket]
        if asked:
            lines.append(f"JOB_GRES={held_gres(job) or ','.join(asked)}")
        for part in job.slices:
            held = ",".join(fields.gres_named(item) for item in part.gres)
            # By number where the node's agent chose them.
            cpus = f"CPU_IDs={part.cpu_ids}" if part.cpu_ids else f"CPUs={part.cpus}"
            lines.append(f"  Nodes={part.node} {cpus} Mem={part.memory_mb} GRES={held}")
    memory = "MinMemoryCPU" if job.HasField("memory_per_cpu_mb") else "MinMemoryNode"
    lines.append(
        f"MinCPUsNode={shape.min_cpus(job)} {memory}={shape.min_memory(job)}"
        f" MinTmpDiskNode={shape.min_tmp_disk(job)}"
    )
    return lines


def held_gres(job: "Job") -> str:
    """What the job has on all its nodes together, `gpu:h100:4`."""
    total: dict[str, int] = {}
    for part in job.slices:
        for item in part.gres:
            name = f"{item.name}:{item.type}" if item.type else item.name
            total[name] = total.get(name, 0) + item.count
    return ",".join(f"{name}:{count}" for name, count in total.items())


def _rest(job: "Job", style: Style) -> list[str]:
    lines = [
        f"Features={null(job.constraint)} DelayBoot=00:00:00",
        *([f"Reservation={job.reservation}"] if job.reservation else []),
        f"OverSubscribe={shape.over_subscribe(job)} Exclusive={shape.exclusive(job)}"
        f" Contiguous={int(job.wishes.contiguous)} Licenses={null(job.licenses)}"
        f" LicensesAlloc={null(job.licenses_alloc)}"
        " Network=(null)",
        f"Command={null(job.command)}",
    ]
    if style.detail and job.submit_line:
        # Only here: its blanks would break parsers that split the record at blanks.
        lines.append(f"SubmitLine={job.submit_line}")
    lines.append(f"WorkDir={null(job.work_dir)}")
    if job.comment:
        lines.append(f"Comment={job.comment}")
    if job.batch:
        lines += [
            f"StdErr={expanded(job.stderr_path or job.stdout_path, job)}",
            f"StdIn={expanded(job.stdin_path, job) if job.stdin_path else '/dev/null'}",
            f"StdOut={expanded(job.stdout_path, job)}",
        ]
    if job.wishes.HasField("switches"):
        lines.append(f"Switches={job.wishes.switches}@{duration.long_form(job.wishes.switches_wait_secs)}")
    lines += [f"{name}={text}" for name, text in shape.tres(job).items()]
    return lines


def expanded(pattern: str, job: "Job") -> str:
    """The path that a file pattern of the job stands for."""
    if not pattern:
        return "(null)"
    values = filepattern.PatternValues(
        job_id=job.job_id,
        array_job_id=job.array_job_id if job.HasField("array_job_id") else None,
        array_task=job.array_task_id if job.HasField("array_task_id") else None,
        step=None,
        task=0,
        node=job.batch_host or "",
        node_index=0,
        user=job.user,
        job_name=job.name,
        restarts=job.restarts,
    )
    return filepattern.resolve(pattern, values, job.work_dir)

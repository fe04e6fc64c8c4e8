"""`sacct --json`: jobs and their steps out of accounting, in the keys of Slurm's data parser."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spur_cli.data.values import exit_tree, nv
from spur_core.errors import GrammarError
from spur_core.grammar import hostlist, tres
from spur_core.ids import step_name
from spur_core.states import JobState

if TYPE_CHECKING:
    from spur_cli.history.fields import Row
    from spur_proto import accounting_pb2 as pb

UNLIMITED = 0xFFFFFFFF
#: Slurm's numbers of what can be tracked; of devices only the first one's is fixed.
TRES_IDS = {
    "cpu": 1,
    "mem": 2,
    "energy": 3,
    "node": 4,
    "billing": 5,
    "fs/disk": 6,
    "vmem": 7,
    "pages": 8,
    "gres/gpu": 1001,
}


def tres_item(name: str, count: int, **more: Any) -> dict[str, Any]:
    """`{"type": "gres", "name": "gpu", "id": 1001, "count": 2}`."""
    kind, _, rest = name.partition("/")
    return {"type": kind, "name": rest, "id": TRES_IDS.get(name, 0), "count": count, **more}


def tres_items(text: str) -> list[dict[str, Any]]:
    """Of `cpu=4,mem=16G,gres/gpu=2`; memory in MB."""
    try:
        amounts = tres.parse_tres(text)
    except GrammarError:
        return []
    names = sorted(amounts, key=lambda name: (TRES_IDS.get(name, 1002), name))
    return [tres_item(name, amounts[name]) for name in names if amounts[name]]


def cpu_time(secs: float) -> dict[str, int]:
    """Whole seconds and the rest in microseconds."""
    micros = round(secs * 1e6)
    return {"seconds": micros // 1_000_000, "microseconds": micros % 1_000_000}


def cpu_times(row: "Row") -> dict[str, Any]:
    """system, total and user."""
    user, system = row.cpu_secs()
    return {"system": cpu_time(system), "total": cpu_time(user + system), "user": cpu_time(user)}


def state_words(state: int) -> list[str]:
    """`["RUNNING"]`."""
    return [JobState(state).name if state in JobState.__members__.values() else "UNKNOWN"]


def limit(job: "pb.JobHistory") -> dict[str, Any]:
    """Minutes."""
    if not job.HasField("time_limit_secs"):
        return nv(None)
    if job.time_limit_secs == UNLIMITED:
        return nv(None, infinite=True)
    return nv(-(-job.time_limit_secs // 60))


def jobs_tree(rows: "Iterable[Row]") -> list[dict[str, Any]]:
    """One tree for each allocation row; step rows go into the tree of the job before them."""
    trees: list[dict[str, Any]] = []
    for row in rows:
        if row.step is None:
            trees.append(job_tree(row))
        else:
            if not trees or trees[-1]["job_id"] != row.job.job_id:
                # Asked for by its own id: its job is told without the others.
                trees.append(job_tree(type(row)(row.job, None, row.view)))
            trees[-1]["steps"].append(step_tree(row, row.step))
    return trees


def job_tree(row: "Row") -> dict[str, Any]:
    """An allocation without its steps."""
    from spur_cli.history import fields
    from spur_cli.users import group_name, name_of

    job = row.job
    start, end = row.start(), row.end()
    waited = fields.planned(row)
    pending_tasks, _, throttle = job.array_pending.partition("%")
    per_cpu = job.req_mem_mb if job.req_mem_per_cpu else None
    per_node = None if job.req_mem_per_cpu else job.req_mem_mb
    return {
        "account": job.account,
        "comment": {"administrator": "", "job": job.comment, "system": ""},
        "allocation_nodes": job.alloc_nodes,
        "array": {
            "job_id": job.array_job_id,
            "limits": {"max": {"running": {"tasks": int(throttle) if throttle.isdigit() else 0}}},
            "task_id": nv(job.array_task_id if job.HasField("array_task_id") else None),
            "task": pending_tasks,
        },
        "association": {
            "account": job.account,
            "cluster": job.cluster,
            "partition": "",
            "user": job.user,
            "id": 0,
        },
        "block": "",
        "cluster": job.cluster,
        "constraints": job.constraint,
        "container": "",
        "derived_exit_code": exit_tree(job.derived_exit.code, job.derived_exit.signal),
        "time": {
            "elapsed": row.elapsed(),
            "eligible": int(job.eligible_at),
            "end": int(end or 0),
            "planned": nv(waited),
            "start": int(start or 0),
            "submission": int(job.submit_at),
            "suspended": int(job.suspended_secs),
            "limit": limit(job),
            **cpu_times(row),
        },
        "exit_code": exit_tree(job.exit.code, job.exit.signal),
        "extra": "",
        "failed_node": "",
        "flags": [word for word in job.flags.replace(",", " ").split() if word],
        "group": group_name(job.gid),
        "het": {"job_id": 0, "job_offset": nv(None)},
        "job_id": job.job_id,
        "name": job.name,
        "licenses": job.licenses,
        "mcs": {"label": ""},
        "nodes": job.nodelist or "None assigned",
        "partition": job.partition,
        "hold": not job.priority,
        "priority": nv(job.priority),
        "qos": job.qos,
        "qosreq": job.qos,
        "required": {"CPUs": job.req_cpus, "memory_per_cpu": nv(per_cpu), "memory_per_node": nv(per_node)},
        "kill_request_user": name_of(job.kill_uid) if job.HasField("kill_uid") else "",
        "restart_cnt": job.restarts,
        "reservation": {"id": 0, "name": job.reservation, "requested": job.req_reservation},
        "script": "",
        "segment_size": 0,
        "stdin_expanded": job.stdin_path,
        "stdout_expanded": job.stdout_path,
        "stderr_expanded": job.stderr_path,
        "stdin": job.stdin_path,
        "stdout": job.stdout_path,
        "stderr": job.stderr_path,
        "state": {"current": state_words(int(job.state)), "reason": job.reason or "None"},
        "steps": [],
        "submit_line": job.submit_line,
        "tres": {"allocated": tres_items(job.alloc_tres), "requested": tres_items(job.req_tres)},
        "used_gres": "",
        "user": job.user,
        "wckey": {"wckey": job.wckey, "flags": []},
        "working_directory": job.work_dir,
    }


def step_tree(row: "Row", step: "pb.StepHistory") -> dict[str, Any]:
    """One step."""
    from spur_cli.users import name_of

    start, end = row.start(), row.end()
    user, system = row.cpu_secs()
    name = step_name(step.step_id)
    total = [tres_item("cpu", round((user + system) * 1000))]
    highest = []
    if step.max_rss_kb:
        highest.append(tres_item("mem", step.max_rss_kb * 1024, task=0, node=step.max_rss_node))
    empty: dict[str, list[Any]] = {"max": [], "min": [], "average": [], "total": []}
    return {
        "time": {
            "elapsed": row.elapsed(),
            "end": nv(None if end is None else int(end)),
            "start": nv(None if start is None else int(start)),
            "suspended": 0,
            "limit": limit(row.job),
            **cpu_times(row),
        },
        "exit_code": exit_tree(step.exit.code, step.exit.signal),
        "nodes": {
            "count": step.num_nodes,
            "range": step.nodelist,
            "list": hostlist.expand(step.nodelist) if step.nodelist else [],
        },
        "tasks": {"count": step.num_tasks},
        "pid": "",
        "CPU": {"requested_frequency": {"min": nv(None), "max": nv(None)}, "governor": ""},
        "kill_request_user": name_of(row.job.kill_uid) if row.job.HasField("kill_uid") else "",
        "state": state_words(int(step.state)),
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": nv(None)}},
        "step": {
            "id": f"{row.job.job_id}.{name}",
            "name": step.name or name,
            "stdin": "",
            "stdout": "",
            "stderr": "",
        },
        "task": {"distribution": step.layout or "Unknown"},
        "tres": {
            "requested": {"max": highest, "min": [], "average": [], "total": total},
            "consumed": empty,
            "allocated": tres_items(step.alloc_tres),
        },
    }

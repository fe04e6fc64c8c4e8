"""`scontrol show step`."""

from typing import TYPE_CHECKING

from spur_cli.control.layout import Style, null, record
from spur_cli.queue import names
from spur_cli.queue.step_fields import limit, step_id
from spur_core.grammar import duration
from spur_core.ids import is_numbered

if TYPE_CHECKING:
    from spur_proto import common_pb2

#: First words of distributions as Slurm prints them.
_KINDS = {"block": "Block", "cyclic": "Cyclic", "arbitrary": "Arbitrary", "plane": "Plane"}


def text(step: "common_pb2.StepInfo", style: Style) -> str:
    """The record of one step."""
    host = step.submit_host if is_numbered(step.rid.step_id) else ""
    frequency = "CPUFreqReq=Default"
    if is_numbered(step.rid.step_id):
        frequency += f" Dist={_distribution(step.distribution)}"
    lines = [
        f"StepId={step_id(step)} UserId={step.uid} StartTime={style.moment(step.start_at)}"
        f" TimeLimit={duration.limit_long(limit(step))}",
        f"State={names.state_name(int(step.state))} Partition={null(step.partition)}"
        f" NodeList={null(step.nodelist)}",
        f"Nodes={step.num_nodes} CPUs={step.num_cpus} Tasks={step.num_tasks} Name={step.name} Network=(null)",
        f"TRES={null(step.alloc_tres)}",
        "ResvPorts=(null)",
        frequency,
        f"SrunHost:Pid={null(host)}:0",
    ]
    return record(lines, style)


def _distribution(text: str) -> str:
    first = text.partition(",")[0].partition(":")[0].partition("=")[0]
    return _KINDS.get(first or "block", "Block")

"""Options to the fields of a `CreateJobStepRequest`.

What the allocation exports (`SLURM_NTASKS` and the like) stands below the command line, except where a step
has the job's share anyway: memory and GPUs.
"""

from typing import TYPE_CHECKING

from spur_cli.context import Context
from spur_cli.submit.request import Builder, Fields, Values
from spur_core.errors import GrammarError

if TYPE_CHECKING:
    from spur_core.grammar.gres import GresItem

#: Variables of the allocation that say what the job has, not what the step asks for.
_OF_THE_JOB = (
    "mem", "mem-per-cpu", "gpus", "gpus-per-node", "gpus-per-socket", "gres", "exclusive", "job-name", "time",
    "account", "partition", "qos",
)  # fmt: skip
#: What only chooses the nodes of a job; of a job's variables a step passes them over.
_ONLY_FOR_JOBS = (
    "constraint", "contiguous", "cores-per-socket", "cpus-per-gpu", "extra-node-info", "gpus-per-socket",
    "hint", "mem-per-gpu", "mincpus", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket", "signal",
    "sockets-per-node", "spread-job", "threads-per-core", "time-min", "tmp", "use-min-nodes",
)  # fmt: skip
#: Any of these says what GPUs the step gets, or how they are dealt out.
_GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "gpu-bind", "overlap")
_PLACES = ("exclude", "nodefile", "nodelist", "relative")


def defaults(below: Values, given: Values) -> dict[str, str | None]:
    """What of the variables counts for a step.

    Args:
        below: options set by variables.
        given: those of the command line.
    """
    apart = (*_OF_THE_JOB, *_ONLY_FOR_JOBS)
    found = {name: value for name, value in below.items() if name not in apart}
    if any(name in given for name in _GPU_OPTIONS):
        found.pop("gpus-per-task", None)
    elif below.get("ntasks-per-gpu"):
        # So many tasks share a GPU, each task sees its own.
        found.setdefault("gpu-bind", f"single:{below['ntasks-per-gpu']}")
    if any(name in given for name in _PLACES) and "nodes" not in given:
        found.pop("nodes", None)
    # Their product replaces the number of tasks that was meant for the whole job.
    reshaped = "nodes" in given and ("ntasks-per-node" in given or "ntasks-per-node" in found)
    if reshaped or "ntasks-per-node" in given:
        found.pop("ntasks", None)
    return found


class StepBuilder(Builder):
    """Turns the values of srun inside an allocation into fields.

    given: the options of the command line, for what their presence means.
    """

    def __init__(self, ctx: Context, values: Values, given: Values, code: int = 255) -> None:
        super().__init__(ctx, values, code)
        self.given = given

    def build(self) -> Fields:
        """Every field that follows from the options alone (not command, name and shape).

        Raises:
            Stop: a value that cannot be used.
        """
        for name in _ONLY_FOR_JOBS:
            if name in self.given:
                mend = "name nodes with -w or -x" if name == "constraint" else "give it to the job"
                text = f"--{name} is not supported for steps by this release; {mend}"
                raise self.ctx.stop(text, self.code)
        self._counts()
        self._memory()
        self._limit()
        self._nodes()
        self._shape()
        self._gpus()
        self._sharing()
        self._inherited()
        fields = self.fields
        del fields["submit_dir"]
        for name in ("nice", "open_mode", "priority"):
            fields.pop(name, None)
        return fields

    def _limit(self) -> None:
        if self._given("time") is None:
            return
        from spur_core.grammar.timelimit import parse_time_limit

        try:
            limit = parse_time_limit(self._given("time") or "")
        except GrammarError:
            raise self.ctx.stop("Invalid --time specification", self.code) from None
        if limit is not None:
            self.fields["time_limit_secs"] = limit

    def _shape(self) -> None:
        from spur_core.grammar import counts, hostlist

        fields = self.fields
        if self._given("distribution"):
            fields["distribution"] = self.parsed("distribution", counts.parse_distribution)
        text = self._given("relative")
        if text is not None:
            if not (text.isascii() and text.isdigit() and len(text) < 9):
                raise self.ctx.stop(f'Invalid numeric value "{text}" for --relative.', self.code)
            fields["relative"] = int(text)
        if (
            "nodelist" in fields
            and "nodes" not in self.values
            and "arbitrary" not in fields.get("distribution", "")
        ):
            fields["min_nodes"] = fields["max_nodes"] = len(set(hostlist.expand(fields["nodelist"])))
        per_node, nodes = fields.get("tasks_per_node"), fields.get("min_nodes")
        if "num_tasks" not in fields and per_node and nodes:
            fields["num_tasks"] = per_node * nodes
        tasks = fields.get("num_tasks")
        if tasks and nodes and tasks < nodes:
            if "nodes" in self.given:
                text = f"can't run {tasks} processes on {nodes} nodes, setting nnodes to {tasks}"
                self.ctx.warning(text)
            fields["min_nodes"] = fields["max_nodes"] = tasks

    def _gpus(self) -> None:
        from spur_core.grammar import gres

        if self._given("gres") == "none":
            self.fields["gres"] = ["none"]
            return
        items = list(self.parsed("gres", gres.parse_gres) or [])
        asked = [name for name in ("gpus", "gpus-per-node", "gpus-per-task") if self._given(name)]
        if len(asked) > 1 or (asked and any(name == "gpu" for name, _, _ in items)):
            what = " and ".join(f"--{name}" for name in asked)
            raise self.ctx.stop(f"GPUs are asked for more than once ({what}); use one of them", self.code)
        if "gpus-per-task" in asked:
            found = self.parsed("gpus-per-task", gres.parse_gpus) or []
            self.fields["gres_per_task"] = [gres.format_gres([item]) for item in found]
        elif asked:
            items += self._gpus_per_node(asked[0], self.parsed(asked[0], gres.parse_gpus) or [])
        if items:
            self.fields["gres"] = [gres.format_gres([item]) for item in items]

    def _gpus_per_node(self, option: str, found: list["GresItem"]) -> list["GresItem"]:
        """GPUs of a whole step as GPUs of a node, where the shape of the step fixes that."""
        if option == "gpus-per-node":
            return found
        nodes = self.fields.get("min_nodes", 1)
        if "min_nodes" not in self.fields:
            # All GPUs of the step on one node: the one placement that a total always permits.
            self.fields["min_nodes"] = self.fields["max_nodes"] = 1
        if self.fields["max_nodes"] != nodes or any(count % nodes for _, _, count in found):
            text = "--gpus does not divide by the number of nodes; use --gpus-per-node"
            raise self.ctx.stop(text, self.code)
        return [(name, kind, count // nodes) for name, kind, count in found]

    def _sharing(self) -> None:
        fields, values = self.fields, self.values
        exclusive = "exclusive" in values and self._given("exclusive") != "no"
        asked = "exact" in values or exclusive or "cpus_per_task" in fields
        if asked and "whole" not in values:
            fields["exact"] = True
        overlap = "overlap" in values and (self._given("overlap") or "").lower() != "no"
        if overlap or "external-launcher" in values:
            fields["overlap"] = True
        if "overcommit" in values:
            fields["overcommit"] = True

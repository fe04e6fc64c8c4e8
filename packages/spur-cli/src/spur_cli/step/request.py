"""Options to the fields of a `CreateJobStepRequest`.

What the allocation exports (`SLURM_NTASKS` and the like) stands below the command line, except where a step
has the job's share anyway: memory and GPUs.
"""

from spur_cli.context import Context
from spur_cli.submit.request import Builder, Fields, Values
from spur_core.errors import GrammarError

#: Variables of the allocation that say what the job has, not what the step asks for.
_OF_THE_JOB = (
    "mem", "mem-per-cpu", "gpus", "gpus-per-node", "gpus-per-task", "gres", "exclusive", "job-name", "time",
    "account", "partition", "qos",
)  # fmt: skip
_PLACES = ("exclude", "nodefile", "nodelist", "relative")


def defaults(below: Values, given: Values) -> dict[str, str | None]:
    """What of the variables counts for a step.

    Args:
        below: options set by variables.
        given: those of the command line.
    """
    found = {name: value for name, value in below.items() if name not in _OF_THE_JOB}
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
        if "constraint" in self.given:
            text = "--constraint is not supported for steps by this release; name nodes with -w or -x"
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
            fields["distribution"] = self._parsed("distribution", counts.parse_distribution)
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
        if self._given("gres") == "none":
            self.fields["gres"] = ["none"]
            return
        self._resources()

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

"""`squeue --steps`: one row a step."""

import os
from typing import TYPE_CHECKING

from spur_cli import formats
from spur_cli.cli_errors import CallFailed, is_no_such_job
from spur_cli.context import Context, Stop
from spur_cli.options.engine import Parsed
from spur_core.errors import ConfigError, GrammarError

if TYPE_CHECKING:
    from spur_cli.queue import step_fields
    from spur_cli.queue.fields import View
    from spur_cli.transport import Transport
    from spur_core.grammar.jobid import JobRef
    from spur_proto import common_pb2

DEFAULT = "%.15i %.8j %.9P %.8u %.9M %N"
DEFAULT_SORT = "P,i"
#: Options that say something of jobs only.
_OF_JOBS = ("account", "array", "long", "only-job-state", "qos", "start")


class StepPlan:
    """One call's decisions, made before anybody is asked.

    Args:
        uids: of whose steps rows are wanted, None = everybody's.  users: their names, for the controller.
    """

    def __init__(
        self,
        ctx: Context,
        options: Parsed,
        view: "View",
        refs: "list[JobRef]",
        users: list[str],
        uids: set[int] | None,
    ) -> None:
        for name in _OF_JOBS:
            if options.has(name) and name not in _set_by_variable(ctx, options):
                raise ctx.stop(f"--{name} cannot be combined with --steps")
        self.ctx = ctx
        self.options = options
        self.view = view
        self.refs = refs
        self.users = users
        self.uids = uids
        self.form, self.columns = self._format()
        self.sort = self._sort()

    def _format(self) -> "tuple[formats.Format, dict[str, tuple[str, step_fields.Text]]]":
        from spur_cli.queue import step_fields

        by_name, by_letter = self.options.get("Format"), self.options.get("format")
        if by_name is not None and by_letter is not None:
            raise self.ctx.stop("-O (--Format) is incompatible with -o (--format)")
        if by_name is not None:
            form = formats.parse_names(by_name, step_fields.BY_NAME)
            if form.unknown:
                raise self.ctx.stop(f"Invalid job step format specification: {form.unknown[0]}")
            return form, step_fields.BY_NAME
        form = formats.parse_letters(by_letter or DEFAULT, step_fields.BY_LETTER)
        for letter in form.unknown:
            self.ctx.error(f"Invalid job step format specification: {letter}")
        return form, step_fields.BY_LETTER

    def _sort(self) -> list[tuple[str, bool]]:
        from spur_cli.queue import step_fields

        found, descending = [], False
        for char in self.options.get("sort") or DEFAULT_SORT:
            if char in "+-":
                descending = char == "-"
            elif char in step_fields.BY_LETTER:
                found.append((char, descending))
                descending = False
            elif char not in ", ":
                raise self.ctx.stop(f"Invalid sort specification: {self.options.get('sort')}")
        return found

    def once(self, round_number: int) -> int:
        """Ask and print."""
        from spur_cli.queue import step_fields
        from spur_cli.submit.sbatch import cluster_name
        from spur_cli.transport import Transport

        ctx, options = self.ctx, self.options
        self.view.now = ctx.clock()
        try:
            transport = Transport(ctx, options.get("controller"))
            cluster = cluster_name(ctx, transport, options.get("clusters"))
            steps = self._fetch(transport)
        except ConfigError as error:
            raise ctx.fatal(error.text) from None
        except CallFailed as failure:
            raise Stop(1, f"slurm_load_job_steps error: {failure.text}") from None
        head = f"CLUSTER: {cluster}\n" if cluster else ""
        if round_number:
            head += formats.date_line(self.view.now)
        if not options.has("noheader"):
            head += formats.render(self.form, lambda key: self.columns[key][0], step_fields.OVERFLOW_HEADER)
        rows = [step for step in steps if self._wanted(step)]
        step_fields.sort_steps(rows, self.sort, self.view)
        line = formats.line_maker(self.form, lambda key: self.columns[key][1], step_fields.OVERFLOW)
        ctx.out(head + "".join([line(step, self.view) for step in rows]))
        return 0

    def _fetch(self, transport: "Transport") -> "list[common_pb2.StepInfo]":
        from spur_cli.queue import select
        from spur_proto import controller_pb2 as pb

        options = self.options
        request = pb.GetJobStepsRequest(
            jobs=[select.target(ref) for ref in self.refs],
            users=self.users,
            partitions=options.items("partition"),
        )
        if options.has("nodelist"):
            from spur_core.grammar import hostlist

            try:
                request.nodes.extend(hostlist.expand(options.text("nodelist")))
            except GrammarError as error:
                raise self.ctx.stop(error.text.split("\n")[-1]) from None
        try:
            return list(transport.call("GetJobSteps", request, pb.GetJobStepsResponse).steps)
        except CallFailed as failure:
            if len(self.refs) > 1 and is_no_such_job(failure):
                return self._each(transport)
            raise

    def _each(self, transport: "Transport") -> "list[common_pb2.StepInfo]":
        """The steps of several jobs of which some are unknown."""
        found: list[common_pb2.StepInfo] = []
        refs = self.refs
        for ref in refs:
            self.refs = [ref]
            try:
                found += self._fetch(transport)
            except CallFailed as failure:
                if not is_no_such_job(failure):
                    raise
        self.refs = refs
        return found

    def _wanted(self, step: "common_pb2.StepInfo") -> bool:
        options = self.options
        if self.uids is not None and step.uid not in self.uids:
            return False
        if options.has("notme") and step.uid == os.getuid():
            return False
        if options.get("name"):
            return step.name.lower() in {name.lower() for name in options.items("name")}
        return True


def _set_by_variable(ctx: Context, options: Parsed) -> frozenset[str]:
    """Options that a variable gave: those are for listings of jobs."""
    variables = {"account": "SQUEUE_ACCOUNT", "array": "SQUEUE_ARRAY", "qos": "SQUEUE_QOS"}
    return frozenset(name for name, variable in variables.items() if variable in ctx.env)

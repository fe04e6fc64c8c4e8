"""sacct: the history of jobs."""

import os
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop, write_all
from spur_cli.options.engine import OPTIONAL, REQUIRED, Option, Parsed, Table, split_list
from spur_cli.options.front import cluster_option, common, open_options
from spur_cli.printable import unescape
from spur_core.errors import ConfigError, GrammarError

if TYPE_CHECKING:
    from spur_cli.history.fields import Row, View
    from spur_cli.transport import Transport
    from spur_core.grammar.jobid import JobRef
    from spur_proto import accounting_pb2 as pb

#: Fields of an allocation that are made of its steps.
FROM_STEPS = frozenset(("SystemCPU", "TotalCPU", "UserCPU"))

DISABLED = "Slurm accounting storage is disabled"


def table() -> Table:
    """The options of sacct."""
    value = REQUIRED
    return Table(
        [
            Option("accounts", "A", value, "of these accounts", metavar="LIST"),
            Option("allocations", "X", help="no step rows"),
            Option("allusers", "a", help="jobs of all users"),
            Option("array", "", help="one row per pending task of an array"),
            Option("brief", "b", help="id, state and exit code"),
            Option("delimiter", "", value, "text between the cells of -p and -P", metavar="TEXT"),
            Option("duplicates", "D", help="also earlier runs of requeued jobs"),
            Option("endtime", "E", value, "end of the window", metavar="TIME"),
            Option("format", "o", value, "columns", metavar="FIELDS", env=("SACCT_FORMAT",)),
            Option("gid", "g", value, "of these groups", metavar="LIST"),
            Option("helpformat", "e", help="print the names of all fields"),
            Option("jobs", "j", value, "these jobs and steps", metavar="IDS"),
            Option("long", "l", help="many columns"),
            Option("name", "", value, "of these names", metavar="LIST"),
            Option("ncpus", "I", value, "with so many CPUs", metavar="MIN[-MAX]"),
            Option("nnodes", "i", value, "with so many nodes", metavar="MIN[-MAX]"),
            Option("noconvert", "", help="do not convert units of memory"),
            Option("nodelist", "N", value, "that ran on these nodes", metavar="HOSTS"),
            Option("noheader", "n", help="no header"),
            Option("parsable", "p", help="cells with | between and behind them"),
            Option("parsable2", "P", help="cells with | between them"),
            Option("partition", "r", value, "of these partitions", metavar="LIST"),
            Option("qos", "q", value, "of these QOS", metavar="LIST"),
            Option("reason", "R", value, "that waited for this reason", metavar="LIST"),
            Option("starttime", "S", value, "start of the window", metavar="TIME"),
            Option("state", "s", value, "in these states", metavar="LIST"),
            Option("timelimit-min", "k", value, "time limit at least", metavar="TIME"),
            Option("timelimit-max", "K", value, "time limit at most", metavar="TIME"),
            Option("truncate", "T", help="cut times to the window"),
            Option("uid", "u", value, "of these users", metavar="LIST"),
            Option("units", "", value, "unit of memory", metavar="K|M|G|T|P"),
            Option("wckeys", "W", value, "of these keys", metavar="LIST"),
            Option("allclusters", "L", idle="one cluster"),
            Option("federation", "", idle="one cluster", env=("SACCT_FEDERATION",)),
            Option("local", "", idle="one cluster", env=("SACCT_LOCAL",)),
            Option("use-local-uid", "", idle="names are this host's"),
            Option("whole-hetjob", "", OPTIONAL, idle="there are no heterogeneous jobs"),
            Option("helpstate", "", help="print the states"),
            Option("helpreason", "", help="print the reasons"),
            Option("associations", "x", value, refuse="*"),
            Option("batch-script", "B", help="the batch scripts of the jobs of -j"),
            Option("completion", "c", refuse="*"),
            Option("constraints", "C", value, "that asked for these features", metavar="LIST"),
            Option("env-vars", "", refuse="*"),
            Option("expand-patterns", "", refuse="*"),
            Option("file", "f", value, refuse="*"),
            Option("flags", "F", value, refuse="*"),
            Option("json", "", OPTIONAL, "everything as JSON", metavar="PARSER"),
            Option("yaml", "", OPTIONAL, "everything as YAML", metavar="PARSER"),
            cluster_option(),
            *common(),
        ],
        synonyms={
            "fields": "format",
            "group": "gid",
            "user": "uid",
            "help-fields": "helpformat",
            "job": "jobs",
        },
    )


def run(ctx: Context) -> int:
    """The command."""
    options = open_options(ctx, table())
    if _lists(ctx, options):
        return 0
    if options.operands:
        raise ctx.stop(f"Unknown arguments: {' '.join(options.operands)}")
    if options.count("nodelist") > 1:
        raise ctx.stop("-N was given twice; give one comma list")
    plan = Plan(ctx, options)
    form = ""
    if options.has("json") or options.has("yaml"):
        from spur_cli.data import document

        form = document.wanted(ctx, options)
    if options.has("batch-script") and not plan.refs:
        raise ctx.fatal("-B needs -j")
    from spur_cli.submit.sbatch import cluster_name
    from spur_cli.transport import Transport

    try:
        transport = Transport(ctx, options.get("controller"))
        cluster_name(ctx, transport, options.get("clusters"))
        jobs = plan.fetch(transport)
        if options.has("batch-script"):
            from spur_cli.history import scripts

            write_all(ctx.stdout, scripts.texts(transport, jobs))
            return 0
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        if failure.status == "UNIMPLEMENTED":
            raise Stop(1, DISABLED) from None
        raise ctx.stop(failure.text) from None
    if form:
        from spur_cli.data import sacct as data

        cluster = next((job.cluster for job in jobs), "")
        ctx.out(document.text(ctx, form, {"jobs": data.jobs_tree(plan.rows(jobs))}, cluster=cluster))
    else:
        ctx.out(plan.render(jobs))
    return 0


def _lists(ctx: Context, options: Parsed) -> bool:
    if options.has("helpformat"):
        from spur_cli.history.fields import help_format

        ctx.out(help_format())
    elif options.has("helpstate"):
        from spur_core.states import JOB_CODE

        ctx.out("".join(f"{state.name}\n" for state in JOB_CODE))
    elif options.has("helpreason"):
        from spur_core import reasons

        words = [value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)]
        ctx.out("".join(f"{word}\n" for word in words))
    else:
        return False
    return True


class Plan:
    """One call's decisions."""

    def __init__(self, ctx: Context, options: Parsed) -> None:
        from spur_cli.history import fields

        self.ctx = ctx
        self.options = options
        self.now = ctx.clock()
        text = options.get("format")
        if text is None or (options.has("long") or options.has("brief")):
            text = options.get("format") if _on_command_line(ctx, options) else None
        if text is None:
            text = fields.LONG if options.has("long") else fields.DEFAULT
            if options.has("brief"):
                text = fields.BRIEF
        try:
            self.columns = fields.parse_format(text)
        except fields.FieldError as error:
            raise ctx.stop(error.text) from None
        self.refs = self._refs()
        self.states = self._states()
        self.start, self.end = self._window()
        self.users, self.uids = self._users()
        self.gids = self._groups()
        self.view = self._view()

    def _every(self, name: str) -> list[str]:
        """The items of all occurrences: sacct's list filters add up."""
        return [item for text in self.options.every(name) for item in split_list(text)]

    def _refs(self) -> "list[JobRef]":
        from spur_cli.queue import select

        try:
            return select.parse_refs(self.options.every("jobs"))
        except ValueError as error:
            raise self.ctx.fatal(f"Bad job/step specified: {error}") from None

    def _states(self) -> list[int]:
        from spur_core.states import JobState, parse_job_state

        found = []
        for word in self._every("state"):
            if word.lower() == "all":
                continue
            try:
                state = parse_job_state(word)
            except GrammarError:
                raise self.ctx.fatal(f"unrecognized job state value '{word}'") from None
            if isinstance(state, JobState):
                found.append(int(state))
        return found

    def _time(self, name: str) -> float | None:
        text = self.options.get(name)
        if text is None:
            return None
        from spur_core.grammar.instant import parse_instant

        try:
            return parse_instant(text, self.now, prefer_future=False)
        except GrammarError as error:
            raise Stop(1, error.text) from None

    def _window(self) -> tuple[float, float | None]:
        """(start, end) of the window; an end of None is now, whatever the clocks say."""
        start, end = self._time("starttime"), self._time("endtime")
        by_state = self.options.has("state")
        if end is None and by_state:
            end = start if start is not None else self.now
        if start is None:
            if self.options.has("jobs"):
                start = 0.0
            elif by_state:
                start = self.now
            else:
                from spur_core.grammar.instant import parse_instant

                start = parse_instant("today", self.now)
        if end is not None and end < start:
            from spur_core.grammar.instant import format_timestamp

            style = self.ctx.env.get("SLURM_TIME_FORMAT", "")
            first, last = (format_timestamp(at, style, self.now) for at in (start, end))
            raise self.ctx.stop(f"Start time ({first}) requested is after end time ({last}).")
        return start, end

    def _users(self) -> tuple[list[str], set[int] | None]:
        from spur_cli.users import find_user, name_of

        names, uids = [], set()
        for word in self._every("uid"):
            found = find_user(word)
            if found is None:
                raise self.ctx.stop(f"Invalid user id: {word}")
            names.append(found[0] or word)
            uids.add(found[1])
        if names:
            return names, uids
        mine = os.getuid()
        if mine == 0 or self.options.has("allusers") or self.refs:
            return [], None
        return [name_of(mine)], {mine}

    def _groups(self) -> set[int]:
        from spur_cli.users import find_group

        found = set()
        for word in self._every("gid"):
            gid = find_group(word)
            if gid is None:
                raise self.ctx.stop(f"Invalid group id: {word}")
            found.add(gid)
        return found

    def _view(self) -> "View":
        from spur_cli.history.fields import View

        options = self.options
        units = options.text("units").upper()
        if units and units not in "KMGTP":
            raise self.ctx.stop(f"Invalid unit type: {options.text('units')}")
        end = self.end if self.end is not None else self.now
        window = (self.start, end) if options.has("truncate") else None
        style = self.ctx.env.get("SLURM_TIME_FORMAT", "")
        return View(self.now, style, units, options.has("noconvert"), window)

    def fetch(self, transport: "Transport") -> "list[pb.JobHistory]":
        """Every job that the filters let through, all pages."""
        from spur_cli.transport import ACCOUNTING
        from spur_proto import accounting_pb2 as pb

        request = pb.GetJobHistoryRequest(
            jobs=[_target(ref) for ref in self.refs],
            users=self.users,
            accounts=self._every("accounts"),
            partitions=self._every("partition"),
            names=self.options.items("name"),
            qos=self._every("qos"),
            states=self.states,  # type: ignore[arg-type]
            window_start=self.start,
            duplicates=self.options.has("duplicates"),
            without_steps=self._without_steps(),
            all_users=not self.users,
        )
        if self.end is not None:
            request.window_end = self.end
        jobs: list[pb.JobHistory] = []
        while True:
            page = transport.call("GetJobHistory", request, pb.GetJobHistoryResponse, service=ACCOUNTING)
            jobs.extend(job for job in page.jobs if self._wanted(job))
            if not page.next_page_token:
                return jobs
            request.page_token = page.next_page_token

    def _without_steps(self) -> bool:
        """Whether nothing that is printed comes from steps: a job's CPU time is that of its steps."""
        if not self.options.has("allocations") or any(ref.step is not None for ref in self.refs):
            return False
        document = self.options.has("json") or self.options.has("yaml")
        return not document and not any(column.name in FROM_STEPS for column in self.columns)

    def _wanted(self, job: "pb.JobHistory") -> bool:
        options = self.options
        if self.uids is not None and job.uid not in self.uids:
            return False
        if self.refs and not any(_matches(ref, job) for ref in self.refs):
            return False
        if self.gids and job.gid not in self.gids:
            return False
        if options.has("wckeys") and job.wckey not in self._every("wckeys"):
            return False
        if options.has("reason") and job.reason not in self._every("reason"):
            return False
        if options.has("constraints") and not set(self._every("constraints")) <= _features(job.constraint):
            return False
        if options.has("nodelist"):
            from spur_core.grammar import hostlist

            wanted = set(hostlist.expand(options.text("nodelist")))
            if not job.nodelist or not wanted & set(hostlist.expand(job.nodelist)):
                return False
        for name, number in (
            ("ncpus", job.alloc_cpus or job.req_cpus),
            ("nnodes", job.alloc_nodes or job.req_nodes),
        ):
            if options.has(name) and not _within(self.ctx, name, options.text(name), number):
                return False
        return self._limit_wanted(job)

    def _limit_wanted(self, job: "pb.JobHistory") -> bool:
        from spur_core.grammar.timelimit import parse_time_limit

        for name in ("timelimit-min", "timelimit-max"):
            if not self.options.has(name):
                continue
            try:
                bound = parse_time_limit(self.options.text(name))
            except GrammarError as error:
                raise self.ctx.stop(error.text) from None
            limit = job.time_limit_secs if job.HasField("time_limit_secs") else 0
            if bound is not None and (limit < bound if name == "timelimit-min" else limit > bound):
                return False
        return True

    def rows(self, jobs: "list[pb.JobHistory]") -> "list[Row]":
        """Each job's allocation and its steps, as far as they are asked for."""
        from spur_cli.history import fields

        options = self.options
        rows: list[Row] = []
        for job in jobs:
            parts = _expand(job) if options.has("array") else [job]
            for part in parts:
                only = self._steps_of(part)
                rows += fields.rows_of(part, self.view, steps=not options.has("allocations"), only=only)
        return rows

    def render(self, jobs: "list[pb.JobHistory]") -> str:
        """The text on stdout."""
        from spur_cli.history import fields

        options = self.options
        rows = self.rows(jobs)
        header = not options.has("noheader")
        if options.has("parsable") or options.has("parsable2"):
            last = [name for name, _ in options.given if name in ("parsable", "parsable2")][-1]
            return fields.parsable_text(
                self.columns,
                rows,
                header=header,
                delimiter=unescape(options.get("delimiter") or "|"),
                trailing=last == "parsable",
            )
        return fields.table_text(self.columns, rows, header=header)

    def _steps_of(self, job: "pb.JobHistory") -> frozenset[int] | None:
        """The steps to which the ids given limit this job; None = no limit."""
        matching = [ref for ref in self.refs if _matches(ref, job)]
        if not matching or any(ref.step is None for ref in matching):
            return None
        return frozenset(ref.step for ref in matching if ref.step is not None)


def _features(constraint: str) -> set[str]:
    """The names in `a&b|[c*2]`."""
    words = "".join(char if char.isalnum() or char in "_.-*" else " " for char in constraint).split()
    return {word.partition("*")[0] for word in words}


def _on_command_line(ctx: Context, options: Parsed) -> bool:
    """Whether -o was given by hand; a variable does not stand against -l and -b."""
    return options.has("format") and options.get("format") != ctx.env.get("SACCT_FORMAT")


def _target(ref: "JobRef") -> "pb.HistoryTarget":
    from spur_proto import accounting_pb2 as pb

    made = pb.HistoryTarget(job_id=ref.job_id, array_tasks=ref.tasks or "")
    if ref.step is not None:
        made.step_id = ref.step
    return made


def _matches(ref: "JobRef", job: "pb.JobHistory") -> bool:
    if ref.job_id not in (job.job_id, job.array_job_id if job.HasField("array_job_id") else 0):
        return False
    if ref.tasks in (None, "*"):
        return True
    from spur_core.grammar.array import parse_array

    wanted = parse_array(ref.tasks or "").indices
    if job.array_pending:
        waiting = parse_array(job.array_pending.partition("%")[0]).indices
        return any(index in waiting for index in wanted)
    return not job.HasField("array_task_id") or job.array_task_id in wanted


def _expand(job: "pb.JobHistory") -> "list[pb.JobHistory]":
    """One row per pending task (`--array`)."""
    if not job.array_pending:
        return [job]
    from spur_core.grammar.array import parse_array

    rows = []
    for index in parse_array(job.array_pending.partition("%")[0]).indices:
        row = type(job)()
        row.CopyFrom(job)
        row.array_pending = ""
        row.array_task_id = index
        rows.append(row)
    return rows


def _within(ctx: Context, name: str, text: str, number: int) -> bool:
    low_text, dash, high_text = text.partition("-")
    if not low_text.isdigit() or (dash and not high_text.isdigit()):
        raise ctx.stop(f"--{name}={text}: not a number or MIN-MAX")
    high = int(high_text) if dash else int(low_text)
    return int(low_text) <= number <= high

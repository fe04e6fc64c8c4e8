"""squeue: the jobs of the queue."""

from typing import TYPE_CHECKING

from spur_cli import formats
from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options.engine import OPTIONAL, REQUIRED, Option, Parsed, Table, split_list
from spur_cli.options.front import cluster_option, common, open_options
from spur_core.errors import ConfigError, GrammarError

if TYPE_CHECKING:
    from spur_cli.queue import fields
    from spur_cli.queue.steps import StepPlan
    from spur_cli.transport import Transport
    from spur_core.grammar.jobid import JobRef
    from spur_proto import common_pb2

    Job = common_pb2.JobInfo

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
STATE_ONLY = "%.18i %.2t"
DEFAULT_SORT = "P,t,-p"


def table() -> Table:
    """The options of squeue."""
    return Table(
        [
            Option("account", "AU", REQUIRED, "of these accounts", metavar="LIST", env=("SQUEUE_ACCOUNT",)),
            Option("all", "a", help="also hidden partitions", env=("SQUEUE_ALL",)),
            Option("hide", "", idle="no partition is hidden"),
            Option("array", "r", help="one row per task of an array", env=("SQUEUE_ARRAY",)),
            Option("Format", "O", REQUIRED, "columns by name", metavar="NAMES", raw=True),
            Option("format", "o", REQUIRED, "columns by letter", metavar="FORMAT", raw=True),
            Option("iterate", "i", REQUIRED, "repeat every so many seconds", metavar="SECS"),
            Option("jobs", "j", OPTIONAL, "these jobs", metavar="IDS"),
            Option("long", "l", help="more columns"),
            Option("me", "", help="only my jobs"),
            Option("notme", "", help="only jobs of others"),
            Option("name", "n", REQUIRED, "of these names", metavar="LIST", env=("SQUEUE_NAMES",)),
            Option("noconvert", "", help="do not convert units of memory"),
            Option("nodelist", "w", REQUIRED, "on these nodes", metavar="HOSTS"),
            Option("noheader", "h", help="no header line"),
            Option("only-job-state", "", help="only ids and states"),
            Option(
                "partition", "p", REQUIRED, "of these partitions", metavar="LIST", env=("SQUEUE_PARTITION",)
            ),
            Option("qos", "q", REQUIRED, "of these QOS", metavar="LIST", env=("SQUEUE_QOS",)),
            Option("sort", "S", REQUIRED, "order by these letters", metavar="LETTERS", env=("SQUEUE_SORT",)),
            Option("start", "", help="pending jobs with their expected start"),
            Option("states", "t", REQUIRED, "in these states", metavar="LIST", env=("SQUEUE_STATES",)),
            Option("user", "u", REQUIRED, "of these users", metavar="LIST", env=("SQUEUE_USERS",)),
            Option("helpstate", "", help="print the states"),
            Option("helpformat", "", help="print the letters of -o"),
            Option("helpFormat", "", help="print the names of -O"),
            Option("federation", "", idle="one cluster", env=()),
            Option("local", "", idle="one cluster"),
            Option("sibling", "", idle="one cluster"),
            Option("expand-patterns", "", refuse="*"),
            Option("json", "", OPTIONAL, refuse="*"),
            Option("yaml", "", OPTIONAL, refuse="*"),
            Option("licenses", "L", REQUIRED, "that use these", metavar="LIST", env=("SQUEUE_LICENSES",)),
            Option("priority", "P", refuse="*"),
            Option("reservation", "R", REQUIRED, "of this reservation", metavar="NAME"),
            Option("running-over", "", REQUIRED, refuse="*"),
            Option("running-under", "", REQUIRED, refuse="*"),
            Option("steps", "s", OPTIONAL, "steps, of all jobs or these", metavar="IDS"),
            cluster_option(("SQUEUE_CLUSTERS",)),
            *common(help_short=""),
        ],
        synonyms={
            "accounts": "account",
            "partitions": "partition",
            "users": "user",
            "node": "nodelist",
            "nodes": "nodelist",
            "names": "name",
        },
    )


def run(ctx: Context) -> int:
    """The command."""
    options = open_options(ctx, table())
    if _lists(ctx, options):
        return 0
    _refuse_operands(ctx, options)
    plan = _plan(ctx, options)
    period = options.get("iterate")
    if period is None:
        return plan.once(0)
    if not (period.isdigit() and int(period) > 0):
        raise ctx.stop(f"Invalid iterate value: {period}")
    import time

    code, round_number = 0, 1
    while code == 0:
        code = plan.once(round_number)
        round_number += 1
        time.sleep(int(period))
    return code


def _plan(ctx: Context, options: Parsed) -> "Plan | StepPlan":
    if not options.has("steps"):
        return Plan(ctx, options)
    from spur_cli.queue import fields, names
    from spur_cli.queue.steps import StepPlan

    style = ctx.env.get("SLURM_TIME_FORMAT", "")
    view = fields.View(style, names.bitstr_len(None), options.has("noconvert"), ctx.clock())
    by_jobs = options.has("jobs") and not options.get("steps")
    refs = _refs(ctx, options, "jobs" if by_jobs else "steps")
    return StepPlan(ctx, options, view, refs, *_users(ctx, options))


def _refuse_operands(ctx: Context, options: Parsed) -> None:
    """Only a bare `-j` or `-s` takes a word that is no option; `squeue 12` must not show everybody's queue.

    Raises:
        Stop: there is a word that nothing takes.
    """
    bare = any(options.has(name) and not options.get(name) for name in ("jobs", "steps"))
    extra = options.operands[1:] if bare else options.operands
    if extra:
        raise Stop(
            1,
            f"squeue: error: Unrecognized option: {extra[0]}",
            'Try "squeue --help" for more information',
        )


def _lists(ctx: Context, options: Parsed) -> bool:
    from spur_core.states import FOREIGN_STATES, JOB_CODE

    if options.has("helpstate"):
        listed = [state.name for state in JOB_CODE] + list(FOREIGN_STATES)
        ctx.out("\n".join(listed) + "\n")
    elif options.has("helpformat"):
        from spur_cli.queue import fields

        ctx.out("".join(f"%{letter} {header}\n" for letter, (header, _) in fields.BY_LETTER.items()))
    elif options.has("helpFormat"):
        from spur_cli.queue import fields

        ctx.out("\n".join(fields.BY_NAME) + "\n")
    else:
        return False
    return True


class Plan:
    """One call's decisions, made before anybody is asked."""

    def __init__(self, ctx: Context, options: Parsed) -> None:
        from spur_cli.queue import fields, names, select

        self.ctx = ctx
        self.options = options
        env = ctx.env
        self.view = fields.View(
            env.get("SLURM_TIME_FORMAT", ""),
            names.bitstr_len(env.get("SLURM_BITSTR_LEN")),
            options.has("noconvert"),
            ctx.clock(),
        )
        self.form, self.columns = self._format()
        self.sort = options.get("sort") or ("S" if options.has("start") else DEFAULT_SORT)
        self.bad_sort = ""
        try:
            fields.sort_letters(self.sort)
        except ValueError:
            self.bad_sort = self.sort
        self.states = self._states(select.LIVE_STATES)
        self.refs = _refs(ctx, options, "jobs")
        self.users, self.uids = _users(ctx, options)

    def _format(self) -> "tuple[formats.Format, dict[str, tuple[str, fields.Text]]]":
        from spur_cli.queue import fields

        options, env = self.options, self.ctx.env
        if options.has("Format") and options.has("format"):
            raise self.ctx.stop("-O (--Format) is incompatible with -o (--format)")
        if options.has("long") and (options.has("format") or options.has("Format")):
            raise self.ctx.stop("-l (--long) is incompatible with -o (--format)")
        by_name, by_letter = options.get("Format"), options.get("format")
        if by_name is None and by_letter is None:
            if options.has("long"):
                by_letter = LONG
            elif options.has("start"):
                by_letter = START
            elif options.has("only-job-state"):
                by_letter = STATE_ONLY
            elif env.get("SQUEUE_FORMAT"):
                by_letter = env["SQUEUE_FORMAT"]
            else:
                by_name = env.get("SQUEUE_FORMAT2") or None
        if by_name is not None:
            form = formats.parse_names(by_name, fields.BY_NAME)
            if form.unknown:
                raise self.ctx.stop(f"Invalid job format specification: {form.unknown[0]}")
            return form, fields.BY_NAME
        text = by_letter or DEFAULT
        if text == "%all":
            text = formats.every_letter(fields.BY_LETTER)
        form = formats.parse_letters(text, fields.BY_LETTER)
        for letter in form.unknown:
            self.ctx.error(f"Invalid job format specification: {letter}")
        return form, fields.BY_LETTER

    def _states(self, default: "tuple[object, ...]") -> "frozenset[int] | None":
        from spur_cli.queue import select
        from spur_core.states import FOREIGN_STATES, JOB_CODE, JobState

        text = self.options.get("states")
        if self.options.has("start") and not text:
            return frozenset({int(JobState.PENDING)})
        if not text:
            return frozenset(int(state) for state in select.LIVE_STATES)
        try:
            found = select.parse_states(text)
        except GrammarError as error:
            listed = ",".join([state.name for state in JOB_CODE] + list(FOREIGN_STATES))
            raise Stop(
                1,
                f"squeue: error: {error.text}",
                f"squeue: error: Valid job states include: {listed}",
            ) from None
        return None if found is None else frozenset(int(state) for state in found)

    def once(self, round_number: int) -> int:
        """Ask and print."""
        from spur_cli.queue import fields
        from spur_cli.submit.sbatch import cluster_name
        from spur_cli.transport import Transport

        ctx, options = self.ctx, self.options
        self.view.now = ctx.clock()
        try:
            transport = Transport(ctx, options.get("controller"))
            cluster = cluster_name(ctx, transport, options.get("clusters"))
            jobs = self._fetch(transport)
        except ConfigError as error:
            raise ctx.fatal(error.text) from None
        except CallFailed as failure:
            raise Stop(1, f"slurm_load_jobs error: {failure.text}") from None
        head = f"CLUSTER: {cluster}\n" if cluster else ""
        if options.has("long") or round_number:
            head += formats.date_line(self.view.now)
        if not options.has("noheader"):
            head += formats.render(self.form, lambda key: self.columns[key][0], fields.OVERFLOW_HEADER)
        if self.bad_sort:
            ctx.out(head)
            raise ctx.stop(f"Invalid sort specification: {self.bad_sort}")
        rows = [job for job in jobs if self._wanted(job)]
        if options.has("array"):
            from spur_cli.queue.select import expand_pending

            rows = [row for job in rows for row in expand_pending(job)]
        fields.sort_jobs(rows, self.sort, self.view)
        line = formats.line_maker(self.form, lambda key: self.columns[key][1], fields.OVERFLOW)
        ctx.out(head + "".join([line(job, self.view) for job in rows]))
        return 0

    def _fetch(self, transport: "Transport") -> "list[Job]":
        from spur_cli.queue import select
        from spur_core.states import JobState

        if self.options.has("nodelist"):
            self._check_nodes(transport)
        if self.refs:
            jobs = select.fetch_known(transport, self.refs)
            if len(self.refs) == 1 and not jobs:
                raise Stop(1, "slurm_load_jobs error: Invalid job id specified")
            return jobs
        if self.uids is not None and not self.uids:
            return []
        states = [JobState(state) for state in self.states or ()]
        if self.states is not None and not states:
            return []  # only states that no job of ours is ever in
        return select.fetch(transport, states=states, users=self.users)

    def _check_nodes(self, transport: "Transport") -> None:
        from spur_cli.nodes.fetch import node_names

        self.nodes = self._hosts(self.options.text("nodelist"))
        known = node_names(transport)
        for name in self.nodes:
            if name not in known:
                raise self.ctx.stop(f"Invalid node name {name}")

    def _hosts(self, text: str) -> list[str]:
        from spur_core.grammar import hostlist

        try:
            return hostlist.expand(text)
        except GrammarError as error:
            raise self.ctx.stop(error.text.split("\n")[-1]) from None

    def _wanted(self, job: "Job") -> bool:
        options = self.options
        if self.states is not None and job.state not in self.states:
            return False
        if self.uids is not None and job.uid not in self.uids:
            return False
        if options.has("notme"):
            import os

            if job.uid == os.getuid():
                return False
        if options.get("partition") and not set(split_list(job.partition)) & set(options.items("partition")):
            return False
        for option, value in (("account", job.account), ("qos", job.qos)):
            if options.get(option) and value not in options.items(option):
                return False
        if options.get("reservation") and options.get("reservation") not in split_list(job.reservation):
            return False
        if options.get("licenses"):
            asked = (job.licenses_alloc or job.licenses).replace("|", ",")
            held = {item.partition(":")[0] for item in split_list(asked)}
            if not held & set(options.items("licenses")):
                return False
        if options.get("name"):
            wanted = {name.lower() for name in options.items("name")}
            if job.name.lower() not in wanted:
                return False
        if options.has("nodelist"):
            from spur_core.grammar import hostlist

            return bool(job.nodelist) and bool(set(hostlist.expand(job.nodelist)) & set(self.nodes))
        return True


def _refs(ctx: Context, options: Parsed, option: str) -> "list[JobRef]":
    """The ids of `-j` or `-s`.

    Raises:
        Stop: a word that is none.
    """
    from spur_cli.queue import select

    if not options.has(option):
        return []
    text = options.get(option)
    texts = [text] if text else options.operands[:1]
    try:
        return select.parse_refs(texts)
    except ValueError as error:
        raise ctx.stop(f"Invalid job id: {error}") from None


def _users(ctx: Context, options: Parsed) -> "tuple[list[str], set[int] | None]":
    """(names for the controller, uids that a row must have; None = any)."""
    import os

    if options.has("me"):
        return [], {os.getuid()}
    if not options.get("user"):
        return [], None
    from spur_cli.users import find_user

    names, uids = [], set()
    for word in options.items("user"):
        found = find_user(word)
        if found is None:
            ctx.err(f"squeue: error: Invalid user: {word}\n\n")
            continue
        uids.add(found[1])
        if found[0]:
            names.append(found[0])
    return (names if len(names) == len(uids) else []), uids

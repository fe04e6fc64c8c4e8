"""scancel: end jobs or send them signals."""

import os
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options.engine import REQUIRED, Option, Parsed, Table, split_list
from spur_cli.options.front import cluster_option, common, open_options
from spur_cli.printable import printable
from spur_core.errors import ConfigError, GrammarError

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_core.grammar.jobid import JobRef
    from spur_proto import common_pb2, controller_pb2

DENIED_CODE = 210
_FILTERS = (
    "account",
    "jobname",
    "me",
    "nodelist",
    "partition",
    "qos",
    "reservation",
    "state",
    "user",
    "wckey",
)
#: What an id that is over already answers; that is no error for scripts.
_SILENT = frozenset({"no_such_job", "already_done", "wrong_state", "not_found", "illegal_transition"})


def table() -> Table:
    """The options of scancel."""
    return Table(
        [
            Option("account", "A", REQUIRED, "of this account", env=("SCANCEL_ACCOUNT",)),
            Option("batch", "b", help="signal only the batch shell", env=("SCANCEL_BATCH",)),
            Option("cron", "c", idle="there are no scrontab jobs", env=("SCANCEL_CRON",)),
            Option("ctld", "", idle="the controller always delivers", env=("SCANCEL_CTLD",)),
            Option("full", "f", help="signal batch shell and steps", env=("SCANCEL_FULL",)),
            Option("hurry", "H", idle="nothing is staged out", env=("SCANCEL_HURRY",)),
            Option("interactive", "i", help="ask before each job", env=("SCANCEL_INTERACTIVE",)),
            Option("jobname", "n", REQUIRED, "of this name", env=("SCANCEL_NAME",)),
            Option("me", "", help="only my jobs"),
            Option("nodelist", "w", REQUIRED, "on these nodes", metavar="HOSTS"),
            Option("partition", "p", REQUIRED, "of this partition", env=("SCANCEL_PARTITION",)),
            Option("quiet", "Q", help="no information"),
            Option("qos", "q", REQUIRED, "of this QOS", env=("SCANCEL_QOS",)),
            Option("signal", "s", REQUIRED, "signal to send", metavar="SIGNAL"),
            Option("state", "t", REQUIRED, "in this state", env=("SCANCEL_STATE",)),
            Option("user", "u", REQUIRED, "of this user", env=("SCANCEL_USER",)),
            Option("wckey", "", REQUIRED, "of this key", env=("SCANCEL_WCKEY",)),
            Option("sibling", "", REQUIRED, refuse="*"),
            Option("reservation", "R", REQUIRED, "of this reservation", metavar="NAME"),
            Option("admin-comment", "", REQUIRED, refuse="*"),
            cluster_option(),
            *common(help_short=""),
        ],
        synonyms={"name": "jobname"},
        synopsis="[OPTIONS] [ID[_TASK][.STEP] ...]",
    )


def run(ctx: Context) -> int:
    """The command."""
    options = open_options(ctx, table())
    wish = Wish(ctx, options)
    if not wish.refs and not any(options.has(name) for name in _FILTERS):
        raise ctx.stop("No job identification provided")
    from spur_cli.submit.sbatch import cluster_name
    from spur_cli.transport import Transport

    try:
        transport = Transport(ctx, options.get("controller"))
        cluster_name(ctx, transport, options.get("clusters"))
        refs = wish.refs
        if options.has("interactive") or any(options.has(name) for name in _FILTERS):
            refs = wish.matching(transport)
            if not refs:
                return 0
        return wish.send(transport, refs)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise ctx.stop(failure.text) from None


class Wish:
    """What is to be done to which jobs."""

    def __init__(self, ctx: Context, options: Parsed) -> None:
        from spur_cli.queue import select

        self.ctx = ctx
        self.options = options
        self.verbose = (options.has("verbose") or "SCANCEL_VERBOSE" in ctx.env) and not options.has("quiet")
        try:
            self.refs: list[JobRef] = select.parse_refs(options.operands)
        except ValueError as error:
            raise ctx.stop(f"Invalid job id {error}") from None
        self.signal = self._signal()
        self.states = self._states()
        self.uid = self._user()

    def _signal(self) -> int | None:
        text = self.options.get("signal")
        if text is None:
            return None
        from spur_core.grammar.counts import parse_signal

        try:
            return parse_signal(text)
        except GrammarError as error:
            raise Stop(1, error.text) from None

    def _states(self) -> set[int]:
        from spur_core.states import JobState, parse_job_state

        allowed = {JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED}
        found = set()
        for word in self.options.items("state"):
            try:
                state = parse_job_state(word)
            except GrammarError:
                state = ""
            if state not in allowed:
                raise Stop(
                    1,
                    f"Invalid job state specified: {word}",
                    "Valid job states are PENDING, RUNNING, and SUSPENDED",
                )
            found.add(int(JobState(state)))
        return found

    def _user(self) -> int | None:
        text = self.options.get("user")
        if text is None:
            if self.options.has("me") or (not self.refs and os.getuid() != 0):
                return os.getuid()
            return None
        from spur_cli.users import find_user

        found = find_user(text)
        if found is None:
            raise self.ctx.stop(f"Invalid user name: {text}")
        return found[1]

    def matching(self, transport: "Transport") -> "list[JobRef]":
        """The references that every filter lets through and that the user confirmed."""
        from spur_cli.queue import select
        from spur_core.grammar.jobid import JobRef

        if self.refs:
            jobs = select.fetch_known(transport, self.refs)
        else:
            jobs = select.fetch(transport, states=select.LIVE_STATES)
        out: list[JobRef] = []
        parts: dict[int, list[JobRef]] = {}
        for ref in self.refs:
            if ref.step is not None or ref.tasks:
                parts.setdefault(ref.job_id, []).append(ref)
        for job in jobs:
            if job.state not in {int(state) for state in select.LIVE_STATES} or not self._wanted(job):
                continue
            master = job.array_job_id if job.HasField("array_job_id") else job.job_id
            refs = parts.get(master)
            if refs is None:
                tasks = job.array_pending.partition("%")[0] or None
                if job.HasField("array_task_id"):
                    tasks = str(job.array_task_id)
                refs = [JobRef(master, tasks, None, None) if tasks else JobRef(job.job_id, None, None, None)]
            for ref in refs:
                if ref not in out and (not self.options.has("interactive") or self._confirmed(job)):
                    out.append(ref)
        if not out and self.verbose:
            self.ctx.info("No active jobs match ALL job filters, including: " + self._filters())
        return out

    def _filters(self) -> str:
        return ", ".join(f"{name}={self.options.text(name)}" for name in _FILTERS if self.options.has(name))

    def _wanted(self, job: "common_pb2.JobInfo") -> bool:
        options = self.options
        for name, value in (
            ("account", job.account),
            ("jobname", job.name),
            ("qos", job.qos),
            ("wckey", job.wckey),
        ):
            if options.has(name) and options.text(name) != value:
                return False
        if options.has("partition") and options.text("partition") not in split_list(job.partition):
            return False
        if options.has("reservation") and options.text("reservation") not in split_list(job.reservation):
            return False
        if self.states and job.state not in self.states:
            # What is being started or ended counts as running.
            from spur_core.states import JobState

            busy = (JobState.CONFIGURING, JobState.COMPLETING)
            if not (int(job.state) in busy and int(JobState.RUNNING) in self.states):
                return False
        if self.uid is not None and job.uid != self.uid:
            return False
        if options.has("nodelist"):
            from spur_core.grammar import hostlist

            wanted = set(hostlist.expand(options.text("nodelist")))
            return bool(wanted & set(hostlist.expand(job.nodelist)))
        return True

    def _confirmed(self, job: "common_pb2.JobInfo") -> bool:
        from spur_cli.queue.names import display_id

        self.ctx.out(
            f"Cancel job_id={display_id(job)} name={printable(job.name)} partition={job.partition} [y/n]? "
        )
        answer = b""
        while not answer.endswith(b"\n"):
            part = os.read(self.ctx.stdin, 1)
            if not part:
                break
            answer += part
        return answer.strip().lower().startswith(b"y")

    def send(self, transport: "Transport", refs: "list[JobRef]") -> int:
        """Send it; the exit code."""
        from spur_cli.queue import select
        from spur_proto import controller_pb2 as pb

        request = pb.CancelJobRequest(targets=[select.target(ref) for ref in refs])
        if self.signal is not None and self.signal != 9:
            request.signal = self.signal
        request.batch_only = self.options.has("batch")
        request.full = self.options.has("full")
        if self.verbose:
            for target in request.targets:
                self.ctx.info(self._announce(target))
        answer = transport.call("CancelJob", request, pb.CancelJobResponse)
        code = 0
        for result in answer.results:
            if not result.code:
                continue
            name = target_name(result.target)
            text = f"Kill job error on job id {name}: {result.text}"
            if result.code not in _SILENT:
                self.ctx.error(text)
                code = DENIED_CODE
            elif self.verbose:
                self.ctx.error(text)
        return code

    def _announce(self, target: "controller_pb2.JobTarget") -> str:
        what = "step" if target.HasField("step_id") else "job"
        name = target_name(target)
        if self.signal is None or self.signal == 9:
            return f"Terminating {what} {name}"
        return f"Signal {self.signal} to {what} {name}"


def target_name(target: "controller_pb2.JobTarget") -> str:
    """`12`, `12_3`, `12_[1-3]` or `12.batch`."""
    from spur_core.ids import step_name

    text = str(target.job_id)
    if target.array_tasks:
        tasks = target.array_tasks
        text += f"_{tasks}" if tasks.isdigit() or tasks == "*" else f"_[{tasks}]"
    if target.HasField("step_id"):
        text += f".{step_name(target.step_id)}"
    return text

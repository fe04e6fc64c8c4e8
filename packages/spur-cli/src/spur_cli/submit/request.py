"""Option values to the fields of a `JobSpec`.  Grammar errors become Slurm's sentences here.

The fields are a plain dict first, so that a wrong value is reported before any protobuf is loaded.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from spur_cli.context import Context, Stop
from spur_cli.printable import is_text, not_text, utf8
from spur_cli.submit import caller
from spur_core.errors import GrammarError

if TYPE_CHECKING:
    from spur_proto import common_pb2

UNLIMITED = 0xFFFFFFFF
Fields = dict[str, Any]
Values = Mapping[str, str | None]
_T = TypeVar("_T")


class Builder:
    """Turns the values of one command into fields.

    code: exit code of a wrong value.
    """

    def __init__(self, ctx: Context, values: Values, code: int = 255) -> None:
        self.ctx = ctx
        self.values = values
        self.code = code
        self.fields: Fields = {}

    def build(self) -> Fields:
        """Every field that follows from the options alone (not script, name, environment or output).

        Raises:
            Stop: a value that cannot be used.
        """
        self._texts()
        self._counts()
        self._memory()
        self._times()
        self._nodes()
        self._wishes()
        self._flags()
        self._inherited()
        return self.fields

    def _given(self, name: str) -> str | None:
        """The value when the option was given with one."""
        return self.values.get(name)

    def parsed(self, name: str, parse: Callable[[str], _T]) -> _T | None:
        """The value of an option, parsed; None when it was not given.

        Raises:
            Stop: it cannot be used.
        """
        text = self._given(name)
        if text is None:
            return None
        try:
            return parse(text)
        except GrammarError as error:
            raise self.ctx.stop(error.text, self.code) from None

    def _texts(self) -> None:
        for option, field in (
            ("partition", "partition"),
            ("account", "account"),
            ("qos", "qos"),
            ("comment", "comment"),
            ("wckey", "wckey"),
            ("constraint", "constraint"),
            ("dependency", "dependency"),
            ("array", "array"),
            ("reservation", "reservation"),
            ("licenses", "licenses"),
        ):
            if self._given(option) is not None:
                self.fields[field] = self._given(option)
        if self._given("distribution"):
            from spur_core.grammar.counts import parse_distribution

            self.fields["distribution"] = self.parsed("distribution", parse_distribution)

    def _counts(self) -> None:
        from spur_core.grammar import counts

        nodes = self.parsed("nodes", counts.parse_node_count)
        if nodes is not None:
            self.fields["min_nodes"], self.fields["max_nodes"] = nodes
        for option, field in (
            ("ntasks", "num_tasks"),
            ("cpus-per-task", "cpus_per_task"),
            ("ntasks-per-node", "tasks_per_node"),
        ):
            number = self.parsed(option, lambda text, o=option: counts.parse_positive(text, f"--{o}"))  # type: ignore[misc]
            if number is not None:
                self.fields[field] = number
        if "nice" in self.values:
            try:
                self.fields["nice"] = counts.parse_nice(self._given("nice"))
            except GrammarError as error:
                raise self.ctx.stop(error.text, self.code) from None
        if self.parsed("signal", counts.parse_warn_signal):
            self.fields["warn_signal"] = self.values["signal"]
        mode = self.parsed("open-mode", counts.parse_open_mode)
        if mode is not None:
            self.fields["open_mode"] = mode
        priority = self._given("priority")
        if priority is not None:
            if priority.upper() == "TOP":
                raise self.ctx.stop("--priority=TOP is not supported by this release", self.code)
            if not (priority.isascii() and priority.isdigit()) or int(priority) >= UNLIMITED:
                raise self.ctx.stop(f"Invalid --priority specification: {priority}", self.code)
            self.fields["priority"] = int(priority)

    def _memory(self) -> None:
        from spur_core.grammar.size import parse_mem

        for option, field in (("mem", "memory_per_node_mb"), ("mem-per-cpu", "memory_per_cpu_mb")):
            size = self.parsed(option, lambda text, o=option: parse_mem(text, f"--{o}"))  # type: ignore[misc]
            if size is not None:
                self.fields[field] = size

    def _times(self) -> None:
        from spur_core.grammar.timelimit import parse_time_limit

        text = self._given("time")
        if text is not None:
            try:
                limit = parse_time_limit(text)
            except GrammarError:
                raise self.ctx.stop("Invalid --time specification", self.code) from None
            self.fields["time_limit_secs"] = UNLIMITED if limit is None else limit
        for option, field in (("begin", "begin_at"), ("deadline", "deadline_at")):
            moment = self._given(option)
            if moment is not None:
                self.fields[field] = self._instant(option, moment)
        begin, deadline = self.fields.get("begin_at"), self.fields.get("deadline_at")
        if begin is not None and deadline is not None and deadline < begin:
            raise self.ctx.stop("Incompatible begin and deadline time specification", self.code)

    def _instant(self, option: str, text: str) -> float:
        from spur_core.grammar.instant import parse_instant

        try:
            return parse_instant(text, self.ctx.clock())
        except GrammarError as error:
            raise Stop(
                self.code, error.text, f"{self.ctx.name}: error: Invalid --{option} specification"
            ) from None

    def _nodes(self) -> None:
        for option, field in (("nodelist", "nodelist"), ("exclude", "exclude"), ("nodefile", "nodelist")):
            text = self._given(option)
            if text is None:
                continue
            if option == "nodefile" or "/" in text:
                text = self._node_file(text)
            from spur_core.grammar import hostlist

            try:
                hostlist.expand(text)
            except GrammarError as error:
                lines = [f"{self.ctx.name}: error: {line}" for line in error.text.split("\n")]
                raise Stop(self.code, *lines) from None
            self.fields[field] = text

    def _node_file(self, name: str) -> str:
        try:
            with open(self.ctx.path(name), encoding="utf-8", errors="surrogateescape") as file:
                return ",".join(file.read().replace(",", " ").split())
        except OSError as error:
            raise self.ctx.stop(f"Unable to open file {name}: {error.strerror}", self.code) from None

    def _wishes(self) -> None:
        from spur_cli.submit import wishes

        if found := wishes.fields(self):
            self.fields["wishes"] = found

    def _flags(self) -> None:
        if "hold" in self.values:
            self.fields["hold"] = True
        if "exclusive" in self.values and self._given("exclusive") not in ("no", "user"):
            self.fields["exclusive"] = True
        if "requeue" in self.values:
            self.fields["requeue"] = True
        if "no-requeue" in self.values:
            self.fields["requeue"] = False
        if "immediate" in self.values:
            if self._given("immediate") not in (None, "0", "1"):
                text = "--immediate=SECONDS is not supported by this release, --immediate is"
                raise self.ctx.stop(text, self.code)
            self.fields["immediate"] = True
        answer = self._given("kill-on-invalid-dep")
        if answer is not None:
            if answer.lower() not in ("yes", "no"):
                raise self.ctx.stop("Invalid --kill-on-invalid-dep specification", self.code)
            self.fields["kill_on_invalid_dependency"] = answer.lower() == "yes"

    def _inherited(self) -> None:
        ctx = self.ctx
        folder = self._given("chdir")
        self.fields["work_dir"] = ctx.path(folder) if folder else ctx.cwd
        if not is_text(self.fields["work_dir"]):
            raise ctx.stop(
                not_text("the work directory", self.fields["work_dir"]) + ", or name another with --chdir"
            )
        self.fields["umask"] = caller.umask()
        self.fields["submit_host"] = caller.host()
        self.fields["submit_dir"] = utf8(ctx.cwd)
        limits = caller.rlimits(ctx, self._given("propagate"), "propagate" in self.values)
        self.fields["rlimits"] = limits
        try:
            entries = caller.environment(ctx, self._given("export"), self._given("export-file"))
        except GrammarError as error:
            raise ctx.stop(error.text, self.code) from None
        self.fields["environment"] = entries + caller.rlimit_entries(limits)


def message(fields: Fields) -> "common_pb2.JobSpec":
    """The wire form."""
    from spur_proto import common_pb2

    return common_pb2.JobSpec(**fields)

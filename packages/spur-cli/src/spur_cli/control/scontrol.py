"""scontrol: one command line, or a prompt that takes several."""

import os

from spur_cli.context import Context, Stop
from spur_cli.control.layout import Style
from spur_cli.options.engine import OPTIONAL, REQUIRED, NotTextError, Option, Parsed, Table, check_operands
from spur_cli.options.front import SLURM_VERSION, cluster_option, common, open_options
from spur_cli.transport import Transport
from spur_core.errors import ConfigError

#: Keywords that act in this release.
KEYWORDS = (
    "all completing create delete details exit help hide hold oneliner ping quiet quit release requeue"
    " requeuehold show uhold resume suspend takeover token update verbose version wait_job write"
)
#: Keywords of Slurm that come later, refused by name.
LATER = (
    "abort callerid cancel_reboot cluster errnumstr fsdampeningfactor getent gethost"
    " listpids notify pidinfo power reboot reconfigure schedloglevel setdebug setdebugflags shutdown"
    " top"
)


def table() -> Table:
    """The options of scontrol."""
    return Table(
        [
            Option("all", "a", help="also hidden partitions"),
            Option("details", "d", help="more fields"),
            Option("future", "F", idle="nodes of the future are never hidden"),
            Option("hide", "", idle="no partition is hidden"),
            Option("oneliner", "o", help="one line a record"),
            Option("quiet", "Q", help="no messages"),
            Option("uid", "u", REQUIRED, refuse="*"),
            Option("federation", "", idle="one cluster"),
            Option("local", "", idle="one cluster"),
            Option("sibling", "", idle="one cluster"),
            Option("json", "", OPTIONAL, "show partition as JSON", metavar="PARSER"),
            Option("yaml", "", OPTIONAL, "show partition as YAML", metavar="PARSER"),
            cluster_option(),
            *common(),
        ],
        synopsis="[OPTIONS] [COMMAND ...]",
    )


def run(ctx: Context) -> int:
    """The command."""
    options = open_options(ctx, table())
    session = Session(ctx, options)
    if options.operands:
        return session.execute(options.operands)
    return session.prompt()


class Session:
    """Commands of one call; they share the connection and the way records are printed."""

    def __init__(self, ctx: Context, options: Parsed) -> None:
        self.ctx = ctx
        self.options = options
        self.style = Style(
            options.has("oneliner"),
            options.has("details"),
            ctx.env.get("SLURM_TIME_FORMAT", ""),
            ctx.clock(),
        )
        self._transport: Transport | None = None
        self.done = False

    def connect(self) -> Transport:
        """The connection, opened when the first command needs it.

        Raises:
            Stop: the configuration cannot be used, or `-M` names another cluster.
            CallFailed: the controller cannot be asked for the cluster's name.
        """
        if self._transport is None:
            try:
                self._transport = Transport(self.ctx, self.options.get("controller"))
            except ConfigError as error:
                raise self.ctx.fatal(error.text) from None
            from spur_cli.submit.sbatch import cluster_name

            cluster_name(self.ctx, self._transport, self.options.get("clusters"))
        return self._transport

    def execute(self, words: list[str]) -> int:
        """One command; its exit code.

        Raises:
            Stop: it cannot be done.
        """
        ctx = self.ctx
        try:
            check_operands(words)
        except NotTextError as problem:
            raise ctx.stop(problem.text) from None
        keyword = _keyword(words[0])
        if keyword is None:
            if _matches(words[0], LATER):
                raise ctx.stop(f"{words[0]} is not supported by this release")
            raise Stop(1, f"invalid keyword: {words[0]}")
        rest = words[1:]
        if self.options.has("json") or self.options.has("yaml"):
            from spur_cli.control.show_data import show_data

            return show_data(ctx, self.options, self.connect, keyword, rest)
        if keyword == "show":
            from spur_cli.control.show import show

            return show(ctx, self.connect, rest, self.style)
        if keyword in ("hold", "uhold", "release"):
            from spur_cli.control.changes import hold

            return hold(ctx, self.connect, keyword, rest)
        if keyword in ("requeue", "requeuehold"):
            from spur_cli.control.changes import requeue

            return requeue(ctx, self.connect, keyword, rest)
        if keyword in ("suspend", "resume"):
            from spur_cli.control.changes import suspend

            return suspend(ctx, self.connect, keyword, rest)
        if keyword == "update":
            from spur_cli.control.update import update

            return update(ctx, self.connect, rest)
        if keyword in ("create", "delete"):
            return self._reservation(keyword, words)
        if keyword == "ping":
            return self._ping()
        if keyword == "takeover":
            from spur_cli.control.takeover import takeover

            return takeover(ctx, self.connect(), rest)
        if keyword in ("completing", "wait_job", "token", "write"):
            from spur_cli.control import verbs

            if keyword == "token":
                return verbs.token(ctx, rest)
            if keyword == "write":
                return verbs.write(ctx, self.connect, rest, quiet=self.options.has("quiet"))
            if keyword == "wait_job":
                return verbs.wait_job(ctx, self.connect, rest)
            return verbs.completing(ctx, self.connect, rest, self.style)
        return self._local(keyword)

    def _reservation(self, keyword: str, words: list[str]) -> int:
        """`create` and `delete`, which know reservations and partitions."""
        from spur_cli.control import partition, reservation

        rest = words[1:]
        if not rest:
            raise Stop(1, f"too few arguments for keyword:{words[0]}")
        if partition.about_one(rest):
            act = partition.create if keyword == "create" else partition.delete
            return act(self.ctx, self.connect, rest)
        if not any(reservation.is_reservation(word) for word in (rest if keyword == "create" else rest[:1])):
            what = rest[0].partition("=")[0]
            if what.lower() == "nodename":
                raise self.ctx.stop(f"{keyword} {what} is not supported by this release")
            raise Stop(1, f"Invalid entity: {what} for keyword:{keyword} ")
        if keyword == "create":
            return reservation.create(self.ctx, self.connect, rest)
        return reservation.delete(self.ctx, self.connect, rest)

    def _ping(self) -> int:
        from spur_cli.control.ping import ping_lines

        try:
            transport = Transport(self.ctx, self.options.get("controller"))
        except ConfigError as error:
            raise self.ctx.fatal(error.text) from None
        lines, up = ping_lines(self.ctx, transport)
        self.ctx.out("".join(f"{line}\n" for line in lines))
        return 0 if up else 1

    def _local(self, keyword: str) -> int:
        if keyword == "version":
            self.ctx.out(SLURM_VERSION + "\n")
        elif keyword == "help":
            self.ctx.out("Commands: " + KEYWORDS.replace(" ", ", ") + "\n")
        elif keyword == "details":
            self.style.detail = True
        elif keyword == "oneliner":
            self.style.one_line = True
        elif keyword in ("exit", "quit"):
            self.done = True
        return 0

    def prompt(self) -> int:
        """Commands from standard input until `exit` or its end; the last failure's code."""
        import shlex

        code = 0
        with os.fdopen(os.dup(self.ctx.stdin), encoding="utf-8", errors="surrogateescape") as lines:
            while not self.done:
                self.ctx.out("scontrol: ")
                line = lines.readline()
                if not line:
                    self.ctx.out("\n")
                    break
                try:
                    words = shlex.split(line)
                    if words:
                        self.style.now = self.ctx.clock()
                        code = self.execute(words) or code
                except ValueError as error:
                    self.ctx.error(str(error))
                except Stop as stop:
                    self.ctx.err("".join(f"{text}\n" for text in stop.lines))
                    code = stop.code
        return code


def _matches(word: str, names: str) -> list[str]:
    lower = word.lower().replace("-", "")
    exact = [name for name in names.split() if name == lower]
    return exact or [name for name in names.split() if name.startswith(lower)]


def _keyword(word: str) -> str | None:
    """The keyword that `word` abbreviates."""
    if not word:
        return None
    found = _matches(word, KEYWORDS)
    # `requeue` stands before `requeuehold`, `hold` before nothing: the shortest of a family is meant.
    if len(found) > 1 and all(name.startswith(found[0]) for name in found):
        return found[0]
    if len(found) == 1 and word.lower() not in LATER.split():
        return found[0]
    return None

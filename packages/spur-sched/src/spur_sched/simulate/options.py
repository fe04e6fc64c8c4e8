"""The command line of the simulator."""

import argparse
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn, TypeVar

from spur_core.errors import GrammarError, RequestError
from spur_core.grammar.gres import parse_gres
from spur_core.grammar.size import parse_mem
from spur_core.grammar.timelimit import parse_time_limit
from spur_sched import __version__
from spur_sched.simulate.machine import Size
from spur_sched.simulate.work import Reading

#: As asked for -> as the scheduler calls it.
POLICIES: Final = {"none": "none", "fcfs": "none", "easy": "easy", "conservative": "conservative"}
FORMATS: Final = ("swf", "sacct")
_Value = TypeVar("_Value")


class Options(NamedTuple):
    """`size` None = not told; `nodes` None = from the cluster's file or the trace."""

    trace: str
    format: str | None
    cluster: str | None
    nodes: int | None
    size: Size | None
    policies: tuple[str, ...]
    any_partition: bool
    reading: Reading
    bound: float
    json: bool
    starts: str | None


class UsageError(RequestError):
    """The command line cannot be used."""

    code = "usage"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see spur simulate --help")


def _parser() -> argparse.ArgumentParser:
    made = _Parser(
        prog="spur simulate",
        description="Replay a recorded workload on a described cluster with SPUR's scheduler.",
        allow_abbrev=False,
    )
    made.add_argument("trace", metavar="TRACE", help="file of the workload, also .gz; - = standard input")
    made.add_argument("--format", choices=FORMATS, help="of the trace (default: found from its first line)")
    made.add_argument("-V", "--version", action="version", version=f"spur simulate {__version__}")
    cluster = made.add_argument_group("the cluster (default: as an SWF trace describes it)")
    cluster.add_argument("--cluster", metavar="FILE", help="a spur.conf: nodes, partitions, scheduler")
    cluster.add_argument("--nodes", metavar="N", help="so many equal nodes in one partition")
    cluster.add_argument("--cpus", metavar="N", help="CPUs of a node")
    cluster.add_argument("--memory", metavar="SIZE", help="memory of a node (default: does not count)")
    cluster.add_argument("--gres", metavar="LIST", help="generic resources of a node")
    how = made.add_argument_group("the replay")
    how.add_argument(
        "--policy",
        metavar="LIST",
        help="easy, conservative, none (= fcfs), several with commas, or all"
        " (default: the cluster's file, else easy)",
    )
    how.add_argument("--exact", action="store_true", help="every time limit is the run time")
    how.add_argument("--kill", action="store_true", help="end jobs at their time limit")
    how.add_argument(
        "--default-time",
        metavar="TIME",
        help="limit of jobs without a recorded one (default: their run time)",
    )
    how.add_argument("--whole-nodes", action="store_true", help="every job has its nodes for itself")
    how.add_argument("--ignore-memory", action="store_true", help="requests for memory do not count")
    how.add_argument(
        "--any-partition", action="store_true", help="unknown partitions are the cluster's default one"
    )
    how.add_argument(
        "--skip-impossible", action="store_true", help="leave out jobs that the cluster could never run"
    )
    out = made.add_argument_group("the report")
    out.add_argument("--json", action="store_true", help="JSON instead of a table")
    out.add_argument("--starts", metavar="FILE", help="write every start to FILE.csv or FILE.json")
    out.add_argument(
        "--bound", metavar="SECONDS", default="10", help="shortest run time in slowdowns (default 10)"
    )
    return made


def parse(argv: Sequence[str]) -> Options:
    """Options from the words after the program's name.

    Raises:
        UsageError: something in them cannot be used.
        SystemExit: `--help` or `--version` was printed.
    """
    found = _parser().parse_args(argv)
    if found.cluster is not None and found.nodes is not None:
        raise UsageError("--nodes and --cluster both say which nodes there are; give one of them")
    if found.starts is not None and not found.starts.endswith((".csv", ".json")):
        raise UsageError(f"--starts {found.starts}: the name must end in .csv or .json")
    default_time = None
    if found.default_time is not None:
        default_time = _read(parse_time_limit, found.default_time, "--default-time") or 0
    return Options(
        trace=found.trace,
        format=found.format,
        cluster=found.cluster,
        nodes=None if found.nodes is None else _count(found.nodes, "--nodes"),
        size=_size(found.cpus, found.memory, found.gres),
        policies=_policies(found.policy),
        any_partition=found.any_partition,
        reading=Reading(
            exact=found.exact,
            kill=found.kill,
            default_time=default_time,
            memory=not found.ignore_memory,
            whole_nodes=found.whole_nodes,
            skip_impossible=found.skip_impossible,
        ),
        bound=_seconds(found.bound, "--bound"),
        json=found.json,
        starts=found.starts,
    )


def _policies(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    if text == "all":
        return ("none", "easy", "conservative")
    found: dict[str, None] = {}
    for word in text.split(","):
        if word not in POLICIES:
            raise UsageError(f"--policy {word!r}: not one of {', '.join(POLICIES)} or all")
        found[POLICIES[word]] = None
    return tuple(found)


def _size(cpus: str | None, memory: str | None, gres: str | None) -> Size | None:
    if cpus is None:
        if memory is not None or gres is not None:
            raise UsageError("--memory and --gres describe a node of --cpus; give --cpus too")
        return None
    if gres is not None:
        try:
            parse_gres(gres)
        except GrammarError as error:
            raise UsageError(f"--gres {gres!r}: {error.text}") from None
    mebibytes = 0 if memory is None else _read(parse_mem, memory, "--memory")
    return Size(_count(cpus, "--cpus"), mebibytes or 0, gres or "")


def _read(rule: Callable[[str, str], _Value], text: str, option: str) -> _Value:
    try:
        return rule(text, option)
    except GrammarError:
        raise UsageError(f"{option} {text!r} cannot be read") from None


def _count(text: str, option: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 1_000_000):
        raise UsageError(f"{option} {text!r} is not a number from 1 to 1000000")
    return int(text)


def _seconds(text: str, option: str) -> float:
    if not (text.isascii() and text.isdecimal() and int(text) <= 86400):
        raise UsageError(f"{option} {text!r} is not a number of seconds up to 86400")
    return float(text)

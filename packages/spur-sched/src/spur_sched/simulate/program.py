"""The program: reads the trace and the cluster, replays, prints.  The only part of this wheel with I/O."""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from spur_core.config.loader import load_config
from spur_core.config.model import Config
from spur_core.errors import ConfigError, RequestError, SpurError
from spur_sched.api import Policy
from spur_sched.simulate import options, sacct, show, swf
from spur_sched.simulate.figures import figures
from spur_sched.simulate.machine import Machine, Size, configured, uniform
from spur_sched.simulate.replay import replay
from spur_sched.simulate.trace import Trace
from spur_sched.simulate.work import Work, prepare


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit status."""
    try:
        _run(options.parse(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except ConfigError as error:
        for problem in error.problems:
            _error(problem)
        return 1
    except SpurError as error:
        _error(error.text)
        return 1
    except BrokenPipeError:
        # Whoever read has enough; nothing is left to be said when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        _error(f"{error.filename or 'output'}: {error.strerror or error}")
        return 1
    return 0


def _run(given: options.Options) -> None:
    trace, kind = _trace(given)
    config = None if given.cluster is None else load_config(given.cluster)
    machine = _machine(given, config, trace)
    anyone = given.any_partition or config is None or kind == "swf"
    work = prepare(trace, machine, given.reading._replace(any_partition=anyone))
    notes = (*trace.notes, *work.notes)
    policy = _policy(config)
    results = [
        _replayed(machine, work, policy._replace(backfill=name), given.bound)
        for name in given.policies or (policy.backfill,)
    ]
    if given.starts is not None:
        render = show.starts_csv if given.starts.endswith(".csv") else show.starts_json
        Path(given.starts).write_text(render(results, given.bound))
    if given.json:
        head = {
            "trace": trace.name,
            "format": kind,
            "nodes": len(machine.nodes),
            "cpus": machine.cpus,
            "bound": given.bound,
            "notes": list(notes),
        }
        sys.stdout.write(show.as_json(head, results))
        return
    sys.stdout.write(
        f"{trace.name}: {len(work.arrivals)} jobs on {len(machine.nodes)} nodes with {machine.cpus} CPUs\n"
    )
    sys.stdout.write("".join(f"note: {note}\n" for note in notes))
    sys.stdout.write("\n" + show.table(results))
    for result in results:
        for stuck in result.outcome.stuck[:10]:
            sys.stdout.write(
                f"{result.policy}: job {result.names[stuck.job.job_id]} never started: {stuck.reason}\n"
            )
        more = len(result.outcome.stuck) - 10
        if more > 0:
            sys.stdout.write(f"{result.policy}: {more} more jobs never started\n")


def _replayed(machine: Machine, work: Work, policy: Policy, bound: float) -> show.Result:
    outcome = replay(machine, work.arrivals, policy)
    return show.Result(policy.backfill, figures(outcome.starts, machine.cpus, bound), outcome, work.names)


def _trace(given: options.Options) -> tuple[Trace, str]:
    """The trace, and its format."""
    name = "standard input" if given.trace == "-" else given.trace
    try:
        with _opened(given.trace) as text:
            first = text.readline()
            kind = given.format or ("sacct" if sacct.looks_like(first) else "swf")
            read = sacct.read if kind == "sacct" else swf.read
            return read(name, _numbered(first, text)), kind
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise RequestError(f"{name}: not a whole gzip file; fetch it again") from None


def _numbered(first: str, text: TextIO) -> Iterator[tuple[int, str]]:
    if first:
        yield 1, first
    yield from enumerate(text, 2)


@contextmanager
def _opened(name: str) -> Iterator[TextIO]:
    # Comments of old traces are in whatever encoding their authors had.
    if name == "-":
        yield io.TextIOWrapper(sys.stdin.buffer, "utf-8-sig", "replace")
    elif name.endswith(".gz"):
        with gzip.open(name, "rt", encoding="utf-8-sig", errors="replace") as text:
            yield text
    else:
        with Path(name).open(encoding="utf-8-sig", errors="replace") as text:
            yield text


def _machine(given: options.Options, config: Config | None, trace: Trace) -> Machine:
    if config is not None:
        try:
            return configured(config, given.size)
        except ConfigError:
            raise
        except RequestError as error:
            raise RequestError(f"{given.cluster}: {error.text}") from None
    if given.nodes is not None:
        if given.size is None:
            raise options.UsageError("--nodes: give --cpus too, the CPUs of each node")
        return uniform(given.nodes, given.size)
    # As the trace's header describes it; without a number of nodes each processor is a node.
    nodes = trace.nodes or trace.cpus
    if nodes is None:
        raise RequestError(
            f"{trace.name}: the trace does not tell the cluster; give --nodes and --cpus, or --cluster"
        )
    cpus = -(-trace.cpus // nodes) if trace.cpus else 1
    return uniform(nodes, given.size or Size(cpus))


def _policy(config: Config | None) -> Policy:
    """The scheduler's settings: those of the file that this release has, else the defaults."""
    found = Policy()
    if config is None:
        return found
    section = config.scheduler
    wanted = {name: getattr(section, name) for name in Policy._fields if hasattr(section, name)}
    wanted.pop("preempt_type", None)
    return found._replace(**wanted)


def _error(text: str) -> None:
    print(f"spur simulate: error: {text}", file=sys.stderr)  # noqa: T201

"""The command line of spurd."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from spur_agent import __version__
from spur_agent.logs import LEVELS
from spur_core.errors import RequestError

DEFAULT_CONFIG = Path("/etc/spur/spur.conf")
#: Nodes that one program may emulate.
MOST_EMULATED = 20_000


class Options(NamedTuple):
    """Flags as given; None or empty = not given, environment and configuration decide."""

    config: Path | None
    controller: str | None
    node: str | None
    listen: str | None
    address: str | None
    state_dir: Path | None
    labels: tuple[str, ...]
    log_level: str | None
    #: So many virtual nodes instead of this one; None = be a node.
    emulate: int | None = None


class UsageError(RequestError):
    """The command line cannot be used."""

    code = "usage"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see spurd --help")


def _parser() -> argparse.ArgumentParser:
    made = _Parser(prog="spurd", description="The node agent of a SPUR cluster.", allow_abbrev=False)
    made.add_argument("-D", "--foreground", action="store_true", help="stay in the foreground (always so)")
    made.add_argument(
        "-f", "--config", metavar="FILE", type=Path, help=f"configuration file (default {DEFAULT_CONFIG})"
    )
    made.add_argument("--controller", metavar="ADDR[,ADDR]", help="controllers, tried in this order")
    made.add_argument("-N", "--hostname", dest="node", metavar="NAME", help="node name (default: host name)")
    made.add_argument("--listen", metavar="ADDR", help="HOST:PORT of the gRPC service; port 0 = a free one")
    made.add_argument("--address", metavar="ADDR", help="address that others reach this node by")
    made.add_argument("--state-dir", metavar="DIR", type=Path, help="where sessions of running steps live")
    made.add_argument("--label", metavar="K=V", action="append", default=[], help="node label, repeatable")
    made.add_argument("--token", help=argparse.SUPPRESS)
    made.add_argument("--log-level", metavar="L", choices=LEVELS, help="debug, info, warning or error")
    made.add_argument(
        "--emulate",
        metavar="N",
        help="pretend to be N nodes, named -N and a number, that run nothing: to load a controller",
    )
    made.add_argument("-V", "--version", action="version", version=f"spurd {__version__}")
    return made


def parse(argv: Sequence[str]) -> Options:
    """Options from the words after the program's name.

    Raises:
        UsageError: something in them cannot be used.
        SystemExit: `--help` or `--version` was printed.
    """
    found = _parser().parse_args(argv)
    if found.token is not None:
        raise UsageError("--token: this release has no admission tokens; leave it out")
    return Options(
        config=found.config,
        controller=found.controller,
        node=found.node,
        listen=found.listen,
        address=found.address,
        state_dir=found.state_dir,
        labels=tuple(found.label),
        log_level=found.log_level,
        emulate=None if found.emulate is None else _emulated(found.emulate, found.node),
    )


def _emulated(text: str, node: str | None) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST_EMULATED):
        raise UsageError(f"--emulate {text!r} is not a number from 1 to {MOST_EMULATED}")
    if not node:
        raise UsageError("--emulate: give -N too, what the nodes' names begin with")
    return int(text)

"""The command line of `spurctld raft`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from spur_core.errors import StateError
from spur_ctld.options import DEFAULT_CONFIG, UsageError, read_config


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see spurctld raft --help")


def parser() -> argparse.ArgumentParser:
    """All tools and their options."""
    made = _Parser(
        prog="spurctld raft",
        description="Makes, inspects and changes the replicated log of a controller.",
        allow_abbrev=False,
    )
    tools = made.add_subparsers(dest="tool", metavar="TOOL", required=True, parser_class=_Parser)

    def tool(name: str, text: str) -> argparse.ArgumentParser:
        one = tools.add_parser(name, help=text, description=text, allow_abbrev=False)
        one.add_argument(
            "-f", "--config", metavar="FILE", type=Path, help=f"configuration file (default {DEFAULT_CONFIG})"
        )
        return one

    def member_tool(name: str, text: str) -> argparse.ArgumentParser:
        one = tool(name, text)
        _state_dir(one)
        one.add_argument(
            "--node-id", metavar="N", type=int, help="position of this controller in [controller] peers"
        )
        return one

    member_tool("init", "make the directory of this controller for a new cluster")
    certs = tool("gen-certs", "make the group's CA and a certificate for each controller")
    certs.add_argument("--out", metavar="DIR", type=Path, required=True, help="where to put them")
    inspect = tool("inspect", "show what a directory holds; only reads, also while the controller runs")
    _state_dir(inspect)
    inspect.add_argument("--entries", action="store_true", help="list the log, one line an entry")
    inspect.add_argument("--from", dest="first", metavar="INDEX", type=int, help="list from this entry")
    inspect.add_argument("--json", action="store_true", help="one JSON document instead of text")
    reconfigure = member_tool(
        "reconfigure", "give the directory of a stopped controller the configured group"
    )
    reconfigure.add_argument(
        "--copy-of", metavar="N", type=int, help="the directory is a copy of that of controller N"
    )
    member_tool("seed", "fill the lost directory of this controller from the group")
    return made


def _state_dir(one: argparse.ArgumentParser) -> None:
    one.add_argument("--state-dir", metavar="DIR", type=Path, help="the controller's state directory")


def run(argv: Sequence[str]) -> int:
    """Run one tool; its exit code.

    Raises:
        SpurError: one line for the user.
        SystemExit: `--help` was printed.
    """
    given = parser().parse_args(argv)
    try:
        return _run(given)
    except OSError as error:
        # A directory that is a file, or somebody else's: where a tool looks before it begins.
        where = f"{error.filename}: " if error.filename else ""
        raise StateError(f"{where}{error.strerror or error}") from None


def _run(given: argparse.Namespace) -> int:
    # Each tool loads only what it needs.
    if given.tool == "inspect":
        from spur_ctld.raft_tools import inspecting

        config = read_config(given.config) if given.state_dir is None else None
        folder = given.state_dir or Path(config.controller.state_dir if config else "")
        listed = given.entries or given.first is not None
        return inspecting.run(folder, _say, first=(given.first or 0) if listed else None, json=given.json)
    if given.tool == "gen-certs":
        from spur_ctld.raft_tools import making

        making.gen_certs(read_config(given.config), given.out, _say)
        return 0
    from spur_ctld.raft_tools import place

    found = place.find(given.config, given.state_dir, given.node_id)
    if given.tool == "init":
        from spur_ctld.raft_tools import making

        making.init(found, _say)
    elif given.tool == "reconfigure":
        from spur_ctld.raft_tools import reconfiguring

        reconfiguring.reconfigure(found, given.copy_of, _say)
    else:
        from spur_ctld.raft_tools import seeding

        seeding.seed(found, _say)
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")

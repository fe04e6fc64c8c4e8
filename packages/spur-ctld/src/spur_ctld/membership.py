"""This controller's place in its group: from the configuration to a replication node."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

from spur_core.config import group
from spur_core.config.model import Config
from spur_core.errors import ConfigError
from spur_ctld import __version__
from spur_ctld.replication import certs
from spur_ctld.replication.meta import Member
from spur_ctld.replication.node import Node
from spur_ctld.replication.tls import read_tls
from spur_ctld.replication.transport import Transport
from spur_ctld.state import versions
from spur_ctld.state.log_machine import LogMachine


def problems(config: Config, member_id: int, state_dir: Path) -> list[str]:
    """Why a member of a group cannot start as it is configured; one line each."""
    found = certs.problems(group.tls_dir(config, state_dir), member_id, time.time())
    if config.accounting.enabled and not config.accounting.database_url:
        found.append(
            "[accounting] database_url: name a database that all controllers of the group reach, or switch"
            " accounting off with [accounting] enabled = false"
        )
    return found


def build_node(
    config: Config,
    state_dir: Path,
    machine: LogMachine,
    fatal: Callable[[BaseException], None],
    wall: Callable[[], float] = time.time,
) -> tuple[int, Node]:
    """(id of this controller, its replication node); one that is alone opens no port for it.

    Args:
        wall: seconds since the epoch; members compare their clocks.

    Raises:
        ConfigError: this host's place in the group cannot be told, its certificates cannot be used, or
            controllers of one group would keep books of their own.
    """
    own, found = group.members(config, socket.gethostname())
    members = tuple(Member(one.id, one.address, one.name, one.client) for one in found)
    if len(members) == 1:
        # An address in the list of peers is for others, of whom there are none.
        return own, Node(
            state_dir,
            machine,
            fatal=fatal,
            version=__version__,
            command_version=versions.known(),
            commands=machine,
        )
    found_problems = problems(config, own, state_dir)
    if found_problems:
        raise ConfigError(found_problems)
    tls = group.tls_dir(config, state_dir)
    return own, Node(
        state_dir,
        machine,
        fatal=fatal,
        member_id=own,
        members=members,
        transport=Transport(config.controller.raft_listen_addr, read_tls(tls)),
        cluster_id=certs.cluster_id(tls / certs.CA_CERT),
        command_version=versions.known(),
        version=__version__,
        commands=machine,
        wall=wall,
    )

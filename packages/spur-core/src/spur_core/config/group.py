"""The group of controllers as the configuration names it: who its members are, and which one this is.

Pure: the caller says what this host is called.
"""

from pathlib import Path
from typing import NamedTuple

from spur_core.config.address import join_address, split_address
from spur_core.config.model import Config
from spur_core.errors import ConfigError

#: Certificates of members say this and the member's id.
NAME_PREFIX = "spur-controller-"


class GroupMember(NamedTuple):
    """One controller.

    Attributes:
        id: its position in `peers`, from 1.
        address: HOST:PORT of its replication listener; empty when it is alone and none is named.
        name: what its certificate says; empty in a group of one, which has no certificates.
        client: HOST:PORT at which clients, agents and other members reach it; empty when it is alone and
            none is named.
    """

    id: int
    address: str
    name: str
    client: str


def member_name(member_id: int) -> str:
    """What the certificate of member `member_id` says."""
    return f"{NAME_PREFIX}{member_id}"


def members(config: Config, hostname: str) -> tuple[int, tuple[GroupMember, ...]]:
    """(id of this controller, every member in the order of their ids).

    Args:
        config: a configuration that passed its rules.
        hostname: what this host calls itself; used only without `node_id`.

    Raises:
        ConfigError: this host's place in the group cannot be told.
    """
    section = config.controller
    peers, clients = section.peers, section.client_addrs
    if len(peers) <= 1:
        client = clients[0] if clients else ""
        return 1, (GroupMember(1, peers[0] if peers else "", "", client),)
    if not clients:
        port = split_address(section.listen_addr)[1]
        clients = tuple(join_address(split_address(peer)[0], port) for peer in peers)
        if len(set(clients)) != len(clients):
            raise ConfigError(
                "[controller] client_addrs: several of peers are on one host, so say where clients reach each"
                " of them, in the order of peers"
            )
    group = tuple(
        GroupMember(at, peer, member_name(at), client)
        for at, (peer, client) in enumerate(zip(peers, clients, strict=True), 1)
    )
    return section.node_id or _own_position(peers, hostname), group


def _own_position(peers: tuple[str, ...], hostname: str) -> int:
    hosts = [split_address(peer)[0].lower().rstrip(".") for peer in peers]
    own = hostname.lower().rstrip(".")
    found = [at for at, host in enumerate(hosts, 1) if host == own]
    if not found:
        # One of the two may be written without its domain, but two domains never mean the same host.
        short = own.partition(".")[0]
        found = [
            at
            for at, host in enumerate(hosts, 1)
            if host.partition(".")[0] == short and (host == short or own == short)
        ]
    if len(found) == 1:
        return found[0]
    why = "is not in" if not found else "is more than once in"
    raise ConfigError(
        f"[controller] peers: this host, {hostname}, {why} {', '.join(peers)};"
        f" set [controller] node_id to the position of this controller, 1 to {len(peers)}"
    )


def tls_dir(config: Config, state_dir: Path) -> Path:
    """Where this member's certificate and key are."""
    chosen = config.controller.raft_tls_dir
    return Path(chosen) if chosen else state_dir / "tls"


def warnings(config: Config) -> list[str]:
    """What works, but not as well as its owner may think; one line each."""
    count = len(config.controller.peers)
    if count in (2, 4):
        return [
            f"[controller] peers: {count} controllers bear the loss of no more of them than"
            f" {count - 1} would; name {count + 1} or {count - 1}"
        ]
    return []

"""Which directory a tool works on, and whose it is by the configuration."""

import os
import socket
from pathlib import Path
from typing import NamedTuple

from spur_core.config import group
from spur_core.config.model import Config
from spur_core.errors import StateError
from spur_ctld import options
from spur_ctld.replication import certs
from spur_ctld.replication.meta import Member


class Place(NamedTuple):
    """A member's directory.

    Attributes:
        config: with what the command line overrides.
        member_id: of this member.
        members: the whole group.
    """

    config: Config
    state_dir: Path
    member_id: int
    members: tuple[Member, ...]

    @property
    def alone(self) -> bool:
        """Whether the group has one member: then there are no certificates."""
        return len(self.members) == 1

    def cluster_id(self) -> str | None:
        """What the group's CA says; None for a group of one.

        Raises:
            StateError: the CA cannot be read.
        """
        if self.alone:
            return None
        return certs.cluster_id(group.tls_dir(self.config, self.state_dir) / certs.CA_CERT)

    def require_own(self) -> None:
        """What root leaves in another user's directory, that user's `spurctld` could not open.

        Raises:
            StateError: the directory is another user's.
        """
        for path in (self.state_dir, self.state_dir / "raft"):
            if path.exists() and (uid := path.stat().st_uid) not in (0, os.geteuid()):
                raise StateError(f"{path}: belongs to uid {uid}; run this as the user that runs spurctld")


def state_dir_of(config: Config, given: Path | None) -> Path:
    """`--state-dir`, else what the configuration says."""
    return given or Path(config.controller.state_dir)


def find(config_path: Path | None, state_dir: Path | None, node_id: int | None) -> Place:
    """From the command line and the configuration file.

    Raises:
        ConfigError, UsageError: the file, or this member's place in it.
    """
    config = options.in_group(options.read_config(config_path), None, node_id)
    own, found = group.members(config, socket.gethostname())
    members = tuple(Member(*one) for one in found)
    return Place(config, state_dir_of(config, state_dir), own, members)

"""What the agent itself has to remember about a session it launched: key `agent` of `launch.json`.

Supervisors pass over keys they do not know.  It holds the digest of the controller's exact request, so that
a repeated launch is recognised after a restart, and the exact holding, so that the allocation table can be
rebuilt.
"""

from __future__ import annotations

import json

from spur_agent.allocation import Grant, GresGrant
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.launch_spec import LaunchSpec
from spur_proto_lite.record import Record, nests

KEY = "agent"


class HeldGres(Record):
    """Indices of one countable resource."""

    name: str
    type: str = ""
    indices: tuple[int, ...] = ()


nests(HeldGres)


class Claim(Record):
    """One session as the agent knows it."""

    version: int = 1
    #: Lower-case hex SHA-256 of the wire launch spec.
    wire_sha256: str
    cpu_ids: tuple[int, ...] = ()
    memory_mb: int = 0
    gres: tuple[HeldGres, ...] = ()
    #: Output of this step is read through the agent, so it is kept until somebody has read it.
    spooled: bool = False

    @property
    def grant(self) -> Grant:
        """The holding as the allocation table keeps it."""
        return Grant(
            self.cpu_ids, self.memory_mb, tuple(GresGrant(g.name, g.type, g.indices) for g in self.gres)
        )

    def encode_with(self, spec: LaunchSpec) -> bytes:
        """The text of `launch.json` with this claim in it."""
        return json.dumps({**spec.to_json(), KEY: self.to_json()}, separators=(",", ":")).encode()


def make(wire_sha256: str, grant: Grant, spooled: bool) -> Claim:
    """The claim for a launch with that request and that holding."""
    return Claim(
        wire_sha256=wire_sha256,
        cpu_ids=grant.cpu_ids,
        memory_mb=grant.memory_mb,
        gres=tuple(HeldGres(name=g.name, type=g.type, indices=g.indices) for g in grant.gres),
        spooled=spooled,
    )


def decode(data: bytes) -> Claim:
    """The claim in the text of `launch.json`.

    Raises:
        BadDocument: damaged, or without one.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"launch.json: not JSON: {error}") from None
    return Claim.from_json(document.get(KEY) if isinstance(document, dict) else None)


def from_descriptor(found: Descriptor) -> Claim:
    """What can still be known when it is gone; the digest then matches no repeated launch."""
    gpus = (HeldGres(name="gpu", indices=found.gpu_ids),) if found.gpu_ids else ()
    return Claim(wire_sha256="", cpu_ids=found.cpu_ids, memory_mb=found.memory_mb, gres=gpus)

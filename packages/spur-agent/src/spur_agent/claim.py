"""What the agent itself has to remember about a session it launched: key `agent` of `launch.json`.

Supervisors pass over keys they do not know.  It holds the digest of the controller's exact request, so that
a repeated launch is recognised after a restart, and what exactly the step uses, so that the allocation
table can be rebuilt and later steps keep off it.
"""

from __future__ import annotations

import json

from spur_agent.allocation import Grant, GresGrant
from spur_core.ids import STEP_BATCH, STEP_EXTERN
from spur_proto import agent_pb2
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
    #: Of the job's user; None in what the release before wrote.
    gid: int | None = None
    #: The attempt lives here as long as this step.  The release before had no other steps.
    job_lifetime: bool = True
    #: It has the CPUs above for itself / it takes neither CPUs nor devices away from other steps.
    exact: bool = False
    overlap: bool = False
    #: Its supervisor runs an epilog at the end.
    epilog: bool = False
    #: The layer of shared CPUs that its CPUs are of; 0 = nobody shares them.
    layer: int = 0

    @property
    def grant(self) -> Grant:
        """The holding as the allocation table keeps it."""
        return Grant(
            self.cpu_ids,
            self.memory_mb,
            tuple(GresGrant(g.name, g.type, g.indices) for g in self.gres),
            self.layer,
        )

    def encode_with(self, spec: LaunchSpec) -> bytes:
        """The text of `launch.json` with this claim in it."""
        return json.dumps({**spec.to_json(), KEY: self.to_json()}, separators=(",", ":")).encode()


def make(wire_sha256: str, grant: Grant, wire: agent_pb2.LaunchSpec, epilog: bool) -> Claim:
    """The claim for a launch with that request, of a step that uses that much.

    Args:
        epilog: its supervisor runs one at the end.
    """
    return Claim(
        wire_sha256=wire_sha256,
        cpu_ids=grant.cpu_ids,
        memory_mb=grant.memory_mb,
        gres=tuple(HeldGres(name=g.name, type=g.type, indices=g.indices) for g in grant.gres),
        spooled=wire.spool_output,
        gid=wire.gid,
        job_lifetime=wire.job_lifetime,
        exact=wire.exact,
        overlap=wire.overlap,
        epilog=epilog,
        layer=grant.layer,
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
    return Claim(
        wire_sha256="",
        cpu_ids=found.cpu_ids,
        memory_mb=found.memory_mb,
        gres=gpus,
        gid=found.gid,
        job_lifetime=found.rid.step_id in (STEP_BATCH, STEP_EXTERN),
    )

"""Reading what a supervisor is to do."""

from __future__ import annotations

import os

from spur_core.ids import is_step
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.launch_spec import LaunchSpec
from spur_proto_lite.paths import SessionPaths


def read(directory: int, expected: SessionPaths) -> tuple[LaunchSpec, bytes]:
    """The launch spec of a session and its bytes.

    Raises:
        BadDocument: damaged, or of another identity than the directory's name, or of no kind of step.
        OSError: it cannot be read.
    """
    fd = os.open(SessionPaths.LAUNCH, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=directory)
    try:
        data = os.read(fd, os.fstat(fd).st_size + 1)
    finally:
        os.close(fd)
    spec = LaunchSpec.decode(data)
    if spec.rid != expected.rid_or_none:
        raise BadDocument(f"launch.json names {spec.rid}, its directory {expected.dir}")
    if not is_step(spec.rid.step_id):
        raise BadDocument(f"{spec.rid}: there is no step of that number")
    return spec, data

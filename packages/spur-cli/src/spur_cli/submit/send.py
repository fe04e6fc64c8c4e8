"""Sending a job to the controller: retried under one request id, so that a job is queued once."""

import os
import time
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context
from spur_cli.transport import Transport

if TYPE_CHECKING:
    from spur_proto import common_pb2, controller_pb2

RETRIES = 15
#: Seconds between attempts: growing, and never long, because the caller waits at a prompt.
FIRST_PAUSE, LAST_PAUSE = 0.1, 4.0


def submit(
    ctx: Context, transport: Transport, spec: "common_pb2.JobSpec", *, test_only: bool = False
) -> "controller_pb2.SubmitJobResponse":
    """The controller's answer.

    Raises:
        CallFailed: refused, or no controller could be reached at first, or none answered within 15 attempts.
    """
    from spur_proto import controller_pb2

    request = controller_pb2.SubmitJobRequest(spec=spec, request_id=os.urandom(16).hex(), test_only=test_only)
    pause = FIRST_PAUSE
    told = connected = False
    for attempt in range(RETRIES + 1):
        try:
            return transport.call("SubmitJob", request, controller_pb2.SubmitJobResponse)
        except CallFailed as failure:
            connected = connected or failure.reached or failure.lost
            # Nobody was ever there: no use in waiting, and scripts expect the failure at once.
            if not failure.busy or not connected or failure.final or attempt == RETRIES:
                raise
            if not told:
                ctx.error("Slurm temporarily unable to accept job, sleeping and retrying")
                told = True
        time.sleep(pause)
        pause = min(pause * 2, LAST_PAUSE)
    raise AssertionError("the loop ends by returning or raising")

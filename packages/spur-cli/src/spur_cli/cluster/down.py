"""`spur down`: end the jobs of a one-machine cluster and stop its daemons."""

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.cluster import home, processes
from spur_cli.cluster.home import Cluster
from spur_cli.context import Context
from spur_cli.keys import own_options
from spur_cli.options.engine import REQUIRED, Option, Table
from spur_core.errors import RequestError

if TYPE_CHECKING:
    from spur_cli.transport import Transport

#: Longer than the time from SIGTERM to SIGKILL of a job.
JOBS_SECS = 45.0
_POLL_SECS = 0.05


def table() -> Table:
    """The options of `spur down`."""
    return Table(
        [
            Option("dir", "d", REQUIRED, "folder of the cluster", metavar="DIR", raw=True),
            Option("purge", "", help="remove the folder too, history included"),
            Option("help", "h", help="print this text and exit"),
        ]
    )


def run(ctx: Context) -> int:
    """The command."""
    words = own_options(ctx, table())
    if words is None:
        return 0
    if words.operands:
        raise ctx.stop(f"unexpected word {words.operands[0]}")
    try:
        root = home.chosen_root(ctx, words.get("dir"))
        cluster = home.load(root)
        if cluster is None:
            raise RequestError(f"no cluster in {root}")
        with home.locked(cluster):
            take_down(ctx, cluster, purge=words.has("purge"))
    except RequestError as error:
        raise ctx.stop(error.text) from None
    return 0


def take_down(ctx: Context, cluster: Cluster, *, purge: bool) -> None:
    """End all jobs, stop all daemons, remove the folder with `purge`.

    Daemons that were killed are started once more when work may be left: only they can end it in good order.

    Raises:
        RequestError: jobs did not end; the daemons are stopped all the same.
    """
    problem = ""
    if _work_may_be_left(cluster):
        try:
            _revive(cluster)
            _end_jobs(ctx, cluster)
        except (RequestError, CallFailed) as error:
            problem = error.text
    for name in reversed(cluster.daemons):
        if name not in cluster.controllers:
            processes.stop(cluster, name)
    processes.stop_together(cluster, cluster.controllers)
    _end_strays(cluster)
    for name in cluster.daemons:
        for ending in ("pid", "ready"):
            (cluster.root / "run" / f"{name}.{ending}").unlink(missing_ok=True)
    if purge:
        try:
            shutil.rmtree(cluster.root)
        except OSError as error:
            raise RequestError(f"{error.filename}: {error.strerror}") from None
    if problem:
        raise RequestError(f"stopped, but not all jobs could be ended in good order: {problem}")


def _work_may_be_left(cluster: Cluster) -> bool:
    """Whether it was not taken down before: only that removes the pid files.

    Supervisors of killed agents cannot be told from others by their command lines, so their absence proves
    nothing.
    """
    return any((cluster.root / "run" / f"{name}.pid").exists() for name in cluster.daemons)


def _revive(cluster: Cluster) -> None:
    missing = [name for name in cluster.daemons if processes.pid_of(cluster, name) is None]
    controllers = [name for name in missing if name in cluster.controllers]
    processes.start_together(cluster, controllers)
    for name in missing[len(controllers) :]:
        processes.start(cluster, name)


def _end_jobs(ctx: Context, cluster: Cluster) -> None:
    """Cancel every live job and wait until none is left.

    Raises:
        RequestError: some do not end in time.
        CallFailed: the controller does not answer.
    """
    from spur_cli.cluster.client import connect
    from spur_proto import controller_pb2 as pb

    transport = connect(ctx, cluster)
    deadline = time.monotonic() + JOBS_SECS
    cancelled: set[int] = set()
    while True:
        live = _live(transport)
        if not live:
            return
        fresh = [job_id for job_id in live if job_id not in cancelled]
        if fresh:
            request = pb.CancelJobRequest(targets=[pb.JobTarget(job_id=job_id) for job_id in fresh])
            transport.call("CancelJob", request, pb.CancelJobResponse)
            cancelled.update(fresh)
        if time.monotonic() > deadline:
            raise RequestError(f"jobs {', '.join(map(str, live))} did not end within {JOBS_SECS:g} s")
        time.sleep(_POLL_SECS)


def _live(transport: "Transport") -> list[int]:
    from spur_cli.queue import select

    return [job.job_id for job in select.fetch(transport, states=select.LIVE_STATES)]


def _end_strays(cluster: Cluster) -> None:
    """What is left without a daemon, should there be any; a spawner ends soon after its agent."""
    deadline = time.monotonic() + 2.0
    while processes.strays(cluster) and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
    for pid in processes.strays(cluster):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue

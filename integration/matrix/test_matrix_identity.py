"""Rows 12, 13 and 26: pids of another boot, pids of strangers, orders for another attempt."""

import contextlib
import os
import signal
import subprocess
from typing import Any

import pytest
from matrix_kit import BATCH, Held, Wire, edit_descriptor
from testkit.crash_cluster import alive

pytestmark = pytest.mark.node
AGENT = "spurd-node1"


def test_row_12_the_node_was_rebooted(crash: Any) -> None:
    """Another boot id: nothing found is trusted, nothing is killed, the job runs again."""
    cluster = crash(nodes=1)
    held = Held(cluster).runs()
    shell, supervisor = held.shell(), cluster.supervisor_of(held.job)
    cluster.kill(AGENT)
    edit_descriptor(held.session(), lambda d: d.update(boot_id="00000000-0000-0000-0000-000000000000"))
    try:
        cluster.start(AGENT, wait=True)
        held.runs(2)
        assert alive(shell), "a pid of another boot was signalled"
        assert alive(supervisor), "a pid of another boot was signalled"
    finally:
        for pid in (supervisor, shell):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    # A real reboot leaves no groups; here the run of "before" has left its own, which nobody trusts either.
    cluster.until(lambda: not alive(supervisor) and not alive(shell), "the stage is cleared")
    for path in sorted(cluster.groups_below(f"job_{held.job}.1"), reverse=True):
        path.rmdir()
    held.ends_well(["0", "1"])


def test_row_13_a_pid_was_used_again(crash: Any) -> None:
    """The number is a stranger's now: he gets no signal, the supervisor counts as dead."""
    cluster = crash(nodes=1)
    held = Held(cluster).runs()
    supervisor = cluster.supervisor_of(held.job)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            cluster.kill(AGENT)
            os.kill(supervisor, signal.SIGKILL)
            edit_descriptor(held.session(), lambda d: d.update(stepd_pid=stranger.pid))
            cluster.start(AGENT, wait=True)
            held.runs(2)
            assert stranger.poll() is None
            held.ends_well(["0", "1"])
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("how", ["end", "graceful", "signal", "step"])
def test_row_26_a_late_cancel_of_an_older_attempt(crash: Any, how: str) -> None:
    """It names attempt 1; attempt 2 runs and is not touched."""
    cluster = crash(nodes=1)
    held = Held(cluster).runs()
    held.again().runs(2)
    shell, job = held.shell(), int(held.job)
    wire = Wire(cluster)
    late: dict[str, Any] = {
        "end": {"grace_secs": 0, "reason": "cancelled"},
        "graceful": {"grace_secs": 1, "reason": "cancelled"},
        "signal": {"signal": 15},
        "step": {"grace_secs": 0, "reason": "cancelled"},
    }[how]
    answer = wire.cancel((job, 1, BATCH if how == "step" else None), **late)
    assert not answer.active
    # The delayed kill of a graceful end would have come by then.
    again = wire.cancel((job, 1, None), grace_secs=0, reason="cancelled")
    assert not again.active
    assert alive(shell)
    assert held.state() == "RUNNING"
    held.ends_well(["0", "1"])


def test_row_26_an_order_without_an_attempt_is_refused(crash: Any) -> None:
    import grpc

    cluster = crash(nodes=1)
    held = Held(cluster).runs()
    with pytest.raises(grpc.RpcError, match="attempt"):
        Wire(cluster).cancel((int(held.job), 0, None), grace_secs=0)
    assert alive(held.shell())
    held.ends_well(["0"])

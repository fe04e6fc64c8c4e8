"""Steps of every kind, those without a task included."""

import signal

import pytest

from spur_core.ids import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE
from spur_core.linux import cgroup
from spur_proto_lite.descriptor import Descriptor

pytestmark = pytest.mark.node


@pytest.mark.parametrize("step_id", [STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE, 0, 7])
def test_every_kind_of_step_runs(node, step_id):
    _, ended = node.run(node.spec(step_id=step_id, argv=("sh", "-c", "exit 3")))
    assert (ended.code, ended.signal, len(ended.tasks)) == (3, 0, 1)


@pytest.mark.parametrize("step_id", [STEP_BATCH, STEP_EXTERN, 0])
@pytest.mark.parametrize("grace", [None, 0.0])
def test_a_held_step_runs_from_start_to_teardown(node, step_id, grace):
    """D2: started with no task, code 0 at the end, acknowledged as any other."""
    session = node.spawn(node.spec(step_id=step_id, hold=True, kill_wait_secs=30))
    reply = session.start()
    assert (reply.failure_kind, reply.task_pid, reply.task_pids, reply.pgid) == ("", None, (), None)
    client = session.client()
    assert (client.query().state, client.query().pids) == ("running", 0)
    assert client.start() == reply
    assert session.events() == ["Prepared", "Started"]
    with open(session.paths.descriptor, "rb") as file:
        found = Descriptor.decode(file.read(), session.spec.rid)
    assert (found.task_pid, found.pgid, found.cgroup) == (None, None, reply.cgroup)
    assert client.signal(signal.SIGUSR1).count == 0  # nobody there, and nothing ends by it
    assert client.query().state == "running"
    client.teardown("cancelled", grace)
    ended = session.wait()
    assert (ended.exit.code, ended.exit.signal, ended.exit.tasks) == (0, 0, ())
    assert ended.exit.teardown_reason == "cancelled"
    session.cleaned()
    session.ack(ended.exit_seq)
    assert not any(cgroup.procs((directory,)) for directory in reply.cgroup)
    assert "Traceback" not in session.log()


def test_a_held_step_that_never_started_is_given_up(fast_node):
    session = fast_node.spawn(fast_node.spec(step_id=STEP_EXTERN, hold=True, start_timeout_secs=0.05))
    session.gone()
    assert session.events() == ["Prepared", "Abandoned"]

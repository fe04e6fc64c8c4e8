"""What the machine decides after an exit: other steps of the job, the node's epilog, epilogs of tasks."""

import signal

import pytest

from spur_proto_lite import notify
from spur_stepd import machine as m

TERM, CONT = m.Deliver(signal.SIGTERM), m.Deliver(signal.SIGCONT)


def names(actions):
    return [type(action).__name__ for action in actions]


def ending(epilog=True):
    """A job-lifetime step that is cleaned up; its other steps are being ended."""
    machine = m.Machine((0,), 60.0, 5.0, job_lifetime=True, has_epilog=epilog)
    machine.ready(0.0)
    machine.start()
    machine.tasks_ready()
    machine.start_recorded()
    machine.execed()
    machine.task_ended(0)
    machine.exit_written(3, 100.0)
    machine.leftovers(0, 100.0)
    assert machine.cleaned(100.0) == [m.EndOthers()]
    return machine


def test_the_end_of_a_job_without_an_epilog():
    machine = ending(epilog=False)
    assert machine.ack(3, "agent") == [m.Acknowledge("agent")]
    assert machine.ack_written() == []  # the other steps first
    assert machine.others_ended() == [m.Quit(0)]


def test_the_end_of_a_job_with_an_epilog():
    machine = ending()
    assert machine.others_ended() == [m.RunEpilog()]
    assert machine.pushed(notify.ACCEPTED, 101.0) == []  # of the exit
    assert machine.epilog_ended() == [m.WriteEpilog()]
    assert machine.epilog_not_written(102.0) == []
    assert machine.tick(103.0) == [m.WriteEpilog()]
    assert machine.epilog_written() == [m.Push()]
    assert machine.pushed(notify.ACCEPTED, 104.0) == []
    machine.ack(3, "agent")
    assert machine.ack_written() == [m.Quit(0)]


@pytest.mark.parametrize("how", ["push", "query", "known", "superseded"])
def test_an_ack_during_the_epilog_is_written_but_ends_nothing(how):
    """The supervisor leaves when the epilog has ended and somebody knows how, not before."""
    machine = ending()
    machine.others_ended()
    assert machine.ack(3, "agent") == [m.Acknowledge("agent")]
    assert machine.ack_written() == []
    assert machine.epilog_told() == []  # there is nothing to tell yet
    assert machine.session_checked(False, 130.0) == []  # an epilog that runs is not left alone
    machine.epilog_ended()
    assert machine.epilog_written() == [m.Push()]
    assert machine.pushed(None, 140.0) == []
    assert machine.tick(141.0) == [m.Push()]
    if how == "query":
        assert machine.epilog_told() == [m.Quit(0)]
    else:
        answer = {"push": notify.ACCEPTED, "known": notify.KNOWN, "superseded": notify.SUPERSEDED}[how]
        assert machine.pushed(answer, 141.0) == [m.Quit(0)]


def test_an_ack_after_the_epilog_waits_until_somebody_knows_its_result():
    machine = ending()
    machine.others_ended()
    machine.epilog_ended()
    machine.epilog_written()
    machine.ack(3, "agent")
    assert machine.ack_written() == []
    assert machine.pushed(notify.DEFERRED, 101.0) == []
    assert m.Push() in machine.tick(102.0)
    assert machine.pushed(notify.ACCEPTED, 102.0) == [m.Quit(0)]


def test_an_epilog_result_in_a_deleted_session_is_owed_to_nobody():
    machine = ending()
    machine.others_ended()
    machine.epilog_ended()
    machine.epilog_written()
    assert machine.session_checked(False, 130.0) == [m.Quit(0)]


def with_task_epilogs(ranks=(0,)):
    machine = m.Machine(ranks, 60.0, 5.0, task_epilog=True)
    machine.ready(0.0)
    machine.start()
    machine.tasks_ready()
    machine.start_recorded()
    machine.execed()
    return machine


def test_start_does_not_wait_for_what_runs_before_the_programs():
    machine = m.Machine((0,), 60.0, 5.0, slow_exec=True)
    machine.ready(0.0)
    machine.start()
    machine.tasks_ready()
    assert machine.start_recorded() == [m.OpenGate(), m.AnswerStart()]


def test_the_exit_does_not_wait_for_task_epilogs_but_the_cleanup_does():
    machine = with_task_epilogs((4, 7))
    assert machine.task_ended(7) == [m.RunTaskEpilog(7)]
    assert machine.task_epilog_ended(7, 100.0) == []
    assert machine.task_ended(4) == [m.RunTaskEpilog(4), m.ObserveExit()]
    assert names(machine.exit_written(3, 101.0)) == ["AnswerWaits", "Push"]
    machine.ack(3, "agent")
    assert machine.ack_written() == []
    assert machine.task_epilog_ended(4, 700.0) == [m.KillLeftovers()]
    assert machine.task_epilog_ended(4, 700.0) == []
    assert machine.leftovers(1, 701.0) == []  # patience counts from here
    assert machine.leftovers(0, 702.0) == [m.Cleanup(0)]
    assert machine.cleaned(702.0) == [m.Quit(0)]


def test_task_epilogs_that_end_before_the_exit_is_written():
    machine = with_task_epilogs()
    machine.task_ended(0)
    assert machine.task_epilog_ended(0, 100.0) == []
    assert names(machine.exit_written(3, 101.0)) == ["AnswerWaits", "Push", "KillLeftovers"]


def test_a_teardown_ends_task_epilogs_that_go_on_too_long():
    machine = with_task_epilogs()
    machine.task_ended(0)
    machine.exit_written(3, 100.0)
    assert machine.teardown("cancelled", "agent", 2.0, 101.0) == []
    assert machine.next_deadline() == 103.0
    assert machine.tick(103.0) == [m.KillLeftovers()]
    assert machine.task_epilog_ended(0, 103.1) == []
    assert machine.leftovers(0, 104.0) == [m.Cleanup(0)]


def test_the_kill_of_a_teardown_goes_on_for_task_epilogs():
    machine = with_task_epilogs()
    machine.teardown("cancelled", "agent", 2.0, 99.0)
    assert machine.task_ended(0) == [m.RunTaskEpilog(0), m.ObserveExit()]
    machine.exit_written(3, 100.0)
    assert machine.tick(101.0) == [m.KillLeftovers()]
    assert machine.next_deadline() is None

"""The decisions, as tables and as stories: no process, no clock, no disk."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import IllegalTransition
from spur_proto_lite import notify
from spur_stepd import machine as m

TERM, CONT = m.Deliver(signal.SIGTERM), m.Deliver(signal.SIGCONT)
GIVEN_UP = [m.Cleanup(0), m.Quit(3)]


def made(ranks=(0,), grace=5.0):
    return m.Machine(ranks, start_timeout=60.0, grace=grace)


def running(ranks=(0,), grace=5.0):
    machine = made(ranks, grace)
    machine.ready(0.0)
    machine.start()
    machine.tasks_ready()
    machine.start_recorded()
    machine.execed()
    return machine


def suspended():
    machine = running()
    machine.suspend()
    return machine


def exiting():
    machine = running()
    machine.task_ended(0)
    return machine


def written():
    machine = exiting()
    machine.exit_written(3, 100.0)
    return machine


def exited():
    machine = written()
    machine.leftovers(0, 100.0)
    machine.cleaned(100.0)
    return machine


def names(actions):
    return [type(action).__name__ for action in actions]


def test_the_table_is_closed():
    """Every next state is a state, and the last ones lead nowhere."""
    assert {nxt for row in m.TRANSITIONS.values() for nxt in row.values()} <= set(m.TRANSITIONS)
    assert [state for state, row in m.TRANSITIONS.items() if not row] == [
        m.ACKNOWLEDGED,
        m.FAILED,
        m.ABANDONED,
    ]


def test_the_way_through():
    machine = made()
    assert machine.ready(10.0) == []
    assert machine.next_deadline() == 70.0
    assert machine.start() == [m.Launch()]
    assert machine.next_deadline() is None
    assert machine.start() == []  # while it starts: answered with the others
    assert machine.tasks_ready() == [m.RecordStart()]
    assert machine.start_recorded() == [m.OpenGate()]
    assert machine.execed() == [m.AnswerStart()]
    assert machine.start() == [m.AnswerStart()]
    assert machine.task_ended(0) == [m.ObserveExit()]
    assert machine.exit_written(3, 100.0) == [m.AnswerWaits(), m.Push(), m.KillLeftovers()]
    assert machine.leftovers(0, 100.0) == [m.Cleanup(0)]
    assert machine.cleaned(100.0) == []
    assert machine.pushed(notify.ACCEPTED, 101.0) == []
    assert machine.ack(3, "agent") == [m.Acknowledge("agent")]
    assert machine.ack_written() == [m.Quit(0)]
    assert machine.state == m.ACKNOWLEDGED
    assert machine.ack(3, "agent") == []


@pytest.mark.parametrize(
    ("machine", "act"),
    [
        (made, lambda x: x.start()),
        (made, lambda x: x.suspend()),
        (suspended, lambda x: x.start_recorded()),
        (exiting, lambda x: x.suspend()),
        (exiting, lambda x: x.resume()),
        (exiting, lambda x: x.before_signal(15)),
        (exited, lambda x: x.before_signal(9)),
        (running, lambda x: x.ack(0, "")),
        (exiting, lambda x: x.ack(0, "")),
        (exited, lambda x: x.ack(2, "")),
        (running, lambda x: x.cleaned(0.0)),
        (running, lambda x: x.start_failed()),
        (running, lambda x: x.ready(0.0)),
    ],
)
def test_what_makes_no_sense_changes_nothing(machine, act):
    machine = machine()
    before = dict(vars(machine), _deadlines=dict(machine._deadlines))
    with pytest.raises(IllegalTransition):
        act(machine)
    assert vars(machine) == before


def test_start_that_does_not_come():
    machine = made()
    machine.ready(10.0)
    assert machine.tick(69.9) == []
    assert names(machine.tick(70.0)) == ["Record", "Cleanup", "Quit"]
    assert machine.state == m.ABANDONED
    with pytest.raises(IllegalTransition):
        machine.start()


@pytest.mark.parametrize("recorded", [False, True])
def test_start_that_fails_leaves_nothing_owed(recorded):
    machine = made()
    machine.ready(0.0)
    machine.start()
    if recorded:
        machine.tasks_ready()
    assert names(machine.start_failed()) == ["AbortTasks", "AnswerStart", "Record", "Cleanup", "Quit"]
    assert machine.state == m.FAILED
    assert machine.tasks_ready() == []


def test_the_step_ends_with_its_last_task():
    machine = running(ranks=(4, 7))
    assert machine.task_ended(7) == []
    assert machine.task_ended(7) == []
    assert machine.task_ended(4) == [m.ObserveExit()]
    assert machine.task_ended(4) == []


def test_nothing_is_told_or_removed_before_the_exit_is_on_the_disk():
    """Row 20: told once as not durable, tried again each second, never given up."""
    machine = exiting()
    assert machine.exit_not_written(10.0) == [m.Push()]
    assert machine.pushed(notify.KNOWN, 10.0) == []  # not durable: the disk comes first
    for at in (11.0, 12.0, 13.0):
        assert machine.tick(at) == [m.ObserveExit()]
        assert machine.exit_not_written(at) == []
    assert machine.state == m.EXITING
    assert names(machine.exit_written(4, 14.0)) == ["AnswerWaits", "Push", "KillLeftovers"]


def test_leftovers_are_looked_for_until_they_are_gone_or_ten_seconds_are_over():
    machine = written()
    now, rounds = 100.0, 0
    while not (actions := machine.leftovers(2, now)):
        now = machine.next_deadline()
        assert machine.tick(now) == [m.KillLeftovers()]
        rounds += 1
    assert actions == [m.Cleanup(2)]
    assert 110.0 <= now < 110.3
    assert rounds < 70


@pytest.mark.parametrize("answer", [None, notify.DEFERRED])
def test_the_push_is_repeated_with_growing_pauses_for_ever(answer):
    machine = exited()
    machine.tick(200.0)  # the look for the session, which is another matter
    now, pauses = 200.0, []
    for _ in range(8):
        assert machine.pushed(answer, now) == []
        pauses.append(machine.next_deadline() - now)
        now = machine.next_deadline()
        assert machine.tick(now) == [m.Push()]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@pytest.mark.parametrize("answer", [notify.ACCEPTED, notify.SUPERSEDED])
def test_taken_is_not_acknowledged(answer):
    machine = exited()
    assert machine.pushed(answer, 200.0) == []
    assert machine.tick(1000.0) == [m.CheckSession()]
    assert machine.state == m.EXITED


def test_known_is_acknowledged():
    machine = exited()
    assert names(machine.pushed(notify.KNOWN, 200.0)) == ["Acknowledge"]
    assert machine.ack_written() == [m.Quit(0)]


def test_an_acknowledgement_that_the_disk_refuses_does_not_count():
    machine = exited()
    machine.ack(3, "agent")
    assert machine.ack_not_written(200.0) == []
    assert machine.state == m.EXITED
    assert m.Push() in machine.tick(201.0)
    assert machine.ack(3, "agent") == [m.Acknowledge("agent")]
    assert machine.ack_written() == [m.Quit(0)]


def test_an_early_ack_waits_for_the_cleanup():
    machine = written()
    assert names(machine.ack(3, "agent")) == ["Acknowledge"]
    assert machine.ack_written() == []
    assert machine.pushed(None, 101.0) == []  # nobody needs to hear it any more
    machine.leftovers(0, 101.0)
    assert machine.cleaned(100.0) == [m.Quit(0)]


def test_teardown():
    machine = running()
    first = machine.teardown("timeout", "agent", None, 10.0)
    assert first == [
        m.Record("TeardownRequested", {"reason": "timeout", "requester": "agent"}),
        m.LastWords("timeout"),
        TERM,
        CONT,
    ]
    assert machine.next_deadline() == 15.0
    assert machine.teardown("cancelled", "agent", 30.0, 11.0) == []  # longer: no effect
    assert machine.next_deadline() == 15.0
    assert machine.teardown("cancelled", "agent", 1.0, 11.0) == []  # shorter: sooner
    assert machine.next_deadline() == 12.0
    assert machine.teardown_reason == "timeout"
    assert machine.tick(12.0) == [m.KillAll()]
    assert machine.tick(13.0) == [m.KillAll()]  # as long as it lives
    assert machine.task_ended(0) == [m.ObserveExit()]
    assert machine.next_deadline() is None


def test_teardown_without_grace_kills_at_once():
    machine = running()
    assert names(machine.teardown("", "agent", 0.0, 10.0)) == ["Record", "LastWords"]
    assert machine.tick(10.0) == [m.KillAll()]
    assert machine.teardown_reason == "teardown"


@pytest.mark.parametrize(
    ("machine", "actions", "state"),
    [
        (suspended, ["Record", "LastWords", "Thaw", "Deliver", "Deliver"], m.RUNNING),
        (exiting, [], m.EXITING),
        (exited, [], m.EXITED),
    ],
)
def test_teardown_in_other_states(machine, actions, state):
    machine = machine()
    assert names(machine.teardown("cancelled", "agent", None, 10.0)) == actions
    assert machine.state == state


@pytest.mark.parametrize(("started", "state"), [(False, m.ABANDONED), (True, m.FAILED)])
def test_teardown_before_anything_ran(started, state):
    machine = made()
    machine.ready(0.0)
    if started:
        machine.start()
    assert machine.teardown("cancelled", "agent", None, 1.0)[-2:] == GIVEN_UP
    assert machine.state == state


@pytest.mark.parametrize(
    ("number", "thaws"),
    [(signal.SIGTERM, True), (signal.SIGKILL, True), (signal.SIGINT, True), (signal.SIGUSR1, False)],
)
def test_terminating_signals_thaw_first(number, thaws):
    machine = suspended()
    assert machine.before_signal(number) == ([m.Thaw()] if thaws else [])
    assert machine.state == (m.RUNNING if thaws else m.SUSPENDED)


def test_suspend_and_resume_are_idempotent():
    machine = running()
    assert (machine.resume(), machine.suspend(), machine.suspend()) == ([], [m.Freeze()], [])
    assert (machine.resume(), machine.resume()) == ([m.Thaw()], [])


def test_want_of_memory_is_watched_until_the_kill_is_counted():
    machine = running()
    assert machine.memory_short(10.0) == [m.CheckOom()]
    assert machine.oom_checked(0, 10.0) == []
    at = machine.next_deadline()
    assert 10.0 < at < 10.1
    assert machine.tick(at) == [m.CheckOom()]
    assert machine.oom_checked(1, at) == [m.KillAll()]
    assert machine.oom_checked(0, 99.0) == []
    assert machine.next_deadline() is None
    assert exiting().memory_short(10.0) == []


def test_a_deleted_session_is_owed_nothing():
    machine = exited()
    assert machine.tick(130.0) == [m.CheckSession()]
    assert machine.session_checked(True, 130.0) == []
    assert machine.tick(160.0) == [m.CheckSession()]
    assert machine.session_checked(False, 160.0) == [m.Quit(0)]
    assert machine.next_deadline() is None
    assert running().session_checked(False, 1.0) == []


def held(grace=5.0):
    machine = made((), grace)
    machine.ready(0.0)
    machine.start()
    machine.tasks_ready()
    machine.start_recorded()
    return machine


def test_a_step_without_tasks_runs_at_its_start_and_until_it_is_ended():
    machine = made(())
    machine.ready(0.0)
    assert machine.start() == [m.Launch()]
    assert machine.tasks_ready() == [m.RecordStart()]
    assert machine.start_recorded() == [m.OpenGate(), m.AnswerStart()]
    assert machine.start() == [m.AnswerStart()]
    assert machine.state == m.RUNNING
    assert machine.next_deadline() is None  # for ever
    assert names(machine.teardown("cancelled", "agent", 5.0, 10.0)) == [
        *("Record", "LastWords", "Deliver", "Deliver", "CheckHeld"),
    ]
    assert machine.held(0, 10.0) == [m.ObserveExit()]
    assert machine.next_deadline() is None
    assert names(machine.exit_written(3, 10.0)) == ["AnswerWaits", "Push", "KillLeftovers"]
    assert machine.leftovers(0, 10.0) == [m.Cleanup(0)]
    assert machine.cleaned(10.0) == []
    assert names(machine.ack(3, "agent")) == ["Acknowledge"]
    assert machine.ack_written() == [m.Quit(0)]


def test_processes_in_a_step_without_tasks_have_until_the_kill():
    machine = held()
    machine.teardown("cancelled", "agent", 5.0, 10.0)
    now = 10.0
    while not machine.held(2, now):
        now = machine.next_deadline()
        if (actions := machine.tick(now)) != [m.CheckHeld()]:
            break
    assert actions == [m.ObserveExit()]  # what is still there is a leftover
    assert now == 15.0
    assert machine.held(2, 15.1) == []


def test_a_step_without_tasks_and_without_grace_ends_at_once():
    machine = held()
    assert names(machine.teardown("", "agent", 0.0, 10.0)) == ["Record", "LastWords", "CheckHeld"]
    assert machine.tick(10.0) == [m.ObserveExit()]
    assert machine.held(3, 10.0) == []


def test_a_suspended_step_without_tasks_is_thawed_to_end():
    machine = held()
    machine.suspend()
    assert "Thaw" in names(machine.teardown("cancelled", "agent", 5.0, 10.0))
    assert machine.held(0, 10.0) == [m.ObserveExit()]


def test_a_step_at_a_terminal_is_hung_up_as_well():
    """A shell at a terminal ignores SIGTERM; it need not be waited for until the kill."""
    machine = m.Machine((0,), 60.0, 5.0, hangs_up=True)
    machine.ready(0.0)
    machine.start()
    machine.tasks_ready()
    machine.start_recorded()
    machine.execed()
    assert machine.teardown("cancelled", "agent", None, 10.0)[2:] == [TERM, m.Deliver(signal.SIGHUP), CONT]
    assert machine.next_deadline() == 15.0
    assert machine.tick(15.0) == [m.KillAll()]
    assert machine.task_ended(0) == [m.ObserveExit()]


EVENTS = (
    lambda x, t: x.start(),
    lambda x, t: x.tasks_ready() and x.start_recorded(),
    lambda x, t: x.start_failed(),
    lambda x, t: x.teardown("cancelled", "agent", None, t),
    lambda x, t: x.suspend(),
    lambda x, t: x.resume(),
    lambda x, t: x.before_signal(signal.SIGTERM),
    lambda x, t: x.task_ended(0),
    lambda x, t: x.ack(3, "agent"),
    lambda x, t: x.pushed(None, t),
    lambda x, t: x.pushed(notify.KNOWN, t),
    lambda x, t: x.memory_short(t),
    lambda x, t: x.held(1, t),
    lambda x, t: x.epilog_told(),
    lambda x, t: x.task_epilog_ended(0, t),
    lambda x, t: x.tick(t),
)


@given(
    st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0, 40)), max_size=30),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_in_any_order_an_exit_is_written_once_before_it_is_told(
    events, full_disks, holds, job_lifetime, has_epilog, task_epilog
):
    """Whatever comes when: Quit(0) only after the exit was written and acknowledged, removal only after the
    exit was written, and one exit per step."""
    ranks = () if holds else (0,)
    machine = m.Machine(
        ranks, 60.0, 5.0, job_lifetime=job_lifetime, has_epilog=has_epilog, task_epilog=task_epilog
    )
    machine.ready(0.0)
    now, wrote, cleaned, disks = 0.0, 0, False, full_disks
    others, epilogs = 0, 0
    for event, pause in events:
        now += pause
        try:
            queue = list(event(machine, now) or [])
        except IllegalTransition:
            continue
        while queue:
            action = queue.pop(0)
            if isinstance(action, m.ObserveExit):
                if disks:
                    disks -= 1
                    queue[:0] = machine.exit_not_written(now)
                else:
                    wrote += 1
                    queue[:0] = machine.exit_written(3, now)
            elif isinstance(action, m.KillLeftovers):
                queue[:0] = machine.leftovers(0, now)
            elif isinstance(action, m.Cleanup) and machine.state not in (m.FAILED, m.ABANDONED):
                assert wrote == 1
                assert not cleaned
                cleaned = True
                queue[:0] = machine.cleaned(100.0)
            elif isinstance(action, m.Acknowledge):
                assert wrote == 1
                queue[:0] = machine.ack_written()
            elif isinstance(action, m.Quit):
                assert action.code == (0 if wrote else 3)
                assert machine.acknowledged == bool(wrote)
                if wrote:
                    assert others == job_lifetime
                    assert epilogs == (job_lifetime and has_epilog)
            elif isinstance(action, m.CheckHeld):
                queue[:0] = machine.held(0, now)
            elif isinstance(action, m.EndOthers):
                assert cleaned
                others += 1
                queue[:0] = machine.others_ended()
            elif isinstance(action, m.RunEpilog):
                queue[:0] = machine.epilog_ended()
            elif isinstance(action, m.WriteEpilog):
                if disks:
                    disks -= 1
                    queue[:0] = machine.epilog_not_written(now)
                else:
                    epilogs += 1
                    queue[:0] = machine.epilog_written()
            elif isinstance(action, m.AnswerWaits):
                assert wrote == 1
    assert wrote <= 1

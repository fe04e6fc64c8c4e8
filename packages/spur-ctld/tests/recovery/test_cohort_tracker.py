"""The cohort tracker: windows, confirmations, probes, deadlines; each case a short story."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spur_core.ids import RuntimeId
from spur_ctld.recovery.cohorts import PROBE_SECS, Verdict

KEEP, WAIT, FENCE, FORGET, RESTORE = (
    Verdict.KEEP,
    Verdict.WAIT,
    Verdict.FENCE,
    Verdict.FORGET,
    Verdict.RESTORE,
)


def test_a_run_on_one_node_is_kept_at_once(make_world):
    world = make_world(("n1",))
    assert world.live("n1") is KEEP
    assert world.due() == ((), ())


def test_a_run_is_kept_when_every_node_has_reported(world):
    assert [world.live("n1"), world.live("n2"), world.live("n3")] == [WAIT, WAIT, KEEP]
    assert world.live("n1") is KEEP, "a repeat is answered from the decided window"
    assert world.due() == ((), ())


def test_the_silent_are_asked_at_once_and_then_every_five_seconds(world):
    world.live("n1")
    assert [p.node for p in world.due().probes] == ["n2", "n3"]
    assert world.due(1).probes == ()
    assert [p.node for p in world.due(PROBE_SECS - 1).probes] == ["n2", "n3"]
    world.probed("n2", active=True)
    assert [p.node for p in world.due(PROBE_SECS).probes] == ["n3"]
    world.probed("n3", active=True)
    assert world.live("n1") is KEEP


def test_a_node_that_certainly_has_nothing_ends_the_wait(world):
    world.live("n1")
    world.probed("n2", active=False)
    (loss,) = world.due().losses
    assert loss == (world.rid, "n2", "n2 has no supervisor of it", True)
    assert world.live("n1") is FENCE
    assert world.live("n3") is FENCE
    assert world.due() == ((), ())


def test_heartbeats_confirm_healthy_nodes(world):
    world.live("n1")
    world.seen("n2")
    world.seen("n3")
    assert world.live("n1") is KEEP


def test_fresh_lists_spare_the_probes(world):
    assert world.live("n1", fresh=("n2", "n3")) is KEEP
    assert world.due() == ((), ())


def test_an_exit_on_file_needs_no_supervisor(world):
    world.live("n1")
    world.ended("n2")
    world.probed("n2", active=False)
    assert world.due().losses == ()
    world.probed("n3", active=True)
    assert world.live("n1") is KEEP


def test_the_incomplete_cohort_is_given_up_at_the_deadline_not_before(world):
    world.live("n1")
    world.live("n2")
    assert world.due(59.9).losses == ()
    (loss,) = world.due(0.1).losses
    assert loss == (world.rid, "n3", "no word of its supervisor from n3", False)
    assert world.live("n3") is FENCE, "too late"
    assert world.due(100).losses == (), "once"


def test_the_deadline_counts_from_the_first_report(world):
    world.live("n1")
    world.due(50)
    world.live("n2")
    assert world.due(10).losses


def test_an_announced_restart_has_its_own_clock(make_world):
    """Rolling an upgrade over the nodes of a job costs none of them: the window waits for who said so."""
    world = make_world(("n1", "n2"))
    world.excused("n2")
    world.live("n1")
    for _ in range(5):
        assert world.due(50).losses == ()
    # It has registered, and its report is on the way.
    world.excused()
    assert world.due(1).losses == ()
    assert world.live("n2") is KEEP


def test_an_excuse_ends_with_the_restart(make_world):
    world = make_world(("n1", "n2"))
    world.excused("n2")
    world.live("n1")
    world.due(100)
    world.excused()
    assert world.due(59).losses == ()
    assert world.due(1).losses


def test_an_excuse_is_nobody_elses(world):
    world.excused("n2")
    world.live("n1")
    world.due(30)
    (loss,) = world.due(30).losses
    assert (loss.node, loss.why) == ("n3", "no word of its supervisor from n3")


def test_a_lost_supervisor_is_not_waited_for(world):
    world.live("n1")
    assert world.lost("n2") is FENCE
    assert world.lost("n2") is FENCE
    assert len(world.due().losses) == 1


def test_two_losses_are_one(world):
    assert [world.lost("n1"), world.lost("n2")] == [FENCE, FENCE]
    assert len(world.due().losses) == 1


def test_a_loss_after_its_exit_is_none(world):
    world.ended("n2")
    assert world.lost("n2") is FORGET
    assert world.due().losses == ()


def test_a_kept_run_can_be_lost_later(world):
    for node in ("n1", "n2", "n3"):
        world.live(node)
    assert world.lost("n2") is FENCE
    assert len(world.due().losses) == 1


def test_a_node_outside_the_cohort_has_no_say(world):
    assert world.live("n9") is FENCE
    assert world.lost("n9") is FORGET
    world.probed("n9", active=False)
    assert world.due() == ((), ())
    assert not len(world.cohorts)


def test_a_run_that_is_over_meanwhile_leaves_no_window(world):
    world.live("n1")
    world.over()
    assert world.due(1000) == ((), ())
    assert not len(world.cohorts)
    assert world.live("n1") is WAIT
    assert world.lost("n1") is WAIT
    assert world.due() == ((), ())


def test_a_kept_window_is_dropped_after_a_while_and_may_be_opened_again(world):
    for node in ("n1", "n2", "n3"):
        world.live(node)
    world.due(60)
    assert not len(world.cohorts)
    assert world.live("n1") is WAIT


def test_a_late_answer_does_not_contradict_a_report(world):
    world.live("n1")
    world.due()
    world.live("n2")
    world.probed("n2", active=False)
    assert world.due().losses == ()


@pytest.mark.parametrize("then", ["live", "probe", "nothing", "failed", "again"])
def test_an_extern_supervisor_is_restored(make_world, then):
    world = make_world(("n1", "n2"))
    assert world.live("n2") is WAIT
    assert world.lost("n1", restorable=True) is RESTORE
    assert [p.node for p in world.due().probes] == [], "who restores is not asked whether it has it"
    world.seen("n1")
    assert world.live("n2") is WAIT, "a list from before the loss confirms nothing"
    if then == "live":
        assert world.live("n1") is KEEP
    elif then == "probe":
        world.probed("n1", active=True)
        assert world.live("n2") is KEEP
    elif then == "nothing":
        assert world.due(60).losses
    elif then == "failed":
        assert world.lost("n1") is FENCE
        assert world.due().losses
    else:
        assert world.lost("n1", restorable=True) is RESTORE
        assert world.live("n1") is KEEP


def test_a_restored_supervisor_may_be_lost_again(make_world):
    world = make_world(("n1",))
    assert world.live("n1") is KEEP
    assert world.lost("n1", restorable=True) is RESTORE
    assert world.due(60).losses, "and then nobody heard of it"


def test_windows_of_several_runs_do_not_mix(world):
    other = RuntimeId(7, 2, 0)
    world.runs[other] = world.runs[world.rid]._replace(nodes=frozenset({"n1"}))
    assert world.live("n1") is WAIT
    assert world.cohorts.live(other, "n1", world.now) is KEEP
    assert world.cohorts.lost(other, "n1", world.now, "gone") is FENCE
    assert [loss.rid for loss in world.due().losses] == [other]


NODES = ("n1", "n2", "n3")
STEP = st.one_of(
    st.tuples(st.sampled_from(("live", "lost", "seen", "restore", "end")), st.sampled_from(NODES)),
    st.tuples(st.sampled_from(("active", "absent")), st.sampled_from(NODES)),
    st.tuples(st.just("time"), st.sampled_from((0.5, 5.0, 30.0, 61.0))),
    st.tuples(st.just("excuse"), st.sampled_from(("", "n1", "n2"))),
    st.tuples(st.just("requeue"), st.just("")),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_never_both_kept_and_fenced_and_each_loss_is_one_fence(make_world, steps):
    """Over any order of events: between two attempts at most one loss; after it nothing is kept; a run is
    lost only by a node's word, a probe's, or the end of a window."""
    world = make_world(NODES)
    losses = 0
    bad_news = opened = False
    for what, arg in steps:
        verdict = None
        if what == "live":
            verdict = world.live(arg)
            opened = True
        elif what == "lost":
            verdict = world.lost(arg)
            bad_news = bad_news or verdict is FENCE
            opened = True
        elif what == "restore":
            verdict = world.lost(arg, restorable=True)
            assert verdict in (RESTORE, FENCE, FORGET)
            opened = True
        elif what == "seen":
            world.seen(arg)
        elif what == "end":
            world.ended(arg)
        elif what in ("active", "absent"):
            world.probed(arg, active=what == "active")
            bad_news = bad_news or what == "absent"
        elif what == "time":
            world.now += arg
        elif what == "excuse":
            world.excused(*filter(None, [arg]))
        else:
            world.over()
            world.due()
            assert not len(world.cohorts)
            world.rid = world.rid._replace(run_attempt=world.rid.run_attempt + 1)
            world.runs[world.rid] = world.runs.get(world.rid) or _fresh(world)
            losses, bad_news, opened = 0, False, False
            continue
        found = world.due().losses
        losses += len(found)
        assert losses <= 1
        if found:
            assert opened
            assert bad_news or found[0].why.startswith("no word"), found
        if losses:
            assert verdict not in (KEEP, RESTORE) or found, "given up is given up"
            assert world.live("n1") in (FENCE, FORGET)
        # Whatever is open ends by itself.
    if opened:
        world.excused()
        world.due(61)
        final = world.due(61)
        assert final.probes == () or not len(world.cohorts) or losses


def _fresh(world):
    from spur_ctld.recovery.cohorts import Cohort

    return Cohort(frozenset(NODES), frozenset())


@settings(max_examples=200, deadline=None)
@given(st.permutations(NODES), st.sets(st.sampled_from(NODES)))
def test_any_order_of_reports_gives_the_same_decision(make_world, order, silent):
    world = make_world(NODES)
    verdicts = [world.live(node) for node in order if node not in silent]
    world.now += 60
    losses = world.due().losses
    if not silent:
        assert verdicts[-1] is KEEP
        assert not losses
    else:
        assert KEEP not in verdicts
        assert len(losses) == (1 if len(silent) < 3 else 0)

"""Whole groups in bad weather: every seed is one deterministic run, and a failure names its seed."""

import os
import random
from pathlib import Path

import msgspec
import pytest

from spur_ctld.replication.core import Core
from spur_ctld.replication.roles import Role, Timing
from spur_ctld.replication.testing import mutant, mutate, run
from spur_ctld.replication.testing.invariants import Invariants, Violation
from spur_ctld.replication.testing.mutations import MUTATIONS
from spur_ctld.replication.testing.sim import Simulator
from spur_ctld.replication.testing.sweep import run_seed, sweep
from spur_ctld.replication.testing.weather import CALM, RUIN, STORM, Setup, draw
from spur_ctld.replication.types import (
    ORIGIN,
    AnyMessage,
    AppendReply,
    Entry,
    HardState,
    Position,
    Ready,
    VoteReply,
    VoteRequest,
)

TESTED = 250


def test_groups_keep_every_promise() -> None:
    """The short form of `hatch run sim`: always the same seeds, so that a change is to blame."""
    result = sweep(0, TESTED, min(2, os.cpu_count() or 1))
    assert not result.problems, "\n".join(run.failure(outcome) for outcome in result.problems)
    counts = result.totals.counts
    assert result.totals.runs == TESTED
    assert result.totals.files > TESTED // 10
    assert set(result.by_weather) == {"calm", "rain", "storm", "blackout", "split", "ruin"}
    # Everything that can happen did, often.
    assert counts["acknowledged"] > 10_000
    assert counts["refused"] > 1000
    assert counts["reads"] > 1000
    assert counts["forwards"] > 5000
    assert min(counts["elections"], counts["crashes"], counts["installs"]) > 250
    assert min(counts["transfers"], counts["losses"]) > 20


@pytest.mark.parametrize("files", [False, True], ids=["model", "files"])
def test_a_seed_decides_everything(files: bool) -> None:
    setup = Setup(3, "storm", STORM, Timing(1, 5, window=4, append_bytes=200), files, 6000)
    lines: tuple[list[str], list[str]] = ([], [])
    first, second = (Simulator(42, setup, told.append) for told in lines)
    first.run()
    second.run()
    assert lines[0] == lines[1]
    assert first.acknowledged == second.acknowledged > 0
    assert any("has on disk" in line for line in lines[0])


def test_a_run_leaves_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(tmp_path / "run"))
    Simulator(1, Setup(1, "calm", CALM, Timing(), True, 2000)).run()
    assert list(tmp_path.iterdir()) == []


def test_lost_directories_are_filled() -> None:
    """A majority that lost nothing is enough, also when two of five are lost at once."""
    losses = 0
    for seed in range(12):
        size = 3 + 2 * (seed % 2)
        weather = msgspec.structs.replace(RUIN, lose_every=800)
        sim = Simulator(seed, Setup(size, "ruin", weather, Timing(2, 8), False, 16_000))
        sim.run()
        losses += sim.losses
        assert all(host.core is not None and not host.core.abstain for host in sim.hosts.values()), seed
    assert losses > 25


# --- the watch sees faults --------------------------------------------------------------------------------


def leader_of(term: int, *entries: Entry) -> Core:
    core = Core(1, [1], HardState(term, 1), ORIGIN, entries, random.Random(1))
    core.role = Role.LEADER
    return core


def test_the_watch_sees_votes() -> None:
    watch = Invariants()
    watch.sent(VoteReply(1, 2, 5, True, False))
    watch.sent(VoteReply(1, 2, 5, True, False))
    watch.sent(VoteReply(1, 3, 5, True, True))
    with pytest.raises(Violation, match="voted twice in term 5"):
        watch.sent(VoteReply(1, 3, 5, True, False))
    with pytest.raises(Violation, match="voted twice in term 5"):
        watch.sent(VoteRequest(1, 3, 5, ORIGIN))


@pytest.mark.parametrize(
    ("msg", "hard"),
    [
        (VoteReply(1, 2, 5, True, False), HardState(5, 0)),
        (VoteReply(1, 2, 5, True, False), HardState(4, 2)),
        (VoteRequest(1, 2, 5, ORIGIN), HardState(5, 3)),
        (AppendReply(1, 2, 5, True, 1), HardState(5, 2)),
    ],
)
def test_the_watch_sees_promises(msg: AnyMessage, hard: HardState) -> None:
    watch = Invariants()
    member = leader_of(5, Entry(1, 5, b"a"))
    with pytest.raises(Violation, match="promises what its disk does not hold"):
        watch.promised(member, msg, hard, lambda index, term: False)
    watch.promised(member, msg, HardState(6), lambda index, term: True)


def test_the_watch_sees_leaders() -> None:
    watch = Invariants()
    watch.observe(leader_of(3))
    other = leader_of(3)
    other.id = 2
    with pytest.raises(Violation, match="two leaders in term 3"):
        watch.observe(other)
    holder = leader_of(4, Entry(1, 4, b"a"))
    holder.commit = 1
    watch.observe(holder)
    watch.observe(leader_of(2))  # of an older term: it may lack it
    with pytest.raises(Violation, match="lacks committed entry 1"):
        watch.observe(leader_of(5))


def test_the_watch_sees_logs() -> None:
    watch = Invariants(lambda index, term: 1, 2)
    member = leader_of(1, Entry(1, 1, b"a"))
    member.commit = 1
    with pytest.raises(Violation, match="only 1 disks hold it"):
        watch.observe(member)
    other = leader_of(1, Entry(1, 1, b"b"))
    other.id, other.role, other.commit = 2, Role.FOLLOWER, 1
    with pytest.raises(Violation, match="committed another entry 1"):
        watch.observe(other)
    watch.wrote(member, Ready(None, 2, (Entry(2, 1, b"x"),), None, ()))
    with pytest.raises(Violation, match="two different entries 2 of term 1"):
        watch.wrote(member, Ready(None, 2, (Entry(2, 1, b"y"),), None, ()))
    with pytest.raises(Violation, match="applied another entry 1"):
        watch.applied(2, 0, Entry(1, 2, b"a"), b"")
    with pytest.raises(Violation, match="applied 3 after 1"):
        watch.applied(2, 1, Entry(3, 2, b"a"), b"")
    watch.applied(1, 0, Entry(1, 1, b"a"), b"digest")
    with pytest.raises(Violation, match="another state at 1"):
        watch.same_state(2, 1, b"other")


def test_the_watch_sees_what_clients_see() -> None:
    watch = Invariants()
    member = leader_of(1, Entry(1, 1, b"a"), Entry(2, 1, b"a"))
    member.commit = 1
    watch.observe(member)
    watch.acknowledge(b"a", 1)
    with pytest.raises(Violation, match="acknowledged at 2"):
        watch.acknowledge(b"b", 2)
    with pytest.raises(Violation, match="refused, but committed at 1"):
        watch.refuse(b"a")
    with pytest.raises(Violation, match="read at 0, 1 was known"):
        watch.read(3, 0, watch.floor)
    member.commit = 2
    with pytest.raises(Violation, match="committed twice"):
        watch.observe(member)


# --- the command and the faults ---------------------------------------------------------------------------


def test_one_seed_can_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--", "--seed", "7", "--trace"]) == 0
    told = capsys.readouterr().out
    assert "starts: follower t0" in told
    assert "sends" in told
    assert told.endswith("nothing was violated\n")


def test_figures_go_between_the_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "doc.md"
    document.write_text("before\n<!-- sweep -->\nold\n<!-- /sweep -->\nafter\n")
    for _ in range(2):
        assert run.main(["--seeds", "2", "--first", "5", "--jobs", "1", "--report", str(document)]) == 0
    text = document.read_text()
    assert text.startswith("before\n<!-- sweep -->\n2 seeds from 5 on")
    assert text.endswith("<!-- /sweep -->\nafter\n")
    assert "old" not in text
    assert "2 runs" in capsys.readouterr().out


def test_a_failure_names_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Simulator, "_check_agreement", lambda sim: 1 / 0)
    outcome = run_seed(9)
    assert outcome.problem == "ZeroDivisionError('division by zero')"
    assert "hatch run sim -- --seed 9 --trace" in run.failure(outcome)
    assert run.main(["--seeds", "1", "--first", "9", "--jobs", "1"]) == 1
    assert run.failure(outcome) in capsys.readouterr().out


def test_seeds_draw_all_kinds_of_groups() -> None:
    drawn = [draw(seed) for seed in range(TESTED)]
    assert {setup.size for setup in drawn} == {1, 2, 3, 4, 5}
    assert {setup.timing.window for setup in drawn} == {1, 2, 4, 64}
    assert {setup.timing.append_bytes for setup in drawn} == {1, 200, 1 << 20}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_fault_fits_the_sources(mutation: mutant.Mutation) -> None:
    assert mutant.mutated(mutation)


def test_faults_have_names_of_their_own() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names) >= 30


@pytest.mark.parametrize("name", ["vote-twice", "ack-before-sync", "commit-old-term"])
def test_a_fault_is_caught(name: str) -> None:
    mutation = mutant.by_name(name)
    verdict = mutate.judge(mutation, mutate.cases(mutation), seeds=0)
    assert verdict.caught
    assert verdict.case


def test_a_fault_is_caught_by_a_seed() -> None:
    verdict = mutate.judge(mutant.by_name("read-of-the-applied"), (), seeds=20)
    assert verdict.seed is not None
    assert "was known before" in verdict.problem


def test_what_cannot_be_judged_is_said() -> None:
    with pytest.raises(mutate.Unusable, match="no such mutation: nonsense"):
        mutate.run(["nonsense"], 1, lambda _: None)
    assert Position(0, 0) == ORIGIN

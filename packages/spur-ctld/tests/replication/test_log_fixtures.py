"""Directories that earlier releases wrote are opened by this one, and hold the same state.

Each fixture: `member/` is a whole state directory (two snapshots, a compacted log), `log/` has votes, a
replaced tail and a restart, `expected.json` the state as the release that wrote it saw it.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spur_ctld.replication.files import Files
from spur_ctld.replication.log import SegmentLog
from spur_ctld.replication.meta import Member
from spur_ctld.replication.node import Node
from spur_ctld.replication.recovery import open_directory
from spur_ctld.replication.types import Entry, HardState, Position
from spur_ctld.state import codec, invariants, ops
from spur_ctld.state.log_machine import LogMachine

FIXTURES = Path(__file__).parent.parent / "fixtures"
#: Of `expected.json`: what a fixture says is never changed.
DIGESTS = {
    "replication-part1": "0f796e39296b62a81b65b1b1956f868c3a7683389dc644784449a7d2da4f1fe2",
    "replication-part2": "02b111b15b74d0040ed1260b924269e598d3879362cd1b61f508ed3010df577d",
}


@pytest.fixture(params=sorted(DIGESTS))
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one fixture."""
    shutil.copytree(FIXTURES / request.param, tmp_path / request.param)
    return tmp_path / request.param


def expected_of(release: Path) -> dict[str, Any]:
    data = (release / "expected.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == DIGESTS[release.name]
    found: dict[str, Any] = json.loads(data)
    return found


def check(machine: LogMachine, expected: dict[str, Any]) -> None:
    """What the older release knew of the state is so; newer fields have their defaults."""
    state = machine.state
    assert (state.applied, state.next_job_id) == (expected["applied"], expected["next_job_id"])
    assert not invariants.check(state)
    assert [list(key) for key in state.outbox] == expected["outbox"]
    for name, records in (("jobs", state.jobs), ("nodes", state.nodes)):
        found = json.loads(msgspec.json.encode({str(key): record for key, record in records.items()}))
        assert sorted(found) == sorted(expected[name])
        for key, known in expected[name].items():
            assert _known(found[key], known) == known, (name, key)


def _known(value: Any, like: Any) -> Any:
    """`value` without what `like` does not have."""
    if isinstance(value, dict) and isinstance(like, dict):
        return {key: _known(value[key], like[key]) for key in like if key in value}
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [_known(one, other) for one, other in zip(value, like, strict=True)]
    return value


def test_a_directory_of_an_older_release_gives_its_state(release: Path) -> None:
    """From the newer snapshot and the log, and from the older one and more of the log.

    What this release counts besides (restarts of a job) depends on where it begins, so only what the older
    one knew is compared.
    """
    expected = expected_of(release)
    for use in (0, 1):
        opened = open_directory(release / "member", 1, (Member(1),), Files(), schema=codec.SNAPSHOT_FORMAT)
        try:
            assert opened.meta.cluster_id == expected["cluster_id"]
            assert opened.stored.hard == HardState(expected["term"], 1)
            snapshots = opened.snapshots.list()
            assert len(snapshots) == 2
            assert opened.snapshots.verify(snapshots[use]).digest == "", "that release knew no digests"
            machine = LogMachine()
            machine.restore(opened.snapshots.read(snapshots[use]))
            for entry in opened.stored.entries:
                if entry.index > snapshots[use].index and entry.data is not None:
                    machine.apply(entry.index, entry.data)
            check(machine, expected)
        finally:
            opened.log.close()
            opened.lock.release()


async def test_a_member_starts_on_it_and_goes_on(release: Path, fatal: list[BaseException]) -> None:
    """Its next start reads what both releases wrote."""
    expected = expected_of(release)
    for lap in range(2):
        machine = LogMachine()
        node = Node(release / "member", machine, fatal=fatal.append, schema=codec.SNAPSHOT_FORMAT)
        await node.start()
        try:
            assert node.term == expected["term"] + 1 + lap
            op = ops.Cancel(at=1e9, targets=(), who=ops.Who(uid=0, admin=True))
            assert codec.decode_result(await node.propose(codec.encode_op(op)))
            assert set(expected["jobs"]) <= {str(job) for job in machine.state.jobs}
        finally:
            await node.stop()
    assert fatal == []


def test_a_log_of_an_older_release_is_read_to_the_byte(release: Path) -> None:
    log = SegmentLog(release / "log")
    stored = log.load()
    assert stored.hard == HardState(4, 0)
    assert stored.base == Position(100, 3)
    assert stored.entries == [
        Entry(101, 4, None),
        Entry(102, 4, b"after"),
        Entry(103, 4, b"y103"),
        Entry(104, 4, b"y104"),
        Entry(105, 4, b"y105"),
    ]
    log.write(HardState(5, 1), 106, [Entry(106, 5, b"today")])
    log.close()
    again = SegmentLog(release / "log")
    assert again.load().entries[-1] == Entry(106, 5, b"today")
    again.close()


def test_the_part_before_a_restart_is_read_too(release: Path) -> None:
    """Votes without entries, and a tail that was replaced."""
    _, newer = sorted((release / "log").iterdir())
    newer.unlink()
    log = SegmentLog(release / "log")
    stored = log.load()
    log.close()
    assert stored.hard == HardState(2, 3)
    assert [entry.data for entry in stored.entries] == [None, b"two", b"three again", *[b"x" * 70] * 3]

"""A controller in the middle of an upgrade: what it holds back, until when, and what comes then."""

import asyncio

import grpc
import pytest
from grpc import aio

from spur_core import reasons
from spur_core.states import JobState
from spur_ctld.api.grpc_errors import status_of
from spur_ctld.ledger import NotYet
from spur_ctld.replication.api import MemberView
from spur_ctld.replication.errors import Overloaded
from spur_ctld.state import ops, released, versions
from spur_ctld.upgrade import Upgrade, common
from spur_proto import controller_pb2 as pb

OLD, NEW = versions.FIRST, versions.COMMAND_VERSION


@pytest.fixture
def older(monkeypatch):
    """This process is the older release, which lacks some fields and an operation; call it to end that."""
    new = {"Settings": {"kill_wait"}, "Node": {"cpus"}, "Request": {"comment"}}
    rows = dict(released.FIELDS[OLD])
    for kind, fields in new.items():
        rows[kind] = " ".join(name for name in rows[kind].split() if name not in fields)
    monkeypatch.setitem(released.FIELDS, OLD, rows)
    monkeypatch.setitem(versions.SINCE, ops.Hold, NEW)
    monkeypatch.setattr(versions, "_known", OLD)
    return lambda: monkeypatch.setattr(versions, "_known", NEW)


def member(id: int, version: int, *, present: bool = True) -> MemberView:
    return MemberView(id, "", "", True, 0, version, "", False, present)


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ([member(1, 4)], 4),
        ([member(1, 4), member(2, 4), member(3, 4)], 4),
        ([member(1, 5), member(2, 4), member(3, 5)], 4),
        ([member(1, 4), member(2, 3), member(3, 4)], 3),
        # Who is away may come back as anything.
        ([member(1, 4), member(2, 4, present=False), member(3, 4)], 0),
        ([member(1, 4), member(2, 0), member(3, 4)], 0),
    ],
)
def test_what_all_members_know(members, found):
    assert common(members) == found


async def test_a_controller_alone_uses_what_is_new_before_anything_else(cluster):
    assert cluster.state.command_version == NEW
    answer = await cluster.stub.Ping(pb.PingRequest(), metadata=cluster.user())
    assert answer.command_version == NEW
    applied = cluster.state.applied
    await cluster.crash()
    await cluster.restart()
    assert cluster.state.command_version == NEW
    assert cluster.state.applied <= applied + 1, "nothing but the new term's begin: it is not raised again"


async def test_what_not_every_controller_knows_is_not_proposed(older, cluster):
    ledger = cluster.controller.ledger
    assert cluster.state.command_version == OLD
    job = await cluster.submit()
    hold = ops.Hold(
        at=cluster.clock.time(), targets=(ops.Target(job),), who=ops.Who(0, "root", True), mode="hold"
    )
    with pytest.raises(NotYet) as refused:
        await ledger.commit(hold)
    assert status_of(refused.value) is grpc.StatusCode.FAILED_PRECONDITION
    assert f"command version {NEW}, the controllers use {OLD}" in refused.value.text
    assert not ledger.takes(ops.Hold)
    assert ledger.takes(ops.Cancel)
    with pytest.raises(aio.AioRpcError) as told:
        await cluster.submit(comment="a new field")
    assert told.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "this waits until every controller runs a release that knows it" in told.value.details()
    assert dict(told.value.trailing_metadata())["x-spur-code"] == "not_yet"
    (found,) = cluster.state.jobs.values()
    assert found.reason not in reasons.HOLDS


async def test_the_version_rises_when_the_last_member_is_there(older, cluster):
    views = [member(1, NEW), member(2, NEW, present=False), member(3, OLD)]
    done = []

    async def raised():
        done.append(cluster.state.command_version)
        if len(done) == 1:
            raise Overloaded("tried again")

    upgrade = Upgrade(cluster.controller.ledger, lambda: views, cluster.clock.time, raised)
    older()
    await upgrade.look()
    assert cluster.state.command_version == OLD
    upgrade.start()
    try:
        views[2] = member(3, NEW)
        await asyncio.sleep(0.7)
        assert (cluster.state.command_version, done) == (OLD, [])
        views[1] = member(2, NEW + 1)
        async with asyncio.timeout(10):
            await upgrade._task
    finally:
        await upgrade.stop()
    assert (cluster.state.command_version, done) == (NEW, [NEW] * 2), "as far as this one knows"
    assert await cluster.submit(comment="a new field")


async def test_after_an_upgrade_everything_is_told_in_full(older, cluster):
    agent = await cluster.add_agent("n1", cpus=4)
    assert cluster.state.nodes["n1"].cpus == 0, "a field that the older release passes over"
    assert cluster.state.settings.kill_wait != 2
    assert not (await cluster.beat(agent)).register_again
    await cluster.crash()
    older()
    await cluster.restart()
    assert cluster.state.command_version == NEW
    assert cluster.state.settings.kill_wait == 2
    assert (await cluster.beat(agent)).register_again
    # Another term does not forget it.
    await cluster.crash()
    await cluster.restart()
    assert (await cluster.beat(agent)).register_again
    await cluster.register(agent, cpus=4)
    assert cluster.state.nodes["n1"].cpus == 4
    assert not (await cluster.beat(agent)).register_again
    job = await cluster.submit()
    await cluster.in_state(job, JobState.RUNNING)
    await cluster.report(agent, job)

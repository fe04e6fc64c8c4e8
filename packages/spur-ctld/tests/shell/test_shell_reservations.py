"""Reservations and licences through the API and the leader's timer, with a clock that the test moves."""

import asyncio
import os

import grpc
import pytest

from spur_core.states import JobState, NodeFlag
from spur_ctld.reservations.zone import local_zone
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

HOUR = 3600


async def reach(condition, what="", tries=500):
    for _ in range(tries):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what or "never came true")


async def tick(cluster):
    await cluster.controller.timers.tick()


async def ahead(cluster, secs):
    """Time passes, nodes say that they live, the timer looks."""
    cluster.clock.ahead += secs
    for agent in cluster.agents.values():
        await cluster.beat(agent)
    await tick(cluster)


def request(cluster, **fields):
    now = cluster.clock.time()
    made = {"name": "r", "nodes": "n1", "duration_secs": HOUR, "users": ["root"], "start_at": now + HOUR}
    made.update(fields)
    made = {name: value for name, value in made.items() if value is not None}
    return pb.CreateReservationRequest(**made)


async def create(cluster, who="root", **fields):
    answer = await cluster.stub.CreateReservation(request(cluster, **fields), metadata=cluster.user(who))
    return answer.name


async def update(cluster, **fields):
    fields.setdefault("name", "r")
    await cluster.stub.UpdateReservation(pb.UpdateReservationRequest(**fields), metadata=cluster.user())


async def delete(cluster, name="r"):
    await cluster.stub.DeleteReservation(pb.DeleteReservationRequest(name=name), metadata=cluster.user())


async def listed(cluster):
    answer = await cluster.stub.ListReservations(
        pb.ListReservationsRequest(), metadata=cluster.user("nobody")
    )
    return {one.name: one for one in answer.reservations}


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.details()


async def test_the_life_of_one(cluster):
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    assert await create(cluster) == "r"
    one = (await listed(cluster))["r"]
    assert (one.nodes, one.node_count, one.core_count, one.tres, one.state) == (
        "n1",
        1,
        4,
        "cpu=4",
        "INACTIVE",
    )
    assert list(one.flags) == ["SPEC_NODES"]
    assert one.end_at - one.start_at == HOUR
    assert await create(cluster, name=None, nodes="n2") == "root_1"
    await update(cluster, duration_delta_secs=HOUR, flags=pb.ListChange(add=["FLEX", "purge"]))
    one = (await listed(cluster))["r"]
    assert one.end_at - one.start_at == 2 * HOUR
    assert list(one.flags) == ["FLEX", "SPEC_NODES", "PURGE_COMP=00:05:00"]
    await delete(cluster, "root_1")
    assert set(await listed(cluster)) == {"r"}
    assert await refused(delete(cluster, "root_1")) == "Requested reservation is invalid"


async def test_only_administrators(cluster):
    await cluster.add_agent("n1")
    assert await refused(create(cluster, "nobody")) == "Access/permission denied"


BAD = [
    ({"users": None}, "Reservation request lacks users, groups or accounts"),
    ({"users": ["no-such-user-here"]}, "Invalid user id"),
    ({"users": None, "groups": ["no-such-group-here"]}, "Invalid group id"),
    ({"users": ["root", "-nobody"]}, "keeps out"),
    ({"users": ["root"], "groups": ["root"]}, "exclude each other"),
    ({"nodes": "n9"}, "Invalid node name specified"),
    ({"nodes": None}, "neither nodes nor licences"),
    ({"nodes": None, "node_count": 3}, "Requested nodes are busy"),
    ({"duration_secs": 0}, "duration is zero"),
    ({"duration_secs": None}, "an end or a duration"),
    ({"start_at": 1.0}, "Invalid time specified"),
    ({"flags": ["bogus"]}, "Invalid reservation flag: bogus"),
    ({"flags": ["daily", "weekly"]}, "both DAILY and WEEKLY"),
    ({"flags": ["force_start"]}, "not supported on this system"),
    ({"flags": ["hourly"], "duration_secs": 2 * HOUR}, "longer than HOURLY allows"),
    ({"flags": ["part_nodes"]}, "PART_NODES needs"),
    ({"licenses": "m:1"}, "Invalid license specification"),
    ({"name": "a b"}, "a name has letters"),
    ({"partition": "nope", "nodes": None, "node_count": 1}, "Invalid partition name specified"),
    ({"features": "a&&", "nodes": None, "node_count": 1}, "Invalid feature specification"),
    ({"core_counts": [5]}, "Requested node configuration is not available"),
]


@pytest.mark.parametrize(("fields", "text"), BAD, ids=[str(row[0]) for row in BAD])
async def test_bad_requests(cluster, fields, text):
    await cluster.add_agent("n1")
    assert text in await refused(create(cluster, **fields))


async def test_overlaps_need_leave(cluster):
    await cluster.add_agent("n1")
    await create(cluster)
    overlap = "Requested reservation overlaps with another reservation"
    assert await refused(create(cluster, name="s")) == overlap
    later = cluster.clock.time() + 24 * HOUR
    assert (
        await refused(create(cluster, name="s", start_at=later - 24 * HOUR + 60, flags=["daily"])) == overlap
    )
    await create(cluster, name="m", flags=["maint"])
    await create(cluster, name="t", start_at=later)
    assert await refused(update(cluster, start_at=later - 60, end_at=later + 60)) == overlap


async def test_busy_nodes_are_left_alone(cluster):
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    job = await cluster.submit(nodelist="n1", time_limit_secs=2 * HOUR)
    await cluster.in_state(job, JobState.RUNNING)
    assert await refused(create(cluster)) == "Requested nodes are busy"
    await create(cluster, name="later", start_at=cluster.clock.time() + 3 * HOUR)
    await create(cluster, name="anyway", flags=["IGNORE_JOBS"], duration_secs=60)
    await create(cluster, name="counted", nodes=None, node_count=1)
    assert (await listed(cluster))["counted"].nodes == "n2"


async def test_all_nodes_grow_with_the_cluster(cluster):
    await cluster.add_agent("n1")
    await create(cluster, nodes="ALL", flags=["maint"])
    assert list((await listed(cluster))["r"].flags) == ["MAINT", "ALL_NODES"]
    await cluster.add_agent("n2")
    await tick(cluster)
    assert (await listed(cluster))["r"].nodes == "n[1-2]"


async def test_nodes_that_are_down_are_replaced(cluster):
    for name in ("n1", "n2", "n3"):
        await cluster.add_agent(name)
    await create(cluster, nodes=None, node_count=2)
    await create(cluster, name="fixed", nodes=None, node_count=1, flags=["static_alloc", "overlap"])
    assert (await listed(cluster))["r"].nodes == "n[1-2]"
    await cluster.stub.UpdateNode(
        pb.UpdateNodeRequest(names="n1", state="DRAIN", reason="x"), metadata=cluster.user()
    )
    await tick(cluster)
    found = await listed(cluster)
    assert (found["r"].nodes, found["fixed"].nodes) == ("n[2-3]", "n1")
    await update(cluster, node_count=1)
    assert (await listed(cluster))["r"].node_count == 1


async def test_nodes_show_what_covers_them(cluster):
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    now = cluster.clock.time()
    await create(cluster, name="m", start_at=now, flags=["maint"])
    await create(cluster, name="r", start_at=now, nodes="n2")
    answer = await cluster.stub.GetNodes(pb.GetNodesRequest(), metadata=cluster.user())
    assert [(node.reservation, node.flags) for node in answer.nodes] == [
        ("m", NodeFlag.MAINT),
        ("r", NodeFlag.RESERVED),
    ]


async def test_jobs_name_reservations(cluster):
    await cluster.add_agent("n1")
    await create(cluster)
    assert await refused(cluster.submit(reservation="nope")) == "Requested reservation is invalid"
    assert (
        await refused(cluster.submit("nobody", reservation="r")) == "Access denied to requested reservation"
    )
    job = await cluster.submit(reservation="r", time_limit_secs=60)
    await reach(lambda: cluster.state.jobs[job].reason == "Reservation")
    await ahead(cluster, HOUR + 1)
    await cluster.in_state(job, JobState.RUNNING)
    assert (await cluster.job(job)).reservation == "r"
    assert await refused(delete(cluster)) == "Requested reservation is in use"


async def test_what_would_be_ignored_is_refused(cluster):
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    ignored = (
        "Requested reservation is invalid: Features goes with NodeCnt or CoreCnt;"
        " nodes that are named are taken as they are"
    )
    for fields in ({}, {"nodes": "ALL"}, {"core_counts": [1]}):
        assert await refused(create(cluster, features="zz", **fields)) == ignored, fields
    await create(cluster)
    assert await refused(update(cluster, features="zz")) == ignored
    assert (await refused(create(cluster, duration_secs=0))).endswith("its duration is zero")
    assert set(cluster.state.reservations) == {"r"}
    for text in (",", " ", " , "):
        assert await refused(cluster.submit(reservation=text)) == "Requested reservation is invalid"
    job = await cluster.submit(reservation="r", hold=True)
    change = pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=job)], reservation=",")
    said = await refused(cluster.stub.UpdateJob(change, metadata=cluster.user()))
    assert said == "Requested reservation is invalid"


async def test_deleting_holds_who_waits(cluster):
    await cluster.add_agent("n1")
    await create(cluster)
    job = await cluster.submit(reservation="r")
    await delete(cluster)
    assert cluster.state.jobs[job].reason == "ReservationDeleted"
    await cluster.stub.UpdateJob(
        pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=job)], hold=pb.HOLD_ACTION_RELEASE),
        metadata=cluster.user(),
    )
    await cluster.in_state(job, JobState.RUNNING)


async def test_what_runs_at_its_end_is_ended_and_it_goes(clusters):
    cluster = await clusters(scheduler="resv_overrun_minutes = 5")
    agent = await cluster.add_agent("n1")
    agent.obeys = False
    now = cluster.clock.time()
    await create(cluster, start_at=now, duration_secs=600)
    job = await cluster.submit(reservation="r", time_limit_secs=300)
    await cluster.in_state(job, JobState.RUNNING)
    await cluster.stub.UpdateJob(
        pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=job)], time_limit_secs=24 * HOUR),
        metadata=cluster.user(),
    )
    await ahead(cluster, 601)
    assert cluster.state.jobs[job].time_signalled_at is None
    await ahead(cluster, 300)
    assert cluster.state.jobs[job].time_signalled_at is not None
    await tick(cluster)
    # As long as it runs the reservation stays.
    assert set(cluster.state.reservations) == {"r"}
    await reach(lambda: agent.cancels)
    await cluster.report(agent, job, signal=15)
    assert cluster.state.jobs[job].state is JobState.TIMEOUT
    await tick(cluster)
    assert not cluster.state.reservations


async def test_a_daily_one_goes_on(cluster):
    await cluster.add_agent("n1")
    start = cluster.clock.time() + 60
    await create(cluster, start_at=start, duration_secs=600, flags=["daily"])
    waiting = await cluster.submit(reservation="r")
    await ahead(cluster, 661)
    one = (await listed(cluster))["r"]
    assert abs(one.start_at - start - 24 * HOUR) <= HOUR
    assert cluster.state.jobs[waiting].priority
    await update(cluster, skip=True)
    assert (await listed(cluster))["r"].start_at > one.start_at + 20 * HOUR


async def test_an_unused_one_is_purged(cluster):
    await cluster.add_agent("n1")
    await create(cluster, start_at=cluster.clock.time(), flags=["purge_comp"], purge_comp_secs=100)
    job = await cluster.submit(reservation="r", hold=True)
    await tick(cluster)
    cluster.clock.ahead += 101
    await tick(cluster)
    assert cluster.state.reservations, "a job waits for it"
    await cluster.cancel(job)
    await tick(cluster)
    cluster.clock.ahead += 99
    await tick(cluster)
    assert cluster.state.reservations
    cluster.clock.ahead += 102
    await tick(cluster)
    assert not cluster.state.reservations


async def test_one_whose_start_moves_on(cluster):
    await cluster.add_agent("n1")
    await create(cluster, flags=["time_float"])
    cluster.clock.ahead += 5 * HOUR
    await tick(cluster)
    one = (await listed(cluster))["r"]
    assert round(one.start_at - cluster.clock.time()) == HOUR
    assert one.state == "INACTIVE"


async def test_repeats_of_a_request_are_answered(cluster):
    await cluster.add_agent("n1")
    metadata = (*cluster.user(), ("x-spur-request-id", "ab" * 16))
    made = request(cluster, name=None)
    names = [(await cluster.stub.CreateReservation(made, metadata=metadata)).name for _ in range(2)]
    assert names == ["root_1", "root_1"]
    assert set(cluster.state.reservations) == {"root_1"}


async def test_they_survive_a_restart(cluster):
    await cluster.add_agent("n1")
    await create(cluster, flags=["weekly"])
    before = cluster.state.reservations
    await cluster.crash()
    await cluster.restart()
    assert cluster.state.reservations == before


async def test_licences(clusters):
    cluster = await clusters(extra="[licenses]\nm = 3\nx = 1")
    await cluster.add_agent("n1")
    assert await refused(cluster.submit(licenses="m:4")) == "Invalid license specification"
    assert await refused(cluster.submit(licenses="y")) == "Invalid license specification"
    assert await refused(cluster.submit(licenses="m:1,")) == "Invalid license specification"
    job = await cluster.submit(licenses="m:2")
    await cluster.in_state(job, JobState.RUNNING)
    pools = (await cluster.stub.GetLicenses(pb.GetLicensesRequest(), metadata=cluster.user())).licenses
    assert [(pool.name, pool.total, pool.used) for pool in pools] == [("m", 3, 2), ("x", 1, 0)]
    assert (await cluster.job(job)).licenses_alloc == "m:2"
    waits = await cluster.submit(licenses="m:2")
    either = await cluster.submit(licenses="m:3|x:1")
    await cluster.in_state(either, JobState.RUNNING)
    assert (await cluster.job(either)).licenses_alloc == "x:1"
    await reach(lambda: cluster.state.jobs[waits].reason == "Licenses")
    await cluster.report(cluster.agents["n1"], job)
    await cluster.in_state(waits, JobState.RUNNING)


async def test_reserved_licences(clusters):
    cluster = await clusters(extra="[licenses]\nm = 3")
    await cluster.add_agent("n1")
    now = cluster.clock.time()
    await create(cluster, start_at=now, nodes=None, licenses="m:2", flags=["license_only"])
    waits = await cluster.submit(licenses="m:2")
    await reach(lambda: cluster.state.jobs[waits].reason == "Licenses")
    inside = await cluster.submit(licenses="m:2", reservation="r", time_limit_secs=60)
    await cluster.in_state(inside, JobState.RUNNING)
    pools = (await cluster.stub.GetLicenses(pb.GetLicensesRequest(), metadata=cluster.user())).licenses
    assert [(pool.used, pool.reserved) for pool in pools] == [(2, 0)]


def test_the_zone_of_this_host(tmp_path):
    assert local_zone({"TZ": "Europe/Berlin"}) == "Europe/Berlin"
    assert local_zone({"TZ": ":Asia/Tokyo"}) == "Asia/Tokyo"
    os.symlink("/usr/share/zoneinfo/America/New_York", tmp_path / "localtime")
    assert local_zone({}, tmp_path) == "America/New_York"
    (tmp_path / "timezone").write_text("Asia/Kolkata\n")
    assert local_zone({"TZ": "Nowhere/Here"}, tmp_path) == "America/New_York"
    (tmp_path / "localtime").unlink()
    assert local_zone({}, tmp_path) == "Asia/Kolkata"
    (tmp_path / "timezone").unlink()
    assert local_zone({}, tmp_path) == "UTC"


async def test_nodes_in_use_are_replaced_where_that_is_wanted(cluster):
    for name in ("n1", "n2"):
        await cluster.add_agent(name)
    now = cluster.clock.time()
    await create(cluster, start_at=now, nodes=None, node_count=1, flags=["replace"])
    first = (await listed(cluster))["r"].nodes
    job = await cluster.submit(reservation="r", nodelist=first, time_limit_secs=60)
    await cluster.in_state(job, JobState.RUNNING)
    await tick(cluster)
    assert (await listed(cluster))["r"].nodes == {"n1": "n2", "n2": "n1"}[first]
    assert cluster.state.jobs[job].state is JobState.RUNNING


async def test_a_partition_that_is_kept_whole(cluster):
    await cluster.add_agent("n1")
    await create(cluster, nodes="ALL", partition="debug", flags=["part_nodes"])
    await cluster.add_agent("n2")
    await tick(cluster)
    one = (await listed(cluster))["r"]
    assert (one.nodes, list(one.flags), one.partition) == ("n[1-2]", ["PART_NODES"], "debug")


async def test_cores_of_nodes(cluster):
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    await create(cluster, nodes=None, core_counts=[6])
    one = (await listed(cluster))["r"]
    assert (one.nodes, one.core_count, one.tres) == ("n[1-2]", 6, "cpu=6")
    await create(cluster, name="rest", nodes="n2", core_counts=[2])
    assert await refused(create(cluster, name="more", nodes="n2", core_counts=[1])) == (
        "Requested reservation overlaps with another reservation"
    )


async def test_groups_let_their_members_in(cluster):
    await cluster.add_agent("n1")
    await create(cluster, users=None, groups=["root"], start_at=cluster.clock.time())
    assert "root" in cluster.state.reservations["r"].members
    assert (
        await refused(cluster.submit("nobody", reservation="r")) == "Access denied to requested reservation"
    )
    await update(cluster, groups=pb.ListChange(replace=True, set=["-root"]))
    await cluster.submit("nobody", reservation="r")


async def test_changes(cluster):
    await cluster.add_agent("n1")
    await cluster.add_agent("n2")
    await create(cluster)
    start = cluster.state.reservations["r"].start_at
    await update(cluster, nodes=pb.ListChange(add=["n2"]), comment="x")
    assert cluster.state.reservations["r"].nodes == ("n1", "n2")
    await update(cluster, nodes=pb.ListChange(remove=["n1"]), start_at=start + 60, end_at=start + 120)
    one = cluster.state.reservations["r"]
    assert (one.nodes, one.start_at, one.end_at, one.first_start) == (
        ("n2",),
        start + 60,
        start + 120,
        start + 60,
    )
    await update(cluster, flags=pb.ListChange(replace=True, set=["DAILY", "OVERLAP"]))
    assert list((await listed(cluster))["r"].flags) == ["OVERLAP", "DAILY", "SPEC_NODES"]
    await update(
        cluster, users=pb.ListChange(add=["nobody"]), accounts=pb.ListChange(replace=True, set=["a"])
    )
    one = cluster.state.reservations["r"]
    assert (one.users, one.accounts) == (("root", "nobody"), ("a",))
    assert await refused(update(cluster)) == "No changes specified"
    assert await refused(update(cluster, name="x", comment="y")) == "Requested reservation is invalid"
    assert await refused(update(cluster, end_at=start)) == "Invalid time specified"
    assert "no node is left" in await refused(update(cluster, nodes=pb.ListChange(remove=["n2"])))
    assert await refused(
        update(cluster, users=pb.ListChange(replace=True), accounts=pb.ListChange(replace=True))
    ) == ("Reservation request lacks users, groups or accounts")
    await update(cluster, flags=pb.ListChange(remove=["DAILY"]))
    assert "only one that repeats" in await refused(update(cluster, skip=True))


async def test_the_next_leader_takes_them_up(trio):
    """Made at a follower, ended by whoever leads then."""
    leader = trio.leader
    agent = await trio.add_agent("n1")
    trio.ask(trio.followers[0])
    await create(trio, start_at=trio.clock.time(), duration_secs=600, flags=["daily"])
    assert set(await listed(trio)) == {"r"}
    trio.ask(leader)
    job = await trio.submit(reservation="r", time_limit_secs=300)
    await trio.in_state(job, JobState.RUNNING)
    await trio.even()
    await trio.kill(leader)
    await trio.led()
    start = trio.state.reservations["r"].start_at
    assert trio.state.jobs[job].reservation == "r"
    trio.clock.ahead += 601
    await reach(lambda: trio.controller.leadership.open)
    await trio.beat(agent)
    await tick(trio)
    assert trio.state.reservations["r"].start_at > start
    assert trio.state.jobs[job].time_signalled_at is not None


async def test_a_job_is_moved_and_takes_other_licences(clusters):
    cluster = await clusters(extra="[licenses]\nm = 1")
    await cluster.add_agent("n1")
    await create(cluster)
    await create(cluster, name="s", start_at=cluster.clock.time(), duration_secs=600)
    job = await cluster.submit(reservation="r", time_limit_secs=60)
    await reach(lambda: cluster.state.jobs[job].reason == "Reservation")

    async def change(**fields):
        answer = await cluster.stub.UpdateJob(
            pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=job)], **fields), metadata=cluster.user()
        )
        return answer.results[0].text

    assert await refused(change(reservation="gone")) == "Requested reservation is invalid"
    assert await refused(change(licenses="m:2")) == "Invalid license specification"
    assert await change(reservation="s", licenses="m") == ""
    await cluster.in_state(job, JobState.RUNNING)
    shown = await cluster.job(job)
    assert (shown.reservation, shown.licenses, shown.licenses_alloc) == ("s", "m:1", "m:1")


async def test_what_a_submission_is_told(cluster):
    """`--test-only` and `--immediate` go by reservations."""
    await cluster.add_agent("n1")
    await create(cluster, start_at=cluster.clock.time(), nodes="n1")
    await create(cluster, name="later", start_at=cluster.clock.time() + 2 * HOUR, duration_secs=60)

    async def asked(test_only=True, **fields):
        spec = common_pb2.JobSpec(script=b"#!/bin/sh\n", work_dir="/tmp", time_limit_secs=60, **fields)
        wanted = pb.SubmitJobRequest(spec=spec, test_only=test_only)
        return (await cluster.stub.SubmitJob(wanted, metadata=cluster.user())).test_result

    assert "to start at" in await asked(reservation="r")
    assert await refused(asked(reservation="later")) == "Requested reservation not usable now"
    assert await refused(asked(test_only=False, immediate=True)) == "Requested nodes are busy"
    assert "n1" in await asked(reservation="later,r")


async def test_a_job_knows_when_its_reservation_or_its_begin_time_lets_it_start(cluster):
    await cluster.add_agent("n1")
    await create(cluster)
    one = (await listed(cluster))["r"]
    waits = await cluster.submit(reservation="r")
    late = await cluster.submit(reservation="r", begin_at=one.start_at + 60)
    begins = await cluster.submit(begin_at=one.start_at + 7)
    await reach(lambda: cluster.state.jobs[late].reason in ("Reservation", "BeginTime"))
    for job, start in ((waits, one.start_at), (late, one.start_at + 60), (begins, one.start_at + 7)):
        await reach(lambda job=job: cluster.state.jobs[job].reason != "None")
        shown = await cluster.job(job)
        assert (shown.start_at, shown.sched_nodes) == (start, "")
        assert "; it cannot start before " in shown.waits_for
        answer = await cluster.stub.GetJobs(pb.GetJobsRequest(), metadata=cluster.user())
        assert {row.job_id: row.start_at for row in answer.jobs}[job] == start
    await update(cluster, start_at=one.start_at + HOUR, end_at=one.end_at + HOUR)
    assert (await cluster.job(waits)).start_at == one.start_at + HOUR
    # It has begun: whoever waits now waits for room.
    await ahead(cluster, 2 * HOUR + 1)
    await cluster.in_state(waits, JobState.RUNNING)
    assert (await cluster.job(waits)).start_at < one.start_at + HOUR + 600


async def test_a_job_without_a_limit_ends_with_its_reservation(clusters):
    cluster = await clusters(scheduler="resv_overrun_minutes = 2\n")
    await cluster.add_agent("n1")
    await create(cluster, start_at=cluster.clock.time())
    one = (await listed(cluster))["r"]
    inside = await cluster.submit(reservation="r", num_tasks=4)
    await cluster.in_state(inside, JobState.RUNNING)
    outside = await cluster.submit(time_limit_secs=60)
    await reach(lambda: cluster.controller.office.outlook.start_of(outside), "its start is known")

    async def ends():
        answer = await cluster.stub.GetJobs(pb.GetJobsRequest(), metadata=cluster.user())
        in_list = {row.job_id: row.end_at for row in answer.jobs}[inside]
        assert (await cluster.job(inside)).end_at == in_list
        return in_list

    def expected():
        found = cluster.controller.office.outlook.start_of(outside)
        return found is not None and found.at

    assert await ends() == one.end_at + 120
    assert expected() == one.end_at
    await update(cluster, duration_secs=2 * HOUR)
    assert await ends() == one.end_at + HOUR + 120
    await reach(lambda: expected() == one.end_at + HOUR, "it follows")

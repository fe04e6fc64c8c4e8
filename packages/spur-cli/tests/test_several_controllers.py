"""Commands that know several controllers: whom they ask, how long they look, and what is done once."""

import contextlib
import re
import socket
import threading
import time

import grpc
import pytest

from spur_cli.cli_errors import CONNECT_FAILURE
from spur_cli.control.members import Group, Member
from spur_cli.control.ping import roles
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def group(peer, make_peer):
    """Two controllers, the second of which leads; the first passes calls on, which here is the same."""
    return peer, make_peer()


@pytest.fixture
def names(group):
    return {"SPUR_CONTROLLER_ADDR": ",".join(one.address for one in group), "SPUR_RETRY_SECS": "3"}


def members(*peers):
    return [
        pb.ControllerInfo(id=at, client_address=one.address, version="0.2.0", match=70 + at)
        for at, one in enumerate(peers, 1)
    ]


def ping(peers, at, leader=0, **more):
    return pb.PingResponse(
        hostname=f"ctl{at}",
        cluster_name="alpha",
        member_id=at,
        leader_id=leader,
        leader_address=peers[leader - 1].address if leader else "",
        term=7,
        members=members(*peers),
        applied=60 + at,
        leader_silent_secs=0 if at == leader else 0.25,
        **more,
    )


@contextlib.contextmanager
def deaf():
    """A port that accepts connections and never says a word, as a stopped process does; its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def raising(error):
    def answer(request):
        raise error

    return answer


def test_who_does_not_lead_names_the_one_that_does(cli, group, names, refuse):
    first, leader = group
    first.answers["SubmitJob"] = raising(refuse(UNAVAILABLE, "not the leader", "not_leader", leader.address))
    leader.answers["SubmitJob"] = pb.SubmitJobResponse(job_id=7)
    for known in (names, {"SPUR_CONTROLLER_ADDR": first.address}):
        assert cli("sbatch", "--wrap", "x", env=known) == (0, "Submitted batch job 7\n", "")
    assert len(first.requests) == 2
    assert len(leader.requests) == 2


def test_a_change_has_one_id_wherever_it_is_sent(cli, group, names, refuse):
    first, second = group
    times = []

    def moody(request):
        times.append(time.monotonic())
        if len(times) < 3:
            raise refuse(UNAVAILABLE, "no leader", "no_leader")
        return pb.CancelJobResponse()

    first.answers["CancelJob"] = second.answers["CancelJob"] = moody
    for one in group:
        one.answers["Ping"] = ping(group, 1)
        one.answers["GetJobs"] = pb.GetJobsResponse(jobs=[c.JobInfo(job_id=5, state=c.JOB_STATE_RUNNING)])
    assert cli("scancel", "5", env=names).code == 0
    seen = [data for one in group for name, _, data in one.requests if name == "CancelJob"]
    ids = {data["x-spur-request-id"] for data in seen}
    assert len(seen) == 3
    assert len(ids) == 1
    assert re.fullmatch("[0-9a-f]{32}", ids.pop())
    cli("scancel", "5", env=names)
    again = {data["x-spur-request-id"] for one in group for n, _, data in one.requests if n == "CancelJob"}
    assert len(again) == 2
    cli("squeue", env=names)
    read = [data for one in group for name, _, data in one.requests if name == "GetJobs"]
    assert "x-spur-request-id" not in read[-1]


def test_a_submission_that_was_cut_off_is_sent_again_with_its_id(cli, group, names):
    """The first controller dies with the request in its hands."""
    first, second = group
    died, taken = threading.Event(), threading.Event()

    def dies(request):
        died.set()
        threading.Thread(target=first.stop).start()
        taken.wait(20)  # its answer comes after its connections are gone
        return pb.SubmitJobResponse(job_id=1)

    def takes(request):
        taken.set()
        return pb.SubmitJobResponse(job_id=2)

    first.answers["SubmitJob"] = dies
    second.answers["SubmitJob"] = takes
    assert cli("sbatch", "--wrap", "x", env=names).out == "Submitted batch job 2\n"
    assert died.is_set()
    ids = {request.request_id for one in group for _, request, _ in one.requests}
    assert len(ids) == 1


def test_a_controller_that_stops_with_the_call_in_its_hands_is_asked_no_more(cli, group, names, refuse):
    """Its library ends the call as cancelled, which nobody here did."""
    first, second = group
    first.answers["SubmitJob"] = raising(refuse(grpc.StatusCode.CANCELLED, ""))
    second.answers["SubmitJob"] = pb.SubmitJobResponse(job_id=2)
    assert cli("sbatch", "--wrap", "x", env=names) == (0, "Submitted batch job 2\n", "")
    ids = {request.request_id for one in group for _, request, _ in one.requests}
    assert len(ids) == 1
    alone = cli("sbatch", "--wrap", "x", env={"SPUR_CONTROLLER_ADDR": first.address})
    assert alone.code == 1
    assert CONNECT_FAILURE in alone.err


def test_a_deaf_controller_costs_a_second(cli, group, names):
    leader = group[1]
    leader.answers["GetJobs"] = pb.GetJobsResponse()
    with deaf() as address:
        begun = time.monotonic()
        env = {**names, "SPUR_CONTROLLER_ADDR": f"{address},{leader.address}"}
        assert cli("squeue", "-h", env=env) == (0, "", "")
    assert 0.9 < time.monotonic() - begun < 3


def test_a_controller_that_falls_silent_in_a_call_is_left(cli, group, names, make_wire):
    first, second = group
    wire = make_wire(first.port)

    def silenced(request):
        wire.cut()
        return pb.GetJobsResponse()

    first.answers["GetJobs"] = silenced
    second.answers["GetJobs"] = pb.GetJobsResponse()
    begun = time.monotonic()
    env = {**names, "SPUR_CONTROLLER_ADDR": f"{wire.address},{second.address}"}
    assert cli("squeue", "-h", env=env) == (0, "", "")
    assert time.monotonic() - begun < 5


def test_a_slow_controller_is_no_silent_one(cli, group, names):
    """It answers the question whether it is there while it works on the call."""
    first, second = group

    def slow(request):
        time.sleep(3.5)
        return pb.CancelJobResponse()

    first.answers["CancelJob"] = slow
    assert cli("scancel", "5", env=names) == (0, "", "")
    assert not second.requests


def test_a_question_that_takes_long_is_asked_elsewhere_and_then_waited_for(cli, group, names):
    """The first keeps it, as one does that is out of touch; then both do, and the answer still comes."""
    first, second = group
    over = threading.Event()

    def keeps(request):
        over.wait(20)
        return pb.GetJobsResponse()

    first.answers["GetJobs"] = keeps
    second.answers["GetJobs"] = pb.GetJobsResponse()
    begun = time.monotonic()
    assert cli("squeue", "-h", env=names) == (0, "", "")
    assert 2.5 < time.monotonic() - begun < 6
    second.answers["GetJobs"] = keeps
    threading.Timer(7, over.set).start()
    assert cli("squeue", "-h", env=names) == (0, "", "")


def test_how_long_a_command_looks_for_a_controller(cli, free_port, group, names):
    dead = f"127.0.0.1:{free_port}"
    env = {"SPUR_CONTROLLER_ADDR": f"{dead},127.0.0.1:1", "SPUR_RETRY_SECS": "1"}
    for command, words in (("squeue", []), ("sbatch", ["--wrap", "x"])):
        begun = time.monotonic()
        result = cli(command, *words, env=env)
        assert (result.code, result.out) == (1, "")
        assert CONNECT_FAILURE in result.err
        assert result.err.count("\n") == 1
        assert 0.3 < time.monotonic() - begun < 3
    begun = time.monotonic()
    assert cli("squeue", env={"SPUR_CONTROLLER_ADDR": dead}).code == 1
    assert time.monotonic() - begun < 0.5


@pytest.mark.parametrize("last", [False, True])
def test_one_that_knows_no_leader_says_more_than_those_that_are_down(cli, free_port, peer, refuse, last):
    """It keeps each call for a while; the patience is counted from the start."""

    def keeps(request):
        time.sleep(0.4)
        raise refuse(UNAVAILABLE, "no controller leads", "no_leader")

    peer.answers["CancelJob"] = peer.answers["SubmitJob"] = keeps
    dead = f"127.0.0.1:{free_port}"
    addresses = ",".join((peer.address, dead) if last else (dead, peer.address))
    begun = time.monotonic()
    result = cli("sbatch", "--wrap", "x", env={"SPUR_CONTROLLER_ADDR": addresses, "SPUR_RETRY_SECS": "1"})
    assert result == (1, "", "sbatch: error: Batch job submission failed: no controller leads\n")
    assert 0.8 < time.monotonic() - begun < 4


def test_one_controller_without_a_leader_is_waited_for(cli, peer, refuse):
    """Of its group the others are learned; nobody leads, then somebody does."""
    asked = []

    def answer(request):
        asked.append(1)
        if len(asked) < 4:
            raise refuse(UNAVAILABLE, "no leader", "no_leader")
        return pb.GetJobsResponse()

    peer.answers["GetJobs"] = answer
    assert cli("squeue", "-h") == (0, "", "")
    result = cli("squeue", "-h", env={"SPUR_RETRY_SECS": "0"})
    assert result.code == 0
    asked.clear()
    result = cli("squeue", "-h", env={"SPUR_RETRY_SECS": "0.2"})
    assert result.code == 1
    assert "no leader" in result.err


def test_a_listing_may_be_old_only_for_who_says_so(cli, peer):
    peer.answers["GetJobs"] = pb.GetJobsResponse()
    peer.trailing = (("x-spur-stale", "applied=7 silent=12.3"),)
    told = f"squeue: warning: {peer.address} has not heard of a leader for 12.3 s; what it shows may be old\n"
    assert cli("squeue", "-h", env={"SPUR_STALE_OK": "1"}) == (0, "", told)
    assert peer.metadata("GetJobs")["x-spur-stale-ok"] == "1"
    peer.trailing = (("x-spur-stale", "applied=7 silent=0.1"),)
    assert cli("squeue", "-h", env={"SPUR_STALE_OK": "1"}) == (0, "", "")
    peer.trailing = ()
    assert cli("squeue", "-h") == (0, "", "")
    assert "x-spur-stale-ok" not in peer.metadata("GetJobs")


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf"])
def test_a_bad_patience_is_told(cli, text):
    assert cli("squeue", env={"SPUR_RETRY_SECS": text}) == (
        1,
        "",
        f"squeue: fatal: SPUR_RETRY_SECS: {text} is not a number of seconds\n",
    )


def test_waiting_goes_on_with_a_controller_that_was_never_named(cli, group):
    """`sbatch --wait` knows one controller, learns of the other, and loses the first."""
    first, second = group
    running = pb.GetJobsResponse(jobs=[c.JobInfo(job_id=7, state=c.JOB_STATE_RUNNING)])
    done = c.JobInfo(job_id=7, state=c.JOB_STATE_FAILED, exit=c.ExitStatus(code=3))
    first.answers["SubmitJob"] = pb.SubmitJobResponse(job_id=7)
    first.answers["GetJobs"] = running
    second.answers["GetJobs"] = pb.GetJobsResponse(jobs=[done])

    def told(request):
        threading.Timer(0.2, first.stop).start()
        return ping(group, 1, 1)

    first.answers["Ping"] = told
    result = cli("sbatch", "--wait", "--wrap", "x", env={"SPUR_CONTROLLER_ADDR": first.address})
    assert result == (3, "Submitted batch job 7\n", "")


@pytest.mark.parametrize("how", ["dies", "falls silent"])
def test_a_watch_goes_on_at_another_controller(cli, group, names, make_wire, how):
    """salloc --no-shell waits for its allocation; the controller that it watches goes."""
    first, second = group
    wire = make_wire(first.port)
    job = c.JobInfo(job_id=9, state=c.JOB_STATE_PENDING)
    over = threading.Event()

    def watched(request):
        yield pb.WatchJobResponse(job=job)
        if how == "dies":
            threading.Thread(target=first.stop).start()
        else:
            wire.cut()
        over.wait(20)

    ready = c.JobInfo(job_id=9, state=c.JOB_STATE_RUNNING, nodelist="n1", num_nodes=1)
    for one in group:
        one.answers["SubmitJob"] = pb.SubmitJobResponse(job_id=9)
    first.answers["WatchJob"] = watched
    second.answers["WatchJob"] = lambda request: iter([pb.WatchJobResponse(job=ready)])
    env = {**names, "SPUR_CONTROLLER_ADDR": f"{wire.address},{second.address}"}
    begun = time.monotonic()
    try:
        result = cli("salloc", "--no-shell", env=env)
    finally:
        over.set()
    assert result.code == 0, result.err
    assert "Nodes n1 are ready for job" in result.err
    assert time.monotonic() - begun < 6


def test_ping_shows_the_whole_group(cli, group, names, free_port):
    first, second = group
    for leader, called in ((2, ("backup", "primary")), (1, ("primary", "backup"))):
        first.answers["Ping"] = ping(group, 1, leader)
        second.answers["Ping"] = ping(group, 2, leader)
        for known in (names, {"SPUR_CONTROLLER_ADDR": second.address}):
            assert cli("scontrol", "ping", env=known) == (
                0,
                f"Slurmctld({called[0]}) at ctl1 is UP\n"
                f"Slurmctld({called[1]}) at ctl2 is UP\n"
                f"Controller {leader} at {group[leader - 1].address} leads, term 7"
                f" (told by controller {leader})\n",
                "",
            )
    first.answers["Ping"] = ping(group, 1)
    second.stop()
    assert cli("scontrol", "ping", env=names) == (
        0,
        "Slurmctld(primary) at ctl1 is UP\nSlurmctld(backup) at 127.0.0.1 is DOWN\n"
        "No controller leads, term 7 (told by controller 1)\n",
        "",
    )


def test_ping_passes_on_what_controllers_cry_out_about(cli, group, names):
    """Each thing once, also when several say it."""
    first, second = group
    text = "at entry 5 the state of controller 1 differs from that of controller 2"
    first.answers["Ping"] = ping(group, 1, 2, alarms=[text])
    second.answers["Ping"] = ping(group, 2, 2, alarms=[text, "another"])
    result = cli("scontrol", "ping", env=names)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-2:] == [f"ALARM: {text}", "ALARM: another"]


@pytest.mark.parametrize(
    ("used", "known", "down", "said"),
    [
        (4, (4, 4), False, []),
        (0, (4, 4), False, []),
        (0, (0, 4), False, []),
        (3, (3, 3), True, []),
        (3, (4, 3), False, ["Commands of version 4 wait for controller 2 (version 3)"]),
        (3, (4, 4), True, ["Commands of version 4 wait for controller 2 (DOWN)"]),
        (3, (3, 4), False, ["Commands of version 4 wait for controller 1 (version 3)"]),
        # Every one has it: a moment later it is used.
        (3, (4, 4), False, []),
    ],
)
def test_ping_says_for_whom_newer_commands_wait(cli, group, names, used, known, down, said):
    told = [pb.ControllerInfo(id=at, command_version=one) for at, one in enumerate(known, 1)]
    for at, one in enumerate(group, 1):
        answer = ping(group, at, 1, command_version=used)
        for info, of in zip(answer.members, told, strict=True):
            info.MergeFrom(of)
        one.answers["Ping"] = answer
    if down:
        group[1].stop()
    assert cli("scontrol", "ping", env=names).out.splitlines()[3:] == said


def test_a_deaf_controller_is_down(cli, group, names):
    with deaf() as address:
        begun = time.monotonic()
        env = {"SPUR_CONTROLLER_ADDR": address}
        result = cli("scontrol", "ping", env=env)
        assert result == (1, "Slurmctld(primary) at 127.0.0.1 is DOWN\n", "")
        assert time.monotonic() - begun < 5


def test_takeover(cli, group, names):
    first, second = group
    first.answers["Ping"] = ping(group, 1, 1)
    second.answers["Ping"] = ping(group, 2, 1)
    first.answers["Takeover"] = lambda request: pb.TakeoverResponse(leader_id=request.member)
    for words in ([], ["2"]):
        assert cli("scontrol", "takeover", *words, env=names) == (0, "", "")
        assert first.last("Takeover").member == 2
    first.answers["Takeover"] = pb.TakeoverResponse(leader_id=1)
    assert cli("scontrol", "takeover", "2", env=names) == (
        1,
        "",
        "slurm_takeover error: controller 1 leads now, not 2\n",
    )
    second.stop()
    assert cli("scontrol", "takeover", env=names).err == (
        "slurm_takeover error: there is no other controller that is up\n"
    )
    assert cli("scontrol", "takeover", "x", env=names).err.startswith("scontrol: error: takeover: x is not")
    assert cli("scontrol", "takeover", "1", "2", env=names).code == 1


def test_takeover_is_refused_in_the_controllers_words(cli, group, names, refuse):
    group[0].answers["Takeover"] = raising(refuse(grpc.StatusCode.PERMISSION_DENIED, "only administrators"))
    assert cli("scontrol", "takeover", "2", env=names) == (
        1,
        "",
        "slurm_takeover error: only administrators\n",
    )


def test_sdiag_tells_of_the_controllers(cli, group, names):
    first, second = group
    first.answers["Ping"] = ping(group, 1, 2)
    second.answers["Ping"] = ping(group, 2, 2)
    second.answers["GetStatistics"] = pb.GetStatisticsResponse(at=100, since=100)
    first.answers["GetStatistics"] = pb.GetStatisticsResponse(at=100, since=100)
    result = cli("sdiag", env=names)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith(
        "\tNo pending RPCs\n"
        "\n"
        "Controllers\n"
        "\tAnswered by:  2 at ctl2\n"
        f"\tLeader:       2 at {second.address}\n"
        "\tTerm:         7\n"
        "\tLog applied:  62\n"
        f"\t1 at {first.address}: UP, applied 61, leader silent for 0.2 s, log 71, version 0.2.0\n"
        f"\t2 at {second.address}: UP, applied 62, log 72, version 0.2.0\n"
    )


def test_sdiag_tells_of_the_controllers_when_nobody_counts(cli, peer, free_port):
    peer.answers["Ping"] = pb.PingResponse(hostname="ctl1", cluster_name="alpha")
    result = cli("sdiag")
    assert result.out.endswith("Controllers\n\tAnswered by:  ctl1\n")
    assert (result.code, result.err) == (
        1,
        "slurm_get_statistics: Requested operation not supported on this system\n",
    )
    assert cli("sdiag", env={"SPUR_CONTROLLER_ADDR": f"127.0.0.1:{free_port}"}) == (
        1,
        "",
        f"slurm_get_statistics: {CONNECT_FAILURE}\n",
    )
    assert cli("sdiag", "x").code == 1


def test_several_backups_are_numbered_from_one():
    def called(leader: int, *numbers: int) -> list[str]:
        members = [Member(f"ctl{number}:6817", number, None, True) for number in numbers]
        return roles(Group(members, pb.PingResponse(leader_id=leader)))

    assert called(2, 1, 2, 3) == ["backup1", "primary", "backup2"]
    assert called(0, 1, 2, 3) == ["primary", "backup1", "backup2"]
    assert called(2, 1, 2) == ["backup", "primary"]

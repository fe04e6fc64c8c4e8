"""Reservations and licences on the command line: scontrol, sinfo, squeue, sbatch."""

from typing import Any

import pytest

from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

#: As in conftest.
NOW = 1796032800.0
RESV = c.ReservationInfo(
    name="r1",
    start_at=NOW,
    end_at=NOW + 600,
    nodes="n1",
    node_names=["n1"],
    node_count=1,
    core_count=4,
    partition="debug",
    flags=["MAINT", "DAILY", "SPEC_NODES"],
    users=["root"],
    tres="cpu=4",
    state="ACTIVE",
)
RECORD = """\
ReservationName=r1 StartTime=2026-11-30T10:00:00 EndTime=2026-11-30T10:10:00 Duration=00:10:00
   Nodes=n1 NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=debug Flags=MAINT,DAILY,SPEC_NODES
   TRES=cpu=4
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)

"""


@pytest.fixture
def cluster(peer: Any) -> Any:
    peer.answers.update(
        Ping=pb.PingResponse(hostname="ctl1", cluster_name="alpha"),
        ListReservations=pb.ListReservationsResponse(reservations=[RESV]),
        CreateReservation=pb.CreateReservationResponse(name="root_1"),
        UpdateReservation=pb.UpdateReservationResponse(),
        DeleteReservation=pb.DeleteReservationResponse(),
        GetLicenses=pb.GetLicensesResponse(
            licenses=[c.LicenseInfo(name="matlab", total=10, used=3, reserved=2)]
        ),
    )
    return peer


def test_show(cli: Any, cluster: Any) -> None:
    assert cli("scontrol", "show", "reservation") == (0, RECORD, "")
    assert cli("scontrol", "show", "res", "r1") == (0, RECORD, "")
    assert cli("scontrol", "show", "res", "x") == (1, "", "Reservation x not found\n")
    one_line = cli("scontrol", "-o", "show", "res").out
    assert one_line == " ".join(RECORD.split()) + "\n"
    assert all("=" in word for word in one_line.split())


def test_sinfo_table(cli: Any, cluster: Any) -> None:
    assert cli("sinfo", "-T").out == (
        "RESV_NAME     STATE           START_TIME             END_TIME     DURATION  NODELIST\n"
        "r1           ACTIVE  2026-11-30T10:00:00  2026-11-30T10:10:00     00:10:00  n1\n"
    )


def test_licenses(cli: Any, cluster: Any) -> None:
    text = "LicenseName=matlab\n    Total=10 Used=3 Free=7 Reserved=2 Remote=no\n"
    assert cli("scontrol", "show", "lic") == (0, text, "")
    assert cli("scontrol", "-o", "show", "lic").out == text.replace("\n    ", " ")
    assert cli("scontrol", "show", "lic", "other").out == ""


CREATED = [
    (
        "create reservation starttime=now duration=60 users=root nodes=n1 flags=maint,ignore_jobs",
        {
            "start_at": NOW,
            "duration_secs": 3600,
            "users": ["root"],
            "nodes": "n1",
            "flags": ["maint", "ignore_jobs"],
        },
    ),
    (
        "create ReservationName=r1 StartTime=2026-12-01T08:00 EndTime=2026-12-01T10:00 accounts=-a,-b"
        " nodecnt=2,3 PartitionName=debug Features=fast",
        {
            "name": "r1",
            "start_at": NOW + 79_200,
            "end_at": NOW + 86_400,
            "accounts": ["-a", "-b"],
            "node_count": 5,
            "partition": "debug",
            "features": "fast",
        },
    ),
    (
        "create res=x start=now dur=unlimited groups=staff TRES=cpu=6,node=2,license/m=3",
        {
            "name": "x",
            "start_at": NOW,
            "duration_secs": 4294967295,
            "groups": ["staff"],
            "core_counts": [6],
            "node_count": 2,
            "licenses": "m:3",
        },
    ),
    (
        "create reservation=y starttime=now+1hour duration=1:00:00 user=a nodes=ALL flags=daily,purge=10",
        {
            "name": "y",
            "start_at": NOW + 3600,
            "duration_secs": 3600,
            "users": ["a"],
            "nodes": "ALL",
            "flags": ["daily", "purge"],
            "purge_comp_secs": 600,
        },
    ),
]


@pytest.mark.parametrize(("line", "fields"), CREATED, ids=[str(number) for number in range(len(CREATED))])
def test_create(cli: Any, cluster: Any, line: str, fields: dict[str, Any]) -> None:
    assert cli("scontrol", *line.split()) == (0, "Reservation created: root_1\n", "")
    assert cluster.last("CreateReservation") == pb.CreateReservationRequest(**fields)


REFUSED = [
    ("create", "too few arguments for keyword:create\n"),
    ("create bogus x=1", "Invalid entity: bogus for keyword:create \n"),
    ("create reservation users=a", "A start time must be given.  No reservation created.\n"),
    (
        "create reservation starttime=now users=a nodes=n1",
        "An end time or duration must be given.  No reservation created.\n",
    ),
    (
        "create reservation starttime=now duration=5 users=a",
        "Nodes, NodeCnt, CoreCnt or Licenses must be specified.  No reservation created.\n",
    ),
    (
        "create reservation starttime=now duration=5 nodes=n1",
        "Either Users/Groups and/or Accounts must be specified.  No reservation created.\n",
    ),
    (
        "create reservation starttime=now endtime=now+1hour duration=5 nodes=n1 users=a",
        "StartTime, EndTime, and Duration are not consistent.  No reservation created.\n",
    ),
    (
        "create reservation starttime=soon duration=5",
        "Invalid time specification (pos=0): soon.  No reservation created.\n",
    ),
    (
        "create reservation starttime=now duration=0 nodes=n1 users=a",
        "Invalid duration: 0 (write a time, such as 1:00:00, or UNLIMITED).  No reservation created.\n",
    ),
    (
        "create reservation bogus=1",
        "Update of this parameter is not supported: bogus=1\nRequest aborted\n",
    ),
    (
        "create reservation maxstartdelay=5",
        "scontrol: error: maxstartdelay is not supported by this release\n",
    ),
    ("create reservation tres=gres/gpu=1", None),
    ("update reservation=r1", "No changes specified\n"),
    ("update ReservationName=r1 skip=maybe", "Invalid value, use yes or no: maybe\nRequest aborted\n"),
    ("delete reservation", None),
    ("delete", "too few arguments for keyword:delete\n"),
]


@pytest.mark.parametrize(("line", "err"), REFUSED, ids=[row[0] for row in REFUSED])
def test_mistakes(cli: Any, cluster: Any, line: str, err: str | None) -> None:
    result = cli("scontrol", *line.split())
    assert (result.code, result.out) == (1, "")
    assert err is None or result.err == err
    assert result.err


UPDATED = [
    ("duration=30", {"duration_secs": 1800}),
    ("duration+=30", {"duration_delta_secs": 1800}),
    ("duration=-30", {"duration_delta_secs": -1800}),
    ("starttime=now+60minutes endtime=now+2hours", {"start_at": NOW + 3600, "end_at": NOW + 7200}),
    ("users=a,b", {"users": pb.ListChange(replace=True, set=["a", "b"])}),
    ("users=-a,-b", {"users": pb.ListChange(replace=True, set=["-a", "-b"])}),
    ("users=+c,-a", {"users": pb.ListChange(add=["c"], remove=["a"])}),
    ("users+=c accounts-=x", {"users": pb.ListChange(add=["c"]), "accounts": pb.ListChange(remove=["x"])}),
    ("nodes+=n[2-3]", {"nodes": pb.ListChange(add=["n[2-3]"])}),
    ("nodes=-n1", {"nodes": pb.ListChange(remove=["n1"])}),
    ("nodes=n[1-2]", {"nodes": pb.ListChange(replace=True, set=["n[1-2]"])}),
    ("flags+=FLEX flags-=MAINT", {"flags": pb.ListChange(add=["FLEX"], remove=["MAINT"])}),
    ("flags=-MAINT,OVERLAP", {"flags": pb.ListChange(add=["OVERLAP"], remove=["MAINT"])}),
    ("skip", {"skip": True}),
    ("skip=yes nodecnt=4", {"skip": True, "node_count": 4}),
    ("licenses=m:2 comment=x", {"licenses": "m:2", "comment": "x"}),
]


@pytest.mark.parametrize(("words", "fields"), UPDATED, ids=[row[0] for row in UPDATED])
def test_update(cli: Any, cluster: Any, words: str, fields: dict[str, Any]) -> None:
    for selector in ("ReservationName=r1", "reservation=r1", "res=r1"):
        assert cli("scontrol", "update", selector, *words.split()) == (0, "Reservation updated.\n", "")
        assert cluster.last("UpdateReservation") == pb.UpdateReservationRequest(name="r1", **fields)


@pytest.mark.parametrize(
    "words",
    ["reservation r1", "ReservationName=r1", "reservation=r1", "res r1", "reservation ReservationName=r1"],
)
def test_delete(cli: Any, cluster: Any, words: str) -> None:
    assert cli("scontrol", "delete", *words.split()) == (0, "", "")
    assert cluster.last("DeleteReservation").name == "r1"


def test_the_query_options(cli: Any, cluster: Any) -> None:
    job = c.JobInfo(
        job_id=5, state=c.JOB_STATE_RUNNING, reservation="r1", licenses="m:2|x:1", licenses_alloc="m:2"
    )
    cluster.answers["GetJobs"] = pb.GetJobsResponse(
        jobs=[job, c.JobInfo(job_id=6, state=c.JOB_STATE_PENDING)]
    )
    assert cli("squeue", "-h", "-o", "%i %v %W").out == "6 (null) (null)\n5 r1 m:2\n"
    assert cli("squeue", "-h", "-o", "%i", "-R", "r1").out == "5\n"
    assert cli("squeue", "-h", "-o", "%i", "-L", "m,z").out == "5\n"
    assert cli("squeue", "-h", "-o", "%i", "-L", "x").out == ""
    shown = cli("scontrol", "show", "job", "5").out
    assert "\n   Reservation=r1\n" in shown
    assert " Licenses=m:2|x:1 LicensesAlloc=m:2 " in shown


def test_scancel_by_reservation(cli: Any, cluster: Any) -> None:
    jobs = [
        c.JobInfo(job_id=5, state=c.JOB_STATE_RUNNING, reservation="r1"),
        c.JobInfo(job_id=6, state=c.JOB_STATE_PENDING, reservation="r2"),
    ]
    cluster.answers["GetJobs"] = pb.GetJobsResponse(jobs=jobs)
    cluster.answers["CancelJob"] = pb.CancelJobResponse()
    assert cli("scancel", "-R", "r1").code == 0
    assert [target.job_id for target in cluster.last("CancelJob").targets] == [5]


def test_nodes_under_reservations(cli: Any, cluster: Any) -> None:
    def node(name: str, base: int, flags: int, kept: str) -> c.NodeInfo:
        return c.NodeInfo(name=name, base=base, flags=flags, cpus=4, reservation=kept)  # type: ignore[arg-type]

    cluster.answers["GetNodes"] = pb.GetNodesResponse(
        nodes=[node("n1", 3, 16, "m"), node("n2", 3, 32, "r"), node("n3", 4, 16, "m"), node("n4", 4, 32, "r")]
    )
    cluster.answers["GetPartitions"] = pb.GetPartitionsResponse(
        partitions=[
            c.PartitionInfo(name="p", state="UP", nodes="n[1-4]", node_names=["n1", "n2", "n3", "n4"])
        ]
    )
    out = cli("sinfo", "-h", "-N", "-o", "%N %t %T %i").out
    assert out == "n1 maint maint m\nn2 resv reserved r\nn3 alloc$ allocated$ m\nn4 alloc allocated r\n"
    assert cli("sinfo", "-h", "-t", "resv", "-o", "%N").out == "n[2,4]\n"
    shown = cli("scontrol", "show", "node", "n1").out
    assert "State=IDLE+MAINT " in shown
    assert "ReservationName=m" in shown


def test_submission(cli: Any, cluster: Any) -> None:
    cluster.answers["SubmitJob"] = pb.SubmitJobResponse(job_id=7)
    cli("sbatch", "--reservation=a,b", "-L", "m:2,x", "--wrap", "true")
    spec = cluster.last("SubmitJob").spec
    assert (spec.reservation, spec.licenses) == ("a,b", "m:2,x")
    cli("sbatch", "--wrap", "true", env={"SBATCH_RESERVATION": "c"})
    assert cluster.last("SubmitJob").spec.reservation == "c"
    cli("sbatch", "--license=m", "--wrap", "true")
    assert cluster.last("SubmitJob").spec.licenses == "m"


def test_a_job_is_moved(cli: Any, cluster: Any) -> None:
    cluster.answers["UpdateJob"] = pb.UpdateJobResponse()
    assert cli("scontrol", "update", "JobId=5", "ReservationName=r2", "Licenses=m:1").code == 0
    request = cluster.last("UpdateJob")
    assert (request.reservation, request.licenses) == ("r2", "m:1")

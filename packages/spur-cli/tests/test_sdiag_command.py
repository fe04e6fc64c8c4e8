"""sdiag: Slurm's labels, the order of calls, resetting."""

import pytest

from spur_proto import controller_pb2 as pb

NOW = 1796032800.0
TOLD = pb.GetStatisticsResponse(
    at=NOW,
    since=NOW - 600,
    calls_open=3,
    agent_calls_open=2,
    accounting_queue=1,
    jobs_submitted=37,
    jobs_started=21,
    jobs_completed=16,
    jobs_canceled=14,
    jobs_failed=2,
    jobs_pending=1,
    jobs_running=2,
    clock_micros=23,
    scheduler=pb.SchedulerFigures(
        cycles=18,
        last_secs=0.000685,
        most_secs=0.00104,
        total_secs=0.00318,
        last_depth=2,
        total_depth=18,
        queue=2,
        backfill_cycles=2,
        backfill_last_secs=0.0004,
        backfill_most_secs=0.0005,
        backfill_total_secs=0.0009,
        backfill_last_at=NOW - 60,
        backfill_last_depth=3,
        backfill_total_depth=8,
        started=21,
        first_at=NOW - 120,
        backfilled=4,
        backfilled_ever=6,
        whole=17,
        total_queue=54,
        last_planned=1,
        total_planned=36,
    ),
    by_method=[
        pb.CallCount(name="GetPartitions", count=55, total_secs=0.012159),
        pb.CallCount(name="Heartbeat", count=60, total_secs=0.006),
        pb.CallCount(name="SubmitJob", count=37, total_secs=0.037),
    ],
    by_user=[
        pb.CallCount(name="alice", uid=1000, count=20, total_secs=0.004),
        pb.CallCount(name="root", uid=0, count=120, total_secs=0.036),
    ],
)


@pytest.fixture
def counting(peer):
    peer.answers["Ping"] = pb.PingResponse(hostname="ctl1", cluster_name="alpha")
    peer.answers["GetStatistics"] = TOLD
    return peer


def test_every_label(cli, counting):
    result = cli("sdiag")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "*******************************************************\n"
        "sdiag output at Mon Nov 30 10:00:00 2026 (1796032800)\n"
        "Data since      Mon Nov 30 09:50:00 2026 (1796032200)\n"
        "*******************************************************\n"
        "Server thread count:  3\n"
        "RPC queue enabled:    0\n"
        "Agent queue size:     0\n"
        "Agent count:          2\n"
        "Agent thread count:   2\n"
        "DBD Agent queue size: 1\n"
        "\n"
        "Jobs submitted: 37\n"
        "Jobs started:   21\n"
        "Jobs completed: 16\n"
        "Jobs canceled:  14\n"
        "Jobs failed:    2\n"
        "\n"
        "Job states ts:  Mon Nov 30 10:00:00 2026 (1796032800)\n"
        "Jobs pending:   1\n"
        "Jobs running:   2\n"
        "\n"
        "Main schedule statistics (microseconds):\n"
        "\tLast cycle:   685\n"
        "\tMax cycle:    1040\n"
        "\tTotal cycles: 18\n"
        "\tMean cycle:   177\n"
        "\tMean depth cycle:  1\n"
        "\tCycles per minute: 9\n"
        "\tLast queue length: 2\n"
        "\n"
        "Main scheduler exit:\n"
        "\tEnd of job queue:17\n"
        "\tTimeout (max_sched_time):1\n"
        "\n"
        "Backfilling stats\n"
        "\tTotal backfilled jobs (since last slurm start): 6\n"
        "\tTotal backfilled jobs (since last stats cycle start): 4\n"
        "\tTotal backfilled heterogeneous job components: 0\n"
        "\tTotal cycles: 2\n"
        "\tLast cycle when: Mon Nov 30 09:59:00 2026 (1796032740)\n"
        "\tLast cycle: 400\n"
        "\tMax cycle:  500\n"
        "\tMean cycle: 450\n"
        "\tLast depth cycle: 3\n"
        "\tLast depth cycle (try sched): 3\n"
        "\tDepth Mean: 4\n"
        "\tDepth Mean (try depth): 4\n"
        "\tLast queue length: 2\n"
        "\tQueue length mean: 3\n"
        "\tLast table size: 1\n"
        "\tMean table size: 2\n"
        "\n"
        "Latency for 1000 calls to gettimeofday(): 23 microseconds\n"
        "\n"
        "Remote Procedure Call statistics by message type\n"
        "\tREQUEST_HEARTBEAT                       (    0) count:60     ave_time:100    total_time:6000\n"
        "\tREQUEST_PARTITION_INFO                  ( 2009) count:55     ave_time:221    total_time:12159\n"
        "\tREQUEST_SUBMIT_BATCH_JOB                ( 4003) count:37     ave_time:1000   total_time:37000\n"
        "\n"
        "Remote Procedure Call statistics by user\n"
        "\troot            (       0) count:120    ave_time:300    total_time:36000\n"
        "\talice           (    1000) count:20     ave_time:200    total_time:4000\n"
        "\n"
        "Pending RPC statistics\n"
        "\tNo pending RPCs\n"
        "\n"
        "Controllers\n"
        "\tAnswered by:  ctl1\n"
    )


BEATS, PARTS, SUBMITS = "REQUEST_HEARTBEAT", "REQUEST_PARTITION_INFO", "REQUEST_SUBMIT_BATCH_JOB"


@pytest.mark.parametrize(
    ("option", "names"),
    [
        ("-a", [BEATS, PARTS, SUBMITS, "root", "alice"]),
        ("-i", [BEATS, PARTS, SUBMITS, "root", "alice"]),
        ("-t", [SUBMITS, PARTS, BEATS, "root", "alice"]),
        ("-T", [SUBMITS, PARTS, BEATS, "root", "alice"]),
        ("--sort-by-time", [SUBMITS, PARTS, BEATS, "root", "alice"]),
    ],
)
def test_the_order_of_calls(cli, counting, option, names):
    lines = cli("sdiag", option).out.splitlines()
    assert [line.split()[0] for line in lines if " total_time:" in line] == names


def test_resetting(cli, counting):
    assert cli("sdiag", "-r") == (0, "Reset scheduling statistics\n", "")
    assert counting.last("GetStatistics").reset


def test_a_controller_that_has_scheduled_nothing(cli, counting):
    counting.answers["GetStatistics"] = pb.GetStatisticsResponse(at=NOW, since=NOW)
    out = cli("sdiag").out
    assert "\tLast cycle when: N/A\n" in out
    assert "\tMean cycle:   0\n" in out

"""The reader of `sacct -P`."""

import pytest

from spur_sched.simulate import sacct
from spur_sched.simulate.trace import TraceError

HEAD = "JobID|Submit|Start|End|Elapsed|Timelimit|AllocCPUS|NNodes|ReqMem|State|Partition|User|Account"
GOOD = (
    "7|2024-01-05T10:00:00|2024-01-05T10:01:00|2024-01-05T11:01:00|01:00:00|02:00:00|8|2|16G|COMPLETED"
    "|batch|ada|bio"
)


def read(*lines):
    return sacct.read("t.txt", enumerate((line + "\n" for line in lines), 1))


def changed(**values):
    fields = dict(zip(HEAD.split("|"), GOOD.split("|"), strict=True)) | values
    return "|".join(fields.values())


def test_all_that_a_line_tells():
    (job,) = read(HEAD, GOOD).jobs
    assert (job.line, job.name, job.run, job.limit, job.cpus, job.nodes) == (2, "7", 3600, 7200, 8, 2)
    assert (job.memory_per_cpu_mb, job.memory_per_node_mb) == (2048, None)
    assert (job.partition, job.user, job.account, job.waited) == ("batch", "ada", "bio", 60)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"Timelimit": "1-00:30:00"}, {"limit": 88200}),
        ({"Timelimit": "UNLIMITED"}, {"limit": None, "unlimited": True}),
        ({"Timelimit": "Partition_Limit"}, {"limit": None, "unlimited": False}),
        ({"Elapsed": "2-01:00:30"}, {"run": 176430}),
        ({"Elapsed": "05:30"}, {"run": 330}),
        ({"Elapsed": ""}, {"run": 3600}),
        ({"ReqMem": "4000Mc"}, {"memory_per_cpu_mb": 4000, "memory_per_node_mb": None}),
        ({"ReqMem": "4Gn"}, {"memory_per_cpu_mb": None, "memory_per_node_mb": 4096}),
        ({"ReqMem": "2.5G"}, {"memory_per_cpu_mb": 320}),
        ({"ReqMem": "0n"}, {"memory_per_cpu_mb": None, "memory_per_node_mb": None}),
        ({"ReqMem": ""}, {"memory_per_cpu_mb": None}),
        ({"NNodes": ""}, {"nodes": None}),
        ({"State": "CANCELLED by 1000"}, {"run": 3600}),
        ({"State": "TIMEOUT"}, {"run": 3600}),
        ({"JobID": "7_3"}, {"name": "7_3"}),
        ({"JobID": "7+1"}, {"name": "7+1"}),
        ({"Submit": "1704448800", "Start": "1704448860"}, {"waited": 60}),
        ({"Submit": "2024-01-05T10:00:00+00:00"}, {"submit": 1704448800}),
    ],
)
def test_forms_of_values(values, found):
    (job,) = read(HEAD, changed(**values)).jobs
    assert {name: getattr(job, name) for name in found} == found


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({"JobID": "7.batch"}, "1 line left out: steps of jobs"),
        ({"JobID": "7.0"}, "1 line left out: steps of jobs"),
        ({"JobID": "7_3.extern"}, "1 line left out: steps of jobs"),
        ({"State": "PENDING", "Start": "Unknown"}, "1 job left out: not finished when the trace was made"),
        ({"State": "RUNNING", "End": "Unknown"}, "1 job left out: not finished when the trace was made"),
        ({"JobID": "7_[4-9%2]"}, "1 job left out: not finished when the trace was made"),
        (
            {"State": "CANCELLED", "Start": "None", "Elapsed": "00:00:00", "AllocCPUS": "0"},
            "1 job left out: never ran",
        ),
    ],
)
def test_what_is_left_out_is_said(values, note):
    trace = read(HEAD, changed(**values))
    assert (trace.jobs, trace.notes) == ((), (note,))


def test_columns_in_any_order_and_few_of_them():
    (job,) = read("elapsed|reqcpus|submit|jobid", "10:00|4|2024-01-05T10:00:00|9").jobs
    assert (job.name, job.cpus, job.run, job.limit, job.waited) == ("9", 4, 600, None, None)


def test_p_with_a_bar_at_the_end():
    (job,) = read(HEAD + "|", GOOD + "|").jobs
    assert job.account == "bio"


def test_jobs_come_by_submission():
    trace = read(HEAD, GOOD, changed(JobID="8", Submit="2024-01-05T09:00:00"))
    assert [job.name for job in trace.jobs] == ["8", "7"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "t.txt:1: no header line; make the trace with: sacct -a -X -P"),
        (["JobID|Submit|Elapsed"], "t.txt:1: no column AllocCPUS or ReqCPUS; make the trace with: sacct"),
        (["JobID|Submit|AllocCPUS|Start"], "t.txt:1: no column Elapsed or End; make the trace with: sacct"),
        ([HEAD, GOOD + "|x"], "t.txt:2: 14 columns under a header of 13; leave out columns whose text"),
        (
            [HEAD, changed(JobID="seven")],
            "t.txt:2: JobID 'seven' is no job; expected as `sacct -P` prints it",
        ),
        ([HEAD, changed(Submit="monday")], "t.txt:2: Submit 'monday' cannot be read"),
        ([HEAD, changed(Submit="Unknown")], "t.txt:2: Submit 'Unknown' is no time"),
        ([HEAD, changed(Elapsed="long")], "t.txt:2: Elapsed 'long' cannot be read"),
        ([HEAD, changed(AllocCPUS="0")], "t.txt:2: AllocCPUS '0' is no number of CPUs"),
        ([HEAD, changed(AllocCPUS="two")], "t.txt:2: AllocCPUS 'two' cannot be read"),
        ([HEAD, changed(ReqMem="lots")], "t.txt:2: ReqMem 'lots' cannot be read"),
        ([HEAD, changed(Timelimit="soon")], "t.txt:2: Timelimit 'soon' cannot be read"),
        ([HEAD, GOOD, GOOD], "t.txt:3: job 7 is on line 2 too; leave out --duplicates"),
    ],
)
def test_a_bad_line_is_named(lines, text):
    with pytest.raises(TraceError) as caught:
        read(*lines)
    assert caught.value.text.startswith(text)
    assert "\n" not in caught.value.text

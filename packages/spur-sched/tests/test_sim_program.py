"""The simulator as a program: clusters, options, reports, mistakes."""

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from spur_sched.simulate import program

EXAMPLE = Path(__file__).parents[1] / "examples/made-up.swf"
TRACE = """\
; MaxNodes: 2
; MaxProcs: 4
1 0 -1 100 4 -1 -1 4 100 -1 1 1 1 -1 1 -1 -1 -1
2 1 -1 50 2 -1 -1 2 50 -1 1 1 1 -1 1 -1 -1 -1
3 2 -1 50 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1
"""
CONF = """\
cluster_name = "t"
[[nodes]]
names = "n[1-2]"
cpus = 2
memory_mb = 4000
[[partitions]]
name = "batch"
default = true
nodes = "n[1-2]"
max_time = "1:00:00"
[[partitions]]
name = "small"
nodes = "n1"
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.swf"
    path.write_text(TRACE)
    return str(path)


@pytest.fixture
def call(capsys):
    def run(*words):
        code = program.main([str(word) for word in words])
        done = capsys.readouterr()
        return code, done.out, done.err

    return run


def test_a_table(call, trace):
    code, out, err = call(trace)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{trace}: 3 jobs on 2 nodes with 4 CPUs"
    assert lines[-2].split()[:3] == ["POLICY", "JOBS", "WAIT_MEAN"]
    # Jobs 2 and 3 wait for job 1's end: 0, 99 and 98 seconds.
    assert lines[-1].split() == [
        "easy",
        "3",
        "00:01:06",
        "00:01:38",
        "00:01:39",
        "00:01:39",
        "2.31",
        "2.98",
        "100.0%",
        "00:02:30",
        "0",
    ]


def test_json_and_starts(call, trace, tmp_path):
    code, out, _ = call(trace, "--json", "--policy", "easy", "--starts", tmp_path / "s.csv")
    assert code == 0
    found = json.loads(out)
    assert (found["nodes"], found["cpus"], found["format"], found["notes"]) == (2, 4, "swf", [])
    (easy,) = found["policies"]
    assert (easy["policy"], easy["jobs"], easy["makespan"], easy["utilisation"]) == ("easy", 3, 150, 1.0)
    assert easy["never_started"] == []
    with (tmp_path / "s.csv").open() as text:
        rows = list(csv.DictReader(text))
    assert [(row["job"], row["start"], row["end"], row["nodes"]) for row in rows] == [
        ("1", "0", "100", "n[1-2]"),
        ("2", "100", "150", "n1"),
        ("3", "100", "150", "n2"),
    ]
    call(trace, "--starts", tmp_path / "s.json")
    assert [row["order"] for row in json.loads((tmp_path / "s.json").read_text())] == [1, 2, 3]


def test_gzip_and_standard_input(tmp_path, trace, call):
    packed = tmp_path / "t.swf.gz"
    packed.write_bytes(gzip.compress(TRACE.encode()))
    assert call(packed)[1].splitlines()[-1] == call(trace)[1].splitlines()[-1]
    done = subprocess.run(
        [sys.executable, "-m", "spur_sched.simulate", "-"],
        input=TRACE.encode(),
        capture_output=True,
        check=True,
    )
    assert done.stdout.startswith(b"standard input: 3 jobs")


def test_a_cluster_from_a_file(call, tmp_path):
    conf = tmp_path / "spur.conf"
    conf.write_text(CONF)
    jobs = tmp_path / "t.txt"
    jobs.write_text(
        "JobID|Submit|Elapsed|AllocCPUS|ReqMem|Partition\n"
        "1|2024-01-01T00:00:00|10:00|2|4000Mn|batch\n"
        "2|2024-01-01T00:00:00|10:00|2|4000Mn|small\n"
        "3|2024-01-01T00:00:00|10:00|1|4000Mn|small\n"
    )
    code, out, err = call(jobs, "--cluster", conf, "--starts", tmp_path / "s.json")
    assert (code, err) == (0, "")
    assert "3 jobs without a recorded time limit: the run time is taken" in out
    rows = json.loads((tmp_path / "s.json").read_text())
    assert {row["job"]: row["wait"] for row in rows} in (
        {"1": 0, "2": 600, "3": 1200},
        {"1": 0, "2": 0, "3": 600},
    )
    jobs.write_text("JobID|Submit|Elapsed|AllocCPUS|Partition\n1|2024-01-01T00:00:00|10:00|2|gpu\n")
    code, _, err = call(jobs, "--cluster", conf)
    assert code == 1
    assert f"{jobs}:2: job 1 is of partition 'gpu', which the cluster does not have" in err
    assert call(jobs, "--cluster", conf, "--any-partition")[0] == 0


def test_the_scheduler_of_the_file(call, tmp_path, trace):
    """Its policy unless another is asked for, and its partitions' rules."""
    conf = tmp_path / "spur.conf"
    text = CONF.replace("[[nodes]]", '[scheduler]\nbackfill = "conservative"\n[[nodes]]')
    conf.write_text(text.replace("default = true", 'default = true\noversubscribe = "EXCLUSIVE"'))
    _, out, _ = call(trace, "--cluster", conf, "--json", "--starts", tmp_path / "s.json")
    assert [one["policy"] for one in json.loads(out)["policies"]] == ["conservative"]
    assert {row["cpus"] for row in json.loads((tmp_path / "s.json").read_text())} == {2, 4}
    _, out, _ = call(trace, "--cluster", conf, "--policy", "fcfs", "--json")
    assert [one["policy"] for one in json.loads(out)["policies"]] == ["none"]


def test_what_can_never_run(call, trace):
    code, _, err = call(trace, "--nodes", 1, "--cpus", 2)
    assert code == 1
    assert err == (
        f"spur simulate: error: {trace}:3: job 1 (4 CPUs) could never run here: More processors requested"
        " than permitted; describe a cluster that can, or leave such jobs out with --skip-impossible\n"
    )
    code, out, _ = call(trace, "--nodes", 1, "--cpus", 2, "--skip-impossible")
    assert code == 0
    assert "note: 1 job left out: this cluster could never run them" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "the following arguments are required: TRACE; see spur simulate --help"),
        (["/nowhere.swf"], "/nowhere.swf: No such file or directory"),
        (["T", "--policy", "best"], "--policy 'best': not one of none, fcfs, easy, conservative or all"),
        (["T", "--nodes", "2"], "--nodes: give --cpus too, the CPUs of each node"),
        (["T", "--nodes", "none", "--cpus", "2"], "--nodes 'none' is not a number from 1 to 1000000"),
        (["T", "--memory", "2G"], "--memory and --gres describe a node of --cpus; give --cpus too"),
        (["T", "--cpus", "2", "--memory", "lots"], "--memory 'lots' cannot be read"),
        (["T", "--cpus", "2", "--gres", ":"], "--gres ':': Invalid generic resource (gres) specification"),
        (["T", "--default-time", "x"], "--default-time 'x' cannot be read"),
        (["T", "--bound", "x"], "--bound 'x' is not a number of seconds up to 86400"),
        (["T", "--starts", "x.txt"], "--starts x.txt: the name must end in .csv or .json"),
        (["T", "--cluster", "/no.conf"], "/no.conf: no such file"),
        (["T", "--cluster", "c", "--nodes", "1"], "--nodes and --cluster both say which nodes there are"),
        (["T", "--format", "sacct"], "T:1: no column JobID; make the trace with: sacct"),
    ],
)
def test_mistakes_are_one_line(call, trace, words, text):
    code, _, err = call(*[trace if word == "T" else word for word in words])
    assert code == 1
    assert err.replace(trace, "T").startswith(f"spur simulate: error: {text}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", [b"\x80\x81", b""])
def test_files_that_are_no_traces(call, tmp_path, content):
    path = tmp_path / "x.swf"
    path.write_bytes(content)
    code, _, err = call(path)
    assert code == 1
    assert err.count("\n") == 1
    packed = tmp_path / "x.gz"
    packed.write_bytes(content or b"no gzip")
    assert call(packed)[0] == 1


def test_comments_in_any_encoding(call, tmp_path):
    path = tmp_path / "x.swf"
    path.write_bytes("; Acknowledge: J\u00fcrgen\n".encode("latin-1") + TRACE.encode())
    assert call(path)[0] == 0


def test_limits(call, trace, tmp_path):
    late = tmp_path / "late.swf"
    late.write_text("; MaxProcs: 4\n1 0 -1 100 4 -1 -1 4 60 -1 1 1 1 -1 1 -1 -1 -1\n")
    assert "1 job ran past the time limit: left to run on" in call(late)[1]
    _, out, _ = call(late, "--kill", "--json")
    assert json.loads(out)["policies"][0]["makespan"] == 60
    assert "note" not in call(late, "--exact")[1]
    _, out, _ = call(trace, "--whole-nodes", "--json")
    assert json.loads(out)["policies"][0]["makespan"] == 150


def test_the_example_twice_is_the_same(call, tmp_path):
    first = call(EXAMPLE, "--json", "--starts", tmp_path / "1.csv")
    again = call(EXAMPLE, "--json", "--starts", tmp_path / "2.csv")
    assert first == again
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()

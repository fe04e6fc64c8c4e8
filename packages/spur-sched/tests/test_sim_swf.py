"""The reader of the Standard Workload Format."""

import importlib.util
from pathlib import Path

import pytest

from spur_sched.simulate import swf
from spur_sched.simulate.trace import TraceError

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "packages/spur-sched/examples/made-up.swf"
GOOD = "1 0 5 100 4 -1 -1 4 600 2048 1 3 2 7 1 -1 -1 -1"


def read(*lines):
    return swf.read("t.swf", enumerate(lines, 1))


def changed(column, value, line=GOOD):
    fields = line.split()
    fields[column - 1] = str(value)
    return " ".join(fields)


def test_all_that_a_line_tells():
    (job,) = read("; MaxNodes: 64", ";MaxProcs: 128", "; Note: MaxNodes: 3", "", GOOD).jobs
    assert (job.line, job.name, job.submit, job.run, job.limit, job.cpus) == (5, "1", 0, 100, 600, 4)
    # 2048 kilobytes per processor.
    assert (job.memory_per_cpu_mb, job.user, job.account, job.partition) == (2, "3", "2", "1")
    assert (job.waited, job.nodes, job.unlimited) == (5, None, False)


def test_the_header_tells_the_machine():
    trace = read("; Version: 2.2", "; MaxNodes: 64 ", ";   MaxProcs: 128", GOOD)
    assert (trace.nodes, trace.cpus, trace.notes) == (64, 128, ())
    trace = read("; MaxNodes: -1", GOOD)
    assert (trace.nodes, trace.cpus) == (None, None)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (changed(8, -1), {"cpus": 4}),
        (changed(8, 16), {"cpus": 16}),
        (changed(9, -1), {"limit": None}),
        (changed(10, -1), {"memory_per_cpu_mb": None}),
        (changed(10, 1), {"memory_per_cpu_mb": 1}),
        (changed(4, "0"), {"run": 0}),
        (changed(4, "99.5"), {"run": 99.5}),
        (changed(3, -1), {"waited": None}),
        (changed(12, -1), {"user": ""}),
        (changed(11, 0), {"name": "1"}),
        (changed(11, -1), {"name": "1"}),
        # Cancelled while it ran.
        (changed(11, 5), {"run": 100}),
        ("  " + GOOD.replace(" ", "\t") + " ", {"cpus": 4}),
    ],
)
def test_what_may_be_missing(line, values):
    (job,) = read(line).jobs
    assert {name: getattr(job, name) for name in values} == values


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (changed(11, 5, changed(4, -1)), "1 job left out: cancelled before they ran"),
        (changed(11, 5, changed(4, 0)), "1 job left out: cancelled before they ran"),
        (changed(4, -1), "1 job left out: without a run time"),
        (changed(5, -1, changed(8, -1)), "1 job left out: without a number of processors"),
        (changed(11, 2), "1 line left out: parts of jobs that stand there whole"),
        (changed(11, 3), "1 line left out: parts of jobs that stand there whole"),
        (changed(11, 4), "1 line left out: parts of jobs that stand there whole"),
    ],
)
def test_what_is_left_out_is_said(line, note):
    trace = read(line)
    assert (trace.jobs, trace.notes) == ((), (note,))


def test_parts_carry_the_number_of_the_whole():
    trace = read(GOOD, changed(11, 2), changed(11, 3))
    assert len(trace.jobs) == 1


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["1 2 3"], "t.swf:1: 3 columns instead of 18; unknown values are written -1"),
        (["; MaxNodes: many"], "t.swf:1: MaxNodes 'many' is not a positive number"),
        (["; MaxProcs: 0"], "t.swf:1: MaxProcs '0' is not a positive number"),
        ([GOOD, changed(1, "x")], "t.swf:2: column 1 (job number): 'x' is not a whole number"),
        ([changed(5, "4.5")], "t.swf:1: column 5 (allocated processors): '4.5' is not a whole number"),
        ([changed(4, "nan")], "t.swf:1: column 4 (run time): 'nan' is not a possible value"),
        ([changed(4, "-7")], "t.swf:1: column 4 (run time): '-7' is not a possible value"),
        ([changed(2, "-1")], "t.swf:1: column 2 (submit time): '-1' must be known"),
        ([changed(11, 6)], "t.swf:1: column 11 (status): '6' is not 0 to 5 or -1"),
        ([GOOD, GOOD], "t.swf:2: job 1 is on line 1 too; give each job its own number"),
        (
            [changed(2, 10), changed(1, 2)],
            "t.swf:2: job 2 was submitted at 0, before the job above it (10); sort the jobs by column 2",
        ),
    ],
)
def test_a_bad_line_is_named(lines, text):
    with pytest.raises(TraceError) as caught:
        read(*lines)
    assert caught.value.text.startswith(text)
    assert "\n" not in caught.value.text


def test_the_example_is_what_its_script_makes():
    spec = importlib.util.spec_from_file_location("make_trace", ROOT / "tools/make_trace.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert EXAMPLE.read_text() == module.text(seed=5, count=1000)

"""Output file patterns."""

import os.path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.grammar.filepattern import (
    PatternValues,
    codes,
    default_pattern,
    expand,
    per_node,
    per_task,
    resolve,
    stream_target,
)

BATCH = PatternValues(
    job_id=85,
    array_job_id=None,
    array_task=None,
    step=None,
    task=0,
    node="n1.example.org",
    node_index=0,
    user="ann",
    job_name="run",
    restarts=0,
)
TASK = BATCH._replace(job_id=92, array_job_id=90, array_task=17)
STEP = BATCH._replace(step=3, task=7, node_index=2, restarts=1)


@pytest.mark.parametrize(
    ("pattern", "values", "name"),
    [
        ("slurm-%j.out", BATCH, "slurm-85.out"),
        ("slurm-%A_%a.out", TASK, "slurm-90_17.out"),
        ("%j", TASK, "92"),
        ("%A", BATCH, "85"),
        ("%a", BATCH, "4294967294"),
        ("%J", BATCH, "85"),
        ("%J", STEP, "85.3"),
        ("%s", BATCH, "batch"),
        ("%s", STEP, "3"),
        ("%N", BATCH, "n1"),
        ("%n", STEP, "2"),
        ("%t", BATCH, "0"),
        ("%t", STEP, "7"),
        ("%u-%x", BATCH, "ann-run"),
        ("%b", TASK, "7"),
        ("%r", STEP, "1"),
        ("100%%", BATCH, "100%"),
        ("%%j", BATCH, "%j"),
        ("%5j", BATCH, "00085"),
        ("%05j", BATCH, "00085"),
        ("%1j", BATCH, "85"),
        ("%0j", BATCH, "85"),
        ("%10j", BATCH, "0000000085"),
        ("%99j", BATCH, "0000000085"),
        ("%3t", STEP, "007"),
        ("%3x", BATCH, "run"),
        ("%8x", BATCH, "run"),
        ("%5J", STEP, "85.3"),
        ("%5s", BATCH, "batch"),
        ("%z%j", BATCH, "%z85"),
        ("%", BATCH, "%"),
        ("%5", BATCH, "%5"),
        ("%5z", BATCH, "%5z"),
        ("a%", BATCH, "a%"),
        ("", BATCH, ""),
        ("\\%j", BATCH, "%j"),
        ("%j\\%j", BATCH, "%j%j"),
        ("a\\\\%j", BATCH, "a\\%j"),
    ],
)
def test_codes(pattern, values, name):
    """Every code, widths, unknown codes, and the backslash."""
    assert expand(pattern, values) == name


def test_one_pass():
    """What a code inserts is not expanded again."""
    assert expand("%x", BATCH._replace(job_name="%j%%")) == "%j%%"


@pytest.mark.parametrize(
    ("pattern", "job_name", "path"),
    [
        ("out", "x", "/work/out"),
        ("sub/out-%j", "x", "/work/sub/out-85"),
        ("/abs/%j", "x", "/abs/85"),
        ("%x", "/etc/passwd", "/work/_etc_passwd"),
        ("%x/out", "..", "/work/__/out"),
        ("%x", ".", "/work/_"),
        ("%x", "a/../../b", "/work/a_.._.._b"),
        ("%x%x", ".", "/work/__"),
        ("..%x", "x", "/work/..x"),
        ("\\/abs%j", "x", "/abs%j"),
        ("%x", "a\0b", "/work/ab"),
    ],
)
def test_relative_names_stay_below_the_work_directory(pattern, job_name, path):
    """An inserted slash or dot-dot leads nowhere; the user's own pattern may."""
    assert resolve(pattern, BATCH._replace(job_name=job_name), "/work") == path


@given(st.text(max_size=12), st.text(max_size=12), st.sampled_from(["%x", "%u/%x", "a%x", "%x.%u", "%N"]))
def test_no_value_leads_out_of_the_work_directory(name, user, pattern):
    """Whatever a job is called."""
    values = BATCH._replace(job_name=name, user=user, node=name)
    path = os.path.normpath(resolve(pattern, values, "/work/dir"))
    assert path == "/work/dir" or path.startswith("/work/dir/")


def test_work_directory_at_the_root():
    """No doubled slash."""
    assert resolve("x", BATCH, "/") == "/x"


@pytest.mark.parametrize(
    ("pattern", "task", "node", "found"),
    [
        ("out", False, False, set()),
        ("%t", True, False, {"t"}),
        ("%4t", True, False, {"t"}),
        ("%N", False, True, {"N"}),
        ("%n-%t", True, True, {"n", "t"}),
        ("%%t", False, False, {"%"}),
        ("\\%t", False, False, set()),
        ("%t\\", False, False, set()),
        ("%z%j", False, False, {"j"}),
    ],
)
def test_files_per_task_and_per_node(pattern, task, node, found):
    """What a supervisor must know before it opens files."""
    assert per_task(pattern) is task
    assert per_node(pattern) is node
    assert codes(pattern) == found


def test_defaults():
    """Slurm's names, or ours."""
    assert default_pattern(False) == "slurm-%j.out"
    assert default_pattern(True) == "slurm-%A_%a.out"
    assert default_pattern(False, slurm_names=False) == "spur-%j.out"
    assert default_pattern(True, slurm_names=False) == "spur-%A_%a.out"


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("all", ("all", 0)),
        ("none", ("none", 0)),
        ("NONE", ("none", 0)),
        ("0", ("rank", 0)),
        ("12", ("rank", 12)),
        ("out-%t", ("file", 0)),
        ("12x", ("file", 0)),
    ],
)
def test_srun_targets(value, target):
    """Discard, one rank, everybody, or a file."""
    assert stream_target(value) == target


@given(st.text(max_size=30))
def test_no_pattern_breaks_the_expansion(pattern):
    """Text in, text out; without percent signs and backslashes it is the same text."""
    expanded = expand(pattern, STEP)
    if "%" not in pattern and "\\" not in pattern:
        assert expanded == pattern

"""The compiled kernel changes nothing of a plan; passes do without one that is not of its source."""

import random
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spur_sched import kernel
from spur_sched.api import Policy
from spur_sched.bounds import Failures
from spur_sched.plan import plan
from spur_sched.shape import _pick
from spur_sched.spread import Count

GPUS = (("gpu", "a100"), ("gpu", "h100"))


@pytest.fixture
def both():
    """both(PLAN, ...): the plan with the kernel, which is the one without it."""

    def made(snapshot, now):
        assert kernel.library() is not None, "these tests need a C compiler, which makes the kernel"
        found = plan(snapshot, now)
        before = kernel.use(False)
        try:
            assert kernel.library() is None
            assert plan(snapshot, now) == found
        finally:
            kernel.use(before)
        return found

    return made


def busy(chance, node, now, count):
    nodes = []
    for number in range(count):
        cpus = chance.choice([16, 32, 64])
        left, running = cpus, []
        gres = {GPUS[number % 2]: 4, GPUS[1]: 2} if number % 3 == 0 else {}
        while left > 2 and chance.random() < 0.9:
            took = min(left, chance.choice([2, 8, 16, 32]))
            left -= took
            # Some end together, some never, some should be gone.
            end = chance.choice([None, now - 5, now + 600, now + chance.randrange(60, 86_400)])
            held = {GPUS[1]: 1} if gres and len(running) < 2 else {}
            running.append((end, took, took * 100, held))
        memory = 0 if chance.random() < 0.1 else 12_000
        nodes.append(node(f"n{number:03d}", cpus=cpus, memory_mb=memory, gres=gres, running=running))
    return nodes


def queue(chance, job, count):
    jobs = []
    for number in range(1, count):
        kind = {"time_limit": chance.choice([None, 60, 600, 3600, chance.randrange(60, 90_000)])}
        kind["cpus_per_task"] = chance.choice([1, 2, 4, 8])
        kind["memory_per_cpu_mb"] = chance.choice([None, 100, 300, 900])
        if chance.random() < 0.1:
            kind["memory_per_cpu_mb"], kind["memory_per_node_mb"] = None, 0
        if chance.random() < 0.7:
            kind["num_tasks"] = chance.choice([1, 4, 16, 40, 160, 1 << 45])
            kind["min_nodes"] = chance.choice([1, 2, 8])
            kind["max_nodes"] = max(kind["min_nodes"], chance.choice([1, 4, 16]))
            if chance.random() < 0.2:
                kind["tasks_per_node"] = chance.choice([1, 3, 8])
        if chance.random() < 0.3:
            kind["gres"] = {chance.choice([("gpu", ""), *GPUS]): chance.randint(1, 4)}
        elif chance.random() < 0.1:
            kind["gres_per_task"] = {("gpu", ""): 1}
        if chance.random() < 0.1:
            kind["exclusive"] = True
        if chance.random() < 0.1:
            kind["ntasks_per_core"] = 1
        jobs.append(job(number, **kind))
    return jobs


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@pytest.mark.parametrize("seed", range(40))
def test_random_clusters(snap, node, job, now, both, seed, backfill):
    chance = random.Random(seed)
    policy = Policy(
        backfill=backfill,
        bf_resolution=chance.choice([0, 1, 60, 1800]),
        bf_max_job_test=chance.choice([20, 1000]),
        bf_window=chance.choice([3600, 86_400, 864_000]),
    )
    nodes = busy(chance, node, now, chance.choice([3, 20, 60]))
    found = both(snap(nodes, queue(chance, job, 120), policy=policy), now)
    assert found.complete


def test_many_promises_move_the_table(snap, node, job, now, both):
    """Nodes' times outgrow their slots, and the table is tidied."""
    chance = random.Random(7)
    nodes = busy(chance, node, now, 25)
    jobs = [
        job(number, cpus_per_task=chance.choice([1, 2, 8]), time_limit=chance.randrange(60, 9000, 7))
        for number in range(1, 900)
    ]
    policy = Policy(backfill="conservative", bf_max_job_test=1000, bf_resolution=0, bf_window=10**7)
    assert len(both(snap(nodes, jobs, policy=policy), now).expected) > 500


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_choices_of_many_nodes(data):
    whole = st.integers(1, 12) | st.integers(1, 5000)
    tasks = data.draw(st.lists(whole, min_size=1, max_size=30))
    least = data.draw(st.integers(1, 8))
    count = Count(
        min_nodes=least,
        max_nodes=data.draw(st.integers(least, 40)),
        num_tasks=data.draw(st.integers(1, 60) | st.integers(1, sum(tasks) + 2)),
        tasks_given=True,
        each=1,
        even=data.draw(st.sampled_from([None, True, False])),
    )
    where = np.arange(len(tasks)) * 3
    found = _pick(count, where, np.array(tasks))
    before = kernel.use(False)
    try:
        assert _pick(count, where, np.array(tasks)) == found
    finally:
        kernel.use(before)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_failures_that_cover(data):
    sizes = st.tuples(*[st.sampled_from([-1.0, 0.0, 1.0, 2.0, float("inf")])] * 3)
    asked = data.draw(st.lists(sizes, max_size=12))
    known, ask = data.draw(st.integers(0, len(asked))), data.draw(sizes)
    answers = []
    for wanted in (True, False):
        before = kernel.use(wanted)
        try:
            failures = Failures(3)
            for one in asked:
                failures.add(one)
            answers.append(failures.cover(ask, known))
        finally:
            kernel.use(before)
    assert answers[0] == answers[1]


def test_another_source_is_not_its_own(built_kernel, tmp_path):
    for name in ("_kernel.c", "_kernel.so"):
        shutil.copy(built_kernel / name, tmp_path)
    assert kernel.load(tmp_path) is not None
    with (tmp_path / "_kernel.c").open("a") as source:
        source.write("\n")
    assert kernel.load(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF and no more"])
def test_what_is_no_library_is_no_kernel(built_kernel, tmp_path, content):
    assert kernel.load(tmp_path) is None
    shutil.copy(built_kernel / "_kernel.c", tmp_path)
    assert kernel.load(tmp_path) is None
    (tmp_path / "_kernel.so").write_bytes(content)
    assert kernel.load(tmp_path) is None


@pytest.mark.parametrize("compiler", ["", "false"])
def test_without_a_compiler_there_is_none(hatch_build, tmp_path, monkeypatch, compiler):
    shutil.copy(kernel.HERE / "_kernel.c", tmp_path)
    # One of an older build must not stay.
    (tmp_path / "_kernel.so").write_bytes(b"old")
    monkeypatch.setenv("CC", compiler)
    if not compiler:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not hatch_build.build(tmp_path)
    assert not (tmp_path / "_kernel.so").exists()

"""Where the tasks of a step go: Slurm's answers, and nothing beyond what the job holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_ctld.state.distribution import NO_BOUND
from spur_ctld.state.ops import Refusal
from spur_ctld.state.records import Gres, Slice, Step, StepAsk
from spur_ctld.state.step_layout import (
    BAD_CPUS,
    BAD_NODES,
    BAD_TASKS,
    BUSY,
    NO_GRES,
    NO_MEMORY,
    NO_SHAPE,
    TOO_MANY,
    Placed,
    held_by,
    place,
)

GPUS = (Gres(name="gpu", type="h100", count=2),)


def part(node, cpus=4, memory=400, gres=GPUS):
    return Slice(node=node, cpus=cpus, memory_mb=memory, gres=gres)


TWO = (part("n1"), part("n2"))


def running(ask, parts=TWO, held=(), step_id=0):
    """A step as `ask` would be placed beside `held`."""
    placed = place(ask, parts, held_by(held))
    assert isinstance(placed, Placed), placed
    return Step(
        step_id=step_id,
        name="s",
        created_at=1.0,
        slices=placed.slices,
        num_tasks=placed.num_tasks,
        overlap=ask.overlap,
        exact=placed.exact,
        gres_shared=placed.gres_shared,
    )


def shape(placed):
    """{node: (cpus, memory, ranks)}"""
    assert isinstance(placed, Placed), placed
    return {item.node: (item.cpus, item.memory_mb, item.ranks) for item in placed.slices}


@pytest.mark.parametrize(
    ("ask", "wanted"),
    [
        # One task on each node of the allocation, with all that the job has there.
        (StepAsk(), {"n1": (4, 400, (0,)), "n2": (4, 400, (1,))}),
        (StepAsk(num_tasks=1), {"n1": (4, 400, (0,))}),
        (StepAsk(num_tasks=4), {"n1": (4, 400, (0, 1, 2, 3))}),
        (StepAsk(num_tasks=4, min_nodes=2), {"n1": (4, 400, (0, 1)), "n2": (4, 400, (2, 3))}),
        (StepAsk(num_tasks=7), {"n1": (4, 400, (0, 1, 2, 3)), "n2": (4, 400, (4, 5, 6))}),
        (
            StepAsk(num_tasks=7, distribution="cyclic"),
            {"n1": (4, 400, (0, 2, 4, 6)), "n2": (4, 400, (1, 3, 5))},
        ),
        (
            StepAsk(num_tasks=7, distribution="plane=2", min_nodes=2),
            {"n1": (4, 400, (0, 1, 4, 5)), "n2": (4, 400, (2, 3, 6))},
        ),
        # A plane that leaves a node without a task leaves the node out.
        (StepAsk(num_tasks=4, distribution="plane=4", min_nodes=2), {"n1": (4, 400, (0, 1, 2, 3))}),
        (StepAsk(tasks_per_node=2), {"n1": (4, 400, (0, 1)), "n2": (4, 400, (2, 3))}),
        (StepAsk(num_tasks=3, tasks_per_node=2), {"n1": (4, 400, (0, 1)), "n2": (4, 400, (2,))}),
        (StepAsk(min_nodes=1), {"n1": (4, 400, (0,))}),
        (StepAsk(num_tasks=1, min_nodes=2), {"n1": (4, 400, (0,))}),
        (StepAsk(nodelist=("n2",)), {"n2": (4, 400, (0,))}),
        (StepAsk(nodelist=("n2",), num_tasks=5), {"n1": (4, 400, (0, 1, 2)), "n2": (4, 400, (3, 4))}),
        (StepAsk(nodelist=("n2",), min_nodes=2), {"n1": (4, 400, (0,)), "n2": (4, 400, (1,))}),
        (StepAsk(exclude=("n1", "n9")), {"n2": (4, 400, (0,))}),
        (StepAsk(relative=1, num_tasks=2), {"n2": (4, 400, (0, 1))}),
        # Exact: only what is asked for.
        (StepAsk(exact=True, num_tasks=2), {"n1": (2, 0, (0, 1))}),
        (StepAsk(cpus_per_task=2), {"n1": (2, 0, (0,)), "n2": (2, 0, (1,))}),
        (StepAsk(cpus_per_task=2, num_tasks=3), {"n1": (4, 0, (0, 1)), "n2": (2, 0, (2,))}),
        (StepAsk(exact=True, num_tasks=1, memory_per_node_mb=100), {"n1": (1, 100, (0,))}),
        (StepAsk(exact=True, num_tasks=2, memory_per_cpu_mb=50), {"n1": (2, 100, (0, 1))}),
        (StepAsk(num_tasks=2, memory_per_cpu_mb=50), {"n1": (4, 200, (0, 1))}),
        (StepAsk(exact=True, num_tasks=1, memory_per_node_mb=0), {"n1": (1, 400, (0,))}),
        (
            StepAsk(num_tasks=9, overcommit=True, min_nodes=2),
            {
                "n1": (4, 400, (0, 1, 2, 3, 4)),
                "n2": (4, 400, (5, 6, 7, 8)),
            },
        ),
        (StepAsk(num_tasks=9, overcommit=True, exact=True), {"n1": (4, 0, tuple(range(9)))}),
        # The list names each task's node.
        (
            StepAsk(distribution="arbitrary", nodelist=("n2", "n1", "n2")),
            {"n2": (4, 400, (0, 2)), "n1": (4, 400, (1,))},
        ),
        (
            StepAsk(distribution="arbitrary", nodelist=("n2", "n1", "n2"), num_tasks=1),
            {"n2": (4, 400, (0,))},
        ),
    ],
)
def test_layouts(ask, wanted):
    placed = place(ask, TWO, {})
    assert shape(placed) == wanted
    assert list(shape(placed)) == list(wanted), "the order of nodes is part of it"


@pytest.mark.parametrize(
    ("ask", "refusal"),
    [
        (StepAsk(num_tasks=9), TOO_MANY),
        (StepAsk(num_tasks=2 * NO_BOUND + 1, overcommit=True), TOO_MANY),
        (StepAsk(num_tasks=5, cpus_per_task=2), TOO_MANY),
        (StepAsk(cpus_per_task=5), TOO_MANY),
        (StepAsk(num_tasks=5, tasks_per_node=2), TOO_MANY),
        (StepAsk(num_tasks=5, max_nodes=1), TOO_MANY),
        (StepAsk(num_tasks=5, exclude=("n2",)), TOO_MANY),
        (StepAsk(min_nodes=3), NO_SHAPE),
        (StepAsk(min_nodes=3, num_tasks=3), NO_SHAPE),
        (StepAsk(nodelist=("n9",)), NO_SHAPE),
        (StepAsk(nodelist=("n1",), exclude=("n1",)), NO_SHAPE),
        (StepAsk(nodelist=("n1", "n2"), max_nodes=1), NO_SHAPE),
        (StepAsk(exclude=("n1", "n2")), NO_SHAPE),
        (StepAsk(relative=2), NO_SHAPE),
        (StepAsk(relative=1, min_nodes=2), NO_SHAPE),
        (StepAsk(memory_per_node_mb=401), NO_MEMORY),
        (StepAsk(memory_per_cpu_mb=101), NO_MEMORY),
        (StepAsk(gres=(Gres(name="gpu", count=3),)), NO_GRES),
        (StepAsk(gres=(Gres(name="gpu", type="a100", count=1),)), NO_GRES),
        (StepAsk(gres=(Gres(name="fpga", count=1),)), NO_GRES),
        (StepAsk(distribution="arbitrary"), NO_SHAPE),
        (StepAsk(distribution="arbitrary", nodelist=("n1",), num_tasks=2), NO_SHAPE),
        (StepAsk(distribution="arbitrary", nodelist=("n1",) * 5), TOO_MANY),
        (StepAsk(num_tasks=0), BAD_TASKS),
        (StepAsk(num_tasks=1 << 30), BAD_TASKS),
        (StepAsk(tasks_per_node=0), BAD_TASKS),
        (StepAsk(min_nodes=0), BAD_NODES),
        (StepAsk(min_nodes=2, max_nodes=1), BAD_NODES),
        (StepAsk(cpus_per_task=0), BAD_CPUS),
    ],
)
def test_what_never_fits_is_refused_for_good(ask, refusal):
    assert place(ask, TWO, {}) == refusal
    busy = held_by([running(StepAsk())])
    assert place(ask, TWO, busy) == refusal, "also while others hold everything"


def test_a_distribution_that_is_none_is_named():
    found = place(StepAsk(distribution="heap"), TWO, {})
    assert isinstance(found, Refusal)
    assert "distribution" in found.text


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        # By default a step has its nodes for itself.
        (StepAsk(num_tasks=1, nodelist=("n1",)), StepAsk(num_tasks=1, nodelist=("n1",)), False),
        (StepAsk(num_tasks=1, nodelist=("n1",)), StepAsk(num_tasks=1), True),
        (StepAsk(num_tasks=1, nodelist=("n1",)), StepAsk(), False),
        (StepAsk(), StepAsk(overlap=True), True),
        (StepAsk(overlap=True), StepAsk(), True),
        (StepAsk(exact=True, num_tasks=1), StepAsk(), False),
        (StepAsk(exact=True, num_tasks=4), StepAsk(exact=True, num_tasks=4), True),
        (StepAsk(exact=True, num_tasks=8), StepAsk(exact=True, num_tasks=1), False),
        (StepAsk(exact=True, num_tasks=4), StepAsk(exact=True, num_tasks=5), False),
        (StepAsk(exact=True, num_tasks=2), StepAsk(exact=True, num_tasks=3, max_nodes=1), True),
        # Memory counts only when it is asked for.
        (
            StepAsk(exact=True, num_tasks=1, memory_per_node_mb=300, nodelist=("n1",)),
            StepAsk(exact=True, num_tasks=1, memory_per_node_mb=200, nodelist=("n1",)),
            False,
        ),
        (
            StepAsk(exact=True, num_tasks=1, memory_per_node_mb=400, nodelist=("n1",)),
            StepAsk(exact=True, num_tasks=1, nodelist=("n1",)),
            True,
        ),
        # GPUs: those asked for are held, those that come along with an exact step are shared.
        (
            StepAsk(exact=True, num_tasks=1, gres=(Gres(name="gpu", count=2),), nodelist=("n1",)),
            StepAsk(exact=True, num_tasks=1, gres=(Gres(name="gpu", count=1),), nodelist=("n1",)),
            False,
        ),
        (
            StepAsk(exact=True, num_tasks=1, gres=(Gres(name="gpu", count=1),), nodelist=("n1",)),
            StepAsk(exact=True, num_tasks=1, gres=(Gres(name="gpu", count=1),), nodelist=("n1",)),
            True,
        ),
        (
            StepAsk(exact=True, num_tasks=1, nodelist=("n1",)),
            StepAsk(exact=True, num_tasks=1, gres=(Gres(name="gpu", count=2),), nodelist=("n1",)),
            True,
        ),
        (
            StepAsk(exact=True, distribution="arbitrary", nodelist=("n1",) * 3),
            StepAsk(exact=True, distribution="arbitrary", nodelist=("n1", "n1")),
            False,
        ),
    ],
)
def test_beside_another(first, second, fits):
    found = place(second, TWO, held_by([running(first)]))
    assert isinstance(found, Placed) if fits else found == BUSY


def test_gpus_come_along():
    whole = place(StepAsk(), TWO, {})
    assert isinstance(whole, Placed)
    assert [item.gres for item in whole.slices] == [GPUS, GPUS]
    assert not whole.gres_shared
    exact = place(StepAsk(exact=True, num_tasks=1), TWO, {})
    assert isinstance(exact, Placed)
    assert (exact.slices[0].gres, exact.gres_shared) == (GPUS, True)
    none = place(StepAsk(gres=()), TWO, {})
    assert isinstance(none, Placed)
    assert none.slices[0].gres == ()
    one = place(StepAsk(gres=(Gres(name="gpu", count=1),)), TWO, {})
    assert isinstance(one, Placed)
    assert one.slices[0].gres == (Gres(name="gpu", type="h100", count=1),)


def test_closed_nodes_take_no_part():
    assert shape(place(StepAsk(num_tasks=2), TWO, {}, {"n1"})) == {"n2": (4, 400, (0, 1))}
    assert place(StepAsk(), TWO, {}, {"n1", "n2"}) == NO_SHAPE


def test_the_roomiest_nodes_when_the_first_will_not_do():
    three = (part("n1", 1), part("n2", 2), part("n3", 4))
    assert list(shape(place(StepAsk(num_tasks=4), three, {}))) == ["n3"]
    assert list(shape(place(StepAsk(num_tasks=5), three, {}))) == ["n2", "n3"]
    assert list(shape(place(StepAsk(num_tasks=1), three, {}))) == ["n1"]


def test_a_node_that_reported_is_free_again():
    step = running(StepAsk())
    assert set(held_by([step])) == {"n1", "n2"}
    from spur_ctld.state.records import Exit, NodeExit

    ended = Step(
        step_id=0,
        name="s",
        created_at=1.0,
        slices=step.slices,
        exits={"n1": NodeExit(exit=Exit(), at=2.0)},
        gone=("n2",),
    )
    assert held_by([ended]) == {}


ASKS = st.builds(
    StepAsk,
    num_tasks=st.none() | st.integers(1, 9),
    min_nodes=st.none() | st.integers(1, 3),
    cpus_per_task=st.none() | st.integers(1, 3),
    tasks_per_node=st.none() | st.integers(1, 4),
    distribution=st.sampled_from(["", "block,pack", "cyclic", "plane=2"]),
    exact=st.booleans(),
    overlap=st.integers(0, 4).map(lambda number: number == 0),
    nodelist=st.lists(st.sampled_from(["n1", "n2", "n3"]), max_size=2, unique=True).map(tuple),
    memory_per_node_mb=st.none() | st.sampled_from([0, 100, 250]),
    gres=st.none() | st.integers(0, 2).map(lambda count: (Gres(name="gpu", count=count),) if count else ()),
)


@given(asks=st.lists(ASKS, min_size=1, max_size=8), cpus=st.lists(st.integers(1, 6), min_size=3, max_size=3))
def test_steps_never_hold_more_than_their_job(asks, cpus):
    parts = tuple(part(f"n{at + 1}", count) for at, count in enumerate(cpus))
    steps = []
    for number, ask in enumerate(asks):
        found = place(ask, parts, held_by(steps))
        if isinstance(found, Refusal):
            if found == BUSY:
                assert steps, "nothing is busy when nothing runs"
            continue
        ranks = sorted(rank for item in found.slices for rank in item.ranks)
        assert ranks == list(range(found.num_tasks))
        assert ask.num_tasks in (None, found.num_tasks)
        assert all(item.ranks and item.cpus >= 1 for item in found.slices)
        steps.append(running(ask, parts, steps, number))
    for node, held in held_by(steps).items():
        whole = next(item for item in parts if item.node == node)
        assert held.cpus <= whole.cpus
        assert held.memory_mb <= whole.memory_mb
        assert all(count <= 2 for count in held.gres.values())


def gpus_of(placed):
    assert isinstance(placed, Placed), placed
    return {item.node: sum(g.count for g in item.gres) for item in placed.slices}


def test_gpus_of_each_task_follow_the_tasks():
    one = (Gres(name="gpu", count=1),)
    parts = (part("n1"), part("n2", gres=(Gres(name="gpu", type="h100", count=1),)))
    placed = place(StepAsk(num_tasks=3, gres_per_task=one), parts, {})
    assert gpus_of(placed) == {"n1": 2, "n2": 1}
    assert not placed.gres_shared
    # Steps that each take a GPU for themselves go side by side, and the next one waits.
    ask = StepAsk(num_tasks=1, exact=True, gres_per_task=one)
    first = running(ask, parts)
    second = running(ask, parts, held=(first,), step_id=1)
    third = running(ask, parts, held=(first, second), step_id=2)
    assert [s.slices[0].node for s in (first, second, third)] == ["n1", "n1", "n2"]
    assert place(ask, parts, held_by((first, second, third))) is BUSY


def test_more_gpus_for_tasks_than_the_job_has_never_fit():
    ask = StepAsk(num_tasks=4, gres_per_task=(Gres(name="gpu", count=2),))
    assert place(ask, TWO, {}) is NO_GRES

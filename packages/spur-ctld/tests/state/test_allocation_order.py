"""The nodes of an allocation stand in the order in which every list shows them."""

from spur_ctld.scheduling.views import slices_of
from spur_ctld.state.records import Request
from spur_sched.api import NodeShare, Placement


def place(*parts, **more):
    """(node, ranks) as the planner found them."""
    shares = tuple(NodeShare(node, 4, 0, {}, tuple(ranks)) for node, ranks in parts)
    request = Request(name="j", user="u", uid=1, gid=1, **more)
    return [(one.node, one.ranks) for one in slices_of(Placement(1, None, "p", shares), request)]


def test_rank_0_is_on_the_first_host_of_the_list():
    assert place(("n10", [0, 1]), ("n2", [2, 3]), ("n1", [4])) == [
        ("n1", (0,)),
        ("n2", (1, 2)),
        ("n10", (3, 4)),
    ]


def test_tasks_of_a_stand_alone_srun_are_dealt_in_that_order():
    found = place(("n2", [0, 1]), ("n1", [2, 3]), srun=True, num_tasks=4, distribution="cyclic")
    assert found == [("n1", (0, 2)), ("n2", (1, 3))]

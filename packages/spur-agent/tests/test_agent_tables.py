"""The pure parts: classification, allocation, verdicts, trust, discovery."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_agent import trust
from spur_agent.allocation import AllocationTable, Grant, GresGrant, NoRoom, Want
from spur_agent.classify import Evidence, Found, classify
from spur_agent.discovery import Topology, fold_topology, parse_boot_time, parse_meminfo
from spur_agent.ledger import Ledger
from spur_agent.report import UNKNOWN_SECS, Verdict, judge
from spur_auth import mint
from spur_auth.kinds import CONTROLLER, NOBODY
from spur_core.errors import AccessDenied, Unauthenticated, Unsupported
from spur_core.ids import RuntimeId
from spur_proto import controller_pb2 as pb

pytestmark = pytest.mark.node

KEY = b"k" * 32


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (Evidence(), Found.LIVE),
        (Evidence(answer="suspended"), Found.LIVE),
        (Evidence(answer="starting", started=False), Found.LIVE),
        (Evidence(answer="exiting"), Found.LIVE),
        (Evidence(exited=True), Found.FINISHED),
        (Evidence(exited=True, alive=False, answer=""), Found.FINISHED),
        (Evidence(exited=True, same_boot=False, alive=False, answer=""), Found.FINISHED),
        (Evidence(exited=True, descriptor="bad", alive=False, answer=""), Found.FINISHED),
        (Evidence(exited=True, descriptor="missing", alive=False, answer=""), Found.FINISHED),
        (Evidence(exited=True, acknowledged=True), Found.DONE),
        (Evidence(acknowledged=True, descriptor="bad"), Found.DONE),
        (Evidence(alive=False, answer=""), Found.STALE),
        (Evidence(same_boot=False, alive=False, answer=""), Found.STALE),
        (Evidence(answer=""), Found.UNRESPONSIVE),
        (Evidence(answer="", started=False), Found.UNRESPONSIVE),
        (Evidence(descriptor="bad", alive=False, answer=""), Found.CORRUPT),
        (Evidence(descriptor="bad", alive=False, answer="", started=False), Found.CORRUPT),
        (Evidence(descriptor="missing", alive=False, answer=""), Found.CORRUPT),
        (Evidence(journal_ok=False), Found.CORRUPT),
        (Evidence(descriptor="missing", alive=False, answer="", started=False), Found.UNSTARTED),
        (Evidence(answer="ready", started=False), Found.UNSTARTED),
        (Evidence(alive=False, answer="", started=False), Found.UNSTARTED),
        (Evidence(abandoned=True, alive=False, answer="", started=False), Found.UNSTARTED),
        (Evidence(name_ok=False), Found.UNKNOWN),
    ],
)
def test_a_session_is_classified_by_what_is_seen(seen, found):
    assert classify(seen) is found


def table(cpus=4, memory=1000, gres=None):
    return AllocationTable(
        range(cpus), memory, gres if gres is not None else {("gpu", "a"): 2, ("gpu", "b"): 2}
    )


def test_reserving_takes_the_lowest_free_ids_and_nothing_on_refusal():
    node = table()
    assert node.reserve((1, 1), Want(2, 100)).cpu_ids == (0, 1)
    assert node.reserve((2, 1), Want(1, 100)).cpu_ids == (2,)
    before = node.held()
    for want, text in (
        (Want(2, 0), "2 CPUs wanted, 1 of 4 are free"),
        (Want(1, 900), "900 MB wanted, 800 of 1000 are free"),
        (Want(1, 0, (("gpu", "b", 3),)), "3 gpu:b wanted, 2 are free"),
        (Want(1, 0, (("fpga", "", 1),)), "1 fpga wanted, 0 are free"),
    ):
        with pytest.raises(NoRoom) as error:
            node.reserve((3, 1), want)
        assert str(error.value) == text
        assert node.held() == before
    node.release((1, 1))
    assert node.reserve((3, 1), Want(3, 0)).cpu_ids == (0, 1, 3)


def test_who_shares_cpus_shares_none_of_its_own_layer():
    node = table()
    assert node.reserve((1, 1), Want(2, 0, layer=1)).cpu_ids == (0, 1)
    # The least shared first.
    assert node.reserve((2, 1), Want(3, 0, layer=2)).cpu_ids == (0, 2, 3)
    assert node.reserve((3, 1), Want(2, 0, layer=1)).cpu_ids == (2, 3)
    with pytest.raises(NoRoom):
        node.reserve((4, 1), Want(2, 0, layer=2))
    with pytest.raises(NoRoom):
        node.reserve((4, 1), Want(1, 0))
    node.release((2, 1))
    node.release((3, 1))
    # What was found after a restart is in its layer again.
    node.restore((5, 1), Grant((2,), 0, layer=2))
    assert node.reserve((4, 1), Want(2, 0, layer=2)).cpu_ids == (0, 3)
    assert node.reserve((6, 1), Want(1, 0, layer=1)).cpu_ids == (2,)
    with pytest.raises(NoRoom):
        node.reserve((7, 1), Want(2, 0))


def test_one_attempt_reserves_once_and_another_attempt_is_another_owner():
    node = table()
    first = node.reserve((1, 1), Want(2, 10))
    assert node.reserve((1, 1), Want(2, 10)) == first
    assert node.reserve((1, 2), Want(2, 10)).cpu_ids == (2, 3)


def test_gres_indices_run_over_all_types_and_typed_wishes_go_first():
    node = table()
    grant = node.reserve((1, 1), Want(1, 0, (("gpu", "", 2), ("gpu", "a", 1))))
    taken = {one.type: one.indices for one in grant.gres}
    assert taken == {"a": (0,), "": (1, 2)}
    assert node.reserve((2, 1), Want(1, 0, (("gpu", "b", 1),))).gres == (GresGrant("gpu", "b", (3,)),)


def test_what_the_controller_names_is_taken():
    node = table()
    want = Want(2, 0, (("gpu", "a", 1), ("gpu", "", 1)), (1, 3), {("gpu", "a"): (1,), ("gpu", ""): (3,)})
    assert node.reserve((1, 1), want) == Grant(
        (1, 3), 0, (GresGrant("gpu", "a", (1,)), GresGrant("gpu", "", (3,)))
    )
    # What is not named is chosen here, round what is.
    other = node.reserve((2, 1), Want(1, 0, (("gpu", "b", 1),)))
    assert other == Grant((0,), 0, (GresGrant("gpu", "b", (2,)),))
    mixed = node.reserve((3, 1), Want(1, 0, (("gpu", "a", 1),), (2,)))
    assert mixed == Grant((2,), 0, (GresGrant("gpu", "a", (0,)),))


@pytest.mark.parametrize(
    ("want", "text"),
    [
        (Want(2, 0, (), (1, 2)), "CPU 1 is wanted, job 1 has it"),
        (Want(1, 0, (), (7,)), "CPU 7 is wanted, this node has no such"),
        (Want(2, 0, (), (2,)), "2 CPUs wanted, 1 are named"),
        (Want(0, 0, (("gpu", "a", 1),), (), {("gpu", "a"): (0,)}), "gpu 0 is wanted, job 1 has it"),
        (
            Want(0, 0, (("gpu", "a", 1),), (), {("gpu", "a"): (2,)}),
            "gpu 2 is wanted, this node has no such of type a",
        ),
        (
            Want(0, 0, (("gpu", "", 1),), (), {("gpu", ""): (9,)}),
            "gpu 9 is wanted, this node has no such of type any",
        ),
        (Want(0, 0, (("gpu", "a", 2),), (), {("gpu", "a"): (1,)}), "2 gpu:a wanted, 1 are named"),
    ],
)
def test_what_is_named_and_is_not_to_be_had_is_refused(want, text):
    node = table()
    node.reserve((1, 1), Want(1, 0, (("gpu", "a", 1),), (1,), {("gpu", "a"): (0,)}))
    before = node.held()
    with pytest.raises(NoRoom) as error:
        node.reserve((2, 1), want)
    assert str(error.value) == text
    assert node.held() == before


def test_named_cpus_may_be_shared_with_other_layers_only():
    node = table()
    node.reserve((1, 1), Want(2, 0, (), (0, 1), layer=1))
    assert node.reserve((2, 1), Want(2, 0, (), (1, 2), layer=2)).cpu_ids == (1, 2)
    for want in (Want(1, 0, (), (1,), layer=1), Want(1, 0, (), (2,), layer=2), Want(1, 0, (), (1,))):
        with pytest.raises(NoRoom):
            node.reserve((3, 1), want)


def test_cpus_of_who_sleeps_may_be_named():
    node = table()
    node.reserve((1, 1), Want(4, 0, (), (0, 1, 2, 3)))
    with pytest.raises(NoRoom):
        node.reserve((2, 1), Want(1, 0, (), (2,)))
    assert node.reserve((2, 1), Want(1, 0, (), (2,)), {(1, 1)}).cpu_ids == (2,)
    with pytest.raises(NoRoom, match="CPU 2 is wanted, job 2 has it"):
        node.reserve((3, 1), Want(1, 0, (), (2,)), {(1, 1)})


def test_what_runs_is_restored_even_over_capacity():
    node = table(cpus=2)
    node.restore((1, 1), Grant((0, 1), 800))
    node.restore((2, 1), Grant((1,), 800, (GresGrant("gpu", "a", (0,)),)))
    node.restore((2, 1), Grant((1,), 300, (GresGrant("gpu", "a", (1,)),)))
    assert node.held()[2, 1] == Grant((1,), 800, (GresGrant("gpu", "a", (0, 1)),))
    with pytest.raises(NoRoom):
        node.reserve((3, 1), Want(0, 1))
    node.release((9, 9))


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5), st.integers(0, 3), st.integers(0, 400), st.integers(0, 2), st.booleans()
        ),
        max_size=30,
    )
)
def test_nothing_is_ever_given_twice_or_beyond_capacity(steps):
    node = table(4, 1000)
    for owner, cpus, memory, gpus, release in steps:
        if release:
            node.release((owner, 1))
            continue
        try:
            node.reserve((owner, 1), Want(cpus, memory, (("gpu", "", gpus),) if gpus else ()))
        except NoRoom:
            pass
        held = node.held().values()
        ids = [cpu for grant in held for cpu in grant.cpu_ids]
        gpu_ids = [i for grant in held for one in grant.gres for i in one.indices]
        assert len(ids) == len(set(ids)) <= 4
        assert len(gpu_ids) == len(set(gpu_ids)) <= 4
        assert sum(grant.memory_mb for grant in held) <= 1000


@pytest.mark.parametrize(
    ("said", "unknown_for", "verdict"),
    [
        (pb.REPORT_VERDICT_ACCEPTED, None, Verdict.SETTLED),
        (pb.REPORT_VERDICT_FINAL, None, Verdict.SETTLED),
        (pb.REPORT_VERDICT_UNKNOWN, 0.0, Verdict.AGAIN),
        (pb.REPORT_VERDICT_UNKNOWN, UNKNOWN_SECS, Verdict.SETTLED),
        (pb.REPORT_VERDICT_RETRY, UNKNOWN_SECS, Verdict.AGAIN),
        (pb.REPORT_VERDICT_WRONG_NODE, None, Verdict.AGAIN),
        (pb.REPORT_VERDICT_UNSPECIFIED, None, Verdict.AGAIN),
        (99, None, Verdict.AGAIN),
        (None, None, Verdict.AGAIN),
    ],
)
def test_only_a_word_of_the_controller_settles_a_report(said, unknown_for, verdict):
    assert judge(said, unknown_for) is verdict


LAUNCH, STREAM = "/slurm.SlurmAgent/LaunchJob", "/slurm.SlurmAgent/StreamJobOutput"
LOCAL, AWAY = "ipv4:127.0.0.1:5", "ipv4:10.0.0.9:5"


def test_who_may_call_with_a_key():
    rules = trust.rules("jwt", "permissive", KEY)
    controller = f"Bearer {mint.mint_controller(KEY, now=1000)}"
    assert trust.identify(rules, LAUNCH, controller, None, AWAY, 1000).kind == CONTROLLER
    with pytest.raises(AccessDenied):
        trust.identify(rules, LAUNCH, None, None, LOCAL, 1000)
    with pytest.raises(Unauthenticated):
        trust.identify(rules, LAUNCH, f"Bearer {mint.mint_user(KEY, 'root', 0, 60, 1000)}", None, LOCAL, 1000)
    with pytest.raises(Unsupported):
        trust.identify(rules, "/slurm.SlurmAgent/Reboot", controller, None, LOCAL, 1000)


def test_who_may_call_without_a_key():
    rules = trust.rules("none", "disabled", None)
    assert trust.identify(rules, LAUNCH, None, None, LOCAL, 0) is NOBODY
    assert trust.identify(rules, STREAM, None, "ann", LOCAL, 0).name == "ann"
    with pytest.raises(AccessDenied):
        trust.identify(rules, STREAM, None, "ann", AWAY, 0)
    with pytest.raises(AccessDenied):
        trust.require_owner(trust.identify(rules, STREAM, None, "root", LOCAL, 0), 5, "ann")
    with pytest.raises(AccessDenied):
        trust.require_owner(NOBODY, 5, "")


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("ipv4:127.0.0.1:80", True),
        ("ipv6:%5B::1%5D:80", True),
        ("ipv6:[::ffff:127.0.0.1]:80", True),
        ("unix:", True),
        ("ipv4:128.0.0.1:80", False),
        ("ipv6:[2001:db8::1]:80", False),
        ("ipv4:10.127.0.1:80", False),
    ],
)
def test_loopback_peers(peer, local):
    assert trust.is_loopback_peer(peer) is local


@pytest.mark.parametrize(
    ("places", "cpus", "shape"),
    [
        ([(0, 0), (0, 1)], 2, Topology(1, 2, 1)),
        ([(0, 0), (0, 0), (1, 0), (1, 0)], 4, Topology(2, 1, 2)),
        ([(0, 0), (0, 1), (1, 0), (1, 1)] * 2, 8, Topology(2, 2, 2)),
        ([(0, 0), (0, 1), (1, 0)], 3, Topology(1, 3, 1)),
        ([], 6, Topology(1, 6, 1)),
        ([(0, 0)], 2, Topology(1, 2, 1)),
    ],
)
def test_topology_always_multiplies_to_the_cpus(places, cpus, shape):
    assert fold_topology(places, cpus) == shape
    assert shape.sockets * shape.cores_per_socket * shape.threads_per_core == cpus


def test_proc_texts():
    assert parse_meminfo("MemTotal:  2048 kB\nMemAvailable: 1024 kB\n", "MemAvailable") == 1
    assert parse_meminfo("", "MemTotal") == 0
    assert parse_boot_time("cpu 1\nbtime 1700000000\n") == 1700000000.0


def test_the_ledger_is_bounded_and_survives_damage(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger(str(path), limit=3)
    for job in range(1, 11):
        ledger.add(RuntimeId(job, 1, 0))
    assert RuntimeId(10, 1, 0) in ledger
    assert RuntimeId(7, 1, 0) not in ledger
    assert len(path.read_text().splitlines()) <= 6
    with path.open("a") as file:
        file.write("nonsense\n11.1")
    again = Ledger(str(path), limit=3)
    assert RuntimeId(10, 1, 0) in again
    assert (path.stat().st_mode & 0o777) == 0o600

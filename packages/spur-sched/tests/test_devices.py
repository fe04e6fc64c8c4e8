"""Names for what is counted: which CPUs and which devices of a node a job gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.grammar.idlist import mask_of, text_of
from spur_sched import devices
from spur_sched.devices import DeviceSet, Inventory, Taken


def sockets(count, cores, threads=1):
    """Numbered as Linux does: the second threads come after all the first ones."""
    every = count * cores
    return tuple(
        tuple(
            sum(1 << (thread * every + socket * cores + core) for thread in range(threads))
            for core in range(cores)
        )
        for socket in range(count)
    )


#: Two sockets of four cores with two threads (CPU n and n + 8), two linked GPUs near each socket.
NODE = Inventory(
    sockets(2, 4, 2),
    (
        DeviceSet("gpu", "a100", mask_of("0-1"), "left", mask_of("0-3,8-11")),
        DeviceSet("gpu", "a100", mask_of("2-3"), "right", mask_of("4-7,12-15")),
    ),
)


def chosen(taken_cpus="", taken_gpus="", cpus=1, gpus=0, lent="", node=NODE, kind=""):
    taken = Taken(mask_of(taken_cpus), (mask_of(lent),), {"gpu": mask_of(taken_gpus)})
    found = devices.choose(node, taken, cpus, (("gpu", kind, gpus),) if gpus else ())
    if found is None:
        return None
    return (text_of(found.cpus), *map(text_of, found.devices))


@pytest.mark.parametrize(
    ("ask", "found"),
    [
        # Whole cores, on one socket.
        ({"cpus": 2}, ("0,8",)),
        ({"cpus": 4}, ("0-1,8-9",)),
        ({"cpus": 8}, ("0-3,8-11",)),
        ({"cpus": 16}, ("0-15",)),
        # Half a core, and the other half of it for the next who asks for so little.
        ({"cpus": 1}, ("0",)),
        ({"cpus": 1, "taken_cpus": "0"}, ("8",)),
        ({"cpus": 3, "taken_cpus": "0"}, ("1,8-9",)),
        # A whole core rather than the other halves of two.
        ({"cpus": 2, "taken_cpus": "0,1"}, ("2,10",)),
        # The socket that is fuller, if it has enough; else the empty one.
        ({"cpus": 4, "taken_cpus": "4-5,12-13"}, ("6-7,14-15",)),
        ({"cpus": 6, "taken_cpus": "4-5,12-13"}, ("0-2,8-10",)),
        ({"cpus": 12, "taken_cpus": "0,8"}, ("1-2,4-7,9-10,12-15",)),
        # GPUs of one link group, and CPUs near them.
        ({"cpus": 2, "gpus": 2}, ("0,8", "0-1")),
        ({"cpus": 2, "gpus": 2, "taken_gpus": "0"}, ("4,12", "2-3")),
        ({"cpus": 2, "gpus": 1, "taken_gpus": "0"}, ("0,8", "1")),
        ({"cpus": 2, "gpus": 1, "taken_gpus": "2"}, ("4,12", "3")),
        ({"cpus": 2, "gpus": 3}, ("0,8", "0-2")),
        ({"cpus": 16, "gpus": 4}, ("0-15", "0-3")),
        # More CPUs than are near, or are free there.
        ({"cpus": 10, "gpus": 1, "taken_gpus": "0-1"}, ("0,4-8,12-15", "2")),
        ({"cpus": 2, "gpus": 1, "taken_gpus": "0-1", "taken_cpus": "4-7,12-15"}, ("0,8", "2")),
        # What somebody wants back comes last.
        ({"cpus": 2, "lent": "0-3,8-11"}, ("4,12",)),
        ({"cpus": 10, "lent": "0-3,8-11"}, ("0,4-8,12-15",)),
        # Not so many.
        ({"cpus": 17}, None),
        ({"cpus": 2, "taken_cpus": "0-14"}, None),
        ({"gpus": 5}, None),
        ({"gpus": 3, "taken_gpus": "0,3"}, None),
        ({"gpus": 1, "kind": "h100"}, None),
        ({"gpus": 1, "kind": "a100"}, ("0", "0")),
        # Nothing at all.
        ({"cpus": 0}, ("",)),
    ],
)
def test_what_is_chosen(ask, found):
    assert chosen(**ask) == found


def test_link_groups_go_before_nearness():
    """Four GPUs linked in pairs across the sockets: a pair is taken, though near different CPUs."""
    node = Inventory(
        sockets(2, 4),
        (
            DeviceSet("gpu", "", 0b0001, "p", mask_of("0-3")),
            DeviceSet("gpu", "", 0b0010, "q", mask_of("0-3")),
            DeviceSet("gpu", "", 0b0100, "p", mask_of("4-7")),
            DeviceSet("gpu", "", 0b1000, "q", mask_of("4-7")),
        ),
    )
    assert chosen(cpus=8, gpus=2, node=node) == ("0-7", "0,2")
    assert chosen(cpus=1, gpus=2, node=node, taken_gpus="0") == ("0", "1,3")
    assert chosen(cpus=1, gpus=1, node=node, taken_gpus="0") == ("4", "2")


def test_devices_of_another_kind_are_taken_near_the_first():
    node = Inventory(
        sockets(2, 2),
        (
            DeviceSet("gpu", "", 0b01, "", 0b0011),
            DeviceSet("gpu", "", 0b10, "", 0b1100),
            DeviceSet("nic", "", 0b01, "", 0b0011),
            DeviceSet("nic", "", 0b10, "", 0b1100),
        ),
    )
    taken = Taken(devices={"gpu": 0b01})
    assert devices.choose(node, taken, 1, (("gpu", "", 1), ("nic", "", 1))) == (0b0100, (0b10, 0b10))


def test_an_untyped_wish_takes_what_typed_ones_leave():
    node = Inventory(sockets(1, 1), (DeviceSet("gpu", "a", 0b011), DeviceSet("gpu", "b", 0b100)))
    found = devices.choose(node, Taken(), 1, (("gpu", "", 1), ("gpu", "a", 2)))
    assert found is not None
    assert found.devices == (0b100, 0b011)
    assert devices.total(node) == (1, {("gpu", "a"): 2, ("gpu", "b"): 1})


@st.composite
def nodes(draw):
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 2)))
    cpus = shape[0] * shape[1] * shape[2]
    sets, index = [], 0
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.integers(1, 3))
        sets.append(
            DeviceSet(
                "gpu",
                draw(st.sampled_from(["", "a", "b"])),
                ((1 << size) - 1) << index,
                draw(st.sampled_from(["", "x", "y"])),
                draw(st.integers(0, (1 << cpus) - 1)),
            )
        )
        index += size
    return Inventory(sockets(*shape), tuple(sets))


@st.composite
def cases(draw):
    node = draw(nodes())
    cpus, counts = devices.total(node)
    every = sum(counts.values())
    taken = Taken(
        draw(st.integers(0, (1 << cpus) - 1)),
        tuple(draw(st.lists(st.integers(0, (1 << cpus) - 1), max_size=2))),
        {"gpu": draw(st.integers(0, (1 << every) - 1))},
    )
    wishes = tuple(
        ("gpu", kind, draw(st.integers(0, every + 1)))
        for kind in draw(st.sampled_from([(), ("",), ("a",), ("b", "a"), ("", "a")]))
    )
    return node, taken, draw(st.integers(0, cpus + 1)), wishes


@given(cases())
def test_exactly_as_many_as_asked_and_none_of_them_taken(case):
    node, taken, cpus, wishes = case
    every, _ = devices.total(node)
    all_cpus = (1 << every) - 1
    free = (all_cpus & ~taken.cpus).bit_count()
    found = devices.choose(node, taken, cpus, wishes)
    assert found == devices.choose(node, taken, cpus, wishes)
    if found is None:
        left = {one: one.mask & ~taken.devices["gpu"] for one in node.devices}
        have = sum(mask.bit_count() for mask in left.values())
        short = any(
            sum(mask.bit_count() for one, mask in left.items() if kind in ("", one.type)) < count
            for _, kind, count in wishes
        )
        assert cpus > free or short or sum(count for *_, count in wishes) > have
        return
    assert found.cpus.bit_count() == cpus
    assert found.cpus & ~all_cpus == 0
    assert found.cpus & taken.cpus == 0
    late = 0
    for mask in taken.late:
        late |= mask
    if found.cpus & late:
        # Only when all the others are used; and of these the earlier ones.
        assert all_cpus & ~taken.cpus & ~late & ~found.cpus == 0
        if found.cpus & ~(all_cpus & ~late) & ~taken.late[0]:
            assert taken.late[0] & ~taken.cpus & ~found.cpus == 0
    assert devices.disjoint(found.devices)
    for (_, kind, count), mask in zip(wishes, found.devices, strict=True):
        assert mask.bit_count() == count
        assert mask & taken.devices["gpu"] == 0
        of_kind = sum(one.mask for one in node.devices if kind in ("", one.type))
        assert mask & ~of_kind == 0


@given(cases(), st.integers(1, 4))
def test_one_link_group_is_enough_when_one_has_enough(case, count):
    node, taken, _, _ = case
    found = devices.choose(node, taken, 0, (("gpu", "", count),))
    groups = {}
    for at, one in enumerate(node.devices):
        key = one.link or at
        groups[key] = groups.get(key, 0) | one.mask
    free = {key: mask & ~taken.devices["gpu"] for key, mask in groups.items()}
    if any(mask.bit_count() >= count for mask in free.values()):
        assert found is not None
        assert any(found.devices[0] & ~mask == 0 for mask in free.values())


@given(cases())
def test_one_socket_is_enough_when_one_has_enough(case):
    node, taken, cpus, _ = case
    free = [sum(core & ~taken.cpus for core in socket) for socket in node.sockets]
    found = devices.choose(node, taken._replace(late=()), cpus)
    if found is not None and any(mask.bit_count() >= cpus for mask in free):
        assert any(found.cpus & ~mask == 0 for mask in free)


@given(nodes(), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=12), st.randoms())
def test_jobs_that_come_and_go_never_share(node, asks, random):
    """By the counts alone a job fits exactly when it gets its CPUs and devices."""
    cpus, counts = devices.total(node)
    gpus = sum(counts.values())
    held = []
    for want, cards in asks:
        used = sum(job.cpus.bit_count() for job in held)
        used_cards = sum(job.devices[0].bit_count() for job in held)
        taken = Taken(sum(job.cpus for job in held), (), {"gpu": sum(job.devices[0] for job in held)})
        found = devices.choose(node, taken, want, (("gpu", "", cards),))
        fits = used + want <= cpus and used_cards + cards <= gpus
        assert (found is not None) == fits
        if found is not None:
            held.append(found)
            assert devices.disjoint(job.cpus for job in held)
            assert devices.disjoint(job.devices[0] for job in held)
        if held and random.random() < 0.3:
            held.pop(random.randrange(len(held)))

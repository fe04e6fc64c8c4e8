"""What the controller is told of a node's CPUs and devices."""

import pytest

from spur_agent import inventory
from spur_agent.discovery import Hardware, fold_topology, hardware
from spur_agent.resources import NodeResources, offered
from spur_core.config import parse_config

pytestmark = pytest.mark.node

#: CPU 0 to 7 of two sockets with two cores with two threads; threads are numbered as Linux does.
SEATS = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1), (1, 0), (1, 1))


def host(seats=SEATS):
    return Hardware(
        tuple(range(len(seats))), fold_topology(seats, len(seats)), 1000, 10, "x", "y", "b", 0.0, tuple(seats)
    )


def told(text="", seats=SEATS):
    config = parse_config(f'cluster_name = "c"\n{text}')
    found = inventory.message(offered(host(seats), config, "n1", {}))
    sockets = [list(socket.threads) for socket in found.sockets]
    devices = [(one.name, one.type, one.indices, one.link, one.near) for one in found.devices]
    return sockets, devices


def gres(name="gpu", **keys):
    lines = [f"{key} = {value!r}".replace("'", '"') for key, value in {"name": name, **keys}.items()]
    return "[[devices.gres]]\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("seats", "sockets"),
    [
        (SEATS, [["0-1", "4-5"], ["2-3", "6-7"]]),
        # Threads side by side.
        (((0, 0), (0, 0), (0, 1), (0, 1)), [["0,2", "1,3"]]),
        (((1, 0), (0, 0)), [["0"], ["1"]]),
        # One core with two threads, two with one; sockets of different sizes: no regular shape.
        (((0, 0), (0, 0), (0, 1), (0, 2)), [["0-3"]]),
        (((0, 0), (0, 1), (0, 2), (1, 0)), [["0-3"]]),
        (((0, 0), (0, 0), (0, 0), (0, 1)), [["0-3"]]),
        (((0, 0), (0, 1), (0, 1), (0, 0)), [["0-3"]]),
    ],
)
def test_sockets(seats, sockets):
    assert told(seats=seats)[0] == sockets


def test_cpus_that_are_not_real_are_cores_of_one_socket():
    assert told('[[nodes]]\nnames = "ALL"\ncpus = 3')[0] == [["0-2"]]


def test_devices_by_the_cpus_near_them():
    text = gres(type="a", count=2, cores="0-1,4-5") + gres(type="a", count=2, cores="2-3,6-99")
    assert told(text)[1] == [("gpu", "a", "0-1", "", "0-1,4-5"), ("gpu", "a", "2-3", "", "2-3,6-7")]


def test_devices_by_links():
    rows = ("-1,0,4,0", "0,-1,0,4", "4,0,-1,0", "0,4,0,-1")
    text = "".join(gres(links=row, cores=cores) for row, cores in zip(rows, "0123", strict=True))
    assert told(text)[1] == [
        ("gpu", "", "0", "link0", "0"),
        ("gpu", "", "1", "link1", "1"),
        ("gpu", "", "2", "link0", "2"),
        ("gpu", "", "3", "link1", "3"),
    ]


def test_links_reach_over_others():
    rows = ("-1,1,0", "1,-1,1", "0,1,-1")
    assert told("".join(gres(links=row) for row in rows))[1] == [("gpu", "", "0-2", "link0", "")]


def test_indices_run_over_all_types_in_the_order_of_the_table():
    text = gres(type="a") + gres(type="b") + gres(type="a", cores="1") + gres("nic")
    assert told(text)[1] == [
        ("gpu", "a", "0", "", ""),
        ("gpu", "a", "1", "", "1"),
        ("gpu", "b", "2", "", ""),
        ("nic", "", "0", "", ""),
    ]


def test_what_is_only_a_number_is_not_told():
    text = gres("shard", count=9, flags=["count_only"]) + gres("tape", count=5000) + gres(count=1)
    assert told(text)[1] == [("gpu", "", "0", "", "")]


def test_an_entry_of_the_nodes_gives_the_number():
    text = gres(count=2, cores="0-1") + '[[nodes]]\nnames = "ALL"\ngres = ["gpu:3", "tape:1"]'
    assert told(text)[1] == [
        ("gpu", "", "0-1", "", "0-1"),
        ("gpu", "", "2", "", ""),
        ("tape", "", "0", "", ""),
    ]


def test_this_host_is_told_whole():
    here = hardware()
    found = inventory.message(NodeResources(here, here.cpu_ids, True, here.topology, 1, {}))
    threads = [text for socket in found.sockets for text in socket.threads]
    assert len(found.sockets) == here.topology.sockets
    from spur_core.grammar import idlist

    assert sorted(cpu for text in threads for cpu in idlist.numbers(idlist.mask_of(text))) == list(
        here.cpu_ids
    )

"""What a group of several releases may use; what an older release does with what is newer."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from spur_core.errors import ConfigError, StateError
from spur_ctld.replication.errors import TooNew
from spur_ctld.state import codec, ops, released, versions
from spur_ctld.state.log_machine import LogMachine
from spur_ctld.state.records import Node, Partition, Request
from spur_ctld.state.settings import Settings

HERE = Path(__file__).parent
#: Recorded logs: what the release knew that wrote them.
FIXTURES = {"v0.1": 1}
WHO = ops.Who(uid=0, admin=True)
REQUEST = Request(name="raise_command_version", user="alice", uid=1, gid=1, partitions=(), script=b"")


def raised(to, at=1.0):
    return codec.encode_op(ops.RaiseCommandVersion(at=at, to=to))


# --- the tables


def test_every_operation_has_a_row():
    assert set(versions.SINCE) == set(get_args(ops.AnyOp)), "spur_ctld.state.versions says what to do"
    assert set(versions.SINCE.values()) <= set(range(1, versions.COMMAND_VERSION + 1))


def test_what_no_release_had_is_of_the_present_version():
    last = max(released.FIELDS)
    assert last <= versions.COMMAND_VERSION
    for name, kind in versions.structs().items():
        rows = versions.newer(kind)
        for field, version in rows.items():
            versions._default(kind, field)
            if released.since(name, field) is None:
                assert version == versions.COMMAND_VERSION > last, "raise COMMAND_VERSION for what is new"
        since = versions.SINCE.get(kind)
        assert since is None or released.known(name) == (since <= last), name


def test_nothing_that_a_release_had_is_gone():
    now = {name: set(kind.__struct_fields__) for name, kind in versions.structs().items()}
    for kinds in released.FIELDS.values():
        for name, fields in kinds.items():
            assert set(fields.split()) <= now[name], name


@pytest.mark.parametrize("release", sorted((HERE / "fixtures").iterdir()), ids=lambda path: path.name)
def test_what_a_release_wrote_is_of_its_version(release):
    raw, at = (release / "entries.bin").read_bytes(), 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 4], "little")
        op = codec.decode_op(raw[at + 4 : at + 4 + length])
        assert versions.needed(op) <= FIXTURES[release.name]
        at += 4 + length


# --- values


@pytest.fixture
def newer_fields(monkeypatch):
    """Some fields as if they had come with the present version."""
    new = {"Settings": {"kill_wait"}, "Node": {"labels", "comment"}, "Request": {"name"}}
    rows = dict(released.FIELDS[3])
    for kind, fields in new.items():
        rows[kind] = " ".join(name for name in rows[kind].split() if name not in fields)
    monkeypatch.setitem(released.FIELDS, 3, rows)


def test_a_field_counts_when_it_is_set(newer_fields):
    still = ops.Configure(at=1.0, settings=Settings(), partitions=(Partition(name="p"),))
    assert versions.needed(still) == 1
    settings = msgspec.structs.replace(still, settings=Settings(kill_wait=1))
    assert versions.needed(settings) == 4
    inside = msgspec.structs.replace(still, nodes=(Node(name="a"), Node(name="b", labels={"x": "y"})))
    assert versions.needed(inside) == 4
    update = ops.Update(at=1.0, targets=(), who=WHO, changes={"name": b"\xa1x"})
    assert versions.needed(update) == 4
    assert versions.needed(msgspec.structs.replace(update, changes={"comment": b"\xa1x"})) == 1


def test_what_is_fitted_lacks_only_what_is_newer(newer_fields):
    op = ops.Configure(
        at=1.0,
        settings=Settings(kill_wait=1, max_array_size=7),
        partitions=(Partition(name="p"),),
        nodes=(Node(name="b", labels={"x": "y"}, weight=3),),
    )
    assert versions.fitted(op, 4) == op
    assert versions.fitted(op, 3) == ops.Configure(
        at=1.0,
        settings=Settings(max_array_size=7),
        partitions=(Partition(name="p"),),
        nodes=(Node(name="b", weight=3),),
    )
    update = ops.Update(at=1.0, targets=(), who=WHO, changes={"name": b"\xa1x", "comment": b"\xa1y"})
    assert versions.fitted(update, 3).changes == {"comment": b"\xa1y"}


# --- the state


def test_the_version_only_rises():
    machine = LogMachine()
    assert machine.state.command_version == versions.FIRST
    for index, to in enumerate((4, 3, 4), 1):
        machine.apply(index, raised(to, at=float(index)))
        assert (machine.state.command_version, machine.state.raised_at) == (4, 1.0)


def test_the_version_is_in_the_snapshot_and_in_the_digest():
    machine, other = LogMachine(), LogMachine()
    machine.apply(1, raised(4))
    other.apply(1, raised(3))
    restored = codec.restore(machine.freeze())
    assert (restored.command_version, restored.raised_at) == (4, 1.0)
    assert machine.freeze().digest() != other.freeze().digest()
    assert codec.digest(machine.state) != codec.digest(other.state)


def test_a_snapshot_from_before_is_of_the_first_version():
    head, *rest = LogMachine().freeze()
    old = msgspec.msgpack.decode(head)
    del old["command_version"]
    assert codec.restore([msgspec.msgpack.encode(old), *rest]).command_version == versions.FIRST


# --- an older release


def test_an_older_release_stops_before_what_it_does_not_know():
    machine = LogMachine()
    machine.apply(1, raised(4))
    with pytest.raises(
        TooNew, match=f"version 99, this release knows up to {versions.COMMAND_VERSION}: install"
    ):
        machine.apply(2, raised(99))
    assert (machine.state.applied, machine.state.command_version) == (1, 4), "nothing is carried out"
    with pytest.raises(TooNew, match="install the newer release"):
        machine.apply(2, msgspec.msgpack.encode({"op": "teleport", "at": 1.0}))


def test_an_older_release_refuses_a_newer_snapshot():
    machine = LogMachine()
    machine.state.command_version = 99
    chunks = list(machine.freeze())
    with pytest.raises(TooNew, match=r"version 99, .* install the newer release"):
        LogMachine().restore(chunks)


def test_a_log_that_goes_on_too_new_is_seen_before_it_is_applied():
    machine = LogMachine()
    fine = [
        raised(4),
        codec.encode_op(ops.Submit(at=1.0, request=REQUEST)),
        b"raise_command_versio",
    ]
    machine.foresee(fine)
    with pytest.raises(TooNew, match="version 5"):
        machine.foresee([*fine, raised(5)])
    assert machine.state.applied == 0


def test_another_member_cannot_bring_in_what_not_all_know():
    machine = LogMachine()
    machine.check(codec.encode_op(ops.Purge(at=1.0, job_ids=(), answers_before=0.5)))
    with pytest.raises(StateError, match="not every controller"):
        machine.check(raised(4))
    with pytest.raises(StateError):
        machine.check(b"nonsense")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"SPUR_TEST_COMMAND_VERSION": "3"}, "for tests only"),
        ({"SPUR_TEST_COMMAND_VERSION": "3", "SPUR_TEST_FAULTS": "0"}, "for tests only"),
        ({"SPUR_TEST_COMMAND_VERSION": "2", "SPUR_TEST_FAULTS": "1"}, "not in 3 to"),
        ({"SPUR_TEST_COMMAND_VERSION": "99", "SPUR_TEST_FAULTS": "1"}, "not in 3 to"),
        ({"SPUR_TEST_COMMAND_VERSION": "x", "SPUR_TEST_FAULTS": "1"}, "not in 3 to"),
    ],
)
def test_being_an_older_release_is_for_tests(environ, words):
    with pytest.raises(ConfigError, match=words):
        versions.pretend(environ)
    assert versions.known() == versions.COMMAND_VERSION


def test_a_process_that_is_an_older_release(monkeypatch, newer_fields):
    monkeypatch.setattr(versions, "_known", versions.COMMAND_VERSION)
    versions.pretend({})
    assert versions.known() == versions.COMMAND_VERSION
    versions.pretend({"SPUR_TEST_COMMAND_VERSION": "3", "SPUR_TEST_FAULTS": "1"})
    machine = LogMachine()
    node = Node(name="n", cpus=1, labels={"x": "y"})
    machine.apply(1, codec.encode_op(ops.NodeRegister(at=1.0, node=node)))
    assert machine.state.nodes["n"].labels == {}, "a field that it does not know is passed over"
    with pytest.raises(TooNew):
        machine.apply(2, raised(4))
    state = machine.state
    state.command_version = 4
    with pytest.raises(TooNew):
        LogMachine().restore(LogMachine.freeze(machine))

"""A frozen state: what it was when it was frozen, and its digest, whatever happens meanwhile."""

from spur_ctld.replication.digests import DigestBook
from spur_ctld.state import codec
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.frozen import FrozenState, encoding_version


def test_what_happens_later_is_not_in_it(sim):
    sim.run(sim.submit())
    frozen = sim.machine.freeze()
    digest, told = codec.digest(sim.state), sim.machine.freeze().digest()
    chunks = list(codec.freeze(sim.state))
    sim.submit()
    sim.complete(1)
    assert frozen.digest() == told
    assert told.startswith(f"{encoding_version()}-")
    assert sim.machine.freeze().digest() != told
    assert list(frozen) == chunks
    assert codec.digest(sim.state) != digest
    assert codec.digest(codec.restore(chunks)) == digest


def test_everything_that_is_not_derived_is_in_it():
    """A new table of the state must be frozen too."""
    state = ClusterState()
    derived = {"pending", "active", "by_array", "use", "by_name", "licenses_used"}
    named = {name for name in vars(state) if not name.startswith("_")} - derived
    for name in named:
        setattr(state, name, {"marked": name} if isinstance(getattr(state, name), dict) else name)
    still = FrozenState(state)._still
    assert {name: getattr(still, name) for name in named} == {name: getattr(state, name) for name in named}


def test_the_digest_sees_each_part_but_not_the_time(sim):
    """And not the order in which records came."""
    sim.run(sim.submit())
    sim.submit()
    sim.complete(1)
    plain = FrozenState(sim.state).digest()
    sim.state.time += 5
    assert FrozenState(sim.state).digest() == plain
    for name in ("jobs", "nodes", "outbox"):
        table = getattr(sim.state, name)
        assert table, name
        turned = dict(reversed(table.items()))
        setattr(sim.state, name, turned)
        assert FrozenState(sim.state).digest() == plain, name
        setattr(sim.state, name, dict(list(table.items())[1:]))
        assert FrozenState(sim.state).digest() != plain, name
        setattr(sim.state, name, table)
    sim.state.acct_seq += 1
    assert FrozenState(sim.state).digest() != plain
    sim.state.acct_seq -= 1


def test_members_agree_across_restore(sim, make_sim):
    """A member that began from a snapshot says the same as one that saw everything."""
    sim.run(sim.submit())
    other = make_sim()
    other.machine.restore(list(sim.machine.freeze()))
    other.index, other.now = sim.index, sim.now
    for one in (sim, other):
        one.submit()
        one.complete(1)
    assert other.machine.freeze().digest() == sim.machine.freeze().digest()
    book = DigestBook(1)
    book.record(sim.index, sim.machine.freeze().digest())
    book.heard(2, [(other.index, other.machine.freeze().digest())])
    assert book.found == 0
    other.submit()
    book.heard(3, [(sim.index, other.machine.freeze().digest())])
    assert book.found == 2, "the third differs from both"

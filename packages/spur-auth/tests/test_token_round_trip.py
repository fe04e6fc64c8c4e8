"""What is minted comes back, for every kind, cluster and key of a rotation; and starts cheaply."""

import hashlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_auth import kinds
from spur_auth.errors import ForgedCredential, WrongAudience, WrongKind
from spur_auth.keys import derive
from spur_auth.kinds import CONTROLLER, NODE, USER, Identity
from spur_auth.mint import mint_controller, mint_launch, mint_node, mint_user, spec_digest
from spur_auth.verify import verify, verify_launch
from spur_core.errors import RequestError
from spur_core.ids import U32_MAX, RuntimeId

u32 = st.integers(0, U32_MAX)


@given(st.text(min_size=1, max_size=60), st.none() | u32, st.integers(0, 2**34), st.integers(1, 10**6))
def test_user_round_trip(name, uid, now, ttl):
    token = mint_user(b"k" * 20, name, uid, ttl, float(now))
    assert verify(b"k" * 20, token, USER, now) == Identity(USER, name, uid, True)


@given(u32, u32, u32, u32, u32, st.binary(max_size=40))
def test_launch_round_trip(job, attempt, step, uid, gid, spec):
    rid = RuntimeId(job, attempt, step)
    token = mint_launch(b"k" * 20, rid, uid, gid, spec_digest(spec), "n1", 60, now=1e9)
    got = verify_launch(b"k" * 20, token, 1e9)
    assert got == (rid, uid, gid, hashlib.sha256(spec).hexdigest(), "n1")
    assert isinstance(got.rid, RuntimeId)


def test_node_and_controller(key, now):
    assert verify(key, mint_node(key, "n1", now=now), NODE, now) == (NODE, "n1", None, True, "")
    assert verify(key, mint_controller(key, now=now), CONTROLLER, now) == Identity(
        CONTROLLER, "spurctld", None, True
    )


def test_several_kinds_are_accepted_where_several_are_named(key, now):
    """Output streams belong to the owner and to the controller."""
    for token in (mint_user(key, "a", 1, 60, now), mint_controller(key, now=now)):
        assert verify(key, token, (USER, CONTROLLER), now).verified
    with pytest.raises(WrongKind, match="user or controller"):
        verify(key, mint_node(key, "n1", now=now), (USER, CONTROLLER), now)


def test_clusters_do_not_share_tokens(key, now):
    """Two clusters with one key (a copied configuration): the name keeps them apart."""
    token = mint_user(key, "a", 1, 60, now, cluster="east")
    assert verify(key, token, USER, now, cluster="east").name == "a"
    assert verify(key, token, USER, now).name == "a"
    with pytest.raises(WrongAudience, match="'east', not for 'west'"):
        verify(key, token, USER, now, cluster="west")
    with pytest.raises(WrongAudience):
        verify(key, mint_user(key, "a", 1, 60, now), USER, now, cluster="west")


def test_two_keys_during_a_rotation(key, now):
    old, new = b"old" * 11, b"new" * 11
    for signer in (old, new):
        assert verify([new, old], mint_user(signer, "a", 1, 60, now), USER, now).name == "a"
    with pytest.raises(ForgedCredential):
        verify([new, old], mint_user(key, "a", 1, 60, now), USER, now)
    with pytest.raises(ForgedCredential):
        verify([], mint_user(key, "a", 1, 60, now), USER, now)


def test_sub_keys(key, subkey):
    """RFC 5869 as written; 32 bytes; no two alike; none is the cluster key."""
    made = {kind: derive(key, kind) for kind in kinds.TOKEN_KINDS}
    assert made == {kind: subkey(key, kind) for kind in kinds.TOKEN_KINDS}
    assert all(len(k) == 32 for k in made.values())
    assert len(set(made.values()) | {key}) == len(made) + 1


def test_a_key_of_nothing_is_refused():
    with pytest.raises(RequestError, match="keygen"):
        derive(b"", USER)
    with pytest.raises(ValueError, match="kind"):
        derive(b"k", "anonymous")


def test_the_wire_form_is_a_contract(claims, forge, subkey, key, now):
    """A token made by hand from the written rule is accepted: other programs may make them."""
    assert verify(key, forge(claims, subkey(key, USER)), USER, now, cluster="c1").uid == 1000


def test_importing_costs_no_cryptography():
    """A command that shows a queue imports these, and must not pay for PyJWT."""
    code = (
        "import sys, spur_auth.mint, spur_auth.verify, spur_auth.gate, spur_auth.ownership, spur_auth.keys\n"
        "bad = {'jwt', 'cryptography', 'hashlib', 'grpc', 'asyncio', 'pathlib'} & set(sys.modules)\n"
        "sys.exit(' '.join(sorted(bad)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")

"""Names of nodes: who may register, who may report, and what a token says of its holder."""

import pytest

from spur_auth import mint
from spur_auth.errors import MalformedCredential, NotTheHolder, WrongKind
from spur_auth.kinds import NOBODY, NODE, USER, Identity, asserted_user
from spur_auth.node_names import Name, NameTaken, digest, is_holder, require_agent, require_registration
from spur_auth.verify import verify
from spur_core.errors import AccessDenied, RequestError

OURS = digest("our secret")
HOLDER = Identity(NODE, "n1", None, True, "our secret")
COPY = Identity(NODE, "n1", None, True, "another secret")
PLAIN = Identity(NODE, "n1", None, True)
OTHER = Identity(NODE, "n2", None, True, "our secret")
PERSON = Identity(USER, "alice", 1000, True)
SAME_NAME = Identity(USER, "n1", 1000, True)

FREE, DOWN, HELD = Name.FREE, Name.DOWN, Name.HELD


@pytest.mark.parametrize(
    ("who", "name", "held_by", "refusal"),
    [
        (HOLDER, HELD, OURS, None),
        (COPY, HELD, OURS, NameTaken),
        (PLAIN, HELD, OURS, NameTaken),
        (NOBODY, HELD, OURS, NameTaken),
        (NOBODY, HELD, "", NameTaken),
        (COPY, DOWN, OURS, None),
        (PLAIN, DOWN, OURS, None),
        (NOBODY, DOWN, OURS, NameTaken),
        (COPY, FREE, OURS, None),
        (NOBODY, FREE, "", None),
        (NOBODY, FREE, OURS, None),
        # An agent of an earlier release has no secret, and may come back with one after its upgrade.
        (PLAIN, HELD, "", None),
        (HOLDER, HELD, "", None),
        (OTHER, FREE, "", AccessDenied),
        (OTHER, HELD, OURS, AccessDenied),
        (PERSON, FREE, "", WrongKind),
        (SAME_NAME, HELD, OURS, WrongKind),
        (SAME_NAME, FREE, "", WrongKind),
        (asserted_user("root"), FREE, "", WrongKind),
    ],
)
def test_who_may_register(who, name, held_by, refusal):
    if refusal is None:
        require_registration(who, "n1", name, held_by)
    else:
        with pytest.raises(refusal):
            require_registration(who, "n1", name, held_by)


@pytest.mark.parametrize("name", list(Name))
def test_an_administrator_may_always_and_an_open_cluster_asks_nothing(name):
    require_registration(PERSON, "n1", name, OURS, admin=True)
    require_registration(NOBODY, "n1", name, OURS, open_cluster=True)


@pytest.mark.parametrize(
    ("who", "held_by", "refusal"),
    [
        (HOLDER, OURS, None),
        (PLAIN, "", None),
        (COPY, "", None),
        (COPY, OURS, NotTheHolder),
        (PLAIN, OURS, NotTheHolder),
        (OTHER, OURS, AccessDenied),
        (NOBODY, OURS, AccessDenied),
        (NOBODY, "", AccessDenied),
        (SAME_NAME, OURS, AccessDenied),
    ],
)
def test_who_may_speak_for_a_node(who, held_by, refusal):
    if refusal is None:
        require_agent(who, "n1", held_by)
    else:
        with pytest.raises(refusal):
            require_agent(who, "n1", held_by)
    require_agent(NOBODY, "n1", held_by, open_cluster=True)


def test_the_refusal_says_what_can_be_done():
    with pytest.raises(NameTaken, match="n1 is registered by another agent and not down") as caught:
        require_registration(COPY, "n1", HELD, OURS)
    assert caught.value.code == "node_name_taken"
    assert "secret" not in caught.value.text


def test_the_secret_travels_in_the_token(key, now):
    token = mint.mint_node(key, "n1", now, cluster="c1", holder="our secret")
    identity = verify(key, token, NODE, now, cluster="c1")
    assert identity == HOLDER
    assert is_holder(identity, OURS)
    assert verify(key, mint.mint_node(key, "n1", now), NODE, now).holder == ""


def test_a_user_named_like_a_node_is_not_the_node(key, now):
    token = mint.mint_user(key, "n1", 1000, 60, now)
    with pytest.raises(WrongKind):
        verify(key, token, NODE, now)


@pytest.mark.parametrize("value", [7, ["x"], None, "x" * 129])
def test_a_holder_that_is_none(key, now, forge, subkey, value):
    claims = {"aud": "spur:node", "kind": "node", "sub": "n1", "iat": int(now), "exp": int(now) + 60}
    token = forge(claims | {"hid": value}, subkey(key, "node"))
    with pytest.raises(MalformedCredential):
        verify(key, token, NODE, now)


def test_a_secret_too_long_is_not_minted(key, now):
    with pytest.raises(RequestError):
        mint.mint_node(key, "n1", now, holder="x" * 129)

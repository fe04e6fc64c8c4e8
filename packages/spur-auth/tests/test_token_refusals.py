"""Every way in which a token is refused, each with its own class, code and text."""

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from spur_auth import errors
from spur_auth.kinds import CALLER_KINDS, CONTROLLER, LAUNCH, NODE, TOKEN_KINDS, USER
from spur_auth.mint import mint_controller, mint_launch, mint_node, mint_user
from spur_auth.verify import verify, verify_launch
from spur_core.errors import RequestError, Unauthenticated
from spur_core.ids import STEP_BATCH, RuntimeId

RID = RuntimeId(7, 1, STEP_BATCH)


def token_of(kind, key, now, **more):
    return {
        USER: lambda: mint_user(key, "alice", 1000, 3600, now, **more),
        NODE: lambda: mint_node(key, "n1", now=now, **more),
        CONTROLLER: lambda: mint_controller(key, now=now, **more),
        LAUNCH: lambda: mint_launch(key, RID, 1000, 100, "ab" * 32, "n1", now=now, **more),
    }[kind]()


def check(kind, key, token, now, **more):
    return verify_launch(key, token, now, **more) if kind == LAUNCH else verify(key, token, kind, now, **more)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"exp": 1_800_000_000 - 61}, errors.ExpiredCredential),
        ({"exp": 1_800_000_000 - 60}, errors.ExpiredCredential),
        ({"exp": 1_800_000_000 - 59}, None),
        ({"iat": 1_800_000_000 + 60}, None),
        ({"iat": 1_800_000_000 + 61}, errors.NotYetValid),
        ({"nbf": 1_800_000_000 + 61}, errors.NotYetValid),
        ({"nbf": 1_800_000_000 - 5}, None),
        ({"aud": "spur:node"}, errors.WrongAudience),
        ({"aud": ["spur:user", "spur:node"]}, errors.WrongAudience),
        ({"iss": "c2"}, errors.WrongAudience),
        ({"iss": None}, errors.WrongAudience),
        ({"kind": "emperor"}, errors.MalformedCredential),
        ({"kind": ["user"]}, errors.MalformedCredential),
        ({"kind": "anonymous"}, errors.MalformedCredential),
        ({"sub": ""}, errors.MalformedCredential),
        ({"sub": 7}, errors.MalformedCredential),
        ({"exp": "tomorrow"}, errors.MalformedCredential),
        ({"exp": True}, errors.MalformedCredential),
        ({"exp": 1e400}, errors.MalformedCredential),
        ({"exp": float("nan")}, errors.MalformedCredential),
        ({"exp": 10**400}, errors.MalformedCredential),
        ({"iat": -1}, errors.MalformedCredential),
        ({"uid": "0"}, errors.MalformedCredential),
        ({"uid": True}, errors.MalformedCredential),
        ({"uid": -1}, errors.MalformedCredential),
        ({"uid": 2**32}, errors.MalformedCredential),
        ({"admin": True, "roles": ["root"]}, None),
    ],
)
def test_claims_of_a_correctly_signed_token(change, error, claims, forge, subkey, key, now):
    """A good signature is not enough: every claim is checked, and a claim of rights means nothing."""
    token = forge(claims | change, subkey(key, USER))
    if error is None:
        who = verify(key, token, USER, now, cluster="c1")
        assert who == (USER, "alice", 1000, True, "")
        return
    with pytest.raises(error):
        verify(key, token, USER, now, cluster="c1")


@pytest.mark.parametrize("claim", ["aud", "sub", "iat", "exp", "kind"])
def test_missing_claims_are_malformed(claim, claims, forge, subkey, key, now):
    del claims[claim]
    with pytest.raises(errors.MalformedCredential):
        verify(key, forge(claims, subkey(key, USER)), USER, now)


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "a.b.c",
        "..",
        "a" * 9000,
        "eyJhbGciOiJIUzI1NiJ9",
        "eyJhbGciOiJIUzI1NiJ9.e30",
        "eyJhbGciOiJIUzI1NiJ9.W10.AAAA",
        "v1.abc.def",
        "ünïcode.ünïcode.ünïcode",
        "\ud800.a.b",
        "eyJhbGciOiJIUzI1NiJ9.e30.AAAA",
    ],
)
def test_what_is_no_token_is_malformed(token, key, now):
    with pytest.raises(errors.MalformedCredential):
        verify(key, token, USER, now)


@pytest.mark.parametrize("token", [None, ""])
def test_nothing_is_missing(token, key, now):
    with pytest.raises(errors.MissingCredential, match="spur token user"):
        verify(key, token, USER, now)


@given(st.text(max_size=200))
def test_no_text_escapes_the_error_family(text):
    """Whatever a stranger sends, the answer is a refusal, never another exception."""
    with pytest.raises(errors.CredentialError):
        verify(b"k" * 32, text, CALLER_KINDS, 1e9)


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "HS384", "HS512", "RS256", "ES256", "", None, 7]
)
def test_only_the_pinned_algorithm(algorithm, claims, forge, subkey, key, now):
    """Also with a correct HMAC under the right key: the header never chooses."""
    token = forge(claims, subkey(key, USER), header={"alg": algorithm, "typ": "JWT"})
    with pytest.raises((errors.ForgedCredential, errors.MalformedCredential)):
        verify(key, token, USER, now)


def test_unsigned_token(claims, forge, key, now):
    """The classic: algorithm none and an empty signature."""
    token = forge(claims, b"x", header={"alg": "none"}).rpartition(".")[0] + "."
    with pytest.raises(errors.ForgedCredential, match="none"):
        verify(key, token, USER, now)


def test_token_of_a_real_rsa_key(claims, key, now):
    """A genuine RS256 token: another algorithm cannot be smuggled in."""
    import jwt

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    token = jwt.encode(claims, private, algorithm="RS256")
    with pytest.raises(errors.ForgedCredential, match="RS256"):
        verify(key, token, USER, now)


def test_header_extensions_are_not_understood(claims, forge, subkey, key, now):
    """`crit` names an extension that must be understood; we know none."""
    token = forge(claims, subkey(key, USER), header={"alg": "HS256", "crit": ["x"], "x": 1})
    with pytest.raises(errors.CredentialError):
        verify(key, token, USER, now)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_forged_with_another_key(kind, key, now):
    with pytest.raises(errors.ForgedCredential):
        check(kind, key, token_of(kind, b"another" * 5, now), now)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_the_cluster_key_itself_signs_nothing(kind, claims, forge, key, now):
    token = forge(claims | {"kind": kind, "aud": f"spur:{kind}"}, key)
    with pytest.raises(errors.ForgedCredential):
        check(kind, key, token, now)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_any_changed_part_is_refused(position, key, now):
    parts = token_of(USER, key, now).split(".")
    for index in range(0, len(parts[position]) - 1, 7):
        changed = list(parts)
        old = changed[position][index]
        changed[position] = (
            changed[position][:index] + ("A" if old != "A" else "B") + changed[position][index + 1 :]
        )
        with pytest.raises(errors.CredentialError):
            verify(key, ".".join(changed), USER, now)


@pytest.mark.parametrize("minted", TOKEN_KINDS)
@pytest.mark.parametrize("wanted", TOKEN_KINDS)
def test_each_kind_against_each_other(minted, wanted, key, now):
    token = token_of(minted, key, now)
    if minted == wanted:
        check(wanted, key, token, now)
        return
    with pytest.raises(errors.WrongKind, match=f"a {minted} credential was sent where a {wanted} credential"):
        check(wanted, key, token, now)


@pytest.mark.parametrize("minted", TOKEN_KINDS)
@pytest.mark.parametrize("wanted", TOKEN_KINDS)
def test_claims_of_another_kind_under_ones_own_sub_key(minted, wanted, claims, forge, subkey, key, now):
    """Who holds only one sub-key cannot make a token of another kind, whatever it writes into it."""
    if minted == wanted:
        return
    token = forge(claims | {"kind": wanted, "aud": f"spur:{wanted}"}, subkey(key, minted))
    with pytest.raises(errors.ForgedCredential):
        check(wanted, key, token, now)


def test_a_user_called_like_a_node_or_the_controller(key, now):
    """Names are not kinds: the reference let such a user through."""
    for name, kind in (("n1", NODE), ("spurctld", CONTROLLER)):
        with pytest.raises(errors.WrongKind):
            verify(key, mint_user(key, name, 0, 60, now), kind, now)


def test_a_controller_token_names_the_controller(claims, forge, subkey, key, now):
    token = forge(claims | {"kind": CONTROLLER, "aud": "spur:controller"}, subkey(key, CONTROLLER))
    with pytest.raises(errors.MalformedCredential, match="alice"):
        verify(key, token, CONTROLLER, now)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_expiry_of_every_kind(kind, key, now):
    token = token_of(kind, key, now)
    for later in (8 * 86400, 10**8):
        with pytest.raises(errors.ExpiredCredential, match="expired"):
            check(kind, key, token, now + later)
    with pytest.raises(errors.NotYetValid, match="clocks"):
        check(kind, key, token, now - 3600)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"rid": [7, 1]}, errors.MalformedCredential),
        ({"rid": "7.1.0"}, errors.MalformedCredential),
        ({"rid": [7, 1, True]}, errors.MalformedCredential),
        ({"rid": [7, 1, 2**32]}, errors.MalformedCredential),
        ({"uid": None}, errors.MalformedCredential),
        ({"gid": -5}, errors.MalformedCredential),
        ({"digest": ""}, errors.MalformedCredential),
        ({"digest": 5}, errors.MalformedCredential),
        ({}, None),
    ],
)
def test_launch_statements(change, error, claims, forge, subkey, key, now):
    good = claims | {
        "kind": LAUNCH,
        "aud": "spur:launch",
        "sub": "n1",
        "rid": [7, 1, 3],
        "uid": 1,
        "gid": 2,
        "digest": "ab",
    }
    token = forge(good | change, subkey(key, LAUNCH))
    if error is None:
        assert verify_launch(key, token, now) == (RuntimeId(7, 1, 3), 1, 2, "ab", "n1")
        return
    with pytest.raises(error):
        verify_launch(key, token, now)


def test_codes_and_texts_are_distinct(key, now):
    """Clients match on codes, people read the texts; both tell the reasons apart."""
    family = [
        errors.MissingCredential(),
        errors.MalformedCredential("x"),
        errors.ForgedCredential(),
        errors.ExpiredCredential(5),
        errors.NotYetValid(5),
        errors.WrongKind("node", ("user",)),
        errors.WrongAudience("a", "b"),
        errors.NotTheHolder("n1"),
        errors.NoKeyConfigured(),
    ]
    assert {type(e) for e in family} == set(errors.CredentialError.__subclasses__())
    assert len({e.code for e in family}) == len({e.text for e in family}) == len(family)
    assert all(isinstance(e, Unauthenticated) and "\n" not in e.text for e in family)


def test_refusals_never_repeat_the_token(key, now):
    token = token_of(USER, b"another" * 5, now)
    with pytest.raises(errors.CredentialError) as caught:
        verify(key, token, USER, now)
    assert token.split(".")[2] not in caught.value.text


@pytest.mark.parametrize("kinds", [(), "launch", "king", ("user", "launch")])
def test_asking_for_what_is_no_caller_is_a_bug(kinds, key, now):
    with pytest.raises(ValueError, match="kinds"):
        verify(key, "x", kinds, now)


@pytest.mark.parametrize("ttl", [0, -1])
def test_a_life_of_nothing_is_refused(ttl, key, now):
    with pytest.raises(RequestError, match="more than 0"):
        mint_user(key, "alice", 1, ttl, now)


def test_nameless_tokens_are_refused(key, now):
    with pytest.raises(RequestError):
        mint_user(key, "", 1, 60, now)
    with pytest.raises(RequestError):
        mint_node(key, "", now=now)

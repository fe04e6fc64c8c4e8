"""Who may act on whose job: one table."""

import pytest

from spur_auth.kinds import CONTROLLER, LAUNCH, NOBODY, NODE, USER, Identity, asserted_user
from spur_auth.ownership import (
    Admins,
    is_admin,
    may_act_on,
    require_controller,
    require_node,
)
from spur_core.errors import AccessDenied

ALICE = Identity(USER, "alice", 1000, True)
ALICE_NO_UID = Identity(USER, "alice", None, True)
OTHER_ALICE = Identity(USER, "alice", 2000, True)
BOB = Identity(USER, "bob", 1001, True)
ROOT = Identity(USER, "root", 0, True)
TOOR = Identity(USER, "toor", 0, True)
N1 = Identity(NODE, "n1", None, True)
CTLD = Identity(CONTROLLER, "spurctld", None, True)
SAYS_ROOT = asserted_user("root", 0)
SAYS_ALICE = asserted_user("alice", 1000)
SAYS_NOTHING = asserted_user("")


@pytest.mark.parametrize(
    ("who", "allowed"),
    [
        (ALICE, True),
        (ALICE_NO_UID, True),
        (OTHER_ALICE, False),
        (BOB, False),
        (ROOT, True),
        (TOOR, True),
        (CTLD, True),
        (N1, False),
        (Identity(NODE, "alice", 1000, True), False),
        (Identity(NODE, "root", 0, True), False),
        (Identity(LAUNCH, "alice", 1000, True), False),
        (Identity(CONTROLLER, "spurctld", None, False), False),
        (SAYS_ALICE, True),
        (SAYS_ROOT, False),
        (SAYS_NOTHING, False),
        (NOBODY, False),
    ],
)
def test_on_a_job_of_alice(who, allowed):
    assert may_act_on(who, 1000, "alice") is allowed


@pytest.mark.parametrize("who", [NOBODY, SAYS_NOTHING, SAYS_ROOT, ALICE])
def test_a_job_of_nobody_is_nobodys(who):
    """An empty owner (internal work) is not the empty name of a caller who says nothing."""
    assert not may_act_on(who, None, "")


def test_an_asserted_root_owns_only_its_own_jobs():
    assert may_act_on(SAYS_ROOT, 0, "root")
    assert not may_act_on(SAYS_ROOT, 0, "alice")


def test_admins_are_a_record_of_the_controller():
    staff = Admins(frozenset({"bob"}), frozenset())
    assert may_act_on(BOB, 1000, "alice", admins=staff)
    assert not may_act_on(ROOT, 1000, "alice", admins=staff)
    assert not is_admin(asserted_user("bob"), admins=staff)


@pytest.mark.parametrize(
    ("who", "closed", "opened"),
    [
        (N1, True, True),
        (Identity(NODE, "n2", None, True), False, False),
        (Identity(USER, "n1", 0, True), False, False),
        (ROOT, False, False),
        (CTLD, False, False),
        (NOBODY, False, True),
        (asserted_user("n1"), False, False),
    ],
)
def test_reports_of_node_n1(who, closed, opened):
    assert _passes(require_node, who, "n1") is closed
    assert _passes(require_node, who, "n1", open_cluster=True) is opened


def test_a_node_without_a_name_is_no_node():
    assert not _passes(require_node, Identity(NODE, "", None, True), "")


@pytest.mark.parametrize(
    ("who", "closed", "opened"),
    [
        (CTLD, True, True),
        (ROOT, False, False),
        (ALICE, False, False),
        (N1, False, False),
        (Identity(USER, "spurctld", 0, True), False, False),
        (NOBODY, False, True),
    ],
)
def test_controller_only_calls(who, closed, opened):
    assert _passes(require_controller, who) is closed
    assert _passes(require_controller, who, open_cluster=True) is opened


def _passes(check, *args, **kwargs):
    try:
        check(*args, **kwargs)
    except AccessDenied:
        return False
    return True

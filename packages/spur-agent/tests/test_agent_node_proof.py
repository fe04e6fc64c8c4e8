"""What proves over restarts that an agent is the one that has its node's name."""

import json
import os
import stat

import pytest

from spur_agent.controller import NodeCredential
from spur_agent.node_proof import FILE_NAME, NodeProof
from spur_auth import mint
from spur_auth.verify import verify
from spur_core.errors import StateError

pytestmark = pytest.mark.node

KEY = b"0123456789abcdef0123456789abcdef"
NOW = 1_800_000_000.0


def proof(folder, node="n1"):
    return NodeProof(str(folder), node).load()


def test_the_secret_is_made_once_and_kept_private(tmp_path):
    first = proof(tmp_path)
    assert len(first.holder) == 32
    assert proof(tmp_path).holder == first.holder
    assert stat.S_IMODE(os.stat(tmp_path / FILE_NAME).st_mode) == 0o600
    assert proof(tmp_path / ".." / tmp_path.name).holder == first.holder


def test_the_secret_is_on_the_disk_before_anything_is_sent(tmp_path):
    """An agent that is killed before it has the controller's first answer is the same one afterwards."""
    holder = proof(tmp_path).holder
    assert json.loads((tmp_path / FILE_NAME).read_text())["holder"] == holder


def test_two_agents_have_two_secrets(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert proof(tmp_path / "a").holder != proof(tmp_path / "b").holder


def test_another_name_is_another_node(tmp_path):
    assert proof(tmp_path).holder != proof(tmp_path, "n2").holder


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"node": "n1"}', '{"node": "n1", "holder": 7, "token": ""}']
)
def test_a_damaged_file_is_made_anew(tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    assert len(proof(tmp_path).holder) == 32


def test_a_link_in_its_place_is_refused(tmp_path):
    (tmp_path / "elsewhere").write_text('{"node": "n1", "holder": "x", "token": ""}')
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match=FILE_NAME):
        proof(tmp_path)


def test_without_room_there_is_no_secret(tmp_path):
    """What could not be shown after a restart is not shown before it."""
    made = NodeProof(str(tmp_path / "missing"), "n1").load()
    assert made.holder == ""


def test_tokens_carry_the_secret_and_the_given_one_outlives_the_agent(tmp_path):
    kept = proof(tmp_path)
    credential = NodeCredential(KEY, "n1", "c", clock=lambda: NOW, proof=kept)
    assert verify(KEY, credential.token(), "node", NOW).holder == kept.holder
    given = mint.mint_node(KEY, "n1", NOW, cluster="c", holder="from the controller")
    credential.given(given)
    assert credential.token() == given
    # Without the key the kept token is all that a restarted agent has.
    assert NodeCredential(None, "n1", "c", clock=lambda: NOW, proof=proof(tmp_path)).token() == given
    again = NodeCredential(KEY, "n1", "c", clock=lambda: NOW, proof=proof(tmp_path))
    assert verify(KEY, again.token(), "node", NOW).holder == kept.holder

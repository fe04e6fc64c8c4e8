"""LaunchJob sent straight to an agent: it runs only what the controller signed for exactly this."""

import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spur_core.ids import STEP_BATCH, RuntimeId
from spur_proto import agent_pb2

RID = RuntimeId(900001, 1, STEP_BATCH)
RAN = Path("/tmp/spur-attack-ran")


class Shot:
    """A launch as the controller would send it, to be spoilt in one place."""

    def __init__(self, target: Any, helpers: Any) -> None:
        me = pwd.getpwuid(os.geteuid())
        self.target, self.helpers = target, helpers
        self.rid, self.uid, self.gid, self.node = RID, me.pw_uid, me.pw_gid, "node1"
        self.spec = helpers.launch_spec(self.rid, self.uid, self.gid, self.node)
        self.caller = target.controller_token()
        self.term = 1 << 40
        self.statement = self.sign()

    def sign(self, **how: Any) -> str:
        """The statement for the launch as it is now."""
        given = {"spec": self.spec, "rid": self.rid, "uid": self.uid, "gid": self.gid, "node": self.node}
        given.update(how)
        return str(self.target.statement(**given))

    def fire(self, node: str = "node1") -> Any:
        """Send it to the agent of `node`."""
        request = agent_pb2.LaunchJobRequest(
            spec=self.spec, target_node=self.node, launch_token=self.statement, term=self.term
        )
        return self.helpers.ask(self.target.agent(node).LaunchJob, request, self.caller)


@pytest.fixture
def shot(target: Any, helpers: Any) -> Iterator[Shot]:
    RAN.unlink(missing_ok=True)
    found = Shot(target, helpers)
    # The controller's own term, so that refused launches do not depose it.
    found.term = 0
    yield found
    assert not RAN.exists(), "it ran"


@pytest.mark.parametrize("caller", ["nobody", "user", "node", "launch"])
def test_of_another_caller(shot: Shot, caller: str) -> None:
    target = shot.target
    shot.caller = {
        "nobody": None,
        "user": target.user_token(target.user),
        "node": target.node_token("node1"),
        "launch": shot.statement,
    }[caller]
    assert shot.fire().code == "UNAUTHENTICATED"


def test_of_an_old_term(shot: Shot) -> None:
    answer = shot.fire()
    assert answer.code == "FAILED_PRECONDITION"
    assert "term 0 is over" in answer.text


SPOILT = {
    "missing": (lambda s: "", "no credential"),
    "another key": (lambda s: s.sign(key=b"x" * 32), "signature"),
    "expired": (lambda s: s.sign(now=time.time() - 7200), "expired"),
    "a user token": (lambda s: s.target.user_token("root"), "where a launch credential"),
    "a controller token": (lambda s: s.target.controller_token(), "where a launch credential"),
    "another spec": (lambda s: s.sign(spec=s.spec + b"\x40\x00"), "another spec digest"),
    "another node": (lambda s: s.sign(node="node2"), "another node"),
    "another uid": (lambda s: s.sign(uid=s.uid + 1), "another uid"),
    "another gid": (lambda s: s.sign(gid=s.gid + 1), "another gid"),
    "another attempt": (lambda s: s.sign(rid=RuntimeId(RID.job_id, 2, STEP_BATCH)), "another rid"),
    "another job": (lambda s: s.sign(rid=RuntimeId(RID.job_id + 1, 1, STEP_BATCH)), "another rid"),
    "another step": (lambda s: s.sign(rid=RuntimeId(RID.job_id, 1, 0)), "another rid"),
}


@pytest.mark.parametrize("word", SPOILT)
def test_with_a_statement_that_does_not_hold(shot: Shot, word: str) -> None:
    make, reason = SPOILT[word]
    shot.term = _term(shot)
    shot.statement = make(shot)
    answer = shot.fire()
    assert answer.code in ("UNAUTHENTICATED", "PERMISSION_DENIED"), answer
    assert reason in answer.text


def _term(shot: Shot) -> int:
    """The controller's own term: the agent names it when it refuses an older one."""
    shot.term = 0
    return int(shot.fire().text.rpartition(" ")[2])


def test_for_another_node(shot: Shot) -> None:
    shot.term = _term(shot)
    shot.node = "node2"
    shot.statement = shot.sign()
    assert shot.fire("node1").code == "FAILED_PRECONDITION"


def test_a_statement_used_again(target: Any, helpers: Any, shot: Shot, tmp_path: Path) -> None:
    """The same order again runs nothing, before and after its end."""
    shot.term = _term(shot)
    mark = tmp_path / "runs"
    script = f"#!/bin/sh\necho run >> {mark}\n".encode()
    shot.spec = helpers.launch_spec(RID, shot.uid, shot.gid, "node1", script=script)
    shot.statement = shot.sign()
    started = set()
    for _ in range(3):
        answer = shot.fire()
        assert answer.code == "OK", answer
        started.add(answer.message.started_at)
    helpers.until(
        lambda: any(f"step={RID}" in line and "verdict" in line for line in target.logs().splitlines()),
        "the end is reported",
    )
    shot.fire()
    assert len(started) == 1
    assert mark.read_text() == "run\n"


def test_garbage_for_a_spec(shot: Shot) -> None:
    shot.term = _term(shot)
    for spec in (b"", b"\xff" * 100, b"\0" * 1000):
        shot.spec = spec
        shot.statement = shot.sign()
        assert shot.fire().code == "INVALID_ARGUMENT", spec[:4]

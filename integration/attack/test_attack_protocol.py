"""Hypothesis against a live supervisor: its control socket, and attached connections, spoken to by root.

Whatever is sent, nobody else waits, no processor is burnt afterwards, and the step goes on.
"""

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spur_proto_lite import control, framing

pytestmark = [pytest.mark.root, pytest.mark.node]


class Supervisor:
    """One live supervisor and how to speak to it."""

    def __init__(self, folder: Path, pid: int, rid: tuple[int, int, int]) -> None:
        self.folder, self.pid, self.rid = folder, pid, rid
        # Kept open: with a dead supervisor its directory goes.
        self._log = (folder / "stepd.log").open(errors="replace")

    def close(self) -> None:
        """No more questions."""
        self._log.close()

    def has_not_stumbled(self) -> None:
        """Its log tells of no exception."""
        self._log.seek(0)
        text = self._log.read()
        assert "Traceback" not in text, text[text.index("Traceback") :]

    def connect(self) -> socket.socket:
        """A fresh connection to its control socket."""
        directory = os.open(self.folder, os.O_RDONLY)
        try:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(10)
            sock.connect(f"/proc/self/fd/{directory}/ctl.sock")
            return sock
        finally:
            os.close(directory)

    def request(self, op: Any, args: Any, *, v: Any = 2, rid: Any = None) -> bytes:
        """The bytes of a request; nothing in it need make sense."""
        job, attempt, step = self.rid
        given = {"job_id": job, "run_attempt": attempt, "step_id": step} if rid is None else rid
        document = {"v": v, "id": 1, "op": op, "rid": given}
        if isinstance(args, dict):
            document = {**args, **document}
        body = json.dumps(document).encode()
        return struct.pack("<I", len(body)) + body

    def talk(self, data: bytes, secs: float = 0.3) -> bytes:
        """Send all of it; what comes back until the other side closes, or says nothing for a moment."""
        got = b""
        self.has_not_stumbled()
        with self.connect() as sock:
            sock.settimeout(secs)
            with contextlib.suppress(OSError):
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while part := sock.recv(65536):
                    got += part
                    if len(got) > 1 << 20:
                        break
        return got

    def is_well(self) -> bool:
        """It answers a hello at once."""
        self.has_not_stumbled()
        begun = time.monotonic()
        got = self.talk(self.request(control.HELLO, {}, v=1), 5.0)
        return b'"ok":true' in got and time.monotonic() - begun < 2

    def cpu_secs(self) -> float:
        """Processor time it has used."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def is_quiet(self) -> bool:
        """It sleeps when nobody speaks."""
        before, begun = self.cpu_secs(), time.monotonic()
        while time.monotonic() - begun < 1.0:
            os.sched_yield()
            time.sleep(0.05)  # not for order: a span in which its processor time is measured
        return self.cpu_secs() - before < 0.3


@pytest.fixture(scope="module")
def supervisor(target: Any, stranger: str) -> Iterator[Supervisor]:
    """Of a step of a user's, with a task that reads."""
    job, _ = target.allocate(stranger)
    made = target.step(
        stranger, job, "sh", "-c", "trap '' 1 2 3 10 12 13 14 15; while :; do cat; sleep 1; done"
    )
    assert made.code == "OK"
    rid = made.message.step.rid
    found = list((target.cluster.folder / "state").rglob(f"sessions/{job}.1.{rid.step_id}"))
    assert len(found) == 1
    pid = json.loads((found[0] / "descriptor.json").read_text())["stepd_pid"]
    found_one = Supervisor(found[0], pid, (job, 1, rid.step_id))
    yield found_one
    found_one.close()
    target.cluster.run("scancel", str(job))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from([2**31, 2**31 - 1, 2**32, 2**63, -1, 0, 1e308, "\ud800", "\0", "nan", "owner", "all"])
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
WORDS = (
    "signal", "scope", "pid", "start_ticks", "timeout", "seq", "by", "offsets", "stdin", "mode", "want_input",
    "rows", "cols", "stdin_offset", "argv", "env", "pty", "work_dir", "memory_mb", "cpus", "cpu_ids",
)  # fmt: skip
arguments = st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=8), json_values, max_size=6)
#: All but those whose very meaning is to end the step.
OPS = (
    control.HELLO, control.START, control.QUERY, control.SUSPEND, control.RESUME, control.WAIT, control.ACK,
    control.ATTACH, control.EXEC, control.UPDATE, control.ADOPT_PID,
)  # fmt: skip
ops = st.sampled_from(OPS) | st.text(max_size=12) | json_values

often = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@often
@given(st.lists(st.tuples(ops, arguments), min_size=1, max_size=4))
def test_requests(supervisor: Supervisor, requests: list[tuple[Any, Any]]) -> None:
    data = b"".join(supervisor.request(op, args) for op, args in requests)
    supervisor.talk(data + supervisor.request(control.RESUME, {}))
    assert supervisor.is_well()


@often
@given(json_values, json_values, arguments)
def test_identities_and_versions(supervisor: Supervisor, rid: Any, version: Any, args: Any) -> None:
    for op in (control.TEARDOWN, control.SIGNAL, control.EXEC):
        answer = supervisor.talk(
            supervisor.request(op, args, rid=rid if rid is not None else {}, v=version), 0.1
        )
        assert b'"ok":true' not in answer
    assert supervisor.is_well()


@often
@given(st.binary(max_size=2000))
def test_bytes(supervisor: Supervisor, data: bytes) -> None:
    supervisor.talk(data, 0.1)
    assert supervisor.is_well()


KINDS = st.sampled_from(
    [framing.STDIN, framing.STDIN_EOF, framing.RESIZE, framing.CREDIT, framing.DATA_OUT, framing.EXIT, 0, 255]
)
numbers = st.sampled_from([0, 1, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
payloads = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda a, b: struct.pack("<Q", a) + b, numbers, st.binary(max_size=40)),
    st.builds(lambda a, b, c: struct.pack("<BIQ", a % 256, b % 2**32, c), numbers, numbers, numbers),
    st.builds(lambda a, b: struct.pack("<HH", a % 2**16, b % 2**16), numbers, numbers),
)
frames = st.lists(st.tuples(KINDS, payloads), max_size=8)


@often
@given(st.sampled_from(["owner", "watcher"]), st.booleans(), frames, st.binary(max_size=20))
def test_frames(supervisor: Supervisor, mode: str, wants: bool, given: Any, tail: bytes) -> None:
    """Of a client that has joined, in protocol 2."""
    begin = supervisor.request(
        control.ATTACH,
        {"mode": mode, "want_input": wants, "rows": 1, "cols": 1, "stdin_offset": 0, "offsets": []},
    )
    data = b"".join(framing.encode_frame(kind, payload) for kind, payload in given)
    supervisor.talk(begin + data + tail, 0.1)
    assert supervisor.is_well()


@often
@given(st.booleans(), frames)
def test_frames_of_a_command(supervisor: Supervisor, pty: bool, given: Any) -> None:
    begin = supervisor.request(
        control.EXEC, {"argv": ["cat"], "env": {}, "pty": pty, "rows": 1, "cols": 1, "work_dir": ""}
    )
    supervisor.talk(begin + b"".join(framing.encode_frame(kind, payload) for kind, payload in given), 0.1)
    assert supervisor.is_well()


def test_the_supervisor_sleeps_and_the_step_goes_on(target: Any, supervisor: Supervisor) -> None:
    """Last: nothing of the above has left it busy, and it still takes orders."""
    job, _, step = supervisor.rid
    assert supervisor.is_quiet()
    listed = target.cluster.ok("squeue", "-s", "-h", "-j", str(job), "-o", "%i").split()
    assert f"{job}.{step}" in listed
    supervisor.has_not_stumbled()
    begun = time.monotonic()
    target.cluster.ok("scancel", f"{job}.{step}")
    target.cluster.until(
        lambda: (
            f"{job}.{step}" not in target.cluster.ok("squeue", "-s", "-h", "-j", str(job), "-o", "%i").split()
        ),
        "the step is over",
        50,
    )
    assert time.monotonic() - begun < 50  # its task takes no notice of SIGTERM
    target.works()

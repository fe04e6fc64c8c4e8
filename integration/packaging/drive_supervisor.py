"""Drive one job through a supervisor with spur_proto_lite alone: `drive_supervisor.py ORDERS`.

ORDERS is JSON: `state` (an empty folder), `program` (path of spurstepd), `user`.  Prints JSON: the exit, and
whether the supervisor had left its starter and was gone at the end.  Not a test module: it runs in an
environment that has no pytest.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time

from spur_core.errors import Unreachable
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_proto_lite.launch_spec import LaunchSpec

# The client is the tests' own; what it uses of ours comes from the environment.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from testkit.supervisor_client import ControlClient

PATIENCE = 30.0


def prepare(state: str, rid: RuntimeId, user: str) -> str:
    """What an agent leaves on disk before it asks for a supervisor."""
    folder = state
    for name in ("runtime", "sessions", rid.dirname()):
        folder = os.path.join(folder, name)
        os.mkdir(folder, 0o700)
    spec = LaunchSpec(
        rid=rid,
        node="n1",
        job_name="hello",
        script='#!/bin/sh\necho "hello from $SLURM_JOB_ID"\nexit 3\n',
        env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": str(rid.job_id)},
        work_dir=state,
        stdout_pattern="result.txt",
        uid=os.getuid(),
        gid=os.getgid(),
        user=user,
        allow_root_jobs=True,
        cgroup_root="none",
    )
    fd = os.open(os.path.join(folder, "launch.json"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(spec.encode())
    return folder


def connect(session: str, rid: RuntimeId) -> ControlClient:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ControlClient(session, rid)
        except Unreachable:
            if time.monotonic() > deadline:
                sys.exit("the supervisor does not answer")
            time.sleep(0.01)


def supervisor_pid(child: "subprocess.Popen[bytes]") -> int:
    """The program detaches: it writes `P` and the supervisor's pid, and the process started here ends."""
    assert child.stdout is not None
    record = child.stdout.read(5)
    if record[:1] != b"P" or child.wait(PATIENCE) != 0:
        sys.exit(f"no supervisor: {record!r}, status {child.poll()}")
    return int.from_bytes(record[1:], "little")


def main() -> None:
    orders = json.loads(sys.argv[1])
    rid = RuntimeId(7, 1, STEP_BATCH)
    session = prepare(orders["state"], rid, orders["user"])
    child = subprocess.Popen(
        [orders["program"], "--session", session], start_new_session=True, stdout=subprocess.PIPE
    )
    pid = supervisor_pid(child)
    alive = os.pidfd_open(pid)
    try:
        with connect(session, rid) as client:
            client.hello()
            client.start()
            told = client.wait(PATIENCE)
            assert told.exit is not None, "no exit in time"
            client.ack(told.exit_seq)
        gone = bool(select.select([alive], [], [], PATIENCE)[0])
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(alive, signal.SIGKILL)
    print(
        json.dumps(
            {
                "exit": {"code": told.exit.code, "signal": told.exit.signal},
                "gone": gone,
                "own": pid != child.pid,
            }
        )
    )


if __name__ == "__main__":
    main()

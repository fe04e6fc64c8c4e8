"""The log of a busy run, replayed by other processes, gives the state that the members had."""

import asyncio
import os
import random
import subprocess
import sys

from spur_core.ids import STEP_BATCH
from spur_core.states import JobState
from spur_ctld.state import codec
from spur_proto import controller_pb2 as pb

REPLAY = """
import sys
from pathlib import Path
from spur_ctld.raft_tools.survey import survey
from spur_ctld.state import codec
from spur_ctld.state.log_machine import LogMachine

found = survey(Path(sys.argv[1]))
assert not found.problems, found.problems
machine, half, number = LogMachine(), LogMachine(), int(sys.argv[2])
kinds = set()
for entry in found.entries:
    if entry.data is None or entry.index > number:
        continue
    machine.apply(entry.index, entry.data)
    kinds.add(type(codec.decode_op(entry.data)).__name__)
    # Half-way this one goes on from a snapshot, as a member that was away does.
    if entry.index == number // 2:
        half.restore(machine.freeze())
    elif entry.index > number // 2:
        half.apply(entry.index, entry.data)
assert codec.digest(half.state) == codec.digest(machine.state), "a snapshot is another state"
print(codec.digest(machine.state), len(kinds))
"""


def replayed(folder, applied, seed):
    """(digest, kinds of operations) of the log in `folder`, in a process that hashes otherwise."""
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, str(folder), str(applied)],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    digest, kinds = done.stdout.split()
    return digest, int(kinds)


async def busy(trio, chance, rounds):
    """Jobs of all kinds, by any member: reported, cancelled, held, requeued; and a change of leaders."""
    agents = [await trio.add_agent(f"n{at}") for at in (1, 2, 3)]
    jobs = []
    for number in range(rounds):
        trio.ask(chance.choice(list(trio.members)))
        jobs.append(
            await trio.submit(
                array=chance.choice(["", "", "0-5%2"]),
                min_nodes=chance.choice([1, 2]),
                requeue=True,
                dependency=f"afterany:{jobs[-1]}" if jobs and chance.random() < 0.3 else "",
            )
        )
        target = pb.JobTarget(job_id=chance.choice(jobs))
        metadata = (*trio.user(), ("x-spur-request-id", f"{number:032x}"))
        what = chance.randrange(6)
        if what == 0:
            await trio.stub.CancelJob(pb.CancelJobRequest(targets=[target]), metadata=metadata)
        elif what == 1:
            await trio.stub.RequeueJob(pb.RequeueJobRequest(targets=[target]), metadata=metadata)
        elif what == 2:
            action = chance.choice([pb.HOLD_ACTION_HOLD, pb.HOLD_ACTION_RELEASE])
            await trio.stub.UpdateJob(pb.UpdateJobRequest(targets=[target], hold=action), metadata=metadata)
        elif what == 3:
            request = pb.UpdateNodeRequest(names="n3", state=chance.choice(["RESUME", "DRAIN"]), reason="x")
            await trio.stub.UpdateNode(request, metadata=metadata)
        for agent in agents:
            for job, attempt, step in [rid for rid in agent.held if rid[2] == STEP_BATCH]:
                if chance.random() < 0.5:
                    await trio.report(agent, job, attempt, code=chance.choice([0, 0, 1]), step_id=step)
        if number == rounds // 2:
            await trio.kill(trio.leader)
            await trio.led()
        await asyncio.sleep(0.01)


async def test_the_log_of_a_busy_run_gives_the_same_state_elsewhere(trio):
    chance = random.Random(7)
    await busy(trio, chance, 40)
    states = {job.state for job in trio.state.jobs.values()}
    assert {JobState.COMPLETED, JobState.CANCELLED} <= states
    await trio.even()
    had = {
        at: (member.machine.state.applied, codec.digest(member.machine.state))
        for at, member in trio.members.items()
    }
    for at in had:
        await trio.kill(at)
    for seed, (at, (applied, digest)) in enumerate(had.items()):
        got, kinds = await asyncio.to_thread(replayed, trio.folder / f"state-{at}", applied, seed + 1)
        assert got == digest, at
        assert kinds > 8

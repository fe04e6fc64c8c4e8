"""Steps whose tasks talk PMI: real tasks, each with its own end of a pair."""

import json

import pytest

from spur_proto_lite import control
from spur_proto_lite.launch_spec import TaskSpec

pytestmark = pytest.mark.node

TWO = (TaskSpec(rank=0, local_rank=0), TaskSpec(rank=1, local_rank=1))

#: What a task begins with: `say` sends a line of PMI-1 and gives the answer.
CLIENT = """
import json, os, socket, sys, time
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
link = socket.socket(fileno=int(os.environ["PMI_FD"]))
reader = link.makefile("r")
def say(line):
    link.sendall((line + "\\n").encode())
    return reader.readline().rstrip("\\n")
say("cmd=init pmi_version=1 pmi_subversion=1")
"""


def step(place, text, **changes):
    program = ("python3", "-I", "-S", "-c", CLIENT + text)
    return place.spec(
        **{
            "step_id": 0,
            "argv": program,
            "mpi": "pmi2",
            "mpi_size": 2,
            "tasks": TWO,
            "stdout_pattern": "out.%t",
            "stderr_pattern": "err.%t",
            **changes,
        }
    )


def test_tasks_find_each_other(node):
    """In both ways to make a supervisor."""
    text = """
name = say("cmd=get_my_kvsname").partition("kvsname=")[2]
say(f"cmd=put kvsname={name} key=r{rank} value=I am {rank}")
assert say("cmd=barrier_in") == "cmd=barrier_out"
other = say(f"cmd=get kvsname={name} key=r{1 - rank}")
say("cmd=finalize")
print(json.dumps([name, size, other, {k: v for k, v in os.environ.items() if "PMI" in k and k != "PMI_FD"}]))
"""
    left_behind = {"PMI_PORT": "x:1", "PMIX_RANK": "9", "OMPI_MCA_ess": "y", "KEEP_PMI": "1", "PMI_RANK": "8"}
    spec = step(node, text)
    _, ended = node.run(spec.replace(env={**spec.env, **left_behind}))
    assert ended.code == 0, node.read("err.0") + node.read("err.1")
    for rank in (0, 1):
        name, size, other, env = json.loads(node.read(f"out.{rank}"))
        assert (name[:4], len(name), size) == ("7.0.", 16, 2)
        assert other == f"cmd=get_result rc=0 msg=success value=I am {1 - rank}"
        assert env == {
            "PMI_RANK": str(rank),
            "PMI_SIZE": "2",
            "PMI_JOBID": "7.0",
            "PMI_SPAWNED": "0",
            "KEEP_PMI": "1",
        }


def test_one_that_aborts_ends_all_and_itself(fast_node):
    text = """
if rank:
    say("cmd=barrier_in")
link.sendall(b"cmd=abort exitcode=5\\ncmd=abort exitcode=6\\n")
time.sleep(600)
"""
    _, ended = fast_node.run(step(fast_node, text))
    assert [(task.code, task.signal) for task in ended.tasks] == [(0, 9), (0, 9)]
    told = "slurmstepd: error: mpi/pmi2: StepId=7.0 on n1: task 0 aborted all tasks with exit code 5\n"
    assert fast_node.read("err.0") == told


def test_nonsense_costs_a_task_its_connection_and_nothing_else(fast_node):
    text = """
if rank:
    link.sendall(b"nonsense\\n")
    assert not reader.read()
print(say("cmd=get_appnum") if not rank else "closed")
"""
    _, ended = fast_node.run(step(fast_node, text))
    assert ended.code == 0, fast_node.read("err.1")
    assert [fast_node.read("out.0"), fast_node.read("out.1")] == ["cmd=appnum appnum=0\n", "closed\n"]


def test_one_that_does_not_read_is_cut_off(fast_node):
    text = """
if rank:
    try:
        while True:
            link.sendall(b"cmd=get_maxes\\n" * 10_000)
    except OSError:
        pass
print(say("cmd=get_appnum") if not rank else "closed")
"""
    _, ended = fast_node.run(step(fast_node, text))
    assert ended.code == 0, fast_node.read("err.1")
    assert [fast_node.read("out.0"), fast_node.read("out.1")] == ["cmd=appnum appnum=0\n", "closed\n"]


def test_a_program_without_mpi_has_no_descriptor_too_many(fast_node):
    text = 'import os; print([fd for fd in range(3, 64) if os.path.exists(f"/proc/self/fd/{fd}")])'
    program = ("python3", "-I", "-S", "-c", text)
    _, ended = fast_node.run(step(fast_node, "", argv=program, mpi=""))
    assert ended.code == 0
    assert fast_node.read("out.0") == fast_node.read("out.1") == "[]\n"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mpi_size": 4}, "--mpi=pmi2 works within one node in this release: use -N1, or start"),
        ({"mpi": "pmix"}, "MPI type 'pmix' is not known here"),
    ],
)
def test_what_cannot_be_is_refused(fast_node, changes, text):
    reply = fast_node.spawn(step(fast_node, "", **changes)).start()
    assert reply.failure_kind == control.FAIL_JOB
    assert text in reply.text

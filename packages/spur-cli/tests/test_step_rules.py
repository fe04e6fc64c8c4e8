"""When srun ends a step by a rule of its own, and what it says of tasks.  Pure."""

import pytest

from spur_cli.step import exits, rules
from spur_cli.step.exits import TaskEnd


@pytest.mark.parametrize(
    ("kill_bad", "wait_secs", "events", "terminated"),
    [
        (True, 0, [("end", False, 0), ("end", True, 1)], 1),
        (True, 0, [("end", True, 1), ("end", True, 2)], 1),
        (False, 0, [("end", True, 1), ("tick", None, 9999)], None),
        (False, 5, [("tick", None, 100), ("end", False, 100), ("tick", None, 104)], None),
        (False, 5, [("end", False, 100), ("end", True, 104), ("tick", None, 105), ("tick", None, 106)], 105),
        (True, 5, [("end", True, 100), ("tick", None, 106)], 100),
    ],
)
def test_rules(kill_bad, wait_secs, events, terminated):
    found = rules.EndRules(kill_bad=kill_bad, wait_secs=wait_secs)
    at = []
    for kind, bad, now in events:
        if found.task_ended(bad=bad, now=now) if kind == "end" else found.time_passed(now):
            at.append(now)
    assert at == ([] if terminated is None else [terminated])


def test_states_of_tasks():
    ends = {0: TaskEnd("n", 0, 0, 0, False, False), 2: TaskEnd("n", 2, 1, 0, False, False)}
    assert exits.state_lines(range(5), ends, "1.0") == [
        "StepId=1.0 tasks 1,3-4: running",
        "StepId=1.0 task 2: exited abnormally",
        "StepId=1.0 task 0: exited",
    ]

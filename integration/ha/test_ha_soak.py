"""The short form of the soak `controllers`, and whether its judgement would notice what must not be."""

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "crash"))

from failover_judge import FailoverJudgement
from failover_soak import FailoverDeaths

pytestmark = pytest.mark.slow

#: A node in whose launch somebody died is soon asked again: most of the end of a run would be that wait.
SOON = {"controller": {"dispatch_reject_cooldown_secs": "1", "max_launch_backoff_secs": "1"}}
ENDS = re.compile(r"^ends .*\n", re.MULTILINE)
BEGAN = re.compile(r"^began .*\n", re.MULTILINE)


def test_controllers_and_agents_killed_under_load(ha: Any) -> None:
    """`SPUR_SOAK_SEED` repeats a run, `SPUR_SOAK_SECONDS` lengthens it."""
    seed = int(os.environ.get("SPUR_SOAK_SEED", time.time_ns() % 100000))
    seconds = float(os.environ.get("SPUR_SOAK_SECONDS", 6))
    print(f"seed {seed}")
    run = FailoverDeaths(ha(cpus=16, settings=SOON), seed, seconds, round(3 * seconds), period=2.5)
    faults = run.run()
    print(run.summary)
    assert faults == [], "\n".join(run.deeds)
    assert run.kinds
    notices(run)


def notices(run: FailoverDeaths) -> None:
    """Whatever the jobs might have written instead is a fault, and so is what might have been asked."""
    path = run.cluster.work / "truth"
    truth = path.read_text()
    ends, began = (min(found.findall(truth), key=len) for found in (ENDS, BEGAN))
    job = ends.split(" ")[2]
    of_job = [line for line in truth.splitlines(keepends=True) if line.split(" ")[2] == job]
    others = {
        "an end was lost": truth.replace(ends, ""),
        "an end came twice": truth + ends,
        "another code": truth.replace(ends, f"{ends.rpartition(' ')[0]} 77\n"),
        "another process": re.sub(rf"^(began \S+ {job} .*) \d+$", r"\1 1", truth, flags=re.MULTILINE),
        "a run was lost": "".join(line for line in truth.splitlines(keepends=True) if line not in of_job),
        "a run came twice": truth + began,
        "another restart": truth + began.replace(f" {began.split(' ')[3]} ", " 9 ", 1),
        "nobody's job": truth + began.replace(began.split(" ")[2], "999999", 1),
        "another node": re.sub(
            r"^(began .*) node\d (\d+)$", r"\1 node9 \2", truth, count=1, flags=re.MULTILINE
        ),
    }
    try:
        for what, text in others.items():
            path.write_text(text)
            assert FailoverJudgement(run.load, run.history).faults(), what
    finally:
        path.write_text(truth)
    token = next(iter(run.load.ids))
    kept = run.load.ids.pop(token)
    assert FailoverJudgement(run.load, run.history).faults(), "a job that nobody was told of"
    run.load.ids[token] = kept
    run.load.requeued[kept] += 1
    assert FailoverJudgement(run.load, run.history).faults(), "a requeue that did not happen"
    run.load.requeued[kept] -= 1
    assert FailoverJudgement(run.load, run.history).faults() == []

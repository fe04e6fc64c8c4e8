"""The long form of the trials of a group of members: `hatch run soak --scenario replication`.

Trials in random order, under load, on a group without a network of its own and then, as root, on one whose
network is cut.  Where nothing was found wrong, the longest time without a leader is told.
"""

import asyncio
import os
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path

from testkit import raft_trials


def soak(rounds: int, seed: int) -> int:
    """`rounds` trials of each kind; the exit code."""
    print(f"soak: replication, seed {seed}, {rounds} rounds of each trial", flush=True)
    worst = 0.0
    parts: list[Callable[[Path], Coroutine[None, None, float]]] = [_processes(rounds, seed)]
    if os.geteuid() == 0:
        parts.append(_networks(rounds, seed))
    for part in parts:
        # Short: sockets live in it.
        folder = Path(tempfile.mkdtemp(prefix="raft-", dir="/tmp"))
        try:
            worst = max(worst, asyncio.run(part(folder)))
        except Exception:
            traceback.print_exc()
            print(f"soak: logs are in {folder}", flush=True)
            return 1
        shutil.rmtree(folder)
    print(f"soak: nothing lost, longest time without a leader {worst:.2f} s", flush=True)
    return 0


def _say(text: str) -> None:
    print(f"soak: {text}", flush=True)


def _processes(rounds: int, seed: int) -> Callable[[Path], Coroutine[None, None, float]]:
    trials = list(raft_trials.TRIALS.values()) * rounds
    random.Random(seed).shuffle(trials)
    return lambda folder: raft_trials.rounds(folder, trials, seed, say=_say)


def _networks(rounds: int, seed: int) -> Callable[[Path], Coroutine[None, None, float]]:
    trials = list(raft_trials.NET_TRIALS.values()) * rounds
    random.Random(seed).shuffle(trials)
    return lambda folder: raft_trials.net_rounds(folder, trials, seed, say=_say)

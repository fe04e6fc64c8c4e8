"""How bad a run is: probabilities and rates, drawn from a seed or chosen by name."""

import random

import msgspec

from spur_ctld.replication.roles import Timing


class Weather(msgspec.Struct, frozen=True):
    """Probabilities per message or write, and mean milliseconds between events (0 = never).

    Attributes:
        loss, duplicate, delay: of a message; delay is a mean, with a long tail.
        late: a message takes seconds, so that it arrives in another time.
        sync: mean milliseconds of a disk write.
        slow_sync: a write takes seconds.
        skew: clocks run up to this many times faster or slower than they should.
        crash_every, crash_all_every: one member loses its power, or all do.
        fail_every: a disk refuses, so the program ends in the middle of a write.
        cut_every: a partition begins, or the present one ends.
        stall_every: a program stands still for a while.
        lose_every: a member loses its directory and is filled from the others.
        snapshot_entries, keep: applied entries that cause a snapshot, entries kept behind it.
    """

    loss: float = 0.05
    duplicate: float = 0.05
    late: float = 0.002
    delay: int = 30
    sync: int = 20
    slow_sync: float = 0.005
    skew: float = 1.2
    crash_every: int = 4000
    crash_all_every: int = 20_000
    fail_every: int = 15_000
    cut_every: int = 3000
    stall_every: int = 8000
    lose_every: int = 0
    command_every: int = 15
    read_every: int = 30
    transfer_every: int = 8000
    snapshot_entries: int = 40
    keep: int = 10


#: Nothing fails.
CALM = Weather(
    loss=0.0,
    duplicate=0.0,
    late=0.0,
    slow_sync=0.0,
    skew=1.0,
    crash_every=0,
    crash_all_every=0,
    fail_every=0,
    cut_every=0,
    stall_every=0,
)
#: Some of everything.
RAIN = Weather()
#: Elections all the time, slow disks, members that fall behind.
STORM = Weather(
    loss=0.1,
    late=0.01,
    delay=50,
    sync=60,
    slow_sync=0.02,
    skew=2.0,
    crash_every=2000,
    crash_all_every=9000,
    fail_every=6000,
    cut_every=1200,
    stall_every=3000,
    transfer_every=3000,
)
#: Slow disks whose power goes, little else: what was not synced matters.
BLACKOUT = Weather(
    loss=0.02,
    sync=80,
    slow_sync=0.03,
    crash_every=1200,
    crash_all_every=4000,
    cut_every=5000,
    command_every=30,
)
#: Links go one way or not at all most of the time.
SPLIT = Weather(
    loss=0.02,
    skew=3.0,
    crash_every=9000,
    crash_all_every=0,
    cut_every=2500,
    transfer_every=4000,
    read_every=15,
)
#: Directories are lost.
RUIN = Weather(crash_every=3000, cut_every=2000, lose_every=2500, snapshot_entries=60, command_every=25)

WEATHERS = {
    "calm": CALM,
    "rain": RAIN,
    "storm": STORM,
    "blackout": BLACKOUT,
    "split": SPLIT,
    "ruin": RUIN,
}
_SHARES = {"calm": 1, "rain": 7, "storm": 7, "blackout": 5, "split": 5, "ruin": 3}


class Setup(msgspec.Struct, frozen=True):
    """Everything a seed decides before the run begins.

    Attributes:
        files: the real stores on files that forget what was not synced, instead of a model of a disk.
        milliseconds: bad weather; then everything heals.
    """

    size: int
    name: str
    weather: Weather
    timing: Timing
    files: bool
    milliseconds: int


def draw(seed: int) -> Setup:
    """The setup of a seed."""
    rng = random.Random(f"setup {seed}")  # noqa: S311 - repeatable on purpose
    name = rng.choices(list(_SHARES), list(_SHARES.values()))[0]
    size = rng.choices((1, 2, 3, 4, 5), (2, 1, 10, 1, 7))[0]
    if name == "ruin" and size < 3:
        size = 3
    weather = msgspec.structs.replace(
        WEATHERS[name],
        command_every=rng.choice((10, 20, 40)),
        snapshot_entries=rng.choice((10, 40, 200)),
        keep=rng.choice((0, 5, 20)),
    )
    # A wide window of single entries on a network that reorders is nothing but repetitions.
    window, append_bytes = rng.choice(((1, 1), (1, 200), (2, 1), (4, 1), (4, 200), (64, 200), (64, 1 << 20)))
    heartbeat, election = rng.choice(((1, 5), (2, 8), (3, 20)))
    timing = Timing(heartbeat, election, window, append_bytes)
    return Setup(size, name, weather, timing, rng.random() < 0.15, rng.choice((8000, 12_000, 16_000)))

"""Old answers of the choice stay: replicas give them while they apply their log, in each release the same.

If this fails because the rule was improved, the new rule belongs behind a command version; see
`spur_ctld.state.versions`.
"""

import hashlib
import random

from spur_core.grammar.idlist import text_of
from spur_sched import devices
from spur_sched.devices import DeviceSet, Inventory, Taken

#: Digest of the answers below, as the first release with this choice gave them.
ANSWERS = "d56721886a4de8ef8606832af69d3638979f928ce1a4aca78295d921cb7f7b04"


def inventory(draw: random.Random) -> Inventory:
    sockets, cores, threads = draw.randint(1, 4), draw.randint(1, 16), draw.randint(1, 2)
    every = sockets * cores
    cpus = every * threads
    made = tuple(
        tuple(
            sum(1 << (thread * every + socket * cores + core) for thread in range(threads))
            for core in range(cores)
        )
        for socket in range(sockets)
    )
    sets, index = [], 0
    for _ in range(draw.randint(0, 4)):
        size = draw.randint(1, 4)
        mask = ((1 << size) - 1) << index
        sets.append(
            DeviceSet(
                draw.choice(["gpu", "nic"]),
                draw.choice(["", "a"]),
                mask,
                draw.choice(["", "x", "y"]),
                draw.getrandbits(cpus),
            )
        )
        index += size
    return Inventory(made, tuple(sets))


def test_answers_stay() -> None:
    draw = random.Random(20)
    digest = hashlib.sha256()
    for _ in range(3000):
        node = inventory(draw)
        cpus, counts = devices.total(node)
        taken = Taken(
            draw.getrandbits(cpus) & draw.getrandbits(cpus),
            (draw.getrandbits(cpus) & draw.getrandbits(cpus),),
            {"gpu": draw.getrandbits(16) & draw.getrandbits(16)},
        )
        wishes = tuple((*key, draw.randint(0, count)) for key, count in sorted(counts.items()))
        found = devices.choose(node, taken, draw.randint(0, cpus), wishes)
        text = "none" if found is None else "/".join(map(text_of, (found.cpus, *found.devices)))
        digest.update(text.encode() + b"\n")
    assert digest.hexdigest() == ANSWERS

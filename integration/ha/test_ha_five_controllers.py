"""Five controllers: two may be lost at once, three may not, and nothing is gone when they are back."""

from typing import Any

from matrix_kit import Held
from testkit import group_state

NOBODY = "no controller leads: most are down or out of touch; see scontrol ping"
#: One round of all controllers, of which each looks for a leader for five seconds.
IMPATIENT = {"SPUR_RETRY_SECS": "0"}


def level(cluster: Any) -> int:
    """Wait until all members have applied the same; the index of the last entry."""

    def same() -> int:
        answers = [one.answer for one in cluster.view().members]
        places = {answer.applied if answer is not None else 0 for answer in answers}
        return places.pop() if len(places) == 1 else 0

    index: int = cluster.until(same, "all members hold the same entries")
    return index


def test_five_bear_the_loss_of_two_and_say_so_when_three_are_gone(ha: Any) -> None:
    cluster = ha(nodes=2, controllers=5)
    held = Held(cluster, "-N2", code=4).runs()
    leader = cluster.leader()
    follower = cluster.followers()[0]
    cluster.kill(leader, follower)
    # Whoever asks is kept until there is another leader.
    codes = {held.job: 4, cluster.submit("exit 3"): 3}
    second = cluster.leader(other_than=leader)
    waiting = cluster.submit("exit 5", "-H")
    shown = cluster.ok("scontrol", "ping").splitlines()
    assert sum(line.endswith(" is UP") for line in shown) == 3
    assert sum(line.endswith(" is DOWN") for line in shown) == 2

    cluster.kill(second)
    refused = {
        "sbatch: error: Batch job submission failed": cluster.begin("sbatch", "--wrap", "true", **IMPATIENT),
        "slurm_load_jobs error": cluster.begin("squeue", **IMPATIENT),
    }
    for what, client in refused.items():
        out, err = client.communicate(timeout=60)
        assert (client.returncode, out, err) == (1, "", f"{what}: {NOBODY}\n")
    done, _ = cluster.timed("squeue", "-h", "-o", "%i %t", SPUR_STALE_OK="1")
    assert done.returncode == 0, done.stderr
    assert {f"{held.job} R", f"{waiting} PD"} <= set(done.stdout.splitlines())
    assert "has not heard of a leader for" in done.stderr
    done, _ = cluster.timed("sinfo", "-h", SPUR_STALE_OK="1")
    assert "node[1-2]" in done.stdout
    pinged = cluster.ok("scontrol", "ping")
    assert pinged.count(" is DOWN") == 3
    assert "\nNo controller leads, term " in pinged

    for name in (leader, follower, second):
        cluster.start(name, wait=True)
    cluster.leader()
    assert cluster.run("scontrol", "release", waiting).returncode == 0
    codes[waiting] = 5
    held.open()
    cluster.settle()
    assert cluster.faults(codes, set()) == []
    assert cluster.runs_of(held.job) == 1
    cluster.lead(cluster.controllers[4])
    index = level(cluster)
    folders = [cluster.layout.state(name) for name in cluster.controllers]
    assert len({group_state.digest_at(folder, index) for folder in folders}) == 1
    assert group_state.same_log(folders, index) == []

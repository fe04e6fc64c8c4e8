"""What a job waits for, in a sentence.  Pure."""

import time
from typing import Final

from spur_core import reasons
from spur_ctld.scheduling.outlook import Prospect
from spur_ctld.state.records import Job

_SENTENCES: Final = {
    reasons.PRIORITY: "Jobs before it in its partition wait too; it may start when it is in nobody's way",
    reasons.RESOURCES: "It is the first in line in its partition and waits for nodes to come free",
    reasons.DEPENDENCY: "Jobs that it depends on have not got so far",
    reasons.DEPENDENCY_NEVER: "What it depends on can never happen any more",
    reasons.BEGIN_TIME: "Its begin time, or the end of a pause after a failed start, has not come",
    reasons.HELD_USER: "Its user holds it; scontrol release lets it go",
    reasons.HELD_ADMIN: "An administrator holds it",
    reasons.HELD_MAX_REQUEUE: "It failed to start too often and is held; scontrol release lets it try again",
    reasons.ARRAY_TASK_LIMIT: "As many tasks of its array run as may run at once",
    reasons.LICENSES: "Licences that it asks for are in use",
    reasons.RESERVATION: "Its reservation does not hold yet, or has no room",
    reasons.RESERVATION_DELETED: "Its reservation was deleted",
    reasons.PARTITION_DOWN: "Its partition is down: nothing starts in it",
    reasons.PARTITION_INACTIVE: "Its partition is inactive: nothing starts in it",
    reasons.PARTITION_NODE_LIMIT: "It asks for more, or fewer, nodes than its partition gives",
    reasons.PARTITION_TIME_LIMIT: "Its time limit is above that of its partition",
    reasons.PARTITION_CONFIG: "Its partition does not exist any more",
    reasons.REQ_NODE_NOT_AVAIL: "Nodes that it needs are down, drained or reserved",
    reasons.NODE_DOWN: "Too few of the nodes that could run it are in service",
    reasons.BAD_CONSTRAINTS: "No set of existing nodes is what it asks for",
    reasons.DEADLINE: "It cannot end by its deadline any more",
}


def sentence(job: Job, text: str, prospect: Prospect | None) -> str:
    """One sentence, with the start that is expected.

    Args:
        text: what the scheduler said of the job beyond its reason.
    """
    found = text or _SENTENCES.get(job.reason, "")
    if prospect is None:
        return found
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(prospect.at))
    start = f"it is expected to start by {stamp} on {prospect.nodes}"
    if not prospect.nodes:
        start = f"it cannot start before {stamp}"
    return f"{found}; {start}" if found else start[0].upper() + start[1:]

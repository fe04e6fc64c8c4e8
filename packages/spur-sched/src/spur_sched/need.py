"""What a job asks of one node, and how many of its tasks a node's free resources hold.  Pure numbers."""

from typing import Final, NamedTuple

from spur_sched.api import GresMap, JobView, Layer, NodeView

#: (name, type or "", count), sorted; a hashable GresMap.
GresNeed = tuple[tuple[str, str, int], ...]
#: "As many tasks as you like": what a node holds when nothing limits it.
MANY: Final = 1 << 30


class Need(NamedTuple):
    """The part of a request that is the same on every node; equal needs share their answers."""

    cpus_per_task: int
    #: Most tasks of one node.
    tasks_per_node: int
    #: MiB on every node; 0 = all of it, None = not asked by node.
    memory_per_node_mb: int | None
    memory_per_cpu_mb: int | None
    gres: GresNeed
    exclusive: bool
    #: Per task, and of the whole job (at least one on each node).
    gres_per_task: GresNeed = ()
    gres_total: GresNeed = ()
    memory_per_gpu_mb: int | None = None
    cpus_per_gpu: int | None = None
    ntasks_per_socket: int | None = None
    ntasks_per_core: int | None = None
    ntasks_per_gpu: int | None = None
    #: Threads of a core that are used; the others are held too.
    threads_per_core: int | None = None
    #: CPUs of each node at least.
    min_cpus: int | None = None
    #: Its CPUs are of this layer; None = they are its own.
    layer: Layer | None = None


class Room(NamedTuple):
    """Resources of a node at one instant, totals or what is free."""

    cpus: int
    memory_mb: int
    gres: GresMap
    #: Attempts on the node.
    jobs: int


def need_of(job: JobView) -> Need:
    """The per-node part of `job`."""
    return Need(
        cpus_per_task=max(1, job.cpus_per_task),
        tasks_per_node=job.tasks_per_node or MANY,
        memory_per_node_mb=job.memory_per_node_mb,
        memory_per_cpu_mb=job.memory_per_cpu_mb if job.memory_per_node_mb is None else None,
        gres=_per_node(job),
        exclusive=job.exclusive,
        gres_per_task=_listed(job.gres_per_task),
        gres_total=_listed(job.gres_total),
        memory_per_gpu_mb=job.memory_per_gpu_mb,
        cpus_per_gpu=job.cpus_per_gpu,
        ntasks_per_socket=job.ntasks_per_socket,
        ntasks_per_core=job.ntasks_per_core,
        ntasks_per_gpu=job.ntasks_per_gpu,
        threads_per_core=job.threads_per_core,
        min_cpus=job.min_cpus,
    )


def _listed(gres: GresMap) -> GresNeed:
    if not gres:
        return ()
    return tuple(sorted((name, kind, count) for (name, kind), count in gres.items() if count))


def _per_node(job: JobView) -> GresNeed:
    """What every node gives: as asked, and for each of the sockets asked for."""
    if not job.gres_per_socket:
        return _listed(job.gres)
    found = dict(job.gres)
    for key, count in job.gres_per_socket.items():
        found[key] = found.get(key, 0) + count * (job.sockets_per_node or 1)
    return _listed(found)


def cores_of(node: NodeView) -> int:
    """Physical cores of a node."""
    if node.cores_per_socket:
        return max(1, node.sockets) * node.cores_per_socket
    return max(1, node.cpus // max(1, node.threads_per_core))


def total_room(node: NodeView) -> Room:
    """Everything the node has."""
    return Room(node.cpus, node.memory_mb, node.gres, 0)


def tasks_that_fit(need: Need, node: NodeView, room: Room) -> int:
    """How many tasks of the job `room` on `node` holds; 0 = the node cannot take part.

    A node whose memory nobody stated (0) does not limit memory.
    """
    if need.exclusive and room.jobs:
        return 0
    tasks = min(room.cpus // need.cpus_per_task, need.tasks_per_node)
    if tasks <= 0:
        return 0
    if node.memory_mb:
        if need.memory_per_node_mb is not None:
            # 0 asks for the whole node's memory.
            if (need.memory_per_node_mb or node.memory_mb) > room.memory_mb:
                return 0
        elif need.memory_per_cpu_mb:
            tasks = min(tasks, room.memory_mb // (need.memory_per_cpu_mb * need.cpus_per_task))
    if tasks > 0 and need.gres and pick_gres(need.gres, room.gres) is None:
        return 0
    return max(0, tasks)


def pick_gres(wanted: GresNeed, free: GresMap) -> GresMap | None:
    """Which of the node's own (name, type) kinds to take, or None when there are too few.

    A request without a type takes any type, after the requests that name theirs.
    """
    if not wanted:
        return {}
    left = dict(free)
    taken: GresMap = {}
    for name, kind, count in sorted(wanted, key=lambda item: (not item[1], item)):
        missing = count
        for key in [(name, kind)] if kind else sorted(key for key in left if key[0] == name):
            part = min(missing, left.get(key, 0))
            if part > 0:
                left[key] -= part
                taken[key] = taken.get(key, 0) + part
                missing -= part
        if missing > 0:
            return None
    return taken


def take(need: Need, node: NodeView, room: Room, tasks: int) -> tuple[int, int, GresMap]:
    """(cpus, MiB, gres) that `tasks` tasks take on the node, where they are known to fit."""
    asked_cpus = tasks * need.cpus_per_task
    cpus = node.cpus if need.exclusive else asked_cpus
    memory = 0
    if need.memory_per_node_mb is not None:
        memory = need.memory_per_node_mb or node.memory_mb
    elif need.memory_per_cpu_mb:
        memory = need.memory_per_cpu_mb * asked_cpus
    gres = dict(room.gres) if need.exclusive else pick_gres(need.gres, room.gres)
    assert gres is not None
    return cpus, memory, {key: count for key, count in gres.items() if count > 0}

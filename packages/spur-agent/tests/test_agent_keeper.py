"""The keeper beside a real supervisor, without the rest of the agent."""

import asyncio
import os
import signal

import pytest
from testkit.supervisor_client import push

from spur_agent import bring_up, claim, spawner
from spur_agent.allocation import AllocationTable, Grant
from spur_agent.controller import ControllerLink, NodeCredential
from spur_agent.keeper import Keeper
from spur_agent.ledger import Ledger
from spur_agent.notify_server import NotifyServer
from spur_agent.runtime_dir import open_runtime
from spur_agent.sessions import Phase, Session, SessionTable
from spur_core.ids import RuntimeId
from spur_core.linux import procfs
from spur_proto import agent_pb2
from spur_proto_lite import notify
from spur_proto_lite.descriptor import Descriptor
from spur_proto_lite.exits import ExitRecord
from spur_proto_lite.launch_spec import LaunchSpec

pytestmark = pytest.mark.node


class Bench:
    """Keeper, table and one started supervisor; nobody listens on the notify socket."""

    def __init__(self, base, controller, tools, user):
        self.runtime = open_runtime(str(base / "bench"))
        self.table = SessionTable()
        self.allocation = AllocationTable(range(4), 1000, {})
        self.link = ControllerLink(
            [f"127.0.0.1:{controller.port}"], NodeCredential(tools.KEY.encode(), "n1", "test")
        )
        self.ledger = Ledger(self.runtime.paths.ledger)
        self.keeper = Keeper(
            "n1",
            self.runtime.paths,
            self.table,
            self.allocation,
            self.ledger,
            self.link,
            procfs.boot_id(),
            None,
        )
        self.tools, self.user, self.base = tools, user, base

    async def run(self, rid, script):
        paths = self.runtime.paths.session(rid)
        made = claim.make("digest", Grant((0,), 10), agent_pb2.LaunchSpec(job_lifetime=True), epilog=False)
        spec = LaunchSpec(
            rid=rid,
            script=f"#!/bin/sh\n{script}\n",
            env={"PATH": "/usr/bin:/bin", "SPUR_JOB_ID": str(rid.job_id)},
            work_dir=str(self.base / "work"),
            uid=self.user.uid,
            gid=self.user.gid,
            user=self.user.name,
            cgroup_root="none",
        )
        bring_up.write_session(paths, spec, made)
        found = await spawner.ExecSource(str(self.tools.BIN / "spurstepd"), os.environ).spawn(paths.dir)
        session = Session(rid, paths, made, self.user.uid, self.user.name, Phase.LIVE)
        session.stepd = procfs.Identity(found.pid, found.start_ticks, procfs.boot_id())
        await self.tools.until(lambda: os.path.exists(paths.control), "supervisor ready")
        await session.link.start(10)
        self.table.add(session)
        self.allocation.restore(session.owner, made.grant)
        return session

    async def close(self):
        await self.keeper.stop()
        await self.link.close()
        os.close(self.runtime.lock_fd)


async def test_an_end_that_nobody_pushes_is_found_and_counted(base, controller, tools, user):
    bench = Bench(base, controller, tools, user)
    session = await bench.run(tools.batch(80), "exit 3")
    assert bench.keeper.watch(session)
    bench.keeper.watching.sweep_secs = 0.05
    sweeping = asyncio.create_task(bench.keeper.sweep())
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 3
    assert bench.keeper.counters["replayed"] == 1
    await tools.until(lambda: not os.path.exists(session.paths.dir), "session deleted")
    assert bench.allocation.held() == {}
    sweeping.cancel()
    await bench.close()


async def test_a_mute_supervisor_is_killed_with_its_step(base, controller, tools, user):
    bench = Bench(base, controller, tools, user)
    session = await bench.run(tools.batch(81), "sleep 1000")
    assert bench.keeper.watch(session)
    task = procfs.identity(session_task(session))
    assert task is not None
    assert session.stepd is not None
    os.kill(session.stepd.pid, signal.SIGSTOP)
    session.link.patience, bench.keeper.watching.query_pause = 0.1, 0.05
    bench.keeper.suspect(session)
    await tools.until(lambda: session.phase is Phase.LOST, "given up")
    await tools.until(lambda: not procfs.is_alive(task), "step killed")
    assert bench.allocation.held() == {}
    assert not controller.reports
    await bench.close()


def session_task(session):
    with open(session.paths.descriptor, "rb") as file:
        pid = Descriptor.decode(file.read()).task_pid
    assert pid is not None
    return pid


async def test_pushes_are_answered_by_what_is_known(base, controller, tools, user):
    bench = Bench(base, controller, tools, user)
    server = NotifyServer(bench.runtime.paths.notify_sock, bench.keeper.notified)
    await server.start()
    path = bench.runtime.paths.notify_sock

    async def said(rid):
        note = notify.Notification(rid=rid, seq=4, exit=ExitRecord(code=1))
        return await asyncio.to_thread(push, path, note)

    done, unknown, live = RuntimeId(1, 1, 0), RuntimeId(2, 1, 0), tools.batch(82)
    bench.ledger.add(done)
    assert await said(done) == notify.KNOWN
    assert await said(unknown) == notify.DEFERRED
    controller.silent = True
    session = Session(
        live,
        bench.runtime.paths.session(live),
        claim.make("", Grant((), 0), agent_pb2.LaunchSpec(job_lifetime=True), epilog=False),
        1,
        "x",
        Phase.LAUNCHING,
    )
    bench.table.add(session)
    assert await said(live) == notify.ACCEPTED
    assert session.phase is Phase.LAUNCHING
    bench.keeper.launched(session)
    assert session.phase is Phase.FINISHED
    assert await said(live) == notify.ACCEPTED
    await server.close()
    await bench.close()

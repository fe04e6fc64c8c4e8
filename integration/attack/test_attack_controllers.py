"""Several controllers under attack: their own listener, calls that one passes to another, and their keys."""

import contextlib
import datetime
import json
import os
import pwd
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from spur_auth import mint
from spur_ctld.replication import certs, wire
from spur_ctld.replication.types import Append, AppendReply, Entry, HeartbeatReply, Position
from spur_ctld.state.versions import COMMAND_VERSION
from spur_proto import agent_pb2, agent_pb2_grpc, common_pb2, controller_pb2_grpc
from spur_proto import controller_pb2 as pb
from spur_proto import raft_internal_pb2 as raft
from spur_proto.raft_internal_pb2_grpc import RaftInternalStub

DENIED = ("PERMISSION_DENIED", "Access/permission denied")
SECS = 20.0
#: Files that each daemon may open.
FILES = 1024
Tls = tuple[bytes, bytes | None, bytes | None]


class Group:
    """Three controllers and an agent, and what an attacker may have got hold of."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.folder: Path = cluster.folder
        self.key = (self.folder / "key").read_text().strip().encode()
        ports = json.loads((self.folder / "cluster.json").read_text())
        self.clients = {at: f"127.0.0.1:{port}" for at, port in enumerate(ports["controllers"], 1)}
        self.raft = {at: f"127.0.0.1:{port}" for at, port in enumerate(ports["raft"], 1)}
        self._channels = {at: grpc.insecure_channel(address) for at, address in self.clients.items()}

    def close(self) -> None:
        """Hang up."""
        for channel in self._channels.values():
            channel.close()

    def ctl(self, member: int) -> Any:
        """One controller as clients reach it."""
        return controller_pb2_grpc.SlurmControllerStub(self._channels[member])

    def token(self, user: str) -> str:
        """Of any user."""
        return mint.mint_user(self.key, user, None, 600.0, time.time(), cluster="local")

    def ping(self, member: int = 1) -> Any:
        """How it sees the group."""
        return ask(self.ctl(member).Ping, pb.PingRequest(), self.token("root"))[2]

    @property
    def leader(self) -> int:
        """Who leads."""
        return int(self.ping().leader_id)

    @property
    def follower(self) -> int:
        """One that does not."""
        leader = self.leader
        return next(at for at in self.clients if at != leader)

    def pids(self) -> dict[str, int]:
        """Of all daemons."""
        return {path.stem: int(path.read_text()) for path in (self.folder / "run").glob("*.pid")}

    def logs(self) -> str:
        """All daemons' logs."""
        return "\n".join(path.read_text() for path in sorted((self.folder / "log").glob("*.log")))

    def tls(self, member: int) -> Tls:
        """A member's own files: CA, key, certificate."""
        folder = self.folder / "state" / f"spurctld-{member}" / "tls"
        return tuple((folder / name).read_bytes() for name in ("ca.pem", "member.key", "member.pem"))  # type: ignore[return-value]

    def hello(self, src: int, dst: int, **other: Any) -> Any:
        """The greeting of a member."""
        meta = json.loads((self.folder / "state" / f"spurctld-{src}" / "raft" / "meta").read_text())
        given = {"cluster_id": meta["cluster_id"], "members_hash": meta["members_hash"], **other}
        return raft.Hello(**{"src": src, "dst": dst, "command_version": COMMAND_VERSION, **given})

    @contextlib.contextmanager
    def door(self, dst: int, tls: Tls | None) -> Iterator[Any]:
        """The listener between members, for whoever has these files."""
        options = (("grpc.ssl_target_name_override", f"spur-controller-{dst}"),)
        if tls is None:
            channel = grpc.insecure_channel(self.raft[dst])
        else:
            channel = grpc.secure_channel(self.raft[dst], grpc.ssl_channel_credentials(*tls), options)
        with channel:
            yield RaftInternalStub(channel)

    def same(self, pids: dict[str, int], leader: int) -> None:
        """Nobody died, nobody stumbled, the same one leads, and what is asked for is done."""
        self.cluster.ok("scontrol", "update", "nodename=node1", "comment=x")
        assert self.pids() == pids
        assert all(self.cluster_alive(pid) for pid in pids.values())
        assert {at: self.ping(at).leader_id for at in self.clients} == dict.fromkeys(self.clients, leader)
        assert "Traceback" not in self.logs()
        assert "level=critical" not in self.logs()

    cluster_alive: Callable[[int], bool]


def ask(call: Any, request: Any, token: str | None, *metadata: tuple[str, str]) -> tuple[str, str, Any]:
    """(status, its sentence, the answer)."""
    own = [("authorization", f"Bearer {token}")] if token is not None else []
    try:
        return "OK", "", call(request, metadata=[*own, *metadata], timeout=SECS)
    except grpc.RpcError as error:
        return error.code().name, error.details() or "", None  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory, helpers: Any) -> Iterator[Group]:
    """A group that every attack must leave as it was."""
    folder = helpers.open_folder(tmp_path_factory.mktemp("ac")) / "c"

    class Poor(helpers.Plain):  # type: ignore[name-defined,misc]
        """Few files may be open, so that few connections are many."""

        def run(self, *argv: str, **how: Any) -> Any:
            return super().run("prlimit", f"--nofile={FILES}:{FILES}", *argv, **how)

    cluster = Poor(folder, 1, "--controllers", "3", "--cpus", "2")
    Group.cluster_alive = staticmethod(helpers.alive)
    found = Group(cluster)
    helpers.until(lambda: found.leader, "a leader")
    yield found
    found.close()
    cluster.down()


@pytest.fixture(autouse=True)
def unharmed(group: Group) -> Iterator[None]:
    """Around each attack."""
    pids, leader = group.pids(), group.leader
    yield
    group.same(pids, leader)


# -- who may speak to a controller as a controller


def foreign(name: str, *, days: int = 1, issuer: Tls | None = None, folder: Path | None = None) -> Tls:
    """Files for `name`: by themselves, or by the CA in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, by = key, subject
    if folder is not None:
        ca = x509.load_pem_x509_certificate((folder / certs.CA_CERT).read_bytes())
        signer = serialization.load_pem_private_key((folder / certs.CA_KEY).read_bytes(), None)  # type: ignore[assignment]
        by = ca.subject
    built = x509.CertificateBuilder().subject_name(subject).issuer_name(by).public_key(key.public_key())
    built = built.serial_number(x509.random_serial_number())
    built = built.not_valid_before(now - datetime.timedelta(days=10))
    built = built.not_valid_after(now + datetime.timedelta(days=days))
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    made = built.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (b"", private, made)


def test_only_who_has_a_members_certificate_is_heard(group: Group, tmp_path: Path) -> None:
    dst = group.leader
    src = group.follower
    ca = group.tls(src)[0]
    certs.make_ca(tmp_path / "other")
    own = group.folder / "certs"
    name = f"spur-controller-{src}"
    for what, tls in {
        "no TLS": None,
        "no certificate": (ca, None, None),
        "another CA": (ca, *foreign(name, folder=tmp_path / "other")[1:]),
        "its own CA": (ca, *foreign(name)[1:]),
        "too old": (ca, *foreign(name, days=-1, folder=own)[1:]),
    }.items():
        with group.door(dst, tls) as door:
            code, text, _ = ask(door.Status, raft.StatusRequest(hello=group.hello(src, dst)), None)
        assert code == "UNAVAILABLE", (what, code, text)
    for what, tls, hello in (
        ("nobody", (ca, *foreign("spur-controller-9", folder=own)[1:]), group.hello(src, dst)),
        ("itself", group.tls(dst), group.hello(dst, dst)),
        ("two", (ca, *foreign("*", folder=own)[1:]), group.hello(src, dst)),
        ("another one's name", group.tls(src), group.hello(dst, dst)),
        ("a third one's name", group.tls(src), group.hello(6 - src - dst, dst)),
        ("another cluster", group.tls(src), group.hello(src, dst, cluster_id="x" * 1_000_000)),
        ("another list", group.tls(src), group.hello(src, dst, members_hash="0")),
        ("no greeting", group.tls(src), raft.Hello()),
    ):
        with group.door(dst, tls) as door:
            for call, request in (
                (door.Status, raft.StatusRequest(hello=hello)),
                (door.Forward, raft.ForwardRequest(hello=hello, items=[raft.ForwardItem(read_index=True)])),
                (door.Messages, iter([raft.Frame(hello=hello), raft.Frame(messages=b"\x90")])),
                (door.Snapshot, iter([raft.SnapshotChunk(header=raft.SnapshotHeader(hello=hello))])),
            ):
                code, text, _ = ask(call, request, None)
                assert code in ("PERMISSION_DENIED", "FAILED_PRECONDITION"), (what, code, text)
    assert max(map(len, group.logs().splitlines())) < 5000


# -- what a member may say: its certificate is stolen, or its program is of another release


def test_bytes_that_are_no_command_never_reach_the_log(group: Group) -> None:
    dst, src = group.leader, group.follower
    items = [raft.ForwardItem(command=bad, timeout_ms=5000) for bad in (b"", b"\xc1", b"x" * 100_000)]
    items += [raft.ForwardItem(command=b"\x81\xa4type\xa6Nobody", timeout_ms=1), raft.ForwardItem()]
    with group.door(dst, group.tls(src)) as door:
        code, _, answer = ask(
            door.Forward, raft.ForwardRequest(hello=group.hello(src, dst), items=items), None
        )
    assert code == "OK"
    assert [one.refusal.code for one in answer.answers] == ["dropped"] * len(items)


def test_frames_against_the_protocol_end_their_stream_alone(group: Group) -> None:
    dst, src = group.leader, group.follower

    def append(term: int, prev: tuple[int, int], *entries: Entry, **who: int) -> bytes:
        ends = {"src": src, "dst": dst, **who}
        message = Append(ends["src"], ends["dst"], term, Position(*prev), entries, 0)
        return wire.encode([message])

    with group.door(dst, group.tls(src)) as door:
        for bad in (
            b"\xc1",
            b"",
            b"\x91" * 10_000,
            b"\xdd\xff\xff\xff\xff",
            b"\xc6\xff\xff\xff\xff",
            b"\x90" + b"\0" * (10 << 20),
            append(1 << 63, (0, 0)),
            append(1, (-5, 0)),
            append(1, (0, 0), src=6 - src - dst),
            append(1, (0, 0), Entry(7, 1, b"x")),
        ):
            frames = [raft.Frame(hello=group.hello(src, dst)), raft.Frame(messages=bad)]
            code, text, _ = ask(door.Messages, iter(frames), None)
            assert code == "INVALID_ARGUMENT", (bad[:20], code, text)


def test_answers_about_what_never_was_change_nothing(group: Group) -> None:
    """A member that claims to hold what does not exist yet must not make the leader believe it."""
    dst, src = group.leader, group.follower
    term = group.ping().term
    far = 1 << 40
    messages = [
        AppendReply(src, dst, term, True, far),
        AppendReply(src, dst, term, True, 0),
        AppendReply(src, dst, term, False, far, Position(far, far)),
        AppendReply(src, dst, term, False, 0, Position(0, 0)),
        AppendReply(src, dst, 0, True, far),
        HeartbeatReply(src, dst, term, far),
    ]
    with group.door(dst, group.tls(src)) as door:
        for message in messages:
            frames = [raft.Frame(hello=group.hello(src, dst)), raft.Frame(messages=wire.encode([message]))]
            assert ask(door.Messages, iter(frames), None)[0] in ("OK", "INVALID_ARGUMENT"), message


def test_a_snapshot_that_cannot_be_is_refused_and_leaves_no_file(group: Group) -> None:
    dst, src = group.leader, group.follower
    hello = group.hello(src, dst)
    huge = (1 << 64) - 1
    snap = group.folder / "state" / f"spurctld-{dst}" / "raft" / "snap"
    before = sorted(snap.iterdir())
    for header, data in (
        ({"term": huge, "index": 0, "index_term": 0, "size": 0}, b""),
        ({"term": huge, "index": huge, "index_term": huge, "size": 10}, b"0123456789"),
        ({"term": 1000, "index": 10**6, "index_term": 1001, "size": 10}, b"0123456789"),
        ({"term": 1000, "index": 10**6, "index_term": 1, "size": 1 << 60}, b"x"),
        ({"term": 1000, "index": 10**6, "index_term": 1, "size": 10}, b"x" * 100_000),
        (
            {"term": 1000, "index": 10**6, "index_term": 1, "size": 30},
            b"SPURSNP1H\xff\xff\xff\xff" + b"x" * 17,
        ),
        ({"term": 1000, "index": 10**6, "index_term": 1, "size": 10}, b""),
    ):
        chunks = [raft.SnapshotChunk(header=raft.SnapshotHeader(hello=hello, **header))]
        chunks += [raft.SnapshotChunk(data=data)]
        with group.door(dst, group.tls(src)) as door:
            code, text, _ = ask(door.Snapshot, iter(chunks), None)
        assert code in ("FAILED_PRECONDITION", "INVALID_ARGUMENT"), (header, code, text)
    assert sorted(snap.iterdir()) == before


def test_half_open_connections_take_neither_files_nor_anybodys_turn(group: Group) -> None:
    """Whoever connects and says nothing is not waited for, and never holds more than a part of the files."""
    dst = group.follower
    pid = group.pids()[f"spurctld-{dst}"]
    held: list[socket.socket] = []
    try:
        for address in (group.raft[dst], group.clients[dst]):
            host, _, port = address.rpartition(":")
            for _ in range(FILES - 100):
                sock = socket.socket()
                held.append(sock)
                sock.settimeout(5)
                sock.connect((host, int(port)))
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < FILES * 3 // 4
        assert group.ping(dst).leader_id == group.leader
    finally:
        for sock in held:
            sock.close()


# -- calls that one controller passes to another


def forged(group: Group, token: str) -> list[list[tuple[str, str]]]:
    """What an ordinary client may write beside a call."""
    return [
        [("x-spur-forwarded", token), ("x-spur-peer", "ipv4:127.0.0.1:1")],
        [("x-spur-forwarded", "-"), ("x-spur-peer", "unix:"), ("x-spur-user", "root")],
        [("x-spur-forwarded", ""), ("x-spur-peer", "ipv6:[::1]:1")],
        [("x-spur-leader", "127.0.0.1:9"), ("x-spur-user", "root")],
        [("x-spur-stale-ok", "1"), ("x-spur-user", "root")],
    ]


def test_forged_metadata_make_nobody_anybody_else(group: Group, helpers: Any) -> None:
    stranger = group.token(helpers.stranger)
    node = mint.mint_node(group.key, "node1", time.time(), cluster="local")
    leader = group.leader
    for member in group.clients:
        ctl = group.ctl(member)
        for extra in forged(group, stranger):
            drain = pb.UpdateNodeRequest(names="node1", state="drain", reason="mine")
            for call, request in ((ctl.Takeover, pb.TakeoverRequest(member=member)), (ctl.UpdateNode, drain)):
                assert ask(call, request, None, *extra)[0] == "UNAUTHENTICATED"
                # A call that looks passed on already goes no further; else it is refused.
                code, text, _ = ask(call, request, stranger, *extra)
                passed = code == "UNAVAILABLE" and extra[0][0] == "x-spur-forwarded" and member != leader
                assert (code, text) == DENIED or passed, (member, extra, code, text)
                assert ask(call, request, node, *extra)[0] in (
                    "PERMISSION_DENIED",
                    "UNAUTHENTICATED",
                    "UNAVAILABLE",
                )
            for call, request in ((ctl.GetJobs, pb.GetJobsRequest()), (ctl.GetNodes, pb.GetNodesRequest())):
                assert ask(call, request, None, *extra)[0] == "UNAUTHENTICATED"


def test_nobody_is_sent_to_an_address_that_a_caller_named(group: Group, helpers: Any) -> None:
    """Neither a controller nor a client calls what an ordinary caller wrote into metadata."""
    with socket.create_server(("127.0.0.1", 0)) as trap:
        address = f"127.0.0.1:{trap.getsockname()[1]}"
        stranger = group.token(helpers.stranger)
        for member in group.clients:
            cancel = pb.CancelJobRequest(targets=[pb.JobTarget(job_id=99)])
            call = group.ctl(member).CancelJob
            for key in ("x-spur-leader", "x-spur-controller", "x-spur-peer"):
                own = [("authorization", f"Bearer {stranger}"), (key, address)]
                _, made = call.with_call(cancel, metadata=own, timeout=SECS)
                said = [*(made.initial_metadata() or ()), *(made.trailing_metadata() or ())]
                assert address not in [value for _, value in said]
        trap.settimeout(0.5)
        with pytest.raises(TimeoutError):
            trap.accept()


def test_a_request_id_is_its_owners_alone(group: Group, helpers: Any) -> None:
    """Another user with the same id gets an answer of his own, whichever controller he asks."""
    rid = ("x-spur-request-id", "5" * 32)
    jobs = []
    for user, member in ((helpers.stranger, group.follower), (helpers.victim, group.leader)):
        token = group.token(user)
        spec = {"name": "a", "script": b"#!/bin/sh\n", "work_dir": "/tmp", "hold": True}
        request = pb.SubmitJobRequest(spec=spec)
        answers = [ask(group.ctl(member).SubmitJob, request, token, rid) for _ in range(2)]
        assert [code for code, _, _ in answers] == ["OK", "OK"], answers
        assert len({answer.job_id for _, _, answer in answers}) == 1
        jobs.append(answers[0][2].job_id)
    assert jobs[0] != jobs[1]
    # What one may not do he may not do with the other's id either, and the owner's own turn is still his.
    cancel = pb.CancelJobRequest(targets=[pb.JobTarget(job_id=jobs[1])])
    for user, wanted in ((helpers.stranger, DENIED[1]), (helpers.victim, "")):
        uid = pwd.getpwnam(helpers.victim).pw_uid
        for value in ("6" * 32, f"6:{uid}/0"):
            answer = ask(group.ctl(group.leader).CancelJob, cancel, group.token(user), (rid[0], value))
            assert next(one.text for one in answer[2].results).startswith(wanted), answer
    for long in ("x" * 65, "x" * 4000):
        code, text, _ = ask(
            group.ctl(group.leader).CancelJob, cancel, group.token(helpers.victim), (rid[0], long)
        )
        assert (code, "more than 64" in text) == ("INVALID_ARGUMENT", True)


def test_answers_that_are_kept_do_not_fill_the_memory(group: Group, helpers: Any) -> None:
    """Each of these is answered with megabytes of refusals, which a repeat would be given too."""
    token = group.token(helpers.stranger)
    pids = [pid for name, pid in group.pids().items() if name.startswith("spurctld")]

    def memory() -> list[int]:
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
        return [int(text.partition("VmRSS:")[2].split()[0]) >> 10 for text in texts]

    options = (("grpc.max_receive_message_length", 64 << 20),)
    with grpc.insecure_channel(group.clients[group.leader], options) as channel:
        cancel = controller_pb2_grpc.SlurmControllerStub(channel).CancelJob
        request = pb.CancelJobRequest(targets=[pb.JobTarget(job_id=99)] * 20_000)
        assert ask(cancel, request, token, ("x-spur-request-id", "warm"))[0] == "OK"
        before = memory()
        for number in range(24):
            assert ask(cancel, request, token, ("x-spur-request-id", f"{number}"))[0] == "OK"
    grown = [now - then for now, then in zip(memory(), before, strict=True)]
    assert max(grown) < 20, grown


# -- whom an agent believes


def test_no_caller_raises_an_agents_term(group: Group, helpers: Any) -> None:
    """Whoever is no controller locks the real ones out of a node for a time, let alone for ever."""
    ready = (group.folder / "run" / "spurd-node1.ready").read_text().split()[2]
    kept = group.folder / "state" / "spurd-node1" / "runtime" / "term.json"
    before = kept.read_bytes()
    assert json.loads(before) == {"term": group.ping().term}
    rid = common_pb2.RuntimeId(job_id=1, run_attempt=1, step_id=0)
    far = (1 << 64) - 1
    controller = mint.mint_controller(group.key, time.time(), cluster="local")
    forged = mint.mint_controller(b"x" * 32, time.time(), cluster="local")
    with grpc.insecure_channel(ready) as channel:
        agent = agent_pb2_grpc.SlurmAgentStub(channel)
        launch = agent_pb2.LaunchJobRequest(target_node="node1", term=far, spec=b"", launch_token="x")
        run = agent_pb2.RunCommandRequest(target_node="node1", term=far, spec=b"", launch_token="x")
        orders = (
            (agent.LaunchJob, launch),
            (agent.RunCommand, run),
            (agent.CancelJob, agent_pb2.AgentCancelJobRequest(rid=rid, term=far)),
            (agent.SuspendJob, agent_pb2.AgentSuspendJobRequest(rid=rid, term=far)),
            (agent.ProbeStepd, agent_pb2.ProbeStepdRequest(rid=rid, term=far)),
        )
        node = mint.mint_node(group.key, "node1", time.time(), cluster="local")
        for token in (None, group.token(helpers.stranger), group.token("root"), node, forged):
            for call, request in orders:
                code, text, _ = ask(call, request, token, ("x-spur-forwarded", "-"), ("x-spur-user", "root"))
                assert code in ("UNAUTHENTICATED", "PERMISSION_DENIED"), (code, text)
        # A launch is believed by the statement in it, not by the call's credential alone.
        for call, request in orders[:2]:
            code, text, _ = ask(call, request, controller)
            assert code in ("UNAUTHENTICATED", "INVALID_ARGUMENT"), (code, text)
    assert kept.read_bytes() == before


def test_who_sits_on_a_controllers_address_locks_no_agent_out(group: Group, helpers: Any) -> None:
    """The controllers' ports are free when they are down, and any user of their host may take them."""
    kept = group.folder / "state" / "spurd-node1" / "runtime" / "term.json"
    before = kept.read_bytes()
    asked: list[str] = []

    class Squatter(controller_pb2_grpc.SlurmControllerServicer):
        def RegisterAgent(self, request: Any, context: Any) -> Any:
            asked.append("RegisterAgent")
            return pb.RegisterAgentResponse(heartbeat_secs=1, term=(1 << 64) - 1, term_proof=b"x" * 32)

        def Heartbeat(self, request: Any, context: Any) -> Any:
            asked.append("Heartbeat")
            return pb.HeartbeatResponse(term=(1 << 64) - 1)

    server = grpc.server(futures.ThreadPoolExecutor(2))
    controller_pb2_grpc.add_SlurmControllerServicer_to_server(Squatter(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    folder = group.folder.parent / "lured"
    # A second agent of the same cluster, as if its controllers' addresses had been taken.
    lured = subprocess.Popen(
        [
            *("spurd", "-D", "-N", "node1", "--config", str(group.folder / "spur.conf")),
            *("--state-dir", str(folder), "--listen", "127.0.0.1:0", "--controller", f"127.0.0.1:{port}"),
        ],
        env=group.cluster.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        helpers.until(lambda: "Heartbeat" in asked, "the agent has fallen for it")
    finally:
        lured.terminate()
        lured.wait(30)
        server.stop(0)
    assert not (folder / "runtime" / "term.json").exists()
    assert kept.read_bytes() == before


# -- what lies on the disk and in the table of processes


def test_keys_are_their_owners_alone_and_stand_nowhere_else(group: Group) -> None:
    secrets = [group.key, *(group.tls(at)[1] or b"" for at in group.clients)]
    secrets = [secret.split(b"\n")[1] if b"\n" in secret else secret for secret in secrets]
    for path in [group.folder, *group.folder.rglob("*")]:
        mode = path.lstat().st_mode & 0o7777
        if path.suffix == ".key" or path.name in ("key", "token", "term.json", "node.json", "meta"):
            assert mode == 0o600, path
        elif path.is_dir() and path.parent in (group.folder, group.folder / "state"):
            assert mode & 0o077 == 0, path
    texts = [group.logs().encode()]
    texts += [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in group.pids().values()]
    texts += [path.read_bytes() for path in (group.folder / "state").rglob("*.seg")]
    for text in texts:
        assert b"eyJ" not in text
        for secret in secrets:
            assert secret not in text


def tool(group: Group, *argv: str, **how: Any) -> "subprocess.CompletedProcess[str]":
    return group.cluster.run("spurctld", "raft", *argv, "-f", str(group.folder / "spur.conf"), **how)  # type: ignore[no-any-return]


def test_keys_are_made_only_where_nobody_else_can_write(group: Group, tmp_path: Path) -> None:
    """Somebody has made the directory before: his CA would be the cluster's, or he would own its keys."""
    outs = {"open": tmp_path / "open", "link": tmp_path / "link"}
    outs["open"].mkdir()
    outs["open"].chmod(0o777)
    outs["link"].symlink_to(tmp_path / "open")
    if os.geteuid() == 0:
        outs["foreign"] = tmp_path / "foreign"
        outs["foreign"].mkdir(mode=0o755)
        os.chown(outs["foreign"], 65534, 65534)
    for what, out in outs.items():
        done = tool(group, "gen-certs", "--out", str(out))
        assert done.returncode != 0, what
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert str(tmp_path) in done.stderr
    assert not list(tmp_path.rglob("*.key"))


def test_inspect_reads_files_only(group: Group, tmp_path: Path) -> None:
    """In a directory of somebody else's a name may stand for anything."""
    raft_dir = tmp_path / "raft"
    for name in ("log", "snap"):
        (raft_dir / name).mkdir(parents=True)
    os.mkfifo(raft_dir / "meta")
    os.mkfifo(raft_dir / "lock")
    (raft_dir / "log" / "0000000000000001.seg").symlink_to("/dev/zero")
    os.mkfifo(raft_dir / "snap" / "snap-0000000000000001-0000000000000001")
    done = group.cluster.run("timeout", "20", "spurctld", "raft", "inspect", "--state-dir", str(tmp_path))
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr

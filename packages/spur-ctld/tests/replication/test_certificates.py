"""Certificates of the group: made once, private, and good for a mutual handshake of exactly these members."""

import os
import resource
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from spur_core.errors import StateError
from spur_ctld.replication.certs import cluster_id, make_ca, make_member, problems


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    make_ca(folder)
    return folder


def test_what_is_made_is_its_owners_alone(certs: Path) -> None:
    folder = make_member(certs, 2)
    assert folder == certs / "member-2"
    assert {path.name for path in folder.iterdir()} == {"ca.pem", "member.pem", "member.key"}
    assert {path.name for path in certs.iterdir()} == {"ca.pem", "ca.key", "member-2"}
    for path in (certs, folder):
        assert path.stat().st_mode & 0o777 == 0o700
    for path in (certs / "ca.key", folder / "member.key"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_overwritten(certs: Path) -> None:
    make_member(certs, 1)
    before = {path: path.read_bytes() for path in certs.rglob("*") if path.is_file()}
    with pytest.raises(StateError, match=r"ca\.pem: is there already and is never overwritten"):
        make_ca(certs)
    with pytest.raises(StateError, match=r"member-1/ca\.pem: is there already"):
        make_member(certs, 1)
    assert before == {path: path.read_bytes() for path in certs.rglob("*") if path.is_file()}


def test_what_was_cut_off_is_made_anew(certs: Path) -> None:
    """A disk that fills up within the last file, which is the longest."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((certs / "ca.pem").stat().st_size, limits[1]))
    try:
        with pytest.raises(StateError, match=r"member\.pem: File too large"):
            make_member(certs, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name for path in certs.iterdir()} == {"ca.pem", "ca.key"}
    assert problems(make_member(certs, 1), 1, time.time()) == []


def test_the_cluster_id_is_that_of_the_ca(certs: Path, tmp_path: Path) -> None:
    found = cluster_id(certs / "ca.pem")
    assert len(found) == 32
    assert int(found, 16)
    assert cluster_id(make_member(certs, 3) / "ca.pem") == found
    make_ca(tmp_path / "other")
    assert cluster_id(tmp_path / "other" / "ca.pem") != found


@pytest.mark.parametrize(("data", "text"), [(None, "No such file"), (b"x", "not a certificate")])
def test_a_ca_that_cannot_be_read_is_named(tmp_path: Path, data: bytes | None, text: str) -> None:
    path = tmp_path / "ca.pem"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(StateError, match=rf"ca\.pem: {text}"):
        cluster_id(path)


def shake(server: Path, client: Path, name: str) -> str:
    """What the server sees of a client that expects `name`."""
    ours, theirs = socket.socketpair()
    seen: list[str] = []

    def serve() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(server / "ca.pem")
        context.load_cert_chain(server / "member.pem", server / "member.key")
        try:
            with context.wrap_socket(ours, server_side=True) as wrapped:
                peer = wrapped.getpeercert()
                assert peer is not None
                seen.append(str(peer["subjectAltName"][0][1]))
                wrapped.send(b"x")
        except (ssl.SSLError, OSError) as error:
            seen.append(f"refused: {error}")
        finally:
            ours.close()

    thread = threading.Thread(target=serve)
    thread.start()
    context = ssl.create_default_context(cafile=str(client / "ca.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(client / "member.pem", client / "member.key")
    try:
        with context.wrap_socket(theirs, server_hostname=name) as wrapped:
            wrapped.recv(1)
    finally:
        theirs.close()
        thread.join()
    return seen[0]


def test_members_know_each_other(certs: Path) -> None:
    one, two = make_member(certs, 1), make_member(certs, 2)
    assert shake(one, two, "spur-controller-1") == "spur-controller-2"


def test_a_member_is_not_another_and_another_group_is_nobody(certs: Path, tmp_path: Path) -> None:
    one, two = make_member(certs, 1), make_member(certs, 2)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake(one, two, "spur-controller-3")
    make_ca(tmp_path / "other")
    stranger = make_member(tmp_path / "other", 1)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(stranger, two, "spur-controller-1")


def test_what_is_wrong_is_said_before_a_start(certs: Path, tmp_path: Path) -> None:
    now = time.time()
    one, two = make_member(certs, 1), make_member(certs, 2)
    assert problems(one, 1, now) == []
    assert problems(one, 2, now) == [f"{one}/member.pem: is for spur-controller-1, this is spur-controller-2"]
    (late,) = {problem.partition(":")[2] for problem in problems(one, 1, now + 11 * 365 * 86400)}
    assert late.startswith(" valid from ")
    assert len(problems(one, 1, now - 3 * 86400)) == 2
    (one / "member.key").chmod(0o640)
    assert problems(one, 1, now) == [f"{one}/member.key: can be read by others; run chmod 600 on it"]
    (one / "member.key").write_bytes((two / "member.key").read_bytes())
    os.chmod(one / "member.key", 0o600)
    assert problems(one, 1, now) == [f"{one}/member.key: is not the key of {one}/member.pem"]
    make_ca(tmp_path / "other")
    (two / "ca.pem").write_bytes((tmp_path / "other" / "ca.pem").read_bytes())
    assert problems(two, 2, now) == [f"{two}/member.pem: was not issued by {two}/ca.pem"]
    (two / "member.pem").unlink()
    (problem,) = problems(two, 2, now)
    assert problem.startswith(f"{two}/member.pem: No such file")

"""Certificates of a group of controllers: one private CA, which is the group's identity, one pair a member.

    DIR/ca.pem  DIR/ca.key                              keep ca.key off the controllers
    DIR/member-N/{ca.pem,member.pem,member.key}         what member N needs

Member N's certificate says `spur-controller-N`; it alone decides who sent a message.  Keys: ECDSA, P-256.
Nothing is ever overwritten: another CA would be another group.
"""

import datetime
import os
import secrets
import shutil
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spur_core.config.group import member_name
from spur_core.errors import StateError

YEARS = 10
CA_CERT, CA_KEY = "ca.pem", "ca.key"
MEMBER_CERT, MEMBER_KEY = "member.pem", "member.key"
#: Hex digits of a cluster id.
_ID_DIGITS = 32
_Builder = x509.CertificateBuilder


def make_ca(folder: Path) -> None:
    """A new CA in `folder`, which is made if it is missing.

    Raises:
        StateError: there is one already, or the folder cannot be written; one line.
    """
    _refuse_existing(folder / CA_CERT, folder / CA_KEY)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"spur-controllers-{secrets.token_hex(4)}")])
    built = _dated(name, name, key.public_key())
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    built = built.add_extension(_usage(signs_certificates=True), critical=True)
    certificate = built.sign(key, hashes.SHA256())
    own_folder(folder)
    # The key first: without its certificate it is nothing, and a certificate without it signs nobody.
    _write(folder / CA_KEY, _key_bytes(key))
    _write(folder / CA_CERT, _cert_bytes(certificate))


def own_folder(path: Path) -> None:
    """Make the directory, or see that in the one which is there nobody else can put or replace a file.

    Raises:
        StateError: it cannot be made, is another user's, or others may write in it; one line.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A link may be anybody's as well.
        for found in (path.lstat(), path.stat()):
            if found.st_uid not in (0, os.geteuid()):
                raise StateError(f"{path}: belongs to uid {found.st_uid}; choose a directory of your own")
        if found.st_mode & 0o022:
            raise StateError(f"{path}: others can write in it; run chmod go-w on it, or choose another one")
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from None


def make_member(folder: Path, member_id: int) -> Path:
    """A certificate for member `member_id` by the CA in `folder`; the directory that the member needs.

    Raises:
        StateError: the member has one already, or the CA cannot be read; one line.
    """
    ca = _read_cert(folder / CA_CERT)
    ca_key = _read_key(folder / CA_KEY)
    if ca.public_key() != ca_key.public_key():
        raise StateError(f"{folder / CA_KEY}: is not the key of {folder / CA_CERT}")
    target = member_dir(folder, member_id)
    _refuse_existing(*(target / name for name in (CA_CERT, MEMBER_CERT, MEMBER_KEY)))
    key = ec.generate_private_key(ec.SECP256R1())
    name = member_name(member_id)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = _dated(subject, ca.subject, key.public_key(), until=ca.not_valid_after_utc)
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    built = built.add_extension(_usage(signs_certificates=False), critical=True)
    both_ends = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    built = built.add_extension(x509.ExtendedKeyUsage(both_ends), critical=False)
    built = built.add_extension(_issued_by(ca), critical=False)
    certificate = built.sign(ca_key, hashes.SHA256())
    # Aside first: what was cut off must not pass for a certificate.
    made = folder / f".{target.name}.{os.getpid()}.tmp"
    try:
        own_folder(made)
        _write(made / CA_CERT, _cert_bytes(ca))
        _write(made / MEMBER_KEY, _key_bytes(key))
        _write(made / MEMBER_CERT, _cert_bytes(certificate))
        made.rename(target)
        _sync(folder)
    except OSError as error:
        raise StateError(f"{target}: {error.strerror}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def member_dir(folder: Path, member_id: int) -> Path:
    """Where `make_member` puts the certificate of a member."""
    return folder / f"member-{member_id}"


def cluster_id(ca_file: Path) -> str:
    """Identity of the group whose CA is in `ca_file`.

    Raises:
        StateError: the file cannot be read, or holds no certificate; one line.
    """
    return _read_cert(ca_file).fingerprint(hashes.SHA256()).hex()[:_ID_DIGITS]


def problems(tls_dir: Path, member_id: int, now: float) -> list[str]:
    """Why the files in `tls_dir` cannot serve member `member_id` at time `now` (epoch); one line each."""
    try:
        ca = _read_cert(tls_dir / CA_CERT)
        certificate = _read_cert(tls_dir / MEMBER_CERT)
        key = _read_key(tls_dir / MEMBER_KEY)
    except StateError as error:
        return [error.text]
    found = []
    path = tls_dir / MEMBER_CERT
    if certificate.public_key() != key.public_key():
        found.append(f"{tls_dir / MEMBER_KEY}: is not the key of {path}")
    mode = (tls_dir / MEMBER_KEY).stat().st_mode & 0o077
    if mode:
        found.append(f"{tls_dir / MEMBER_KEY}: can be read by others; run chmod 600 on it")
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        found.append(f"{path}: was not issued by {tls_dir / CA_CERT}")
    names = _dns_names(certificate)
    if member_name(member_id) not in names:
        found.append(f"{path}: is for {', '.join(names) or 'nobody'}, this is {member_name(member_id)}")
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    for where, one in ((path, certificate), (tls_dir / CA_CERT, ca)):
        if not one.not_valid_before_utc <= moment <= one.not_valid_after_utc:
            found.append(
                f"{where}: valid from {one.not_valid_before_utc:%Y-%m-%d} to"
                f" {one.not_valid_after_utc:%Y-%m-%d}, today is {moment:%Y-%m-%d}"
            )
    return found


def _dns_names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return found.value.get_values_for_type(x509.DNSName)


def _dated(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    until: datetime.datetime | None = None,
) -> _Builder:
    now = datetime.datetime.now(datetime.UTC)
    # A day back: the clocks of the members need not agree.
    built = _Builder().subject_name(subject).issuer_name(issuer).public_key(key)
    built = built.serial_number(x509.random_serial_number())
    built = built.not_valid_before(now - datetime.timedelta(days=1))
    end = now + datetime.timedelta(days=365 * YEARS)
    built = built.not_valid_after(min(end, until) if until else end)
    return built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _issued_by(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _cert_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StateError(
            f"{path}: {error.strerror}; make certificates with `spurctld raft gen-certs`"
        ) from None


def _read_cert(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError:
        raise StateError(f"{path}: not a certificate in PEM form") from None


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(_read(path), None)
    except (ValueError, TypeError):
        raise StateError(f"{path}: not a private key in PEM form without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StateError(f"{path}: not an ECDSA key; make certificates with `spurctld raft gen-certs`")
    return key


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise StateError(f"{path}: is there already and is never overwritten; choose another directory")


def _write(path: Path, data: bytes) -> None:
    """Whole and durable under its name, readable by its owner alone."""
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        tmp.rename(path)
        _sync(path.parent)
    except OSError as error:
        tmp.unlink(missing_ok=True)
        raise StateError(f"{path}: {error.strerror}") from None


def _sync(path: Path) -> None:
    """The names in a directory become durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

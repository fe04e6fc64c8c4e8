"""Mutual TLS between members: what is read from the directory of certificates, and who a caller is."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import grpc
import msgspec

from spur_core.errors import ConfigError


class Tls(msgspec.Struct, frozen=True):
    """PEM texts: the group's CA, this member's certificate and its key."""

    ca: bytes
    certificate: bytes
    key: bytes

    def client(self) -> grpc.ChannelCredentials:
        """For calling other members."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)

    def server(self) -> grpc.ServerCredentials:
        """For being called: callers must show a certificate of the same CA."""
        return grpc.ssl_server_credentials([(self.key, self.certificate)], self.ca, require_client_auth=True)


def read_tls(folder: Path) -> Tls:
    """The three files in `folder`.

    Raises:
        ConfigError: one cannot be read; names it.
    """
    found = []
    for name in ("ca.pem", "member.pem", "member.key"):
        try:
            found.append((folder / name).read_bytes())
        except OSError as error:
            raise ConfigError(
                f"[controller] raft_tls_dir: {folder / name}: {error.strerror};"
                " `spurctld raft gen-certs` makes the certificates"
            ) from None
    return Tls(*found)


def names_of(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """What the caller's verified certificate says it is."""
    return frozenset(
        name.decode(errors="replace") for name in auth_context.get("x509_subject_alternative_name", ())
    )

"""How many connections a listener takes, so that those who only connect leave files to open to the rest."""

import resource
from typing import Final

#: A client that has connected says its first words within so many milliseconds, TLS included.
_GREETING_MS: Final = 10_000
#: Enough for every process.
_MOST_FILES: Final = 65_536
_LEAST: Final = 64


def raise_file_limit() -> None:
    """Let this process open as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def listener_options(share: int) -> tuple[tuple[str, int], ...]:
    """gRPC's options of a listener whose connections may take one `share`th of this process' files."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, _MOST_FILES)
    return (
        ("grpc.max_allowed_incoming_connections", max(files // share, _LEAST)),
        ("grpc.server_handshake_timeout_ms", _GREETING_MS),
    )

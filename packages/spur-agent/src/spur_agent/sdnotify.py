"""The readiness message of systemd's protocol; nothing when not started by systemd."""

import os
import socket


def ready(environ: "os._Environ[str] | dict[str, str]" = os.environ) -> None:
    """Say READY=1 to whoever NOTIFY_SOCKET names."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(b"READY=1", address)
        except OSError:
            pass  # systemd went away; the agent serves all the same

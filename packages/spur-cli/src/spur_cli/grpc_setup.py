"""Opening gRPC channels: the only module that imports gRPC when a command starts calling."""

import os
from typing import Any

# Both must be set before gRPC is imported: a command forks never, and its stderr is the user's.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

#: Larger than the largest page the controller sends.
MAX_MESSAGE = 256 << 20
#: A host that vanished without a word is noticed by this: a quiet stream is asked whether the other side is
#: there, and is over when no answer comes.
KEEPALIVE_MS, KEEPALIVE_ANSWER_MS = 30_000, 20_000
CODE_KEY = "x-spur-code"


def open_channel(address: str) -> grpc.Channel:
    """A channel to `host:port`; proxies of the environment are for the web, not for the cluster."""
    return grpc.insecure_channel(
        address,
        options=(
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            # A new try is a new connection, not one that waits because an earlier one failed.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_ANSWER_MS),
            ("grpc.http2.ping_timeout_ms", KEEPALIVE_ANSWER_MS),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ),
    )


def describe(error: grpc.RpcError) -> tuple[str, str, str]:
    """(status name, x-spur-code, details) of a failed call."""
    status = error.code().name if hasattr(error, "code") else "UNKNOWN"
    details = (error.details() if hasattr(error, "details") else "") or ""
    code = ""
    trailing: Any = error.trailing_metadata() if hasattr(error, "trailing_metadata") else ()
    for key, value in trailing or ():
        if key == CODE_KEY:
            code = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    return status, code, details

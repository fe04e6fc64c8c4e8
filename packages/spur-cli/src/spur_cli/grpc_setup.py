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
#: The same where there is another controller to go to.
QUICK_MS = 1000
CODE_KEY, LEADER_KEY = "x-spur-code", "x-spur-leader"


def open_channel(address: str, *, quick: bool = False) -> grpc.Channel:
    """A channel to `host:port`; proxies of the environment are for the web, not for the cluster.

    Args:
        quick: give up soon on a side that says nothing.
    """
    quiet, answer = (QUICK_MS, QUICK_MS) if quick else (KEEPALIVE_MS, KEEPALIVE_ANSWER_MS)
    return grpc.insecure_channel(
        address,
        options=(
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            # A new try is a new connection, not one that waits because an earlier one failed.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", quiet),
            ("grpc.keepalive_timeout_ms", answer),
            ("grpc.http2.ping_timeout_ms", answer),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ),
    )


def describe(error: grpc.RpcError) -> tuple[str, str, str]:
    """(status name, x-spur-code, details) of a failed call."""
    status = error.code().name if hasattr(error, "code") else "UNKNOWN"
    details = (error.details() if hasattr(error, "details") else "") or ""
    return status, said(error, CODE_KEY), details


def said(call: Any, key: str) -> str:
    """What the metadata of a call that has ended say under `key`, "" for nothing."""
    for part in ("trailing_metadata", "initial_metadata"):
        if hasattr(call, part):
            for name, value in getattr(call, part)() or ():
                if name == key:
                    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    return ""

"""The gRPC server: limits, listener, services."""

from typing import Any, Final

from grpc import aio

from spur_core.config.address import join_address, split_address
from spur_core.errors import RequestError
from spur_core.linux.connections import listener_options
from spur_ctld.api.gate import Gate
from spur_ctld.api.service import ControllerService
from spur_proto import accounting_pb2_grpc, controller_pb2_grpc

OPTIONS: Final = (
    ("grpc.max_receive_message_length", 8 << 20),
    ("grpc.max_send_message_length", 32 << 20),
    # Two controllers on one port would each get half of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.max_connection_idle_ms", 3_600_000),
    # Agents and watchers of a group ask a quiet controller each second whether it is still there.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    # Those that gathered while this process stood still arrive at once: no reason to end a connection.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


class CannotListen(RequestError):
    """The address cannot be bound."""

    code = "cannot_listen"

    def __init__(self, address: str) -> None:
        super().__init__(f"cannot listen on {address}: the port is in use or the address is not this host's")


def build(gate: Gate, controller: ControllerService, accounting: Any | None, listen: str) -> tuple[Any, str]:
    """A server that is bound but not started, and the address with its real port.

    Raises:
        CannotListen: the address cannot be bound.
    """
    server = aio.server(interceptors=(gate,), options=(*OPTIONS, *listener_options(2)))
    controller_pb2_grpc.add_SlurmControllerServicer_to_server(controller, server)
    if accounting is not None:
        accounting_pb2_grpc.add_SlurmAccountingServicer_to_server(accounting, server)
    host, _ = split_address(listen)
    target = listen if host else "[::]" + listen
    try:
        port = server.add_insecure_port(target)
    except RuntimeError:
        port = 0
    if not port:
        raise CannotListen(listen)
    return server, join_address(host or "::", port)

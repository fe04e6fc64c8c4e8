"""A protoc plugin: gRPC stubs for Python by grpc_tools, and type stubs for them by hand.

grpc_tools writes `x_pb2_grpc.py` without a single annotation.  From the same descriptors this writes
`x_pb2_grpc.pyi`, so that `mypy --strict` knows every call: `XStub` for an asynchronous channel,
`XBlockingStub` (a name for the type checker alone) for a blocking one, `XServicer` for asynchronous servers.
Files without a service get neither.
"""

import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.compiler import plugin_pb2
from grpc_tools import protoc

HEADER = '''"""Types of the gRPC code of {proto}.  Written by tools/protoc_gen_grpc_python.py; do not edit."""

from collections.abc import AsyncIterator, Awaitable
from typing import overload, type_check_only

import grpc
import grpc.aio
'''


def module_of(proto: str) -> str:
    """`spur_proto/agent.proto` -> `spur_proto.agent_pb2`."""
    return proto.removesuffix(".proto").replace("-", "_").replace("/", ".") + "_pb2"


def types_by_name(files: list[descriptor_pb2.FileDescriptorProto]) -> dict[str, tuple[str, str]]:
    """Full message name with its leading dot -> (module, name inside it)."""
    found: dict[str, tuple[str, str]] = {}

    def add(module: str, scope: str, outer: str, message: descriptor_pb2.DescriptorProto) -> None:
        found[f"{scope}.{message.name}"] = (module, outer + message.name)
        for inner in message.nested_type:
            add(module, f"{scope}.{message.name}", f"{outer}{message.name}.", inner)

    for file in files:
        for message in file.message_type:
            add(module_of(file.name), f".{file.package}" if file.package else "", "", message)
    return found


def type_stub(file: descriptor_pb2.FileDescriptorProto, types: dict[str, tuple[str, str]]) -> str:
    """The text of `x_pb2_grpc.pyi`."""
    used: set[str] = set()

    def name_of(full: str) -> str:
        module, name = types[full]
        used.add(module)
        package, _, base = module.rpartition(".")
        return f"{base}.{name}" if package else module + "." + name

    body: list[str] = []
    for service in file.service:
        rpcs = [(m, name_of(m.input_type), name_of(m.output_type)) for m in service.method]
        body += stub_classes(service.name, rpcs) + servicer_class(service.name, rpcs)
    imports = []
    for module in sorted(used):
        package, _, base = module.rpartition(".")
        imports.append(f"from {package} import {base}" if package else f"import {module}")
    return HEADER.format(proto=file.name) + "\n" + "\n".join(imports) + "\n" + "\n".join(body) + "\n"


Rpc = tuple[descriptor_pb2.MethodDescriptorProto, str, str]


def shape(method: descriptor_pb2.MethodDescriptorProto) -> str:
    """UnaryUnary, UnaryStream, StreamUnary or StreamStream."""
    return ("Stream" if method.client_streaming else "Unary") + (
        "Stream" if method.server_streaming else "Unary"
    )


def stub_classes(service: str, rpcs: list[Rpc]) -> list[str]:
    """The two client classes; which one a call of `XStub(channel)` gives depends on the channel."""
    stub, blocking = f"{service}Stub", f"{service}BlockingStub"
    lines = ["", f"class {stub}:"]
    for channel, result in (("grpc.aio.Channel", stub), ("grpc.Channel", blocking)):
        lines += ["    @overload", f"    def __new__(cls, channel: {channel}) -> {result}: ..."]
    lines += [f"    {m.name}: grpc.aio.{shape(m)}MultiCallable[{req}, {resp}]" for m, req, resp in rpcs]
    lines += ["", "@type_check_only", f"class {blocking}({stub}):"]
    for m, req, resp in rpcs:
        callable_type = f"grpc.{shape(m)}MultiCallable[{req}, {resp}]"
        lines.append(f"    {m.name}: {callable_type}  # type: ignore[assignment]")
    return lines


def servicer_class(service: str, rpcs: list[Rpc]) -> list[str]:
    """The server's base class and the function that puts it into a server."""
    lines = ["", f"class {service}Servicer:"]
    for m, req, resp in rpcs:
        request = f"request_iterator: AsyncIterator[{req}]" if m.client_streaming else f"request: {req}"
        result = f"AsyncIterator[{resp}]" if m.server_streaming else f"Awaitable[{resp}]"
        context = f"context: grpc.aio.ServicerContext[{req}, {resp}]"
        lines.append(f"    def {m.name}(self, {request}, {context}) -> {result}: ...")
    return [
        *lines,
        "",
        f"def add_{service}Servicer_to_server("
        f"servicer: {service}Servicer, server: grpc.aio.Server) -> None: ...",
    ]


def main() -> None:
    request = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    response = plugin_pb2.CodeGeneratorResponse(
        supported_features=plugin_pb2.CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
    )
    with_service = [f for f in request.proto_file if f.service and f.name in request.file_to_generate]
    if with_service:
        with tempfile.TemporaryDirectory() as tmp:
            descriptors, out = Path(tmp, "in.binpb"), Path(tmp, "out")
            out.mkdir()
            descriptors.write_bytes(
                descriptor_pb2.FileDescriptorSet(file=request.proto_file).SerializeToString()
            )
            status = protoc.main(
                [
                    "protoc",
                    f"--descriptor_set_in={descriptors}",
                    f"--grpc_python_out={out}",
                    *(f.name for f in with_service),
                ]
            )
            if status:
                response.error = f"grpc_tools.protoc ended with status {status}"
            for path in sorted(out.rglob("*.py")):
                response.file.add(name=str(path.relative_to(out)), content=path.read_text())
        types = types_by_name(list(request.proto_file))
        for file in with_service:
            name = file.name.removesuffix(".proto") + "_pb2_grpc.pyi"
            response.file.add(name=name, content=type_stub(file, types))
    sys.stdout.buffer.write(response.SerializeToString())


if __name__ == "__main__":
    main()

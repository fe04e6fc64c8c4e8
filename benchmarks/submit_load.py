"""Submit through gRPC: `submit_load.py CONNECTIONS COUNT [run]`; prints submissions per second.

Jobs are held unless `run` is given.
"""

import asyncio
import os
import sys
import time
import tomllib
import uuid

import grpc.aio

from spur_auth.mint import mint_user
from spur_core.config import load_config, resolve_jwt_key
from spur_proto import common_pb2, controller_pb2, controller_pb2_grpc


def address() -> str:
    with open(os.environ["SPUR_CONF"], "rb") as file:
        listen = tomllib.load(file)["controller"]["listen_addr"]
    return "127.0.0.1:" + str(listen).rpartition(":")[2]


def spec(held: bool) -> common_pb2.JobSpec:
    return common_pb2.JobSpec(
        name="load",
        script=b"#!/bin/sh\nexit 0\n",
        environment=[b"PATH=/usr/bin:/bin"],
        work_dir="/tmp",
        stdout_path="/dev/null",
        hold=held,
        num_tasks=1,
    )


async def client(token: str, count: int, held: bool) -> None:
    async with grpc.aio.insecure_channel(address()) as channel:
        stub = controller_pb2_grpc.SlurmControllerStub(channel)
        metadata = (("authorization", f"Bearer {token}"),)

        async def one() -> None:
            request = controller_pb2.SubmitJobRequest(spec=spec(held), request_id=uuid.uuid4().hex)
            await stub.SubmitJob(request, metadata=metadata)

        for at in range(0, count, 16):
            await asyncio.gather(*(one() for _ in range(min(16, count - at))))


async def main() -> None:
    connections, count = int(sys.argv[1]), int(sys.argv[2])
    held = "run" not in sys.argv[3:]
    key = resolve_jwt_key(load_config(os.environ["SPUR_CONF"]))
    assert key is not None
    token = mint_user(
        key, "root" if os.geteuid() == 0 else os.environ["USER"], os.geteuid(), 3600, time.time()
    )
    begin = time.perf_counter()
    await asyncio.gather(*(client(token, count // connections, held) for _ in range(connections)))
    print(count / (time.perf_counter() - begin))


if __name__ == "__main__":
    asyncio.run(main())

"""What a dead supervisor has left in its spools reaches its client, and not all of it at once."""

import os
import tracemalloc
from contextlib import aclosing

from spur_agent.streams import spooled
from spur_proto import agent_pb2 as pb
from spur_proto_lite.framing import DATA_ERR, DATA_OUT
from spur_proto_lite.spool import Segment, segment_name

MIB = 1 << 20


def write(folder, stream, rank, start, data):
    (folder / segment_name(Segment(stream, rank, start))).write_bytes(data)


async def collect(folder, reached):
    found = {}
    async with aclosing(spooled(str(folder), reached)) as chunks:
        async for chunk in chunks:
            at, data = found.setdefault((chunk.rank, chunk.stream), (chunk.offset, bytearray()))
            assert chunk.offset == at + len(data)
            data += chunk.data
    return {key: (at, bytes(data)) for key, (at, data) in found.items()}


async def test_everything_beyond_what_was_sent(tmp_path):
    first, second = os.urandom(MIB), os.urandom(MIB + 5)
    write(tmp_path, DATA_OUT, 0, 0, first)
    write(tmp_path, DATA_OUT, 0, MIB, second)
    write(tmp_path, DATA_OUT, 3, 4 * MIB, b"what came before was delivered")
    write(tmp_path, DATA_ERR, 0, 0, b"all of it was sent")
    found = await collect(tmp_path, {(0, DATA_OUT): MIB - 7, (0, DATA_ERR): 18})
    assert found == {
        (0, pb.OUTPUT_STREAM_STDOUT): (MIB - 7, first[-7:] + second),
        (3, pb.OUTPUT_STREAM_STDOUT): (4 * MIB, b"what came before was delivered"),
    }


async def test_long_spools_are_not_loaded_whole(tmp_path):
    for at in range(4):
        write(tmp_path, DATA_OUT, 0, at * 4 * MIB, bytes(4 * MIB))
    total = 0
    tracemalloc.start()
    try:
        async with aclosing(spooled(str(tmp_path), {})) as chunks:
            async for chunk in chunks:
                total += len(chunk.data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == 16 * MIB
    assert peak < 2 * MIB

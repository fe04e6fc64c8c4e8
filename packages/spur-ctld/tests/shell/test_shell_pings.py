"""What agents and watchers ask a controller that has come to a stand, all at once when it goes on."""

import asyncio

from spur_core.config.address import split_address

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1
MANY = 20


def frame(kind: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + bytes(4) + payload


async def test_pings_that_gathered_meanwhile_do_not_cost_the_connection(cluster):
    """If it were closed for them, its calls would go along, and its client would ask less often from then."""
    host, port = split_address(cluster.controller.address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(PREFACE + frame(SETTINGS) + frame(SETTINGS, flags=ACK))
    async with asyncio.timeout(20):
        # Those after the first show whether the first had consequences.
        for wave in (MANY, 1, 1):
            writer.write(b"".join(frame(PING, bytes(8)) for _ in range(wave)))
            await writer.drain()
            left = wave
            while left:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                assert head[3] != GOAWAY, payload
                left -= head[3] == PING and head[4] == ACK
    writer.close()
    await writer.wait_closed()

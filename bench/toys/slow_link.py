"""`python slow_link.py PORT RTT_MS MBIT_S LOSS_PERCENT`: a line to PORT of this machine, in user space.

Prints its own port. Each direction has half of the round trip as delay, its own bandwidth (all connections share it)
and a buffer of 50 ms before it, behind which senders wait. A new connection costs one round trip. A lost packet (1448
bytes) is delivered one round trip later, as TCP sends it again; where fewer than three packets follow it in what was
read at once (16 KiB at most), only TCP's timer finds out, 200 ms later. All that comes behind it waits for it. Not
modelled: slow start, and that TCP sends less after a loss; `tc netem` would do both, where a kernel has it.
"""

from __future__ import annotations

import asyncio
import random
import sys

PACKET_BYTES = 1448
BUFFER_S = 0.05
RETRANSMISSION_S = 0.2
READ_BYTES = 16 * 1024


class Line:
    """One direction of the line. `chance` decides what is lost."""

    def __init__(self, delay_s: float, bytes_s: float, loss: float, chance: random.Random) -> None:
        self.delay_s, self.bytes_s, self.loss, self.chance = delay_s, bytes_s, loss, chance
        self.free_at = 0.0

    def late_s(self, size: int) -> float:
        """How much later `size` bytes are there because of what was lost of them."""
        packets = -(-size // PACKET_BYTES)
        lost = [number for number in range(packets) if self.chance.random() < self.loss]
        if not lost:
            return 0.0
        return 2 * self.delay_s if packets - lost[-1] > 3 else RETRANSMISSION_S

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """All that comes from `reader` to `writer`, in order, as late as the line makes it."""
        clock = asyncio.get_running_loop().time
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(deliver(under_way, writer))
        there_at = 0.0
        try:
            while data := await reader.read(READ_BYTES):
                self.free_at = max(self.free_at, clock()) + len(data) / self.bytes_s
                there_at = max(there_at, self.free_at + self.delay_s + self.late_s(len(data)))
                under_way.put_nowait((there_at, data))
                await asyncio.sleep(max(0.0, self.free_at - clock() - BUFFER_S))
        except ConnectionError:
            pass
        under_way.put_nowait((there_at, b""))
        await delivering


async def deliver(under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    """Write each part when it is there; b"" is the end."""
    clock = asyncio.get_running_loop().time
    try:
        while True:
            there_at, data = await under_way.get()
            await asyncio.sleep(max(0.0, there_at - clock()))
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return


async def serve(port: int, rtt_s: float, bytes_s: float, loss: float) -> None:
    chance = random.Random(1)
    there, back = (Line(rtt_s / 2, bytes_s, loss, chance) for _ in range(2))

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(rtt_s)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(there.carry(reader, far_writer), back.carry(far_reader, writer))
        for each in (writer, far_writer):
            each.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    far_port, rtt_ms, mbit_s, loss_percent = map(float, sys.argv[1:])
    asyncio.run(serve(int(far_port), rtt_ms / 1000, mbit_s * 1e6 / 8, loss_percent / 100))

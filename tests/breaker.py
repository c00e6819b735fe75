#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands between daemons and their scheduler, and breaks all their connections when told to.

	breaker.py ADDRESS PORT_FILE [SECONDS]

Passes on what comes on a port of its own, which PORT_FILE names, to ADDRESS and back, that
much later: a scheduler far away.  On SIGUSR1 all connections are reset, with what is on its
way lost, and a line says how many.
"""
import asyncio
import os
import signal
import socket
import struct
import sys

ends = set()			# of every connection, both
later = float(sys.argv[3]) if len(sys.argv) > 3 else 0


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            await asyncio.sleep(later)
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


async def serve(reader, writer, address):
    pair = {writer}
    ends.update(pair)
    try:
        there = await asyncio.open_connection(*address)
        pair.add(there[1])
        ends.update(pair)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
    except OSError:
        writer.close()		# nobody there
    ends.difference_update(pair)


def reset():
    live = [end for end in ends if not end.transport.is_closing()]
    for end in live:
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                                struct.pack("ii", 1, 0))
        end.transport.abort()
    print("reset", len(live), flush=True)


async def main():
    host, port = sys.argv[1].rsplit(":", 1)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, reset)
    server = await asyncio.start_server(lambda r, w: serve(r, w, (host, int(port))), "127.0.0.1")
    with open(sys.argv[2] + ".new", "w", encoding="utf-8") as f:
        print(server.sockets[0].getsockname()[1], file=f)
    os.rename(sys.argv[2] + ".new", sys.argv[2])
    await server.serve_forever()


asyncio.run(main())

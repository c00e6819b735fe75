#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Between agents and a server: loses, doubles, holds back and forges frames of their links.

	trouble_proxy.py NETNS ADDRESS PORT SEED FILE

Listens there and connects to the same address in the network namespace NETNS; frames pass as they
are until FILE is there, and from when it is gone again; those that are the links' own (HELLO,
WELCOME, PING, PONG, SLAB, QP) always.  While FILE.hole is there all are lost that have a payload.
SIGTERM ends it; then it says what it did: "lost N doubled N late N forged N of N".
"""
import asyncio
import collections
import ctypes
import os
import random
import signal
import struct
import sys

HEADER, PUSH, RESULT, REFUSED, SEEK, GIVE = 64, 3, 4, 11, 16, 17
OURS = {*range(PUSH, REFUSED + 1), SEEK, GIVE}  # what a lost frame may be
WITH_DATA = (PUSH, RESULT, GIVE)
BYREF, NODATA = 1, 2
LOSE_EVERY = 250        # one of so many frames, the others by chance
CLONE_NEWNET = 0x40000000
did = collections.Counter()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 & -(crc & 1)
    return crc ^ 0xFFFFFFFF


def forged(rng, frame):
    """The same of another job, tensor, chunk, worker or place, or a round or an epoch that cannot
    be."""
    at, kind, value = rng.choice((
        (12, "<I", 77), (16, "<I", 1 << 20), (20, "<I", 1 << 20), (10, "<H", 99),
        (24, "<I", 0xFFFFFFF0), (28, "<I", 0), (32, "<I", 0x1000)))
    frame = bytearray(frame)
    struct.pack_into(kind, frame, at, value)
    struct.pack_into("<I", frame, 60, crc32c(frame[:60]))
    return bytes(frame)


async def carry(reader, writer, rng, file):
    """One way of one connection, frame by frame."""
    loop = asyncio.get_running_loop()
    try:
        while True:
            frame = await reader.readexactly(HEADER)
            kind, flags, length = frame[5], frame[8], struct.unpack_from("<I", frame, 36)[0]
            if kind in WITH_DATA and not flags & (BYREF | NODATA):
                frame += await reader.readexactly(length)
            if len(frame) > HEADER and os.path.exists(file + ".hole"):
                continue
            out = [frame]
            if kind in OURS and os.path.exists(file):
                did["all"] += 1
                what = rng.random()
                if did["all"] % LOSE_EVERY == 50:
                    did["lost"] += 1
                    out = []
                elif what < 0.05:
                    did["doubled"] += 1
                    out = [frame, frame]
                elif what < 0.07:
                    did["late"] += 1
                    loop.call_later(rng.uniform(0.001, 0.05), writer.write, frame)
                    out = []
                elif what < 0.12:
                    did["forged"] += 1
                    out = rng.sample([frame, forged(rng, frame)], 2)
            writer.write(b"".join(out))
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


async def main():
    netns, address, port, seed, file = sys.argv[1:]
    rng, running = random.Random(int(seed)), set()

    async def accept(reader, writer):
        try:
            there = await asyncio.open_connection(address, int(port), limit=1 << 22)
        except OSError:
            writer.close()
            return
        for r, w in ((reader, there[1]), (there[0], writer)):
            running.add(asyncio.create_task(carry(r, w, random.Random(rng.random()), file)))

    server = await asyncio.start_server(accept, address, int(port), limit=1 << 22)
    fd = os.open(netns, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET):
        raise SystemExit("cannot enter the other namespace")
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    print("between", address, port, flush=True)
    await over.wait()
    server.close()
    print("lost", did["lost"], "doubled", did["doubled"], "late", did["late"], "forged",
          did["forged"], "of", did["all"], flush=True)
    os._exit(0)


asyncio.run(main())

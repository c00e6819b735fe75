#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that attacks its agent through what they share.

	trouble_hostile.py ATTACK

	random		random bytes over the whole ring page set, again and again
	index		a tail that is more than a ring ahead
	slab | range | length | tensor | round | rop
			a descriptor with that field out of its bounds
	memory		truncates, grows and punches its memory under the agent
	unheard		goes on and on, and takes in no result; its peer is trouble_rank.py

The layout is docs/PROTOCOL.md section 5's.  Says "struck" when it is done, then
waits to be told that its job is over and prints what it was told.
"""
import ctypes
import os
import random
import re
import socket
import struct
import sys
import time

import numpy as np

import tally

TAIL, DONE_TAIL, SUB_WORDS, SUB_BYTES, ENTRIES = 0, 192, 8192, 64, 4096
COUNT = 1000 if sys.argv[1] == "unheard" else 100000	# it fills the ring: thousands of rounds
RESULT_BYTES = (4 * COUNT + 4095) // 4096 * 4096


def mappings(name, how="rw"):
    """(start, end) of what is mapped of a memfd with that name, writable."""
    with open("/proc/self/maps") as f:
        for line in f:
            m = re.match(rf"(\w+)-(\w+) {how}-s .*/memfd:{name}", line)
            if m:
                yield int(m[1], 16), int(m[2], 16)


def bells():
    """Our socket pairs: sockets whose other end has no path."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            s = socket.socket(fileno=os.dup(int(entry)))
            if s.family == socket.AF_UNIX and not s.getpeername():
                yield s
        except OSError:
            continue


class Ring:
    def __init__(self):
        ((start, end),) = mappings("tally-ring")
        self.memory = (ctypes.c_uint8 * (end - start)).from_address(start)
        self.bells = list(bells())

    def ring(self):
        for bell in self.bells:
            try:
                bell.send(b"x", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError:
                pass

    def tail(self, add):
        tail = struct.unpack_from("<I", self.memory, TAIL)[0]
        struct.pack_into("<I", self.memory, TAIL, (tail + add) & 0xFFFFFFFF)
        return tail

    def post(self, offset=0, length=4 * COUNT, at=0, tensor=1, number=1, slab=0, root=0, rop=1):
        tail = struct.unpack_from("<I", self.memory, TAIL)[0]
        struct.pack_into("<QQQIIIIB3xi", self.memory, SUB_WORDS + tail % ENTRIES * SUB_BYTES,
                         offset, length, at, tensor, number, slab, root, rop, 0)
        self.tail(1)
        self.ring()

    def completions(self):
        return struct.unpack_from("<I", self.memory, DONE_TAIL)[0]

    def scribble(self):
        data = random.randbytes(len(self.memory))
        ctypes.memmove(self.memory, data, len(data))
        self.ring()


def attack_memory(ring):
    """All of it must be refused or harmless; then the agent is to read the memory.  Results are
    the machine's, and open to be read; but we are root, so only their size is attacked."""
    for name, how in (("tally-arena", "rw"), ("tally-ring", "rw"), ("tally-result", "r-")):
        found = list(mappings(name, how))
        if not found:
            print("WRONG: no memory called", name, flush=True)
        for start, end in found:
            fd = os.open(f"/proc/self/map_files/{start:x}-{end:x}", os.O_RDWR)
            for size in (0, 2 * (end - start)):
                try:
                    os.ftruncate(fd, size)
                    print("WRONG: resized", name, flush=True)
                except OSError:
                    pass
            if how == "rw":
                punch = ctypes.CDLL(None, use_errno=True).fallocate
                punch(fd, 3, ctypes.c_long(0), ctypes.c_long(end - start))
            os.close(fd)
    ring.post()


def attack_unheard(ring):
    """The completion that finds no room is seen by its result, all of it: until then our input
    is being read.  No result before was the same."""
    def give(number):
        ring.array[:] = (1 + number) % 50
        ring.post(number=number)

    start, last = ring.completions(), ENTRIES + 1
    for number in range(1, last):
        give(number)
        while ring.completions() - start < number:
            os.sched_yield()
    give(last)
    ((at, _),) = mappings("tally-result", "r-")
    results = [np.ctypeslib.as_array((ctypes.c_float * COUNT).from_address(at + i * RESULT_BYTES))
               for i in range(2)]
    while not any((r == last % 50 + (1 + last) % 50).all() for r in results):
        os.sched_yield()
    give(last + 1)


ATTACKS = {
    "index": lambda r: (r.tail(ENTRIES + 1), r.ring()),
    "slab": lambda r: r.post(slab=7),
    "range": lambda r: r.post(offset=1 << 62),
    "length": lambda r: r.post(length=1 << 63),
    "tensor": lambda r: r.post(tensor=0xFFFFFFFF),
    "round": lambda r: r.post(number=77),
    "rop": lambda r: r.post(rop=200),
    "memory": attack_memory,
    "unheard": attack_unheard,
}


def told(session):
    """What the agent says of it, if the status page can still be believed."""
    while True:
        try:
            session.barrier(1)
        except tally.TallyTimeout:
            continue
        except tally.TallyError as e:
            return f"{e.name} {e.text}"


def main():
    what = sys.argv[1]
    session = tally.Session(timeout=10)
    tensor = session.declare("w", (COUNT,))
    array = session.empty((COUNT,))
    array[:] = 1
    ring = Ring()
    ring.array = array
    if what == "random":
        end = time.monotonic() + 1
        while time.monotonic() < end:
            ring.scribble()
    else:
        ATTACKS[what](ring)
    print("struck", what, flush=True)
    if what == "memory":
        time.sleep(60)          # it did not break the rules: the story ends it
    if what != "random":
        print("told", told(session), flush=True)
    os._exit(0)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that attacks its agent through what they share.

	trouble_hostile.py ATTACK

	random		random bytes over the whole ring page set, again and again
	index		a tail that is more than a ring ahead
	slab | range | length | tensor | round | rop
			a descriptor with that field out of its bounds
	memory		truncates, grows and punches its memory under the agent
	flood		rounds of a tensor without elements, faster than the agent can take them
	huge		gives huge pages back before they are sealed, and takes them elsewhere
	unheard		goes on and on, and takes in no result; its peer is trouble_rank.py
	deaf		asks its agent for memory without end, and reads no answer
	strangers	many that do not attach: they ask without end, and read no answer
	cli		the same of a scheduler, by one that says that it is a CLI
	restless	attaches to job after job, and goes before its answer
	eager		asks a scheduler and an agent without end, and reads what they answer
	hog		attaches to 300 jobs that nobody else comes to, and says what it is told
	mute		a server that says that it lives, and reads nothing of what it is told
	newer		says to both that it speaks version 9, and what they answer

The layout is docs/PROTOCOL.md section 5's.  Says "struck" when it is done, then
waits to be told that its job is over and prints what it was told.
"""
import ctypes
import fcntl
import mmap
import os
import random
import re
import select
import socket
import struct
import sys
import time

import numpy as np

import tally
from inputs import Inputs
from wire import (ATTACH, DETACH, HEARTBEAT, HELLO, QUERY, REPLY, SLAB, SLAB_MAPPED, SLAB_WANT,
                  WELCOME, fields, message, parse, reply)

TAIL, SUB_SLEEPS, DONE_TAIL, DONE_HEAD = 0, 128, 192, 256
SUB_WORDS, SUB_BYTES, ENTRIES = 8192, 64, 4096
PAGE_HUGE = 2 << 20
F_GET_SEALS, SEALS = 1034, 0x7    # SEAL, SHRINK, GROW
PUNCH_KEEP = 3      # fallocate(): FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
INPUT, AGENT, SERVER, CLI = 1, 1, 2, 3
STRANGERS, FLOOD_BYTES = 16, 1 << 20    # each
COUNT = 1000 if sys.argv[1] in ("unheard", "flood") else 100000  # 1000: it fills the ring
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
        self.words = np.frombuffer(self.memory, "<u4")  # each is written at once, not by bytes
        self.bells = list(bells())

    def ring(self):
        for bell in self.bells:
            try:
                bell.send(b"x", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError:
                pass

    def tail(self, add):
        self.words[TAIL // 4] = (int(self.words[TAIL // 4]) + add) & 0xFFFFFFFF

    def post(self, offset=0, length=4 * COUNT, at=0, tensor=1, number=1, slab=0, root=0, rop=1):
        tail = int(self.words[TAIL // 4])
        struct.pack_into("<QQQIIIIB3xi", self.memory, SUB_WORDS + tail % ENTRIES * SUB_BYTES,
                         offset, length, at, tensor, number, slab, root, rop, 0)
        self.tail(1)
        self.ring()

    def completions(self):
        return int(self.words[DONE_TAIL // 4])

    def scribble(self):
        data = random.randbytes(len(self.memory))
        ctypes.memmove(self.memory, data, len(data))
        self.ring()


def punch(fd, size):
    ctypes.CDLL(None).fallocate(fd, PUNCH_KEEP, ctypes.c_long(0), ctypes.c_long(size))


def check_descriptors():
    """What we were given cannot be shown to another who writes there, or to us."""
    seen = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            name, fd = os.readlink(f"/proc/self/fd/{entry}"), int(entry)
        except OSError:
            continue
        if name.startswith("/memfd:tally-arena"):
            seen.add("arena")
            if fcntl.fcntl(fd, F_GET_SEALS) & SEALS != SEALS:
                print("WRONG: an arena that is not sealed", flush=True)
        elif name.startswith("/memfd:tally-result"):
            seen.add("results")
            if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                print("WRONG: results that can be written", flush=True)
    if seen != {"arena", "results"}:
        print("WRONG: descriptors of", seen, flush=True)


def attack_memory(ring):
    """All of it must be refused or harmless; then the agent is to read the memory.  Results are
    the machine's, and open to be read; but we are root, so only their size is attacked."""
    check_descriptors()
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
                punch(fd, end - start)
            os.close(fd)
    ring.post()


def attack_flood(ring):
    """So many at once that the ring is never empty; results are taken in as they come."""
    sub = np.dtype({"names": ["tensor", "round", "rop"], "formats": ["<u4", "<u4", "u1"],
                    "offsets": [24, 28, 40], "itemsize": SUB_BYTES})
    subs = np.frombuffer(ring.memory, sub, ENTRIES, SUB_WORDS)
    subs[:] = (2, 0, 1)
    rounds, batch, posted, done = subs["round"], ENTRIES // 4, 0, ring.completions()
    rounds[:] = np.arange(1 - ENTRIES, 1).astype("<u4")
    print("flooding", flush=True)
    while True:
        taken = ring.completions()
        ring.words[DONE_HEAD // 4] = taken
        if posted - (taken - done) > ENTRIES // 2:
            continue
        at = posted % ENTRIES
        rounds[at:at + batch] += ENTRIES
        posted += batch
        ring.words[TAIL // 4] = posted
        if ring.words[SUB_SLEEPS // 4]:
            ring.ring()


def ask(agent, kind, want, *values):
    """One of our own over the library's connection; it does not listen just now."""
    agent.sendall(message(kind, *values))
    head, fds, _, _ = socket.recv_fds(agent, 8, 4)
    length, got, _ = struct.unpack("<IHH", head)
    body = agent.recv(length, socket.MSG_WAITALL)
    if got != want:
        print("WRONG: answer", got, flush=True)
    return parse(body), fds


def connection():
    for entry in os.listdir("/proc/self/fd"):
        try:
            s = socket.socket(fileno=os.dup(int(entry)))
            if s.family == socket.AF_UNIX and s.getpeername() == os.environ["TALLY_SOCKET"]:
                s.setblocking(True)
                return s
        except OSError:
            continue
    raise SystemExit("no connection to the agent")


def steal():
    """All huge pages that are left."""
    taken = []
    while True:
        try:
            fd = os.memfd_create("thief", os.MFD_HUGETLB)
            os.ftruncate(fd, PAGE_HUGE)
            taken.append(mmap.mmap(fd, PAGE_HUGE))
            taken[-1][0] = 1
        except OSError:
            return taken


def attack_huge(ring):
    agent, size = connection(), 8 << 20
    slab, (fd,) = ask(agent, SLAB_WANT, SLAB, (1, 1 << 40), (3, INPUT), (4, size))
    ours = mmap.mmap(fd, size)
    if os.fstatvfs(fd).f_bsize != PAGE_HUGE:
        print("WRONG: small pages", flush=True)
    ours[::PAGE_HUGE] = b"\1" * (size // PAGE_HUGE)     # none is ours before it is touched
    punch(fd, size)
    ring.stolen = ours, steal()
    answer, _ = ask(agent, SLAB_MAPPED, REPLY, (1, 1 << 40 | 1), (2, slab.get(2, 0)), (3, INPUT),
                    (4, size))
    print("refused" if answer.get(2) else "WRONG: accepted", flush=True)
    ring.post(slab=slab.get(2, 0))


def attack_unheard(ring):
    """The completion that finds no room is seen by its result, all of it: until then our input
    is being read.  No result before was the same."""
    inputs = Inputs()

    def give(number):
        inputs.fill(ring.array, 1, number)
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
    while all(len(inputs.wrong(r, (0, 1), "aa", last)) for r in results):
        os.sched_yield()
    give(last + 1)


class Flood:
    """One message again and again, as far as the agent takes it."""

    def __init__(self, agent, one, size=FLOOD_BYTES):
        agent.setblocking(False)
        self.agent, self.left, self.over = agent, memoryview(one * (size // len(one))), False

    def go_on(self):
        try:
            self.left = self.left[self.agent.send(self.left, socket.MSG_NOSIGNAL):]
        except BlockingIOError:
            pass
        except OSError:
            self.over = True
        return not self.over and self.left


def flood(floods):
    """Until all are cut, or could say all that they have."""
    while any([f.go_on() for f in floods]):
        time.sleep(0.01)
    print("cut" if all(f.over for f in floods) else "WRONG: not cut", flush=True)


def strangers():
    old = message(ATTACH, (1, 77), (2, 9), (3, b"x"), (4, 1)) + message(DETACH, (1, 78))
    floods = []
    for one in [old, message(DETACH, (1, 78))] * (STRANGERS // 2):
        floods.append(Flood(to_agent(), one))
    flood(floods)
    time.sleep(60)          # what the agent has for us it would keep: the story ends it


def restless():
    for i in range(250):    # of 100 lines in some 10 s one is the last that is written
        name = f"restless{i}".encode()
        s = to_agent()
        s.sendall(message(ATTACH, (1, 1), (2, 1), (3, name), (4, 2)))
        s.close()
    raise SystemExit("struck restless")


def to_agent():
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ["TALLY_SOCKET"])
    return s


def to_scheduler(rcvbuf=0):
    host, port = os.environ["TALLY_SCHEDULER"].rsplit(":", 1)
    s = socket.socket()
    if rcvbuf:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    s.connect((host, int(port)))
    return s


def cli():
    s = to_scheduler()
    s.sendall(message(HELLO, (1, 1), (2, 1), (3, CLI), (4, b"x"), (5, b"x")))
    one = message(QUERY, (1, 1), (2, 7), (3, 127 * b"x"))
    flood([Flood(s, one, 16 * FLOOD_BYTES)])        # TCP itself takes 10
    time.sleep(60)


def eager():
    """Says so when each has answered for 1 s.  An agent ends who has not said who it is in 5 s."""
    end = time.monotonic() + 1
    ways = {to_scheduler: message(QUERY, (1, 1), (2, 7)), to_agent: message(DETACH, (1, 78))}
    open_ones, heard = {way(): way for way in ways}, dict.fromkeys(ways, 0)
    while True:
        can_read, can_write, _ = select.select(open_ones, open_ones, [], 10)
        for s in {*can_read, *can_write}:
            way = open_ones[s]
            try:
                if s in can_write:
                    s.send(ways[way] * 100, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                got = len(s.recv(1 << 20)) if s in can_read else None
            except BlockingIOError:
                continue
            except OSError:
                got = 0
            heard[way] += got or 0
            if got == 0:
                del open_ones[s]
                s.close()
                open_ones[way()] = way
        if end and time.monotonic() > end and all(heard.values()):
            print("eager, heard", *heard.values(), flush=True)
            end = None


keep = []


def hear(s):
    """Code and text of the answer."""
    length, _, _ = struct.unpack("<IHH", s.recv(8, socket.MSG_WAITALL))
    return reply(s.recv(length, socket.MSG_WAITALL))


def hog():
    held = [to_agent() for _ in range(300)]
    for i, s in enumerate(held):
        s.sendall(message(ATTACH, (1, 1), (2, 1), (3, b"hog%d" % i), (4, 2), (6, 60000)))
    while told := select.select(held, [], [], 60)[0]:
        for s in told:
            print("told", *hear(s), flush=True)
            held.remove(s)      # and stays open
            keep.append(s)
    time.sleep(60)


def mute():
    """Until the scheduler cuts it off."""
    s = to_scheduler(rcvbuf=4096)
    addr = fields((1, b"127.0.0.1"), (2, 1))
    s.sendall(message(HELLO, (1, 1), (2, 1), (3, SERVER), (4, b"mute"), (5, b"mute"),
                      (6, os.urandom(16)), (8, addr), (10, 1), (12, 1 << 40)))
    length, kind, _ = struct.unpack("<IHH", s.recv(8, socket.MSG_WAITALL))
    print("registered" if kind == WELCOME else "WRONG: no welcome", flush=True)
    s.recv(length, socket.MSG_WAITALL)
    try:
        for seq in range(1, 600):
            s.sendall(message(HEARTBEAT, (1, seq)))
            time.sleep(0.1)
    except OSError as e:
        raise SystemExit(f"cut: {e.strerror}") from e


def newer():
    for s, what in ((to_scheduler(), message(HELLO, (1, 9), (2, 10), (3, AGENT), (4, b"new"),
                                             (5, b"machine"), (10, 1))),
                    (to_agent(), message(ATTACH, (1, 77), (2, 9), (3, b"new"), (4, 1)))):
        s.sendall(what)
        print("told", *hear(s), flush=True)
    raise SystemExit("struck newer")


ATTACKS = {
    "deaf": lambda r: flood([Flood(connection(), message(SLAB_WANT, (1, 1 << 40), (3, INPUT)))]),
    "index": lambda r: (r.tail(ENTRIES + 1), r.ring()),
    "slab": lambda r: r.post(slab=7),
    "range": lambda r: r.post(offset=1 << 62),
    "length": lambda r: r.post(length=1 << 63),
    "tensor": lambda r: r.post(tensor=0xFFFFFFFF),
    "round": lambda r: r.post(number=77),
    "rop": lambda r: r.post(rop=200),
    "memory": attack_memory,
    "flood": attack_flood,
    "huge": attack_huge,
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
    if what in ("strangers", "restless", "cli", "eager", "hog", "mute", "newer"):
        globals()[what]()
    session = tally.Session(timeout=10)
    tensor = session.declare("w", (COUNT,))
    array = session.empty((COUNT,))
    array[:] = 1
    if what == "flood":
        session.declare("z", (0,))
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

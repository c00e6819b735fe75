#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that lies to an agent which was started again, when it hands its memory back.

	trouble_back.py refused OTHER	says all that has to be refused at once, one connection
			each, with OTHER as the number of somebody else's job; then it comes back
			as it should, and one more round is right
	trouble_back.py LIE		one of JOB_LIES: taken, for all that it can be known
					then; its job ends of it, or goes on
	trouble_back.py thief JOB RANK	another user's process; in nobody's job
	trouble_back.py endless		100 processes hand results back, and do not say whose

It attaches, trains three rounds, says "ready", and waits for the file TROUBLE_AGAIN: its
agent is another one.  Messages are docs/PROTOCOL.md section 3's.  A line for each answer;
"struck" at the end, and then it waits to be killed.  Exit status 1: something was not refused.
"""
import array
import mmap
import os
import re
import socket
import struct
import sys
import time

import numpy as np

import tally
from inputs import Inputs, machines
from wire import ATTACH, ATTACHED, BARRIER, DECLARED, REPLY, SLAB, fields, message, reply

INPUT, RESULT, RING, OLD = 1, 2, 3, 5
COUNT, ROUNDS = 300000, 3     # several segments
PAGE = 4096
SEALS, GET_SEALS, SHRINK, GROW = 1033, 1034, 2, 4
NOT_IN_TIME = 12        # s: HANDSHAKE_MS, a tick, and a busy machine


# ---- messages ----

def slab(kind, number, nbytes):
    return message(SLAB, (2, number), (3, kind), (4, nbytes))


def row(tensor, at, even, odd, number, flies=0, was=0):
    return fields((1, tensor), (2, at), (3, even), (4, odd), (5, number), (6, flies), (7, was))


def declared(*rows):
    return message(DECLARED, *((4, r) for r in rows))


def attach(job, rank, world, back, barriers=0, name=None):
    return message(ATTACH, (1, 77), (2, 1), (3, (name or job).encode()), (4, world), (5, rank),
                   (6, 30000), (9, back), (10, barriers))


class Peer:
    """A connection to the agent."""

    def __init__(self, until=10):
        end = time.monotonic() + until
        while True:
            self.s = socket.socket(socket.AF_UNIX)
            try:
                self.s.connect(os.environ["TALLY_SOCKET"])
                return
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def say(self, data, fds=()):
        try:
            if fds:
                sent = self.s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                                array.array("i", fds))])
                data = data[sent:]
            self.s.sendall(data)
        except OSError:
            pass                # refused before all was said

    def exactly(self, n):
        data = b""
        while len(data) < n:
            more = self.s.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def hear(self, seconds=10):
        """The next message that matters: (type, code, text); None: the end, "" nothing."""
        self.s.settimeout(seconds)
        try:
            while True:
                n, kind, _ = struct.unpack("<IHH", self.exactly(8))
                body = self.exactly(n)
                if kind in (REPLY, ATTACHED):
                    return kind, *(reply(body) if kind == REPLY else (0, ""))
        except socket.timeout:
            return ""
        except (EOFError, OSError):
            return None


# ---- what it has ----

def memfds(name):
    """(descriptor, name) of each memfd of that name, in the order in which they came."""
    for fd in sorted(int(f) for f in os.listdir("/proc/self/fd")):
        try:
            link = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        m = re.match(r"/memfd:(" + name + r".*) \(deleted\)", link)
        if m:
            yield fd, m[1]


def size(fd):
    return os.fstat(fd).st_size


def own(name, nbytes, seals=SHRINK | GROW):
    import fcntl
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, SEALS, seals)
    return fd


class Rank:
    def __init__(self):
        self.job, self.rank = os.environ["TALLY_JOB"], int(os.environ["TALLY_RANK"])
        self.world = int(os.environ["TALLY_WORLD_SIZE"])
        self.session = tally.Session(timeout=100)  # twenty jobs begin at once
        self.tensor = self.session.declare("w", (COUNT,))
        self.array, self.inputs = self.session.empty((COUNT,)), Inputs()
        addresses = {}
        for r in range(ROUNDS):
            result = self.round(r + 1)
            addresses[(r + 1) % 2] = result.ctypes.data
            del result
        (self.ring, name), = memfds("tally-ring")
        self.number = int(re.match(r"tally-ring (\d+)\.", name)[1])
        self.arena = [fd for fd, _ in memfds("tally-arena")]
        self.results = [fd for fd, _ in memfds("tally-result")]
        with open("/proc/self/maps") as f:
            start = int(re.search(r"^(\w+)-.*memfd:tally-result", f.read(), re.M)[1], 16)
        self.even, self.odd = addresses[0] - start, addresses[1] - start

    def round(self, number):
        self.inputs.fill(self.array, self.rank, number)
        result = self.tensor.push_pull(self.array).wait(60)
        if len(self.inputs.wrong(result, range(self.world), machines(self.world), number)):
            print("WRONG round", number, flush=True)
            sys.exit(3)
        return result

    def row(self, **other):
        v = {"tensor": 1, "at": 0, "even": self.even, "odd": self.odd, "number": ROUNDS, **other}
        return row(**v)

    def hand(self, p, results=None, arena=None):
        p.say(slab(RING, 0, size(self.ring)), [self.ring])
        for i, fd in enumerate(self.arena if arena is None else arena):
            p.say(slab(INPUT, i, size(fd)), [fd])
        for i, fd in enumerate(self.results if results is None else results):
            p.say(slab(RESULT, i, size(fd)), [fd])

    def attach(self, p, **other):
        v = {"job": self.job, "rank": self.rank, "world": self.world, "back": self.number, **other}
        p.say(attach(**v))


# ---- what has to be refused at once ----

def with_fd(fd, number=0, kind=INPUT, nbytes=None):
    return lambda r, p: p.say(slab(kind, number, size(fd) if nbytes is None else nbytes), [fd])


def twice(kind, fd):
    def strike(r, p):
        p.say(slab(kind, 0, size(fd)), [fd])
        p.say(slab(kind, 0, size(fd)), [fd])
    return strike


def wrong(hand=None, **other):
    """All that an honest rank has, but for this."""
    def strike(r, p):
        r.hand(p, **({} if hand is None else hand))
        p.say(declared(r.row()))
        r.attach(p, **other)
    return strike


def rows(n):
    def strike(r, p):
        for at in range(0, n, 1024):
            p.say(declared(*(row(1 + at + i, 0, 0, 0, 0) for i in range(min(1024, n - at)))))
    return strike


def no_fd_first(r, p):
    """A descriptor for each byte; the message keeps the first, and its end is wrong."""
    for byte in slab(RING, 0, size(r.ring)):
        p.say(bytes([byte]), [r.ring] * 3)
    r.attach(p, rank=0)


def crowd(r, p):
    p.say(slab(RING, 0, size(r.ring)), [r.ring] * 250)
    p.say(declared(r.row()), [r.ring] * 250)
    p.say(attach(r.job, 0, r.world, r.number), [r.ring] * 250)


def refusals(r, other):
    pipe, pair = os.pipe(), socket.socketpair()
    plain = os.open("/proc/self/exe", os.O_RDONLY)
    # A name of its own; no seals; not all of them.
    mine, bare, half = own("mine", 1 << 20), own("tally-arena 1", PAGE, 0), own("x", PAGE, GROW)
    read_only = os.open(f"/proc/self/fd/{bare}", os.O_RDONLY)
    keep.extend((pipe, pair))
    yield "no descriptor", lambda r, p: p.say(slab(INPUT, 0, PAGE))
    for what, fd in (("a pipe", pipe[0]), ("a socket", pair[0].fileno()), ("a file", plain),
                     ("/dev/zero", os.open("/dev/zero", os.O_RDWR)),
                     ("a directory", os.open("/", os.O_RDONLY)),
                     ("no seals", bare), ("no seals, read only", read_only), ("half sealed", half)):
        for kind in (INPUT, RESULT, RING, OLD):
            yield f"{what} as {kind}", with_fd(fd, kind=kind, nbytes=PAGE)
    yield "too short", with_fd(mine, nbytes=2 << 20)
    yield "no bytes", with_fd(mine, nbytes=0)
    yield "as many bytes as can be", with_fd(mine, nbytes=1 << 40)
    yield "more bytes than can be", with_fd(mine, nbytes=(1 << 40) + 1)
    yield "a kind that is none", with_fd(mine, kind=4)
    yield "no kind", with_fd(mine, kind=0)
    yield "slab 64", with_fd(mine, number=64)
    yield "slab 65535", with_fd(mine, number=65535)
    yield "slab 2^32", with_fd(mine, number=1 << 32)
    yield "result slab 1 first", with_fd(mine, number=1, kind=RESULT)
    yield "an arena twice", twice(INPUT, r.arena[0])
    yield "a ring twice", twice(RING, r.ring)
    yield "results twice", lambda r, p: [p.say(slab(RESULT, i, size(r.results[0])),
                                               [r.results[0]]) for i in range(2)]
    yield "old results twice", lambda r, p: [p.say(slab(OLD, i, size(r.results[0])),
                                                   [r.results[0]]) for i in range(2)]
    yield "old result slab 1 first", with_fd(mine, number=1, kind=OLD)
    yield "tensor 0", lambda r, p: p.say(declared(row(0, 0, 0, 0, 0)))
    yield "more tensors than can be", rows(65537)
    yield "a message of a megabyte that is none", lambda r, p: p.say(
        struct.pack("<IHH", 1 << 20, DECLARED, 1) + b"\xff" * (1 << 20))
    yield "nothing, and back", lambda r, p: r.attach(p)
    yield "memory, and not back", wrong(back=0)
    yield "without the ring", lambda r, p: (p.say(slab(INPUT, 0, size(r.arena[0])), [r.arena[0]]),
                                            r.attach(p))
    yield "another job of mine", wrong(back=r.number + 1000)
    yield "somebody else's job", wrong(back=other)
    yield "somebody else's job and its name", wrong(back=other, job="calm", rank=0, world=2)
    yield "another rank", wrong(rank=0)
    yield "no such rank", wrong(rank=9999, world=10000)
    yield "my own memory for an arena", wrong({"arena": [mine]})
    yield "my own memory for results", wrong({"results": [mine]})
    yield "my arena for results", wrong({"results": r.arena})
    yield "my results for an arena", wrong({"arena": r.results})
    yield "a ring for results", wrong({"results": [r.ring]})
    yield "my own memory for old results", lambda r, p: (p.say(slab(OLD, 0, size(mine)), [mine]),
                                                         wrong()(r, p))
    yield "a descriptor with each byte", no_fd_first
    yield "hundreds of descriptors", crowd
    yield "a barrier first", lambda r, p: (r.hand(p), p.say(message(BARRIER, (5, 1))))


def silences(r):
    """Nothing more comes of these, and nobody waits for it for long."""
    whole = declared(r.row())
    yield "half a prefix", lambda p: p.say(whole[:5])
    yield "half a message", lambda p: p.say(whole[:-3])
    yield "all but ATTACH", lambda p: (r.hand(p), p.say(whole))
    yield "half of ATTACH", lambda p: (r.hand(p), p.say(whole),
                                       p.say(attach(r.job, r.rank, r.world, r.number)[:-2]))


def refused(r, other):
    bad, silent = [], []
    Peer(20).s.close()
    for what, strike in silences(r):
        p = Peer()
        strike(p)
        silent.append((what, p, time.monotonic() + NOT_IN_TIME))
    for what, strike in refusals(r, other):
        p = Peer()
        strike(r, p)
        heard = p.hear()
        after = p.hear() if heard and heard[0] == REPLY and heard[1] < 0 else heard
        print(what + ":", heard, flush=True)
        if after is not None or (heard and heard[0] == ATTACHED):
            bad.append(what)
        p.s.close()
    for what, p, end in silent:
        heard = p.hear(max(1, end - time.monotonic()))
        if heard:
            heard = p.hear()    # why; then the end
        print(what + ":", heard, flush=True)
        if heard is not None:
            bad.append(what)
    for what in bad:
        print("NOT REFUSED:", what, flush=True)
    r.round(ROUNDS + 1)
    print("came back", flush=True)
    return bool(bad)


# ---- what only its own job can show to be wrong ----

def lie(**other):
    def strike(r):
        p = Peer(20)
        r.hand(p)
        p.say(declared(r.row(**other)))
        r.attach(p)
        return [p]
    return strike


def two_rows(r):
    p = Peer(20)
    r.hand(p)
    p.say(declared(r.row(), r.row(tensor=2)))
    r.attach(p)
    return [p]


def good_and_bad(r):
    p = Peer(20)
    r.hand(p)
    p.say(declared(r.row(), r.row(tensor=2, even=8)))
    r.attach(p)
    return [p]


def forged(change, number=ROUNDS):
    """Results of our own making, which say what they like and change all the while."""
    def strike(r):
        n = size(r.results[0])
        fd = own("tally-result %d" % r.number, n)
        keep.append(fd)
        os.pwrite(fd, os.pread(r.results[0], n, 0), 0)
        change(r, fd)
        p = Peer(20)
        r.hand(p, results=[fd])
        p.say(declared(r.row(number=number)))
        r.attach(p)
        return [p]
    return strike


def waits(old, **other):
    """A GPU that waits for results somewhere, which is not there."""
    def strike(r):
        p = Peer(20)
        r.hand(p)
        if old:
            fd = own("tally-result %d" % r.number, old)
            p.say(slab(OLD, 0, old), [fd])
        p.say(declared(r.row(**other)))
        r.attach(p)
        return [p]
    return strike


def crowded(r):
    """One rank, many times, and each time its GPU waits somewhere else."""
    peers = []
    for _ in range(6):
        n = size(r.results[0])
        keep.append(own("tally-result %d" % r.number, n))
        p = Peer(20)
        r.hand(p)
        p.say(slab(OLD, 0, n), [keep[-1]])
        p.say(declared(r.row(flies=1, was=1)))
        r.attach(p)
        peers.append(p)
    return peers


def short(r):
    fd = own("tally-result %d" % r.number, PAGE)
    p = Peer(20)
    r.hand(p, results=[fd])
    p.say(declared(r.row()))
    r.attach(p)
    return [p]


def marks_of(r, number):
    """Where they lie in the slab, and how many bytes they have at most."""
    pages, result = size(r.results[0]) // PAGE, abs(r.odd - r.even) // PAGE
    table = (pages - (8 * pages + PAGE - 1) // PAGE) * PAGE
    return table + 8 * ((r.odd if number % 2 else r.even) // PAGE), 8 * result


def all_marks(value, number=ROUNDS):
    def change(r, fd):
        at, n = marks_of(r, number)
        os.pwrite(fd, struct.pack("<Q", value) * (n // 8), at)
    return change


def noise(r, fd):
    os.pwrite(fd, os.urandom(size(fd)), 0)


def restless(r, fd):
    """Another process writes marks that are right and wrong by turns, as fast as it can."""
    at, n = marks_of(r, ROUNDS)
    if os.fork():
        return
    memory = mmap.mmap(fd, size(fd))
    good, parent = memory[at:at + n], os.getppid()
    while os.getppid() == parent:
        for _ in range(1000):
            memory[at:at + n] = b"\xff" * n
            memory[at:at + n] = good
    os._exit(0)


def same_rank_twice(r):
    first, second = Peer(20), Peer(20)
    for p in (first, second):
        r.hand(p)
        p.say(declared(r.row()))
    r.attach(first)
    r.attach(second)
    return [first, second]


def two_stories(r):
    """Of one rank; they are told while another rank is awaited."""
    first, second = Peer(20), Peer(20)
    for p, even in ((first, r.even), (second, r.even + PAGE)):
        r.hand(p)
        p.say(declared(r.row(even=even)))
        r.attach(p)
    return [first, second]


def never_reads(r):
    p = Peer(20)
    r.hand(p)
    for _ in range(64):
        p.say(declared(*[r.row()] * 512))
    r.attach(p)
    return [p]


MARK = 3 << 40 | 1 << 32
JOB_LIES = {
    "offset": lie(even=1 << 39, odd=(1 << 39) + PAGE),
    "backwards": lie(even=1 << 20, odd=0),
    "unaligned": lie(even=8, odd=8 + PAGE),
    "smaller": lie(even=0, odd=PAGE),
    "larger": lie(even=0, odd=2 << 20),
    "slab": lie(at=9),
    "empty": lie(even=0, odd=0),
    "nowhere": waits(0, flies=1, was=1),
    "beyond": waits(PAGE, flies=1, was=1),
    "another": waits(PAGE, flies=1, was=2),
    "idle": waits(1 << 22, was=1),
    "overlap": two_rows,
    "second": good_and_bad,
    "future": lie(number=ROUNDS + 1000),
    "next": lie(number=ROUNDS + 1),
    "past": lie(number=ROUNDS - 2),
    "last": lie(number=0xFFFFFFFF),
    "noise": forged(noise),
    "short": short,
    "operation": forged(all_marks(MARK | 200 << 32 | ROUNDS)),
    "none": forged(all_marks(3 << 40 | ROUNDS)),
    "worlds": forged(lambda r, fd: os.pwrite(fd, struct.pack("<Q", 9 << 40 | 1 << 32 | ROUNDS),
                                             marks_of(r, ROUNDS)[0])),
    "faked": forged(all_marks(MARK | 1001, 1001), 1001),
    "restless": forged(restless),
    "twice": same_rank_twice,
    "stories": two_stories,
    "often": never_reads,
    "crowded": crowded,
}


def thief(job, rank):
    """Not of the agent's user: nothing that it makes is the agent's."""
    p = Peer()
    for i, name in ((RING, f"tally-ring {job}.{rank}"), (RESULT, f"tally-result {job}")):
        fd = own(name, 1 << 20)
        p.say(slab(i, 0, 1 << 20), [fd])
    p.say(attach("calm", rank, 2, job))
    heard = p.hear()
    print("thief:", heard, flush=True)
    return heard is not None and heard[1] >= 0


def endless():
    """Until those that were heard have had their 5 s."""
    slabs, peers = [own("tally-result 1", PAGE) for _ in range(10)], [Peer() for _ in range(100)]
    for p in peers:
        for i, fd in enumerate(slabs):
            p.say(slab(OLD, i, PAGE), [fd])
    end, later = time.monotonic() + 4, 0
    while not later and time.monotonic() < end:
        later = sum(p.hear(0.01) is None for p in peers)
    print(f"{len(peers) - later} heard, {later} are to come later", flush=True)
    end = time.monotonic() + NOT_IN_TIME
    silent = [p for p in peers if p.hear(max(0.01, end - time.monotonic())) == ""]
    print("WRONG:" if silent else "over:", len(silent), "are not cut", flush=True)


keep = []


def main():
    what = sys.argv[1]
    if what == "endless":
        sys.exit(endless())
    if what == "thief":
        sys.exit(thief(int(sys.argv[2]), int(sys.argv[3])))
    r = Rank()
    print("ready", r.number, flush=True)
    while not os.path.exists(os.environ["TROUBLE_AGAIN"]):
        time.sleep(0.01)
    if what == "refused":
        sys.exit(refused(r, int(sys.argv[2])))
    peers = JOB_LIES[what](r)
    print("said", flush=True)
    for p in peers:
        print("told", p.hear(20), flush=True)
        keep.append(p)
    print("struck", flush=True)
    time.sleep(60)


main()

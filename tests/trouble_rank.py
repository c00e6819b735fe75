#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of the trouble stories: does the steps it is given, in order.

	trouble_rank.py STEP...

	declare:NAME:COUNT[:DTYPE]	a tensor
	many:NAME:N			tensors of one element, at once; forget:NAME: no more
	rounds:NAME:N			sums, each checked, bit for bit (inputs.py)
	train:NAME:FILE			rounds until FILE is there, by all ranks' agreement; one
					begins TROUBLE_PACE seconds after the one before at the
					earliest
	alloc:MIB			arena memory
	device:NAME:RANK		from here on that rank's input lies in a dma-buf of vgem
	submit:NAME[:OP]		starts a round and does not wait
	again:NAME			submits what it has in flight, and is refused, which is said
	broadcast:NAME:ROOT		and waits for it
	wait:SECONDS[:NAME]		for what was submitted (of that tensor)
	test				looks once whether what was submitted is done
	late:SECONDS			as wait, and the deadline passes, which is said
	barrier:SECONDS
	grow:SECONDS			lets in who waits, and has come in then
	world:RANK,RANK..		sums are of these from here on
	from:NAME:N			the tensor had N rounds before this process came in
	fork:FILE			a child, which lives until FILE is there
	until:FILE			waits until FILE is there
	say:WORD			a line in the log
	pause				for ever

At the end a line says how long the longest round took to submit and to wait for.
The attach is the first step, with TROUBLE_TIMEOUT seconds for it and for every
declare (60).  A line is printed per step done; "ERROR name text" and exit status
1 where Tally says no; exit status 3 for a wrong sum.  TROUBLE_COUNT is a file
that shows how many rounds are done, TROUBLE_MACHINES one that says which rank is on
which machine, TROUBLE_ON_LOSS the job's on_loss.
"""
import os
import sys
import time

import numpy as np

import dma_buf
import tally
from inputs import Inputs, machines

# Seconds: what happens meanwhile has CPU time, too.
PACE = float(os.environ["TROUBLE_PACE"])

def say(*words):
    print(*words, flush=True)


class Rank:
    def __init__(self):
        self.session = tally.Session(timeout=float(os.environ.get("TROUBLE_TIMEOUT", "60")),
                                     on_loss=os.environ.get("TROUBLE_ON_LOSS", "error"))
        self.tensors, self.arrays, self.inputs = {}, {}, {}
        self.rounds, self.tickets = {}, []
        self.longest = 0
        self.where = machines(self.session.world_size)
        self.ranks = range(len(self.where))
        count = os.environ.get("TROUBLE_COUNT")
        self.count = os.open(count, os.O_WRONLY | os.O_CREAT, 0o644) if count else -1
        self.done = 0
        say("attached", self.session.rank, "of", self.session.world_size)

    def declare(self, name, count, dtype="float32"):
        shape = tuple(int(n) for n in count.split("x"))
        self.tensors[name] = self.session.declare(name, shape, dtype)
        self.arrays[name] = self.session.empty(shape, dtype)
        self.inputs[name] = Inputs(dtype, len(self.inputs))
        self.rounds[name] = 0

    def many(self, name, count):
        self.tensors[name] = self.session.declare_all(
            [(f"{name}.{i}", 1) for i in range(int(count))])

    def forget(self, name):
        self.session.undeclare(*self.tensors.pop(name))

    def alloc(self, mib):
        self.session.empty((int(mib) << 20,), "uint8")

    def device(self, name, rank):
        if self.session.rank == int(rank):
            like = self.arrays[name]
            fd = dma_buf.make(like.nbytes)
            self.arrays[name] = self.session.from_dma_buf(fd, like.shape, like.dtype.name)
            os.close(fd)

    def submit(self, name, op="sum"):
        self.rounds[name] += 1
        array = self.arrays[name]
        self.inputs[name].fill(array, self.session.rank, self.rounds[name])
        start = time.monotonic()
        ticket = self.tensors[name].push_pull(array, op=op)     # comes back to its agent, too
        self.tickets.append((name, self.rounds[name], op, time.monotonic() - start, ticket))

    def again(self, name):
        try:
            self.tensors[name].push_pull(self.arrays[name])
        except tally.TallyError as e:
            say("AGAIN", e.name, e.text)
            return
        say("WRONG: taken")
        sys.exit(3)

    def broadcast(self, name, root):
        array = self.arrays[name] if self.session.rank == int(root) else None
        self.tensors[name].broadcast(array, root=int(root)).wait(60)

    def wait(self, seconds="60", only=None):
        rest = [t for t in self.tickets if only and t[0] != only]
        for name, number, op, took, ticket in [t for t in self.tickets if t not in rest]:
            start = time.monotonic()
            result = ticket.wait(float(seconds))
            self.longest = max(self.longest, took + time.monotonic() - start)
            wrong = self.inputs[name].wrong(result, self.ranks, self.where, number, op)
            if len(wrong):
                say("WRONG", name, "round", number, len(wrong), "elements, first", wrong[0])
                sys.exit(3)
            self.done += 1
        self.tickets = rest
        if self.count >= 0:
            os.pwrite(self.count, b"%10d\n" % self.done, 0)

    def late(self, seconds):
        try:
            self.wait(seconds)
        except tally.TallyTimeout as e:
            say("LATE", e.name, e.text)
            return
        say("WRONG: in time")
        sys.exit(3)

    def rounds_of(self, name, n):
        for _ in range(int(n)):
            self.submit(name)
            self.wait()

    def train(self, name, file):
        """Rank 0 sees the file; a tensor of one element tells the others."""
        stop = self.session.declare(name + ".stop", (1,), "int32")
        flag = np.zeros(1, np.int32)
        while True:
            for _ in range(10):
                start = time.monotonic()
                self.rounds_of(name, 1)
                time.sleep(max(0, start + PACE - time.monotonic()))
            flag[0] = self.session.rank == 0 and os.path.exists(file)
            if stop.push_pull(flag).wait(60)[0]:
                return

    def test(self):
        for *_, ticket in self.tickets:
            ticket.test()

    def barrier(self, seconds="60"):
        self.session.barrier(float(seconds))

    def grow(self, seconds="60"):
        say("CAME", self.session.grow(float(seconds)), "live", self.session.live_ranks)

    def world(self, ranks):
        self.ranks = [int(r) for r in ranks.split(",")]

    def had(self, name, number):
        self.rounds[name] = int(number)

    def fork(self, file):
        if os.fork() == 0:
            end = time.monotonic() + 60
            while not os.path.exists(file) and time.monotonic() < end:
                time.sleep(0.05)
            os._exit(0)

    def until(self, file):
        while not os.path.exists(file):
            time.sleep(0.01)

    def pause(self):
        while True:
            time.sleep(60)

    def step(self, text):
        word, *args = text.split(":")
        if word == "say":
            say(*args)
            return
        {"rounds": self.rounds_of, "from": self.had}.get(word, getattr(self, word, None))(*args)
        say("done", text)


def main():
    try:
        rank = Rank()
        for text in sys.argv[1:]:
            rank.step(text)
        if rank.done:
            say(f"longest {rank.longest * 1000:.0f} ms")
        rank.session.detach()
        say("detached")
    except tally.TallyError as e:
        say("ERROR", e.name, e.text)
        sys.exit(1)


main()

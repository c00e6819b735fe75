#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of agent_restart.sh that makes every kind of call again and again, whatever its
agent is doing: declares, barriers, rounds that it waits for in three ways, undeclares.

	restart_rank.py FILE		until FILE is there: rank 0 sees it, all agree

TROUBLE_COUNT shows how many rounds are done; a sum that has other bits than it must have
(inputs.py) ends it with status 3.
"""
import itertools
import os
import select
import sys
import time

import numpy as np

import tally
from inputs import Inputs, machines

COUNT = 200003


def by_descriptor(session, ticket):
    poll = select.poll()
    poll.register(session.fileno(), select.POLLIN)
    while not ticket.test():
        if not poll.poll(60000):
            raise SystemExit("nothing was heard for a minute")
        session.poll()


def by_testing(session, ticket):
    while not ticket.test():
        time.sleep(0.001)


def by_waiting(session, ticket):
    ticket.wait(60)


def main():
    session = tally.Session(timeout=60)
    count = os.open(os.environ["TROUBLE_COUNT"], os.O_WRONLY | os.O_CREAT, 0o644)
    kept = session.declare("kept", (COUNT,), "float32")
    shown = session.empty((COUNT,), "float32")
    ways = (by_descriptor, by_testing, by_waiting)
    ranks, where = range(session.world_size), machines(session.world_size)
    inputs = (Inputs("float64", 0), Inputs("float32", 1))
    stop, flag = session.declare("stop", (1,), "int32"), np.zeros(1, np.int32)
    for r in itertools.count():
        t = session.declare(f"t{r}", (COUNT + r,), "float64")
        x = session.empty((COUNT + r,), "float64")
        inputs[0].fill(x, session.rank, r)
        inputs[1].fill(shown, session.rank, r)
        first = t.push_pull(x, x if r % 2 else None)
        second = kept.push_pull(shown, shown)
        session.barrier(60)
        ways[r % 3](session, first)
        ways[(r + 1) % 3](session, second)
        result = x if r % 2 else t.result()
        for given, array in zip(inputs, (result, shown)):
            wrong = given.wrong(array, ranks, where, r)
            if len(wrong):
                print("WRONG in round", r, len(wrong), "elements, first", wrong[0], flush=True)
                sys.exit(3)
        del result, array
        session.undeclare(t)
        session.free(x)
        os.pwrite(count, b"%10d\n" % (r + 1), 0)
        flag[0] = session.rank == 0 and os.path.exists(sys.argv[1])
        if stop.push_pull(flag).wait(60)[0]:
            break
    session.detach()


try:
    main()
except tally.TallyError as e:
    print("ERROR", e.name, e.text, flush=True)
    sys.exit(1)

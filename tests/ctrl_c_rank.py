#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the Python package waits for other ranks; run as each of two ranks.

Rank 0 is interrupted while it joins a job, in a declaration or in a barrier, which rank 1 comes to
afterwards; then rank 1 hears that rank 0, which lives, has left the job, and both join the next.
Exits 0 when everything held on this rank.
"""

import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../client/python"))

import tally  # noqa: E402

LONG_S = 600


def in_libtally():
    """Does a thread wait there?"""
    return any(frame.f_code is tally._waits._run.__code__
               for frame in sys._current_frames().values())


def is_heard(call):
    """Ctrl-C once the call waits in libtally, and only then."""
    over = threading.Event()

    def press():
        while not in_libtally():
            over.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    try:
        call()
    except KeyboardInterrupt:
        return in_libtally()
    return False


def mapped():
    """Mappings of memory that is shared with an agent."""
    with open("/proc/self/maps") as maps:
        return sum("/memfd:" in line for line in maps)


def join_the_next():
    with tally.Session(timeout=LONG_S) as s:
        s.barrier()


def main():
    what = sys.argv[1]
    if what == "join" and os.environ["TALLY_RANK"] == "0":
        assert is_heard(lambda: tally.Session(job="nobody else", timeout=LONG_S))
    s = tally.Session(timeout=LONG_S)
    if what == "join":
        s.barrier()
        s.detach()
        return
    call = {"declare": lambda: s.declare("late", (5,)), "barrier": s.barrier}[what]
    if s.rank == 0:
        mine = s.empty(1 << 20)
        mine[:] = 1
        assert is_heard(call)
        try:
            s.barrier()
        except tally.TallyError as e:
            assert e.name == "ESHUTDOWN", e
        else:
            raise AssertionError("a session that was given up")
        s.detach()
        open(sys.argv[2], "w").close()
        # What lies in the arena stays, when the call that was left is over, too.
        while in_libtally():
            time.sleep(0.01)
        assert mine.sum() == mine.size and mapped()
        join_the_next()
        del mine
        assert not mapped()
        return
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
    call()
    try:
        s.barrier()
    except tally.TallyError as e:
        assert "rank 0" in str(e), e
        print("heard:", e)
    s.detach()
    join_the_next()


main()

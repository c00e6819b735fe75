#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the Python package waits for ranks that never come; every rank of a job of two.

Rank 0 is interrupted while it joins a job, in a declaration and in a barrier, and goes; rank 1
hears of that.  Exits 0 when everything held on this rank.
"""

import os
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../client/python"))

import tally  # noqa: E402

LONG_S = 600


def is_heard(call):
    """Ctrl-C once the call waits in libtally, and only then."""
    over = threading.Event()

    def press():
        while not any(t.name == "tally call" for t in threading.enumerate()):
            over.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    before = set(threading.enumerate())
    threading.Thread(target=press).start()
    try:
        call()
    except KeyboardInterrupt:
        for thread in set(threading.enumerate()) - before:
            thread.name = "left behind"
        return True
    return False


def main():
    what = sys.argv[1]
    if what == "join" and os.environ["TALLY_RANK"] == "0":
        assert is_heard(lambda: tally.Session(job="nobody else", timeout=LONG_S))
    s = tally.Session(timeout=LONG_S)
    if what == "join":
        s.barrier()
        s.detach()
        return
    if s.rank == 0:
        wait = {"declare": lambda: s.declare("alone", (5,)), "barrier": s.barrier}[what]
        assert is_heard(wait)
        try:
            s.barrier()
        except tally.TallyError as e:
            assert e.name == "ESHUTDOWN", e
        else:
            raise AssertionError("a session that was given up")
        s.detach()
        return
    t = {"declare": s.barrier, "barrier": lambda: s.declare("alone", (5,))}[what]
    try:
        t()
    except tally.TallyError as e:
        assert "rank 0" in str(e), e
        print("heard:", e)


main()

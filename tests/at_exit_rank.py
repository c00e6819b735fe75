#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A process that ends with its session open: what runs then, and later, does no harm.

"late": a function that atexit calls after everything of the package's.  "waiting": a daemon
thread in the middle of a round that another rank will not come to.
"""

import atexit
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../client/python"))

kept = []


def late():
    if sys.argv[1] == "late":
        s, *arrays = kept
        assert all((a == 0).all() for a in arrays)
        for call in (s.barrier, lambda: s.rank):
            try:
                call()
            except tally.TallyError as e:
                assert e.name == "ESHUTDOWN", e
            else:
                os._exit(1)
        s.detach()
    print("ended well", flush=True)


atexit.register(late)  # the last one to be called

import numpy as np  # noqa: E402
import tally  # noqa: E402

kept.append(tally.Session())
kept.append(kept[0].empty(2000))
if sys.argv[1] == "waiting" and kept[0].rank == 0:
    grad = kept[0].declare("grad", (9,))
    waiter = threading.Thread(target=grad.push_pull(np.ones(9, np.float32)).wait, daemon=True)
    waiter.start()
    time.sleep(0.3)
elif sys.argv[1] == "waiting":
    kept[0].declare("grad", (9,))
    try:
        kept[0].barrier()
    except tally.TallyError as e:
        assert "rank 0" in str(e), e

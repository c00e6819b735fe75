#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rank 0 waits for rank 1, which comes late to all that they do; with TALLY_LOG=info it is told.

Each time rank 1 comes some seconds after rank 0 has said, by a file, that it is about to wait.
The argument is where those files are.  Exits 0 on both ranks.
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../client/python"))

import numpy as np  # noqa: E402
import tally  # noqa: E402

LATE_S = 3  # a line is due after 1 s and after 2


def main():
    late = os.environ["TALLY_RANK"] == "1"

    def come(where):
        if not late:
            open(f"{sys.argv[1]}.{where}", "w").close()
            return
        while not os.path.exists(f"{sys.argv[1]}.{where}"):
            time.sleep(0.01)
        time.sleep(LATE_S)

    come("session")
    with tally.Session() as s:
        come("declare")
        tensor = s.declare("w", 4)
        come("barrier")
        s.barrier()
        come("round")
        assert (tensor.push_pull(np.ones(4, np.float32)).wait() == 2).all()


main()

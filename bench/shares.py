# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/shares.sh: rounds of one tensor, one after the other, until it is told to stop.

shares.py BYTES OUT STOP: writes to OUT when each round ended and how long it took, in seconds.
The ranks end after the same round: that in which one of them saw the file STOP.
"""
import os
import sys
import time

import tally


def main():
    size, out, stop = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    with tally.Session(timeout=120, round_timeout=120) as s, open(out, "w", buffering=1,
                                                                  encoding="ascii") as log:
        tensor = s.declare("w", (size // 4,))
        data = s.empty((size // 4,))
        data[:] = 0
        s.barrier()
        while True:
            data[0] = os.path.exists(stop)
            begin = time.monotonic()
            result = tensor.push_pull(data).wait()
            end = time.monotonic()
            log.write(f"{end:.6f} {end - begin:.6f}\n")
            if result[0]:
                break


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job of which a process will be killed: trouble_round.sh.

	last_round_rank.py TENSORS SIZE PAUSE_S

Trains until the job is over, PAUSE_S between two tensors of a step, and holds each sum to its
reference bits (inputs.py).
"""
import sys
import time

import tally
from inputs import Inputs, machines


def main():
    tensors, size, pause_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    s = tally.Session(timeout=30)
    handles = s.declare_all([(f"t{k}", size) for k in range(tensors)])
    arrays = [s.empty(size) for _ in handles]
    inputs = [Inputs(tensor=k) for k in range(tensors)]
    where = machines(s.world_size)
    number = 0
    error = None
    print("attached", flush=True)
    while not error:
        number += 1
        tickets = []
        for k, (handle, array) in enumerate(zip(handles, arrays)):
            inputs[k].fill(array, s.rank, number)
            try:
                tickets.append(handle.push_pull(array))
            except tally.TallyError as e:
                error = e
                break
            time.sleep(pause_s)
        for k, ticket in enumerate(tickets):
            try:
                result = ticket.wait(60)
            except tally.TallyError as e:
                error = e
                continue
            wrong = inputs[k].wrong(result, range(s.world_size), where, number)
            if len(wrong):
                print("WRONG round", number, "tensor", k, len(wrong), "elements, first", wrong[0])
                sys.exit(3)
        if number % 5 == 0:
            print("round", number, flush=True)
    print("ERROR", error.name, error.text, flush=True)
    sys.exit(1)


main()

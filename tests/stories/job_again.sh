#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job, and another one of the same name after it: its first ranks may come while the
# last ones of the job before are still on their way out.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 1
expect_status 0 "$PYTHON" -c '
import sys, threading, tally

def attach(rank, world, timeout=30):
    return tally.Session(socket=f"{sys.argv[1]}/a{rank}.sock", job="again", rank=rank,
                         world=world, timeout=timeout)

def pair():
    out = [None, None]
    def go(rank):
        out[rank] = attach(rank, 2)
    threads = [threading.Thread(target=go, args=(rank,)) for rank in (0, 1)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return out

for _ in range(20):
    for session in pair():
        session.detach()
    attach(0, 1).detach()
print("one after the other")

old = pair()
old[0].detach()
late = threading.Timer(0.3, old[1].detach)
late.start()
attach(0, 1).detach()
late.join()
print("one waits for the other")

old = pair()
old[0].detach()
try:
    attach(0, 1, timeout=0.5)
    sys.exit("a second job of the name")
except tally.TallyError as e:
    assert e.name == "EBUSY" and "rank 1 (machine a1) has not detached" in e.text, e
old[1].detach()
print("or says for whom it waited")
' "$TMP"
while read -r line; do say "$line"; done < "$TMP/out"

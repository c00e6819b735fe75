#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job, and another one of the same name after it: its first ranks may come while the
# last ones of the job before are still on their way out.  What one agent says reaches the
# scheduler later than what the other says: detach returns when the scheduler knows.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler
start_daemon far "$PYTHON" "$ROOT/tests/breaker.py" "$SCHEDULER" "$TMP/far.port" 0.03
wait_until 10 'the far scheduler listens' test -s "$TMP/far.port"
near=$SCHEDULER
SCHEDULER=$LOOPBACK:$(< "$TMP/far.port")
start_agent a0
SCHEDULER=$near
start_agent a1
start_server s0
wait_until 60 'all nodes are registered' nodes_up 3
expect_status 0 "$PYTHON" -c '
import sys, threading, tally

def attach(rank, world, timeout=30, agent=None):
    agent = rank if agent is None else agent
    return tally.Session(socket=f"{sys.argv[1]}/a{agent}.sock", job="again", rank=rank,
                         world=world, timeout=timeout)

def pair(first=0):
    out = [None, None]
    def go(rank):
        out[rank] = attach(rank, 2, agent=rank ^ first)
    threads = [threading.Thread(target=go, args=(rank,)) for rank in (0, 1)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return out

for i in range(20):
    for session in reversed(pair(i % 2)):
        session.detach()
    attach(0, 1, agent=i // 2 % 2).detach()
print("one after the other")

for session in pair(1):
    session.detach()
for session in pair(0):
    session.detach()
print("on other machines")

old = pair()
old[0].detach()
late = threading.Timer(0.3, old[1].detach)
late.start()
attach(0, 1).detach()
late.join()
print("one waits for the other")

old = pair()
old[0].detach()
for _ in range(5):      # the last of its questions may get no answer in time
    try:
        attach(0, 1, timeout=0.5)
        sys.exit("a second job of the name")
    except tally.TallyError as e:
        said = e
    if said.name != "ETIMEDOUT":
        break
assert said.name == "EBUSY" and "rank 1 (machine a1) has not detached" in said.text, said
old[1].detach()
print("or says for whom it waited")
' "$TMP"
while read -r line; do say "$line"; done < "$TMP/out"

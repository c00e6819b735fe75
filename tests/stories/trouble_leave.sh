#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A server is told to end, and cannot give its jobs to others: an agent stands still, or there is
# no scheduler.  It ends in time, or at a second signal, and the job goes on as if it had been
# killed.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

servers_are() { "$BIN/tally" jobs --json --job job | grep -Eq "\"servers\": *$1(,|\$)"; }

start_cluster 2 3
for r in 0 1; do start_rank job $r 2 a$r declare:w:500000 "train:w:$TMP/enough"; done
train_more job.0 5 20

leaves='gives its jobs to others first, for 10 s at most; a second signal ends it at once'
kill_now a1 STOP
kill_now s0 TERM
wait_line 20 s0 "$leaves"
kill_now s0 TERM
expect_end 9 s0 0
kill_now a1 CONT
train_more job.0 5 20
say 'a second signal: it has ended at once, and the job has not'

kill_now a1 STOP
began=$(now_ms)
kill_now s1 TERM
wait_line 20 s1 "$leaves"
expect_end 20 s1 0
took=$(( $(now_ms) - began ))
(( took >= 9000 )) || fail "it has ended after $took ms"
kill_now a1 CONT
train_more job.0 5 20
say "an agent that stands still: it has ended after $took ms, and the job has not"

start_server s0
wait_until 20 'it is used' servers_are 2
kill_all scheduler
wait_line 10 s2 'no connection to scheduler'
kill_now s2 TERM
expect_end 9 s2 0
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state"
train_more job.0 5 40
touch "$TMP/enough"
for r in 0 1; do expect_end 20 job.$r 0; done
works after a0 a1
say 'no scheduler: it has ended at once, and the job goes on when that is back'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job ends because a rank is killed, in a round that all have given and that takes long, since
# one machine's card is slow: it comes to that machine as to the others, however long.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 3 1
given="declare:w:6000000 rounds:w:1 until:$TMP/slow submit:w"
start_rank slow 0 3 a0 $given wait:60 submit:w wait:60
start_rank slow 1 3 a1 $given wait:60 submit:w wait:60
start_rank slow 2 3 a2 $given pause
for r in 0 1 2; do wait_line 60 slow.$r '^done rounds'; done
ns_shape sw p-gpu1 24mbit
touch "$TMP/slow"
for r in 0 1 2; do wait_line 20 slow.$r '^done submit'; done
from=$EPOCHREALTIME
kill_now slow.2 KILL
wait_until 20 'the job is to end' has_line scheduler 'job slow ends when its last rounds are over'
wait_line 20 slow.0 '^done wait'
ended slow.1 || ! has_line slow.1 '^done wait' || fail 'machine 1 is as fast as machine 0'
wait_line 60 slow.1 '^done wait'
took=$(( (${EPOCHREALTIME/./} - ${from/./}) / 1000 ))
for r in 0 1; do expect_error 10 slow.$r 'EWORKERLOST rank 2 on machine a2 is gone'; done
(( took > 4000 )) || fail "the round was over after $took ms: nothing was to be waited for"
say "the last round came to machine 1 $took ms after rank 2 was killed"
works after a0 a1 a2

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A server says what a job may cost it at most: when the job starts, and whenever its share
# is another one, also when it came later and had none at first.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# says NAME PERCENT: what its log has said last.
says() { grep 'memory at most' "$TMP/$1.log" | tail -n 1 | grep -q " $2 % of the tensors"; }

start_cluster 2 1
for r in 0 1; do start_rank job $r 2 a$r declare:w:500000 "train:w:$TMP/enough"; done
train_more job.0 3 20
says s0 '100\.000' || fail 'the only server does not say that it has all'
start_server s1
for s in s0 s1; do wait_until 20 "$s has a half, and says so" says $s '50\.000'; done
kill_all s1
wait_until 20 's0 has all again, and says so' says s0 '100\.000'
train_more job.0 3 20
touch "$TMP/enough"
for r in 0 1; do expect_end 20 job.$r 0; done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The last server is lost and none comes: a job waits for as long as it is said to, and then
# every call of every rank says why it ends; a job of one machine alone needs none.
# LIGHT
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 1
start_rank alone 0 2 a0 declare:w:200000 "train:w:$TMP/enough"
start_rank alone 1 2 a0 declare:w:200000 "train:w:$TMP/enough"
TROUBLE_TIMEOUT=100 start_rank job 0 3 a0 declare:w:200000 rounds:w:5 "train:w:$TMP/never"
TROUBLE_TIMEOUT=100 start_rank job 1 3 a1 declare:w:200000 rounds:w:5 submit:w wait:100
TROUBLE_TIMEOUT=100 start_rank job 2 3 a1 declare:w:200000 rounds:w:5 barrier:100
train_more alone.0 1 20
for r in 0 1 2; do wait_line 20 job.$r '^done rounds'; done
kill_all s0
lost=$(date +%s)
wait_until 10 'the job says what it waits for' job_says job 'a server, all are gone'
wait_line 1 scheduler 'job job waits, no server is left'

# Who comes meanwhile waits for as long as it wants to, and is told.
for r in 0 1; do TROUBLE_TIMEOUT=3 start_rank late $r 2 a$r declare:w:10; done
for r in 0 1; do expect_error 10 late.$r "ENOSERVER job 'late' .*no summation server is"; done
say "who comes now: $(grep -h ^ERROR "$TMP/late.0.log")"

for r in 0 1 2; do
	expect_error 90 job.$r \
		"ENOSERVER all servers of job 'job' are gone, and none came within 60 s"
done
waited=$(( $(date +%s) - lost ))
(( waited >= 59 )) || fail "it was given up after $waited s"
wait_until 5 'the job is gone' no_job_says job .
train_more alone.0 20
say "given up after $waited s, by every call; a job of one machine trains on"

start_server s1
wait_until 60 'a server is registered' nodes_up 3
works job a0 a1
touch "$TMP/enough"
for r in 0 1; do expect_end 20 alone.$r 0; done
say 'with a server the next one of that name trains'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A path that passes small packets and loses large ones (a wrong MTU on the way): links to the
# server come up, carry nothing and are lost again.  The job goes on without that server;
# where there is no other it waits, names it, and goes on when the path is mended.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 2 2

# What is larger than the bucket does not get through.
narrow() { in_ns "$1" tc qdisc replace dev "$2" root tbf rate 1gbit burst 600 limit 1mb; }
wide() { in_ns "$1" tc qdisc del dev "$2" root; }
job_is() { tally jobs 2>/dev/null | grep -Eq "(^| )$1 .*$2"; }
none_stuck() { tally tensors --stuck --json 2>/dev/null | tr -d ' \n' | grep -Fq '"stuck":[]'; }

# So many chunks that each server has some, however slow a busy machine measured it to be.
for r in 0 1; do start_rank all $r 2 a$r declare:w:2000000 "train:w:$TMP/enough"; done
train_more all.0 5 20
narrow sw p-cpu0			# what goes to s0
begin=$(now_ms)
gone='job all goes on without server s0, reason machine a[01] has no link to it'
named() { job_is all 'server s0' || has_line scheduler "$gone"; }	# or that is over already
wait_until 10 'the server is named' named
wait_line 20 scheduler "$gone"
took=$(( $(now_ms) - begin ))
train_more all.0 5		# in 20 s s0 is offered the job again
is_running "$(pid_of s0)" || fail 'the server has ended'
say "large packets are lost: the job goes on without that server, $took ms after"

narrow cpu1 eth0		# what comes from s1
wait_until 10 'the other server is named, too' job_is all 'server s[01]'
wide cpu1 eth0
train_more all.0 20 30
wait_until 10 'nothing waits' none_stuck
has_line scheduler 'goes on without server s1' && fail 'the only server was given up'
wide sw p-cpu0
touch "$TMP/enough"
for r in 0 1; do expect_end 20 all.$r 0; done
say 'on the way from the only server: the job waits, and goes on'

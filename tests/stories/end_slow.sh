#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job ends because a rank is killed, in a round that all have given and that takes long, since
# one machine's card is slow: it comes to that machine as to the others, however long, and also
# where another job's results are on their way there, or the job has begun more than it can end.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 3 1

# all_say JOB REGEX, of its three ranks; die JOB: the last one; survivors JOB: have the round.
all_say() { local r; for r in 0 1 2; do wait_line 60 "$1.$r" "$2"; done; }
die()
{
	from=$EPOCHREALTIME
	kill_now "$1.2" KILL
	wait_until 20 'the job is to end' has_line scheduler "job $1 ends when its last rounds"
}
survivors()
{
	local r

	for r in 0 1; do
		expect_error 100 "$1.$r" 'EWORKERLOST rank 2 on machine a2 is gone'
		has_line "$1.$r" '^done wait' || fail "$1: rank $r lacks what all had given"
	done
	took=$(( (${EPOCHREALTIME/./} - ${from/./}) / 1000 ))
}

given="declare:w:6000000 rounds:w:1 until:$TMP/slow submit:w"
for r in 0 1; do start_rank slow $r 3 a$r $given wait:100 submit:w wait:60; done
start_rank slow 2 3 a2 $given pause
all_say slow '^done rounds'
ns_shape sw p-gpu1 24mbit
touch "$TMP/slow"
all_say slow '^done submit'
has_line slow.1 '^done wait' && fail 'the round was over before'
die slow
survivors slow
(( took > 4000 )) || fail "the round was over after $took ms: nothing was to be waited for"
say "the last round was over $took ms after rank 2 was killed"

given="declare:w:1000 rounds:w:1 until:$TMP/small submit:w"
for r in 0 1; do start_rank small $r 3 a$r $given wait:60 submit:w wait:60; done
start_rank small 2 3 a2 $given pause
all_say small '^done rounds'
for r in 0 1; do start_rank big $r 2 a$r declare:w:20000000 submit:w say:begun wait:100; done
for r in 0 1; do wait_line 60 big.$r '^begun'; done
touch "$TMP/small"
all_say small '^done submit'
die small
survivors small
ended big.1 && fail 'the other job was over before: nobody was to take turns'
say "beside 80 MB of another job it was over after $took ms"
in_ns sw tc qdisc del dev p-gpu1 root
for r in 0 1; do expect_end 60 big.$r 0; done

given="declare:v:6000000 declare:w:2000000 rounds:v:1 rounds:w:1 until:$TMP/more"
for r in 0 1; do start_rank more $r 3 a$r $given submit:v submit:w wait:100:w wait:60; done
start_rank more 2 3 a2 $given submit:w pause
all_say more '^done rounds:w'
ns_shape gpu1 eth0 24mbit
touch "$TMP/more"
all_say more '^done submit:w'
die more
survivors more
say "behind 24 MB that cannot be summed any more it was over after $took ms"
in_ns gpu1 tc qdisc del dev eth0 root
works after a0 a1 a2

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# The path between one agent and one server is cut, and the scheduler reaches both: that
# agent's jobs go on without the server, others with it; where there is no other server the
# job waits, and says for which path.  The path between an agent and the scheduler is cut:
# as long as servers hear the agent its job trains on.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 3 2 --agent-grace 4

# path cut|back GPU ADDRESS: what gpuN sends there reaches nobody, and nobody says so.
path()
{
	if [ "$1" = cut ]; then
		in_ns "gpu$2" ip neigh replace "$3" lladdr 02:00:00:00:00:99 dev eth0 nud permanent
	else
		in_ns "gpu$2" ip neigh del "$3" dev eth0
	fi
}

job_is() { tally jobs 2>/dev/null | grep -Eq "(^| )$1 .*$2"; }
servers_of() { tally jobs --json --job "$1" 2>/dev/null | grep -Eq "\"servers\": *$2(,|\$)"; }

export TROUBLE_PACE=0.1			# two CPUs are busy for 30 ms with such a round
# So many chunks that each server has some, however slow a busy machine measured it to be.
for r in 0 1 2; do start_rank all $r 3 a$r declare:w:2000000 "train:w:$TMP/enough"; done
for r in 1 2; do start_rank two $(( r - 1 )) 2 a$r declare:w:2000000 "train:w:$TMP/enough"; done
train_more all.0 5 60
train_more two.0 5 60

path cut 0 10.77.0.111
wait_line 30 scheduler 'job all goes on without server s1, reason machine a0 has no link to it'
train_more all.0 20 60
train_more two.0 20 60
wait_until 20 'the server is out of the job' servers_of all 1
wait_until 20 'the other job has both' servers_of two 2
is_running "$(pid_of s1)" || fail 'the server has ended'
has_line scheduler 'job two epoch [0-9]+, a lost' && fail 'the other job was repaired'
say 'no path to one server: the job goes on with the other one, another job with both'

path cut 0 10.77.0.110
# On a slow machine the first server has been offered the job again by then.
wait_until 60 'the job says what it waits for' \
	job_is all 'server s[01] \(no link from machine a0\), tensor w(\.stop)? round'
train_more two.0 20 60
stuck="job [0-9]+ 'all' is stuck, .* waits for server s[01]"
wait_line 20 a0 "$stuck \(no link to any\) since .* does not answer at all"
path back 0 10.77.0.110
train_more all.0 20 60
has_line scheduler 'goes on without server s0' && fail 'the only server was given up'
say 'no path to any server: the job waits, and goes on'

path back 0 10.77.0.111
wait_until 90 'the server is used again' servers_of all 2
train_more all.0 20 60
touch "$TMP/enough"
for r in 0 1 2; do expect_end 20 all.$r 0; done
for r in 0 1; do expect_end 20 two.$r 0; done
say 'the path is back: the server is used again'

# A server on an agent's machine writes into its memory, and lets go before others go on.
start_in gpu1 g1 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen 10.77.0.11:0 --name g1 \
	--machine-id gpu1 --engines 1 --memory 256M --shm-socket "$TMP/g1.shm"
tally drain s1 > "$TMP/out" || fail "drain s1: $(cat "$TMP/out")"
wait_line 15 g1 'registered, node'
rm "$TMP/enough"
for r in 0 1 2; do start_rank near $r 3 a$r declare:w:2000000 "train:w:$TMP/enough"; done
train_more near.0 5 20
wait_until 20 'the job has the two' servers_of near 2
path cut 0 10.77.0.11
wait_line 40 scheduler 'job near goes on without server g1, reason machine a0 has no link to it'
train_more near.0 20
is_running "$(pid_of g1)" || fail 'the server was ended'
tally status > "$TMP/out" || fail 'tally status'
expect_text "$TMP/out" '^nodes .* g1 bypassed'
expect_text "$TMP/out" '^bypassed +server g1 by job near: machine a0 has no link to it; it is asked'
has_line scheduler 'server g1 .*-> dead' && fail 'the server was taken for dead'
touch "$TMP/enough"
for r in 0 1 2; do expect_end 20 near.$r 0; done
say "no path to a machine's own server: it lets go, and lives"

# ---- an agent and the scheduler ----
path back 0 10.77.0.11
rm "$TMP/enough"
for r in 0 1 2; do start_rank deaf $r 3 a$r declare:w:2000000 "train:w:$TMP/enough"; done
train_more deaf.0 5 20
path cut 0 10.77.0.1
wait_line 15 scheduler 'agent a0 up -> away'
wait_line 10 scheduler 'agent a0 is away, and server [a-z0-9]+ hears it'
over=$(( $(now_ms) + 6000 ))
is_over() { (( $(now_ms) > over )); }
wait_until 10 'the grace is over' is_over
train_more deaf.1 20
wait_until 20 'its row says so' job_is deaf 'agent a0 \(servers have heard it\), [0-9] s left'
path back 0 10.77.0.1
wait_line 20 scheduler 'agent a0 away -> up'
train_more deaf.0 20
touch "$TMP/enough"
for r in 0 1 2; do expect_end 20 deaf.$r 0; done
say 'no path from an agent to the scheduler: its job trains on'

rm "$TMP/enough"
for r in 0 1 2; do start_rank gone $r 3 a$r declare:w:2000000 "train:w:$TMP/enough"; done
train_more gone.0 5 20
path cut 0 10.77.0.1
kill_now a0 STOP
for r in 1 2; do expect_error 60 gone.$r 'EWORKERLOST rank 0 on machine a0 is gone'; done
say 'one that nobody hears is given up when its grace is over'

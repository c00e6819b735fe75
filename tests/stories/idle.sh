#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job is attached and nobody gives anything: agents, servers and ranks sleep.  Each process wakes
# ten times a second at most, all its threads together; afterwards the job works as before.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

SECONDS_IDLE=10
WAKES=$(( 10 * SECONDS_IDLE ))

# woke PID: how often its threads have gone to sleep so far.
woke()
{
	local total=0 word n

	while read -r word n; do
		[ "$word" != voluntary_ctxt_switches: ] || (( total += n ))
	done < <(cat "/proc/$1"/task/*/status)
	echo "$total"
}

start_cluster 2 2
for r in 0 1 2 3; do
	start_rank job $r 4 a$(( r / 2 )) declare:w:200000 rounds:w:20 say:idle \
		"until:$TMP/go" rounds:w:20
done
for r in 0 1 2 3; do wait_line 60 job.$r 'idle'; done
pause_ms 2000			# what the last rounds have left to do

declare -A BEFORE
names=(a0 a1 s0 s1)
for name in "${names[@]}"; do BEFORE[$name]=$(woke "$(pid_of $name)"); done
pause_ms $(( 1000 * SECONDS_IDLE ))
said=
for name in "${names[@]}"; do
	n=$(( $(woke "$(pid_of $name)") - BEFORE[$name] ))
	said+=" $name $n"
	[ $n -le $WAKES ] || fail "$name woke $n times in $SECONDS_IDLE s"
done
touch "$TMP/go"
for r in 0 1 2 3; do expect_end 60 job.$r 0; done
say "idle for $SECONDS_IDLE s with a job, times woken:$said"

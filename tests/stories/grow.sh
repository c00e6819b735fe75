#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Processes come in the place of ranks that were killed: they wait until the survivors call
# tally_grow, get the parameters from one of them, and from there on every bit is as in a job
# that never lost anybody.  In Python and in C; together with the scheduler; and those who
# cannot come in hear why, which the job does not notice.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler
start_agent a0 --engines 2
start_agent a1 --engines 3
start_agent a2
for s in s0 s1; do start_server $s; done
start_server s2 --machine-id a0 --engines 2	# on the first agent's machine
wait_until 60 'all nodes are registered' nodes_up 6

${CC:-cc} -std=c17 -D_GNU_SOURCE -O2 -Wall -Werror -ffp-contract=off -I"$ROOT" \
	-o "$TMP/grow_rank" "$ROOT/tests/grow_rank.c" "$LIB/libtally.so.0" \
	-Wl,-rpath,"$LIB" 2> "$TMP/cc.log" ||
	fail 'grow_rank.c does not compile'

STEPS=80 FROM=20		# for that they wait until all are lost, behind it for the gate
NOT_TO=65			# nor are they done when the gate is shut late
# start_grow NAME JOB RANK WORLD AGENT PROGRAM...
start_grow()
{
	runs_on "$2" "$3" "$5"
	start_daemon "$1" env TALLY_JOB="$2" TALLY_RANK="$3" TALLY_WORLD_SIZE="$4" \
		TALLY_SOCKET="$TMP/$5.sock" TROUBLE_MACHINES="$TMP/$2.machines" \
		GROW_GATE="$TMP/$2.gate" GROW_LOST="$TMP/$2.go" \
		"${@:6}"
}
py() { start_grow "$1" "$2" "$3" "$4" "$5" "$PYTHON" "$ROOT/tests/grow_rank.py" "${@:6}"; }
nobody_waits() { no_job_says "$1" 'waits to come in'; }
lost_of() { [ "$(grep -c "job $1 loses rank" "$TMP/scheduler.log")" = "$2" ]; }
at_step() { has_line "$1" "^step $2 "; }
lines_of() { grep '^step\|^params' "$TMP/$1.log" | awk -v from="$2" '$2 >= from'; }

# same NAME NAME FROM [KIND]: the same lines from that step on, and there are some; as many
# as the second has, which may have been killed.
same()
{
	lines_of "$2" "$3" | grep "^${4:-}" > "$TMP/same.2"
	lines_of "$1" "$3" | grep "^${4:-}" | head -n "$(wc -l < "$TMP/same.2")" > "$TMP/same.1"
	[ -s "$TMP/same.1" ] && cmp "$TMP/same.1" "$TMP/same.2" ||
		fail "$1 and $2 differ from step $3 on"
}
first_step() { lines_of "$1" 0 | sed -n '1s/^step \([0-9]*\) .*/\1/p'; }

# ---- the whole world, undisturbed ----
touch "$TMP/calm.gate"
all_lost calm
for r in 0 1 2 3; do py calm.$r calm $r 4 a$(( r / 2 )) 5 $STEPS 0 1; done
for r in 0 1 2 3; do expect_end 60 calm.$r 0; done

# ---- a process killed, another one in its place; in Python, then in C ----
for r in 0 1 2 3; do py job.$r job $r 4 a$(( r / 2 )) 5 $STEPS 0.05 $FROM; done
wait_until 60 'it trains' at_step job.0 1
kill_now job.3 KILL
all_lost job
wait_until 30 'it goes on without rank 3' has_line job.0 "^step $FROM 7:"
py job.3b job 3 4 a1 5 $STEPS 0.05 $FROM
wait_until 20 'tally jobs shows who waits' job_says job 'rank 3 waits to come in'
echo $NOT_TO > "$TMP/job.gate"
wait_until 30 'rank 3 is back' has_line job.3b '^step '
rm "$TMP/job.gate"
kill_now job.1 KILL
start_grow job.1c job 1 4 a0 "$TMP/grow_rank" 5 $STEPS 50 $FROM
wait_until 20 'tally jobs shows who waits' job_says job 'rank 1 waits to come in'
touch "$TMP/job.gate"
for r in 0 1c 2 3b; do expect_end 60 job.$r 0; done
for r in 1c 3b; do
	n=$(first_step job.$r)
	has_line job.$r '^attached, late' || fail "job.$r does not know that it came late"
	same job.0 job.$r "$n"
	same calm.0 job.$r "$(first_step job.1c)" step
	say "$r came in at step $n"
done
has_line job.0 '^came 1 live 4$' || fail 'rank 0 does not know that the world is whole'
say 'from there on every bit is that of the undisturbed job, in Python and in C'

# ---- on one machine alone; who comes first is killed while it waits ----
for r in 0 1 2; do py one.$r one $r 3 a2 3 $STEPS 0.05 $FROM; done
wait_until 60 'it trains' at_step one.0 1
kill_now one.2 KILL
all_lost one
py one.2a one 2 3 a2 3 $STEPS 0.05 $FROM
wait_until 20 'it waits' job_says one 'rank 2 waits to come in'
kill_now one.2a KILL
wait_until 20 'it waits no more' nobody_waits one
py one.2b one 2 3 a2 3 $STEPS 0.05 $FROM
wait_until 20 'another one waits' job_says one 'rank 2 waits to come in'
touch "$TMP/one.gate"
for r in 0 1 2b; do expect_end 60 one.$r 0; done
same one.0 one.2b "$(first_step one.2b)"
has_line one.0 '^came 1 live 3$' || fail 'rank 0 does not know that the world is whole'
say 'on one machine: the same, though the first to come was killed'

# ---- a machine of which nobody was left: first its processes die, then its agent, too ----
for r in 0 1 2 3; do py far.$r far $r 4 a$(( r / 2 )) 5 $STEPS 0.05 $FROM; done
wait_until 60 'it trains' at_step far.0 1
for r in 2 3; do kill_now far.$r KILL; done
all_lost far
wait_until 30 'it goes on without machine a1' has_line far.0 "^step $FROM 3:"
for r in 2 3; do py far.${r}b far $r 4 a1 5 $STEPS 0.05 $FROM; done
wait_until 20 'tally jobs shows who waits' job_says far 'ranks* 2, 3 wait'
echo $NOT_TO > "$TMP/far.gate"
for r in 2 3; do wait_until 30 "rank $r is back" has_line far.${r}b '^step '; done
rm "$TMP/far.gate"
for r in 2 3; do kill_now far.${r}b KILL; done
wait_until 30 'both are missed again' lost_of far 4
kill_now a1 KILL
wait_until 10 'a1 is gone' nodes_up 5
start_agent a1 --engines 3 --machine-id another
wait_until 10 'another a1 is there' nodes_up 6
py far.3c far 3 4 a1 5 $STEPS 0.05 $FROM
wait_until 40 'tally jobs shows who waits' job_says far 'rank 3 waits to come in'
touch "$TMP/far.gate"
for r in 0 1 3c; do expect_end 60 far.$r 0; done
for r in 2b 3b 3c; do
	n=$(first_step far.$r)
	same far.0 far.$r "$n"
	say "$r came in at step $n"
done
say 'the machine came back twice, and every bit is as the survivors have it'

# ---- who cannot come in hears why; and the scheduler dies while all wait ----
for r in 0 1 2 3 4; do py two.$r two $r 5 a$(( r / 2 )) 5 $STEPS 0.05 $FROM; done
wait_until 60 'it trains' at_step two.0 1
kill_now two.3 KILL
kill_now two.4 KILL
all_lost two
wait_until 30 'it goes on without them' has_line two.0 "^step $FROM 7:"
py two.0x two 0 5 a0 5 $STEPS 0.05 $FROM
expect_error 20 two.0x EEXIST
py two.3x two 3 5 a0 5 $STEPS 0.05 $FROM
expect_error 20 two.3x EINVAL
has_line two.3x 'on machine a1' || fail 'it does not say where rank 3 can come back'
py two.3y two 3 6 a1 5 $STEPS 0.05 $FROM
expect_error 20 two.3y EMISMATCH
py two.3z two 3 5 a1 5 $STEPS 0.05 $FROM 1		# its tensors are longer by one
wait_until 20 'it waits' job_says two 'rank 3 waits to come in'
echo $NOT_TO > "$TMP/two.gate"
expect_error 30 two.3z EMISMATCH
has_line two.3z "tensor 't0': the job has float32" || fail 'it does not say what differs'
rm "$TMP/two.gate"
py two.3 two 3 5 a1 5 $STEPS 0.05 $FROM
py two.4 two 4 5 a2 5 $STEPS 0.05 $FROM
wait_until 20 'they wait' job_says two 'ranks? (3, 4|4, 3) wait to come in'
kill_now scheduler KILL
wait "$(pid_of scheduler)" 2>/dev/null
touch "$TMP/two.gate"
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state"
for r in 0 1 2 3 4; do expect_end 90 two.$r 0; done
for r in 1 2 3 4; do same two.0 two.$r "$(first_step two.4)"; done
say 'with a scheduler that was killed meanwhile: the same'
works after a0 a1 a2

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# Servers die, are cut off, drain and join while a job trains, on machines of their
# own (network namespaces): the results are those of an undisturbed run, bit for bit.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

ns_cluster 3 3
CLUSTER=10.77.0.1

# In namespaces: start_in NS NAME COMMAND...
start_in()
{
	local ns=$1 name=$2

	shift 2
	start_daemon "$name" ip netns exec "$RUN-$ns" "$@"
}

cpu_server() { ns_server "cpu$1" "s$1" "10.77.0.$(( 110 + $1 ))"; }
gpu_server() { ns_server "gpu$1" "g$1" "10.77.0.$(( 10 + $1 ))"; }

# ns_server NS NAME ADDRESS: its machine id is the namespace's name.
ns_server()
{
	start_in "$1" "$2" "$BIN/tally-server" --scheduler "$SCHEDULER" --listen "$3:0" \
		--name "$2" \
		--machine-id "$1" --engines 1 --memory 256M --shm-socket "$TMP/$2.shm"
}

start_in sw scheduler "$BIN/tally-scheduler" --listen $CLUSTER:0 --state-dir "$TMP/state" \
	--port-file "$TMP/port"
wait_until 10 'the scheduler writes its port' has_port "$TMP/port"
SCHEDULER=$CLUSTER:$(tr -d '[:space:]' < "$TMP/port")
tally() { in_ns sw "$BIN/tally" "$@" --scheduler "$SCHEDULER"; }
nodes_up() { [ "$(tally nodes --json 2>/dev/null | grep -c '"state": *"up"')" = "$1" ]; }
node_is() { tally nodes 2>/dev/null | grep -Eq "(^| )$1 .* $2( |\$)"; }
job_has() { tally jobs --json --job "$1" 2>/dev/null | grep -Eq "\"servers\": *$2(,|\$)"; }
job_waits() { tally jobs 2>/dev/null | grep -Eq "(^| )$1 .*$2"; }
for i in 0 1 2; do
	start_in gpu$i a$i "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a$i \
		--machine-id gpu$i --engines 1 --socket "$TMP/a$i.sock"
done
for i in 0 1 2; do cpu_server $i; done
gpu_server 0
wait_until 60 'all nodes are registered' nodes_up 7

# train JOB: three ranks, one on each machine.
train()
{
	local r

	for r in 0 1 2; do
		start_trainer "$1" $r 3 a$r
	done
	wait_until 30 "$1 trains" has_rounds "$1.0" 10
}

# finished JOB WHAT: all ranks end well, with the bits of the undisturbed run.
finished()
{
	local r

	stop_training "$1"
	for r in 0 1 2; do
		expect_end 90 "$1.$r" 0
		[ "$(hash_of "$1.$r")" = "${reference:=$(hash_of "$1.$r")}" ] ||
			fail "rank $r of $1 has other bits"
	done
	say "note: $2: $(sed -n 's/^hash.* longest/the longest round took/p' "$TMP/$1.0.log")"
}

train calm
finished calm 'undisturbed'

# ---- killed in the middle of rounds ----
train killed
killed_ms=$(now_ms)
kill_now s1 KILL
wait_until 30 'its chunks move' has_line scheduler 'job killed epoch [0-9]+, a lost server'
dead_at=$(sed -n 's/ .*server s1 .*-> dead.*//p' "$TMP/scheduler.log")
found=$(( $(date -d "$dead_at" +%s%3N) - killed_ms ))
train_more killed.0 20
cpu_server 1
wait_until 20 'the new one is used' job_has killed 4
finished killed 'a server killed, another one joins'
longest=$(sed -n 's/^hash.* longest \([0-9]*\) ms/\1/p' "$TMP/killed.0.log")
say "note: a killed server was found dead after $found ms; training paused for" \
	"$(( longest > found ? longest - found : 0 )) ms more"

# ---- cut off, and back: first it is dead, then it is somebody new; one that is away for a
# moment is neither ----
has_passed() { (( $(now_ms) - began >= $1 )); }
train cut
deaths=$(grep -c 'server s0 .*-> dead' "$TMP/scheduler.log")
for i in 0 2; do in_ns sw ip link set p-cpu$i down; done
began=$(now_ms)
wait_until 10 's0 is away for 0.3 s' has_passed 300
in_ns sw ip link set p-cpu0 up
away=$(( $(now_ms) - began ))		# where this shell is kept waiting it may be too long
wait_until 30 'it is declared dead' has_line scheduler 'server s2 .*-> dead'
train_more cut.0 20
(( away > 1000 || $(grep -c 'server s0 .*-> dead' "$TMP/scheduler.log") == deaths )) ||
	fail "so is the one that was away for $away ms"
in_ns sw ip link set p-cpu2 up
wait_until 20 'it is back' nodes_up 7
wait_until 20 'it is used again' job_has cut 4
finished cut 'a server cut off, and back'

# ---- stopped for longer than its lease, and continued: late words count for nothing ----
train stopped
kill_now s0 STOP
wait_until 30 'its chunks move' has_line scheduler 'job stopped epoch [0-9]+, a lost server'
train_more stopped.0 20
kill_now s0 CONT
wait_until 20 'it is used again' job_has stopped 4
finished stopped 'a server stopped and continued'

# ---- the same with the one that writes into an agent's memory ----
for s in s0 s1 s2; do tally drain $s > "$TMP/out" || fail "drain $s: $(cat "$TMP/out")"; done
gpu_server 1
wait_until 15 'it is registered' has_line g1 'registered, node'
train local
wait_until 10 'the job has the servers of its machines' job_has local 2
kill_now g0 STOP
wait_until 30 'its chunks move' has_line scheduler 'job local epoch [0-9]+, a lost server'
expect_end 10 g0 137
train_more local.0 20
gpu_server 0
wait_until 20 'the new one is used' job_has local 2
finished local "a machine's own server stopped: its agent ended it"
for s in s0 s1 s2; do tally drain --undo $s > "$TMP/out" || fail "undrain $s"; done
kill_now g1 TERM
expect_end 9 g1 0

# ---- drained one by one, and all used again ----
wait_until 15 'all are there' nodes_up 7
train drain
tally drain g0 > "$TMP/out" || fail "drain g0: $(cat "$TMP/out")"
train_more drain.0 3
tally drain --undo g0 > "$TMP/out" || fail 'undrain g0'
wait_until 20 'it is used again, and sees the memory of the ranks again' job_has drain 4
train_more drain.0 10
for s in s0 s1 s2; do
	tally drain $s > "$TMP/out" || fail "drain $s: $(cat "$TMP/out")"
	wait_until 10 "$s is drained" node_is $s drained
	train_more drain.0 3
done
kill_now s1 TERM
expect_end 9 s1 0
has_line scheduler 'job drain epoch [0-9]+, a lost' && fail 'a drained server was missed'
cpu_server 1
for s in s0 s2; do tally drain --undo $s > "$TMP/out" || fail "undrain $s"; done
wait_until 20 'all are used again' job_has drain 4
finished drain 'drained to none, and all used again'

# ---- told to end, not drained before: it is missed by nobody; the last one ends at once ----
# warned NAME: how often the log of NAME warns of a link.
warned() { grep -c 'warn .*link to server' "$TMP/$1.log"; }

train term
warnings=$(warned a1)
for how in s0/TERM s1/INT; do
	s=${how%/*}
	kill_now "$s" "${how#*/}"
	expect_end 12 $s 0
	has_line $s 'it has no jobs any more' || fail "$s ended with the job"
	train_more term.0 3
done
has_line scheduler 'job term epoch [0-9]+, a lost' && fail 'one that was told to end was missed'
[ "$(warned a1)" = "$warnings" ] || fail 'an agent warns of links that nobody needs'
for i in 0 1; do cpu_server $i; done
wait_until 20 'the next ones are used' job_has term 4
finished term 'servers told to end while they sum'

# ---- all but the one on an agent's machine, and as many come in a moment ----
train colocated
for s in s0 s1 s2; do kill_now $s KILL; done
wait_until 30 'its chunks move' \
	has_line scheduler 'job colocated epoch [0-9]+, a lost server'
train_more colocated.0 20
for i in 0 1 2; do cpu_server $i; done
wait_until 20 'the next ones are used' job_has colocated 4
finished colocated "a machine's own server carries on, others come"

# ---- all at once: the job waits, says for what, and goes on ----
train none
for s in s0 s1 s2 g0; do kill_now $s KILL; done
wait_until 10 'the job says what it waits for' job_waits none 'a server, all are gone'
cpu_server 0
finished none 'no server left, and one that comes'

train alone
kill_now s0 TERM
expect_end 8 s0 0
has_line s0 'nobody can take its jobs over' || fail 'the last server does not say why it ended'
wait_until 10 'the job says what it waits for' job_waits alone 'a server, all are gone'
cpu_server 0
finished alone 'the last server told to end, and one that comes'

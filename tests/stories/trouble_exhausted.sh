#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No disk, no descriptors, no memory: what cannot be had is refused, by name, to who asked;
# what runs runs on; and when there is enough again, all is as before.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler
for i in 0 1; do start_agent a$i; done
start_server s0
wait_until 60 'all nodes are registered' nodes_up 3
start_rank calm 0 2 a0 declare:w:200000 "train:w:$TMP/enough"
start_rank calm 1 2 a1 declare:w:200000 "train:w:$TMP/enough"
train_more calm.0 5 20

# ---- descriptors of an agent ----
# hoard FILE: connections to the agent's socket, as many as it takes, until FILE is there.
hoard()
{
	start_daemon hoard "$PYTHON" -c "
import os, socket, sys, time
held = []
for i in range(64):
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    try:
        s.connect(sys.argv[1])
    except OSError:
        break
    held.append(s)
print('holds', len(held), flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)" "$TMP/a0.sock" "$1"
	wait_line 10 hoard '^holds'
}
before=$(fds_of a0)
prlimit --pid "$(pid_of a0)" --nofile=$(( before + 4 )):4096
hoard "$TMP/enough.descriptors"
wait_line 10 a0 'listener /.*/a0.sock cannot accept, trying'
train_more calm.0 20
TROUBLE_TIMEOUT=2 start_rank late 0 1 a0
wait_until 20 'one more process is refused in time' ended late.0
has_line late.0 '^ERROR ETIMEDOUT no answer from the agent' || fail 'not with ETIMEDOUT'
touch "$TMP/enough.descriptors"
expect_end 10 hoard 0
prlimit --pid "$(pid_of a0)" --nofile=1024:4096
works descriptors a0 a1
train_more calm.0 5
say "no descriptors: $(grep -h ^ERROR "$TMP/late.0.log")"

# ---- descriptors of the scheduler, which nodes must outlive ----
prlimit --pid "$(pid_of scheduler)" --nofile=5:4096
refused() { ! "$BIN/tally" status --timeout 1 > /dev/null 2>&1; }
wait_until 10 'nobody else gets an answer' refused
wait_line 10 scheduler 'listener port [0-9]+ cannot accept, trying'
train_more calm.0 20
prlimit --pid "$(pid_of scheduler)" --nofile=1024:4096
wait_until 10 'it answers again' nodes_up 3
say 'no descriptors at the scheduler: who is connected stays, others wait'

# ---- descriptors of a server: links that are there stay, a new agent's wait ----
prlimit --pid "$(pid_of s0)" --nofile=5:4096	# all of these are open
start_agent a2
wait_until 60 'a third agent is registered' nodes_up 4
start_rank far 0 2 a0 declare:w:70000 rounds:w:5
start_rank far 1 2 a2 declare:w:70000 rounds:w:5
wait_line 10 s0 'listener port [0-9]+ cannot accept, trying'
wait_until 10 'the job says what it waits for' job_says far 'no link from machine a2'
train_more calm.0 20
prlimit --pid "$(pid_of s0)" --nofile=1024:4096
for r in 0 1; do expect_end 40 far.$r 0; done
say 'no descriptors at a server: the others train on, the new one when there are some'

# ---- memory of an agent ----
vm=$(sed -n 's/^VmSize:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$(pid_of a0)/status")
prlimit --pid "$(pid_of a0)" --as=$(( (vm + 8192) * 1024 )):unlimited
start_rank big 0 2 a0 declare:w:30000000
start_rank big 1 2 a1 declare:w:30000000
for r in 0 1; do expect_error 20 big.$r 'ENOMEM machine a0: '; done
train_more calm.0 20
prlimit --pid "$(pid_of a0)" --as=unlimited:unlimited
works memory a0 a1
say "no memory: $(grep -h ^ERROR "$TMP/big.1.log")"

# ---- memory of a server that is told to forget tensors ----
servers_are() { "$BIN/tally" jobs --json --job "$1" | grep -Eq "\"servers\": *$2(,|\$)"; }
cannot_forget()
{
	local r

	${CC:-cc} -shared -fPIC -O1 -o "$TMP/no_memory.so" "$ROOT/tests/no_memory.c" ||
		fail 'what is to be preloaded cannot be built'
	LD_PRELOAD=$TMP/no_memory.so NO_MEMORY=$TMP/none start_server s1
	wait_line 10 s1 'registered, node'
	for r in 0 1; do
		start_rank forget $r 2 a$r declare:w:70000 many:m:4000 rounds:w:3 say:there \
			"until:$TMP/forget" forget:m rounds:w:50 say:gone \
			"train:w:$TMP/enough.forget"
	done
	for r in 0 1; do wait_line 20 forget.$r '^there'; done
	touch "$TMP/none" "$TMP/forget"
	wait_line 10 scheduler 'job forget goes on without server s1, .* s1: out of memory'
	for r in 0 1; do wait_line 20 forget.$r '^gone'; done
	rm "$TMP/none"
	wait_until 20 'the server is used again' servers_are forget 2
	touch "$TMP/enough.forget"
	for r in 0 1; do expect_end 20 forget.$r 0; done
	train_more calm.0 20
	kill_now s1 TERM
	expect_end 20 s1 0
	say 'no memory to forget tensors: the server leaves the job, and comes again'
}
[ -n "${SAN:-}" ] || cannot_forget		# a sanitizer wants to be loaded first

# ---- the disk under the scheduler's state ----
[ "$(id -u)" = 0 ] || skip 'what follows needs a file system of its own, and so root'
kill_now scheduler TERM
expect_end 20 scheduler 0
mkdir "$TMP/small"
mount -t tmpfs -o size=64k tally-story "$TMP/small" || skip 'mounting is not possible here'
trap 'status=$?; umount -l "$TMP/small"{,} 2>/dev/null; (exit $status); clean_up' EXIT
cp -a "$TMP/state" "$TMP/small/state"
start_at()
{
	start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" \
		--state-dir "$TMP/small/state"
}
cat /dev/zero > "$TMP/small/fill" 2>/dev/null
cp "$TMP/small/state/state" "$TMP/before"
start_at
wait_line 10 scheduler '(No space left|cannot write)'
train_more calm.0 20
# Nodes ask each second at most: for longer than a scheduler waits for who holds jobs, 5 s.
refused_so_often() { (( $(grep -c "node $1 is refused, reason the scheduler cannot save" \
	"$TMP/scheduler.log") >= $2 )); }
wait_until 60 'a0 is refused again and again' refused_so_often a0 16
"$BIN/tally" status --timeout 10 > "$TMP/out" 2>&1 || fail 'no status'
expect_text "$TMP/out" 'cannot save'
cmp -s "$TMP/before" "$TMP/small/state/state" || fail 'the state was spoilt'
is_running "$(pid_of scheduler)" || fail 'the scheduler has ended'
rm "$TMP/small/fill"
wait_until 20 'all nodes are back' nodes_up 4
train_more calm.0 5
touch "$TMP/enough"
for r in 0 1; do expect_end 20 calm.$r 0; done
works disk a0 a1
say 'a full disk: no number is given that is not saved; nodes keep asking, and get in'

# ---- the disk becomes one that is only read ----
start_rank again 0 2 a0 declare:w:200000 "train:w:$TMP/enough.again"
start_rank again 1 2 a1 declare:w:200000 "train:w:$TMP/enough.again"
train_more again.0 5 20
mount --bind "$TMP/small" "$TMP/small" && mount -o remount,bind,ro "$TMP/small" ||
	fail 'mounting is not possible'
kill_now scheduler KILL
start_at
expect_end 10 scheduler 1
has_line scheduler 'cannot run, reason --state-dir: .*Read-only file system' ||
	fail 'it does not say why'
train_more again.0 20
umount "$TMP/small"
start_at
wait_until 20 'all nodes are back' nodes_up 4
touch "$TMP/enough.again"
for r in 0 1; do expect_end 20 again.$r 0; done
works written a0 a2
for d in scheduler a0 a1 a2 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say 'a disk that is only read: the scheduler says so and ends; jobs train on'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Nonsense on every port and socket is closed and logged, costs no descriptor and no
# memory, and disturbs nobody; what is busy already is said so, with a remedy.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 1 1
DATA=127.0.0.1:$(tr -d '[:space:]' < "$TMP/s0.port")
works before a0 a0
start_rank calm 0 1 a0 declare:w:20000 "train:w:$TMP/enough"
train_more calm.0 1 20

garbage() { "$PYTHON" "$ROOT/tests/trouble_garbage.py" "$@"; }

# All at once, each with those that say nothing.
start_daemon g-sched "$PYTHON" "$ROOT/tests/trouble_garbage.py" control "$SCHEDULER"
start_daemon g-agent "$PYTHON" "$ROOT/tests/trouble_garbage.py" control "$TMP/a0.sock"
start_daemon g-data "$PYTHON" "$ROOT/tests/trouble_garbage.py" data "$DATA"
start_daemon g-shm "$PYTHON" "$ROOT/tests/trouble_garbage.py" data "$TMP/s0.shm"
for x in sched agent data shm; do
	expect_end 40 g-$x 0
done
expect_text "$TMP/scheduler.log" 'closed, reason .*(version|type|message)'
expect_text "$TMP/s0.log" '(refused|closed|dropped).*(hello|key)'
expect_text "$TMP/a0.log" '(refused|closed|cut off).*'
say 'nonsense, silence and half sentences are closed in time, and logged'

# Often: neither descriptors nor memory grow.
for d in scheduler a0 s0; do
	declare "fds_$d=$(fds_of $d)" "rss_$d=$(rss_of $d)"
done
garbage control "$SCHEDULER" 15 && garbage control "$TMP/a0.sock" 15 &&
	garbage data "$DATA" 15 && garbage data "$TMP/s0.shm" 15 || fail 'not all were closed'
few_fds() { (( $(fds_of "$1") <= $2 + 2 )); }
for d in scheduler a0 s0; do
	fds=fds_$d rss=rss_$d
	wait_until 20 "$d has no more than ${!fds} descriptors" few_fds $d "${!fds}"
	(( $(rss_of $d) < ${!rss} + 4096 )) || fail "$d grew from ${!rss} to $(rss_of $d) KiB"
done
train_more calm.0 5
say '200 bad connections each: no descriptor, no memory'

# ---- what is busy ----
expect_busy()
{
	local what=$1 regex=$2

	shift 2
	"$@" > "$TMP/out" 2> "$TMP/err" < /dev/null &
	PID=$!
	adopt "$PID"
	PID_busy=$PID
	wait_until 40 "$what ends" ended busy
	wait "$PID" && fail "$what: exit status 0"
	expect_text "$TMP/err" "$regex"
}
expect_busy 'a second scheduler on the port' "${SCHEDULER##*:}.*(in use|another)" \
	"$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state2"
expect_busy 'a second scheduler on the state' "$TMP/state.*(another|locked|use)" \
	"$BIN/tally-scheduler" --listen 127.0.0.1:0 --state-dir "$TMP/state"
expect_busy 'a second server on the port' "${DATA##*:}.*(in use|another)" \
	"$BIN/tally-server" --scheduler "$SCHEDULER" --listen "$DATA" --name s1 \
	--shm-socket none --engines 1
expect_busy 'a second server on the socket' 's0.shm.*(in use|another)' \
	"$BIN/tally-server" --scheduler "$SCHEDULER" --listen 127.0.0.1:0 --name s1 \
	--shm-socket "$TMP/s0.shm" --engines 1
expect_busy 'a second server of the name' "(name|'?s0'?).*(--name|another)" \
	"$BIN/tally-server" --scheduler "$SCHEDULER" --listen 127.0.0.1:0 --name s0 \
	--shm-socket none --engines 1
expect_busy 'a second agent on the socket' 'a0.sock.*(in use|another)' \
	"$BIN/tally-agent" --scheduler "$SCHEDULER" --socket "$TMP/a0.sock" --name a1
expect_busy 'a second agent of the name' "(name|'?a0'?).*(--name|another)" \
	"$BIN/tally-agent" --scheduler "$SCHEDULER" --socket "$TMP/a1.sock" --name a0
[ -S "$TMP/a0.sock" ] && [ -S "$TMP/s0.shm" ] || fail 'a second daemon took the socket away'
say 'a second one on a port, socket, name or state: a clear error, and the first goes on'

touch "$TMP/enough"
expect_end 20 calm.0 0
works after a0 a0
for d in scheduler a0 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done

# ---- a state that is damaged, with its copy ----
kill_all scheduler
for f in state state.copy; do
	[ -s "$TMP/state/$f" ] || fail "no $f"
	printf x | dd of="$TMP/state/$f" bs=1 conv=notrunc status=none
done
expect_busy 'a scheduler whose state is damaged' \
	'state.* is damaged; put a good one back, or remove it and state.copy' \
	"$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state"
rm "$TMP/state/state" "$TMP/state/state.copy"
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state"
wait_until 20 'who had no job is a node of the new cluster' nodes_up 2
works anew a0
say 'a damaged state: not started, with what to do; and when that is done it works'

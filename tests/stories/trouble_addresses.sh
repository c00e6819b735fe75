#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The scheduler's name has three addresses, and two of them answer nobody: servers, agents and
# `tally` find the third, by 1 s for each of the others; also when the scheduler is started again.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

ns_cluster 2 1
SCHEDULER=cluster.test:7470
HERE=10.77.0.1
# Nobody has the first two, and nobody says so.
printf '%s cluster.test\n' 10.77.0.12 10.77.0.13 $HERE > "$TMP/hosts"

for ns in gpu0 gpu1 cpu0; do
	for a in 10.77.0.12 10.77.0.13; do
		in_ns $ns ip neigh replace $a lladdr 02:00:00:00:00:99 dev eth0 nud permanent
	done
done

# named NS COMMAND...: there, where the name is known; each has an /etc of its own.
named()
{
	ip netns exec "$RUN-$1" sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$TMP/hosts" \
		"${@:2}"
}
start_named()
{
	start_daemon "$2" ip netns exec "$RUN-$1" sh -c \
		'mount --bind "$0" /etc/hosts && exec "$@"' "$TMP/hosts" "${@:3}"
}
tally() { named gpu0 "$BIN/tally" "$@" --scheduler "$SCHEDULER"; }
nodes_up() { [ "$(tally nodes --json 2>/dev/null | grep -c '"state": *"up"')" = "$1" ]; }
start_scheduler_here()
{
	start_daemon scheduler ip netns exec "$RUN-sw" "$BIN/tally-scheduler" \
		--listen "$HERE:7470" --state-dir "$TMP/state"
}

named gpu0 getent ahostsv4 cluster.test | awk '$2 == "STREAM" { print $1 }' > "$TMP/order"
[ "$(wc -l < "$TMP/order")" = 3 ] && [ "$(tail -n 1 "$TMP/order")" = $HERE ] ||
	fail "the name has other addresses, or in another order: $(cat "$TMP/order")"
start_scheduler_here
wait_line 10 scheduler 'scheduler listens'
began=$(now_ms)
start_named cpu0 s0 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen 10.77.0.110:0 \
	--name s0 --machine-id cpu0 --engines 1 --memory 256M --shm-socket "$TMP/s0.shm"
for i in 0 1; do
	start_named gpu$i a$i "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a$i \
		--machine-id gpu$i --engines 1 --socket "$TMP/a$i.sock"
done
for name in s0 a0 a1; do wait_line 20 $name 'registered'; done
say "all are registered after $(( $(now_ms) - began )) ms; asked in this order:" \
	"$(xargs < "$TMP/order")"
began=$(now_ms)
nodes_up 3 || fail 'tally does not find the scheduler'
say "tally nodes has its answer after $(( $(now_ms) - began )) ms"

for r in 0 1; do start_trainer quiet $r 2 a$r; done
stop_training quiet
for r in 0 1; do expect_end 60 quiet.$r 0; done

for r in 0 1; do start_trainer calm $r 2 a$r; done
train_more calm.0 5 20
kill_now scheduler KILL
wait "$(pid_of scheduler)" 2>/dev/null
train_more calm.0 20 20
start_scheduler_here
is_active() { tally status 2>/dev/null > "$TMP/status" && ! grep -q recovering "$TMP/status"; }
wait_until 30 'it has recovered' is_active
wait_until 10 'all nodes are back' nodes_up 3
stop_training calm
for r in 0 1; do expect_end 60 calm.$r 0; done
for x in quiet.1 calm.0 calm.1; do
	[ "$(hash_of $x)" = "$(hash_of quiet.0)" ] || fail "$x has other bits"
done

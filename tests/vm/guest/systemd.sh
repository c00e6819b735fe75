#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installed as README says, and run by systemd's units in their sandbox, beside a second agent and
# a second server: users of the group train, others do not, and a job goes on with the same bits
# while the units' daemons are killed, restarted, stand still and have no memory.  Then all get
# cards with RDMA.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../trouble.sh"
. "$(dirname "$0")/../lib.sh"
[ "$(cat /proc/1/comm)" = systemd ] || skip 'runs inside tests/vm/vm.py -s only'

DAEMONS='tally-scheduler tally-server tally-agent'
SCHEDULER=127.0.0.1:7470 CLUSTER=127.0.0.1:7470

# ---- as README says ----
for d in /mnt /usr/local /var/lib; do mount -t tmpfs tmpfs $d || fail "no fresh $d"; done
cp -a /etc /mnt 2> "$TMP/cp.log" && mount --bind /mnt/etc /etc || fail 'no /etc to write to'
make -s -C "$ROOT" install > "$TMP/install.log" 2>&1 || fail 'make install'
ldconfig 2> "$TMP/ldconfig.log"
systemd-sysusers 2> "$TMP/sysusers.log" && systemctl daemon-reload || fail 'no user tally'
systemctl -q enable --now $DAEMONS || fail 'not enabled, or not started'
beside()
{
	start_agent a1
	start_server s1
	wait_until 60 'all nodes are registered' nodes_up 4
	chmod 666 "$TMP/a1.sock"
}
ulimit -l unlimited
beside
say 'installed, enabled, started: all registered'

# ---- who may train ----
unset TALLY_LIBRARY PYTHONPATH
PYTHONPATH=$(dirname "$(dirname "$(find /usr/local -path '*/tally/__init__.py')")")
export PYTHONPATH
[ -d "$PYTHONPATH/tally" ] || fail 'no package is installed'
chmod 755 "$TMP"
cp "$ROOT/tests/failover_rank.py" "$TMP"

# rank JOB RANK [GROUPS]: until $TMP/JOB.stop is there, as nobody, of these groups; rank 0 at the
# unit's agent.
rank()
{
	local -a agent=()

	[ "$2" = 0 ] || agent=(TALLY_SOCKET="$TMP/a1.sock")
	install -m 666 /dev/null "$TMP/$1.$2.count"
	start_daemon "$1.$2" runuser -u nobody -g nogroup ${3:+-G "$3"} -- \
		env TALLY_JOB="$1" TALLY_RANK="$2" TALLY_WORLD_SIZE=2 "${agent[@]}" \
		TROUBLE_PACE="${PACE:-0}" TROUBLE_COUNT="$TMP/$1.$2.count" \
		"$PYTHON" "$TMP/failover_rank.py" "$TMP/$1.stop"
}

rank stranger 0 ''
expect_end 60 stranger.0 1
has_line stranger.0 'EAUTH .* in its group' || fail 'who is not of the group does not hear why'
for r in 0 1; do PACE=2 rank units $r tally; done
wait_until 90 'it trains' has_rounds units.0 5
ss -x state connected | grep -q /run/tally-server/server.sock ||
	fail 'agent and server do not speak by shared memory'
say "users of the group train, others hear: $(grep -o 'EAUTH.*' "$TMP/stranger.0.log")"

# ---- daemons end, and are started again ----
main_pid() { systemctl show -P MainPID "$1"; }

state_is() { [ "$(systemctl is-active "$1")" = "$2" ]; }	# failed: not inactive

# another UNIT PID: its process is another one, and ready.
another()
{
	local now

	now=$(main_pid "$1")
	[ "$now" != 0 ] && [ "$now" != "$2" ] && state_is "$1" active
}

# again UNIT HOW COMMAND...: which ends the daemon; there is another one, and the job goes on.
again()
{
	local unit=$1 how=$2 before began=$SECONDS

	shift 2
	before=$(main_pid "$unit")
	"$@" || fail "$how: $*"
	wait_until 120 "$unit is started again after $how" another "$unit" "$before"
	wait_until 60 'all nodes are registered' nodes_up 4
	train_more units.0 3 90
	say "$unit $how: started again, 3 rounds after $(( SECONDS - began )) s"
}

for unit in $DAEMONS; do
	again "$unit" killed systemctl kill -s KILL --kill-who=main "$unit"
	again "$unit" restarted systemctl restart "$unit"
done
again tally-server 'stood still' systemctl kill -s STOP --kill-who=main tally-server

# ---- memory ----
# The kernel's own list of whom it takes first; then it is told to take one.
sleep infinity & adopt $!
for unit in $DAEMONS; do
	(( $(< /proc/$(main_pid $unit)/oom_score) < $(< /proc/$!/oom_score) )) ||
		fail "$unit goes before others for want of memory"
done
before=$(for unit in $DAEMONS; do main_pid "$unit"; done)
start_daemon hog "$PYTHON" -c '
import signal
memory = b"x" * (400 << 20)
print("full", flush=True)
signal.pause()'
wait_line 60 hog full
echo f > /proc/sysrq-trigger
expect_end 60 hog 137
[ "$(for unit in $DAEMONS; do main_pid "$unit"; done)" = "$before" ] || fail 'a daemon went, too'
train_more units.0 3 90
say 'no memory is left: who has most goes, no daemon does'

limit() { systemctl set-property --runtime tally-server MemoryMax="$1"; }
starve()
{
	limit 2M
	wait_until 60 'the kernel ends it' test ! -e "/proc/$before"
	limit infinity
}
again tally-server 'without memory of its own' starve

touch "$TMP/units.stop"
for r in 0 1; do expect_end 180 units.$r 0; done
wait_until 30 'nothing is kept of a job that is over' keeps -eq 0

# ---- two machines by their cards; everything is started again ----
machines 4
for d in a1 s1; do kill_now $d TERM; expect_end 30 $d 0; done
CARDS=2			# the units have the others
echo 'TALLY_OPTIONS=--machine-id a --rail 10.66.0.3' > /etc/default/tally-agent
printf '%s\n' 'TALLY_OPTIONS=--machine-id b' TALLY_LISTEN=10.66.0.4:7471 > /etc/default/tally-server
systemctl restart tally.target || fail 'the target is not started again'
beside
for r in 0 1; do rank cards $r tally; done
wait_until 60 'all links use rdma' all_links_by_rdma
touch "$TMP/cards.stop"
for r in 0 1; do expect_end 300 cards.$r 0; done
for r in 0 1; do
	[ "$(hash_of units.$r)" = "$(hash_of cards.0)" ] || fail "rank $r has other bits"
done
say 'over RDMA: the same bits'

systemctl stop tally.target || fail 'the target does not stop'
for unit in $DAEMONS; do
	wait_until 30 "$unit ends well" state_is "$unit" inactive
done
say 'the target stops all of them'

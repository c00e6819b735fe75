#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages where systemd is the first process: installed, their daemons run and come
# back at the next start; upgraded, all at once, while a job trains, which goes on with the same
# bits; removed, daemons are gone; purged, nothing is left.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../trouble.sh"
. "$(dirname "$0")/../lib.sh"
[ "$(cat /proc/1/comm)" = systemd ] || skip 'runs inside tests/vm/vm.py -s only'

DAEMONS='tally-scheduler tally-server tally-agent'
SCHEDULER=127.0.0.1:7470 CLUSTER=127.0.0.1:7470
DEBS=$(dirname "$(realpath "$BIN")")/deb
# Without libtally-cuda, and what is for debuggers and compilers.
of() { ls "$1"/*.deb | grep -v -e -dbgsym_ -e -cuda_ -e -dev_; }
packages() { dpkg-query -W -f '${Package} ' '*tally*'; }

# ---- a root file system to write to ----
mount -t tmpfs layers /mnt || fail 'no memory for layers'
for d in usr etc var; do
	mkdir -p /mnt/$d/over /mnt/$d/work
	mount -t overlay over -o lowerdir=/$d,upperdir=/mnt/$d/over,workdir=/mnt/$d/work /$d ||
		fail "no layer over /$d"
done
systemctl daemon-reload
[ -z "$(ls -d /usr/bin/tally* /usr/lib/systemd/system/tally* 2> /dev/null)" ] ||
	fail 'this machine has Tally installed'

# ---- install ----
export DEBIAN_FRONTEND=noninteractive
change() { dpkg "$@" < /dev/null > "$TMP/dpkg.log" 2>&1 || fail "dpkg $1"; }
state_is() { [ "$(systemctl is-active "$1")" = "$2" ]; }	# failed: not inactive
change -i $(of "$DEBS")
for unit in $DAEMONS; do
	wait_until 60 "$unit runs" state_is $unit active
	systemctl -q is-enabled $unit || fail "$unit is not enabled"
done
BIN=/usr/bin
wait_until 60 'agent and server are registered' nodes_up 2
start_agent a1
wait_until 60 'so is another agent' nodes_up 3
chmod 666 "$TMP/a1.sock"
say "installed, enabled, started: $(packages)"

# ---- upgrade while a job trains ----
unset TALLY_LIBRARY PYTHONPATH
chmod 755 "$TMP"
cp "$ROOT/tests/failover_rank.py" "$TMP"
# start_ranks JOB PACE: until $TMP/JOB.stop is there, as nobody, of the group; rank 0 at the unit's
# agent.
start_ranks()
{
	local r
	local -a agent=()

	for r in 0 1; do
		[ $r = 0 ] || agent=(TALLY_SOCKET="$TMP/a1.sock")
		install -m 666 /dev/null "$TMP/$1.$r.count"
		start_daemon "$1.$r" runuser -u nobody -g nogroup -G tally -- \
			env TALLY_JOB="$1" TALLY_RANK=$r TALLY_WORLD_SIZE=2 "${agent[@]}" \
			TROUBLE_PACE="$2" TROUBLE_COUNT="$TMP/$1.$r.count" \
			"$PYTHON" "$TMP/failover_rank.py" "$TMP/$1.stop"
	done
}
main_pids() { for unit in $DAEMONS; do systemctl show -P MainPID $unit; done; }

start_ranks still 0
touch "$TMP/still.stop"
for r in 0 1; do expect_end 300 still.$r 0; done

start_ranks upgrade 1
wait_until 90 'it trains' has_rounds upgrade.0 5
echo 'TALLY_OPTIONS=--links 1' >> /etc/default/tally-agent
before=$(main_pids)
change -i $(of "$DEBS/next")
for package in $(packages); do
	[[ $(dpkg-query -W -f '${Version}' $package) = *+1 ]] || fail "$package was not upgraded"
done
for unit in $DAEMONS; do wait_until 60 "$unit runs again" state_is $unit active; done
for pid in $(main_pids); do
	! grep -qx "$pid" <<< "$before" || fail 'a daemon was not started again'
done
tr '\0' ' ' < "/proc/$(systemctl show -P MainPID tally-agent)/cmdline" | grep -q -- '--links 1' ||
	fail 'what was configured is not used'
train_more upgrade.0 5 180
touch "$TMP/upgrade.stop"
for r in 0 1; do
	expect_end 300 upgrade.$r 0
	[ "$(hash_of upgrade.$r)" = "$(hash_of still.0)" ] || fail "rank $r has other bits"
done
say 'upgraded under a job: all daemons are new, the bits are the same'

# ---- remove, purge ----
names=$(packages)
kill_now a1 TERM; expect_end 30 a1 0
change -r $names
for unit in $DAEMONS; do
	state_is $unit inactive || fail "$unit is $(systemctl is-active $unit), removed"
done
[ -z "$(pgrep -x 'tally-(scheduler|server|agent)')" ] || fail 'a daemon runs on, removed'
[ -e /var/lib/tally-scheduler ] && [ -e /etc/default/tally-agent ] ||
	fail 'removing took state or configuration'
change -P $names
left=$(find /etc /usr/bin /usr/lib /usr/share /var/lib/tally-scheduler /run/tally \
	-name '*tally*' 2> /dev/null)
[ -z "$left" ] || fail "purging left $left"
[ -z "$(systemctl list-units --all --plain --no-legend 'tally*')" ] || {
	systemctl list-units --all 'tally*'
	fail 'systemd still has a unit'
}
say 'removed: nothing runs; purged: nothing is left'

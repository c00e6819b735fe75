#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The units of deploy/systemd load without a word from systemd-analyze, and their
# sandbox stays as tight as it is.
. "$(dirname "$0")/../lib.sh"

THRESHOLD=20		# systemd's exposure 2.0; chrony ships with 3.7, nginx with 9.6

command -v systemd-analyze > /dev/null || skip 'systemd-analyze is not installed'

# verify wants the programs to exist where the unit says: in a copy they do.
for unit in "$ROOT"/deploy/systemd/*.service "$ROOT"/deploy/systemd/*.target; do
	sed "s,/usr/bin/tally-[a-z]*,$BASH," "$unit" > "$TMP/${unit##*/}"
done

systemd-analyze verify --man=no "$TMP"/*.service "$TMP"/*.target > "$TMP/verify.txt" 2>&1 ||
	{ cat "$TMP/verify.txt"; fail 'systemd-analyze verify found errors'; }
[ -s "$TMP/verify.txt" ] && { cat "$TMP/verify.txt"; fail 'systemd-analyze verify warns'; }

for unit in "$TMP"/*.service; do
	systemd-analyze security --offline=true --threshold=$THRESHOLD "$unit" \
		> "$TMP/security.txt" 2>&1 ||
		{ cat "$TMP/security.txt"; fail "${unit##*/} is exposed more than 2.0"; }
	say "$(tail -n 1 "$TMP/security.txt")"
done

# Every program of a unit is one that the build makes, started with options it has.
for unit in "$ROOT"/deploy/systemd/*.service; do
	program=$(sed -n 's,^ExecStart=/usr/bin/\([a-z-]*\) .*,\1,p' "$unit")
	[ "$program" = "$(basename "$unit" .service)" ] || fail "$unit starts '$program'"
	[ -x "$BIN/$program" ] || fail "$BIN/$program is not built"
	"$BIN/$program" --help > "$TMP/help.txt" 2>&1 || fail "$program --help fails"
	for option in $(sed -n '/^ExecStart=/s/ /\n/gp' "$unit" | grep '^--'); do
		expect_text "$TMP/help.txt" "$option"
	done
	grep -q '^User=tally$' "$unit" || fail "$unit: who runs it cannot own a secret file"
	grep -q '^OOMScoreAdjust=-900$' "$unit" || fail "$unit: the kernel's next victim"
	for line in Restart=on-failure RestartSec=1 WatchdogSec=30; do
		grep -qx "$line" "$unit" || fail "$unit: not $line, as docs/FAILURES.md says"
	done
	# Without a route to its scheduler a daemon ends at once, ten times in ten seconds.
	grep -q '^StartLimitIntervalSec=0$' "$unit" || fail "$unit: gives up while a network comes"
done

grep -q '^DeviceAllow=char-nvidia' "$ROOT/deploy/systemd/tally-agent.service" ||
	fail 'the agent does not see NVLinks'

# What is enabled runs after the next boot, whether the target is enabled or not.
mkdir -p "$TMP/root/usr/lib/systemd/system" "$TMP/root/etc"
cp "$ROOT"/deploy/systemd/*.service "$ROOT"/deploy/systemd/*.target \
	"$TMP/root/usr/lib/systemd/system"
for unit in "$ROOT"/deploy/systemd/*.service; do
	expect_status 0 systemctl --root="$TMP/root" enable "${unit##*/}"
	for target in multi-user tally; do
		[ -L "$TMP/root/etc/systemd/system/$target.target.wants/${unit##*/}" ] ||
			fail "${unit##*/} is enabled, and $target.target does not start it"
	done
done

# Every daemon says READY=1 and answers the watchdog, or systemd would kill it.
said() { grep -qx "$2" "$TMP/$1.said"; }
has_socket() { [ -S "$1" ]; }
listen_to()
{
	start_daemon "ear-$1" "$PYTHON" -u -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
with open(sys.argv[2], "w", buffering=1) as f:
    while True:
        f.write(s.recv(4096).decode() + "\n")' "$TMP/$1.notify" "$TMP/$1.said"
	wait_until 10 'somebody listens' has_socket "$TMP/$1.notify"
	export NOTIFY_SOCKET=$TMP/$1.notify WATCHDOG_USEC=200000
}
# Also where there is no scheduler yet: whoever is started after it shall not wait for that.
listen_to early
start_daemon early "$BIN/tally-server" --scheduler 127.0.0.1:1 --listen 127.0.0.1:0 \
	--shm-socket "$TMP/early"
wait_until 20 'a server without a scheduler says that it has started' said early READY=1
listen_to scheduler
start_scheduler
listen_to server
start_daemon server "$BIN/tally-server" --scheduler "$SCHEDULER" --listen 127.0.0.1:0 \
	--shm-socket "$TMP/shm"
listen_to agent
start_daemon agent "$BIN/tally-agent" --scheduler "$SCHEDULER" --socket "$TMP/agent.sock"
for who in scheduler server agent; do
	wait_until 20 "$who says that it is ready" said $who READY=1
	wait_until 10 "$who answers the watchdog" said $who WATCHDOG=1
done

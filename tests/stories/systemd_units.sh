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

systemd-analyze verify "$TMP"/*.service "$TMP"/*.target > "$TMP/verify.txt" 2>&1 ||
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
	# A watchdog kills a program that does not answer it.
	grep -q '^WatchdogSec=' "$unit" && ! grep -q 'WATCHDOG=1' "$BIN/$program" &&
		fail "$program never says WATCHDOG=1"
done
exit 0

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs that are started with standard input, output and error closed: daemons serve and end
# cleanly, none of their files is taken for one of the three, and `tally local` runs its command.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

mkdir "$TMP/bin"
for program in tally tally-scheduler tally-server tally-agent; do
	closing=
	[ $program = tally ] || closing='<&- >&- 2>&-'
	printf '#!/bin/bash\nexec "%s" "$@" %s\n' "$BIN/$program" "$closing" > "$TMP/bin/$program"
	chmod +x "$TMP/bin/$program"
done
tally=$BIN/tally
BIN=$TMP/bin
start_cluster 1 1
works closed a0 a0
for daemon in a0 s0 scheduler; do
	for fd in 0 1 2; do
		[ "$(readlink "/proc/$(pid_of $daemon)/fd/$fd")" = /dev/null ] ||
			fail "descriptor $fd of $daemon is something else"
	done
done
for daemon in a0 s0 scheduler; do
	kill "$(pid_of $daemon)"
	expect_end 10 $daemon 0
done
say 'daemons without the three descriptors'

expect_status 0 "$tally" local -- touch "$TMP/ran" <&-
rm "$TMP/ran"
expect_status 0 bash -c '"$1" local -- touch "$2" <&- >&- 2>&-' local "$tally" "$TMP/ran"
[ -e "$TMP/ran" ] || fail 'tally local without the three descriptors runs nothing'
expect_status 1 bash -c '"$1" plan --gpu 4 --cpu 2 --model 64M >&-' plan "$tally"
expect_text "$TMP/err" 'cannot write the output'
say 'tally without the three descriptors'

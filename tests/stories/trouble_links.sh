#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bytes that are no frame on links that carry a job, from either side: that link ends, with a word
# of who and what, is made again, and the sums are right.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 1
PORT=$(tr -d '[:space:]' < "$TMP/s0.port")
for r in 0 1; do
	start_rank job $r 2 a$r declare:w:3000000 rounds:w:3 say:first "until:$TMP/once" \
		rounds:w:3 say:second "until:$TMP/twice" rounds:w:3
done

# inject NAME: on its links, which are idle.
inject()
{
	"$PYTHON" "$ROOT/tests/trouble_inject.py" "$(pid_of "$1")" "$PORT" > "$TMP/out" 2>&1 ||
		{ [ $? != 77 ] || [ "$(id -u)" = 0 ] || skip "$(cat "$TMP/out")"
		fail "no bytes were sent: $(cat "$TMP/out")"; }
	expect_text "$TMP/out" '^on [1-9][0-9]* links'
	say "$1: $(cat "$TMP/out")"
}

for r in 0 1; do wait_line 30 job.$r '^first'; done
inject a0
wait_line 10 s0 'link from agent a[01] closed, reason bad_frame: .*a5a5'
touch "$TMP/once"
for r in 0 1; do wait_line 30 job.$r '^second'; done
say "$(grep -Eo 'link from agent .*' "$TMP/s0.log" | head -n 1)"

inject s0
for a in a0 a1; do wait_line 10 $a 'link to server s0 lost, reason bad_frame: .*a5a5'; done
touch "$TMP/twice"
for r in 0 1; do expect_end 30 job.$r 0; done
say "$(grep -Eo 'link to server s0 lost.*bad_frame.*' "$TMP/a0.log" | head -n 1)"
has_line scheduler '-> (away|dead)' && fail 'somebody was given up'
for d in scheduler a0 a1 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The wall clock jumps by days, back and forth, at every look, in every daemon and every
# rank: nobody is declared dead, no deadline passes early, a real death is still noticed.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

${CC:-cc} -shared -fPIC -O1 -o "$TMP/clock_jump.so" "$ROOT/tests/clock_jump.c" ||
	fail 'the clock to preload cannot be built'
[ -z "${SAN:-}" ] || skip 'a sanitizer wants to be loaded first'
export LD_PRELOAD=$TMP/clock_jump.so
[ "$("$PYTHON" -c 'import time; print(abs(time.time() - time.time()) > 80000)')" = True ] ||
	fail 'the clock does not jump'

start_cluster 2 2 --heartbeat-ms 200
start_rank x 0 2 a0 declare:w:300000 "train:w:$TMP/enough" barrier:20
start_rank x 1 2 a1 declare:w:300000 "train:w:$TMP/enough" barrier:20
train_more x.0 20 20
heartbeats() { "$BIN/tally" nodes --json | grep -c '"heartbeat_age_ms": *[0-9]\{1,4\}\b'; }
[ "$(heartbeats)" = 4 ] || fail 'the age of heartbeats follows the wall clock'
lease_has_passed() { (( $(now_ms) - began > 4000 )); }	# longer than a lease
unset LD_PRELOAD
began=$(now_ms)
wait_until 20 'a lease has passed' lease_has_passed
train_more x.0 20
grep -E -- '-> (away|dead)' "$TMP/scheduler.log" && fail 'a node was lost'
say 'the clock jumps: everybody stays'
kill_now s1 KILL
wait_line 10 scheduler 'server s1 .*-> dead'
train_more x.0 20
touch "$TMP/enough"
for r in 0 1; do expect_end 20 x.$r 0; done
say 'who dies is still noticed, and the job goes on'

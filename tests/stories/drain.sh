#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tally drain says that a server is drained when it is, and not when it is used again, or when
# the scheduler does not know.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

tally() { "$BIN/tally" "$@" --scheduler "$SCHEDULER"; }
is() { tally nodes 2>/dev/null | grep -Eq "^$1 .* $2 "; }
# drain NAME [SECONDS]: it waits for so long.
drain()
{
	start_daemon "$1" "$BIN/tally" drain s0 --timeout "${2:-30}" --scheduler "$SCHEDULER"
}

start_cluster 2 1
for r in 0 1; do start_rank job $r 2 a$r declare:w:500000 "train:w:$TMP/enough"; done
train_more job.0 5 20

# ---- it is the last one, and is wanted after all ----
drain undone
wait_until 10 'it drains' is s0 draining
tally drain --undo s0 > "$TMP/out" || fail "undo: $(cat "$TMP/out")"
expect_end 10 undone 1
has_line undone 'is drained' && fail 'it was said to be drained, and is used'
has_line undone 'server s0 is used again' || fail 'it is not said why it is not drained'

# ---- the scheduler is started again, and does not know who uses it ----
kill_now a1 STOP
kill_all scheduler
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state"
wait_until 20 'it is registered' is s0 up
drain unknown 120
wait_until 10 'it is heard of' is s0 drain.*
kill_now a1 CONT
train_more job.0 5 20
ended unknown && fail 'it was said to be drained, and is used'
touch "$TMP/enough"
for r in 0 1; do expect_end 20 job.$r 0; done
expect_end 30 unknown 0
has_line unknown 'server s0 is drained' || fail 'it is not said'

# ---- it drains, has no other to go to, and the job loses a rank: it serves who is left ----
tally drain --undo s0 > "$TMP/out" || fail "undo: $(cat "$TMP/out")"
wait_until 10 'it is used again' is s0 up
for r in 0 1 2; do start_shrink smaller $r 3 a$(( r / 2 )) 4 30 0.02; done
wait_until 30 'it trains' at_round smaller.0 5
drain served 120
wait_until 10 'it drains' is s0 draining
kill_now smaller.1 KILL
wait_until 30 'it trains on with two ranks' at_round smaller.0 20
ended served && fail 'it was said to be drained, and is used'
all_lost smaller
for r in 0 2; do expect_end 30 smaller.$r 0; done
expect_end 10 served 0

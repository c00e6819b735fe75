#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The scheduler comes back, and before a server and an agent that train have reached it again
# other processes have registered under their names.  They hear so, and end: a job goes on without
# that server, one that has a rank on that agent ends, and who has the names now serves.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 3 2 --agent-grace 4
for r in 0 1; do start_rank calm $r 2 a$(( 2 * r )) declare:w:200000 "train:w:$TMP/enough"; done
for r in 0 1; do start_rank lost $r 2 a$r declare:w:200000 "train:w:$TMP/never"; done
train_more calm.0 5
train_more lost.0 5

kill_all scheduler
for d in s1 a1; do kill_now $d STOP; done	# until the others are registered
card_of s1b
start_daemon s1b "$BIN/tally-server" --scheduler "$SCHEDULER" --listen "${CARD:-$LOOPBACK}:0" \
	--name s1 --machine-id other --engines 1 --memory 256M --shm-socket "$TMP/s1b.shm"
card_of a1b
start_daemon a1b "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a1 --machine-id other \
	--engines 1 --socket "$TMP/a1b.sock" ${CARD:+--rail "$CARD"}
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state" \
	--agent-grace 4
for d in s1b a1b; do wait_line 30 $d 'registered, node'; done
for d in s1 a1; do kill_now $d CONT; done

expect_error 60 lost.1 "EWORKERLOST another agent is registered as 'a1', from machine other, "
expect_error 60 lost.0 'EWORKERLOST rank 1 on machine a1 is gone'
expect_end 60 a1 1
expect_end 60 s1 1
wait_line 20 a1 'refuses tally-agent: another agent is registered'
wait_line 20 s1 "refuses tally-server: server 's1' is registered already, from machine other"
say "the first ones end: $(sed -n 's/^ERROR //p' "$TMP/lost.1.log")"

train_more calm.0 20
touch "$TMP/enough"
for r in 0 1; do expect_end 30 calm.$r 0; done
works after a0 a1b a2
say 'other jobs notice nothing, and who has the names serves'

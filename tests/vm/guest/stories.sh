#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Stories of failures with real verbs: as in tests/stories, but each machine has a card, and
# payloads go by RDMA.  Words name the ones to run: others than those below have not been tried,
# and may want more time than they have.
#
# What needs machines cut off from each other is not here: all cards are one kernel's.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

(( $# )) || set -- agent_busy agent_restart drain grow grow_early shrink stuck trouble_back \
	trouble_daemons trouble_exhausted trouble_hostile trouble_leave trouble_links \
	trouble_lost trouble_memory trouble_missed trouble_noserver trouble_number trouble_ranks \
	trouble_refused trouble_round trouble_scheduler
export CARDS=9
# Emulated: all is slow, and who trains leaves time to others.
export PATIENCE=4 TROUBLE_PACE=0.3
machines "$CARDS"

# packets: that all cards have sent by RoCE.
packets()
{
	awk '{ n += $1 } END { print n }' /sys/class/infiniband/rxe*/ports/1/hw_counters/sent_pkts
}

passed=0 failed=0
for story; do
	began=$SECONDS before=$(packets)
	timeout 1500 bash "$ROOT/tests/stories/$story.sh" > "$TMP/out" 2>&1
	status=$?
	sent=$(( $(packets) - before ))
	(( status || sent > 100 )) || echo 'its rounds did not go by RoCE' >> "$TMP/out"
	if (( status == 0 && sent > 100 )); then
		passed=$(( passed + 1 )) word=ok
	else
		failed=$(( failed + 1 )) word=FAILED
		cat "$TMP/out"
	fi
	printf '%-8s%-24s%5d s, %d packets by RoCE\n' "$word" "$story" $(( SECONDS - began )) \
		"$sent"
done
echo "$passed passed, $failed failed"
(( failed == 0 ))

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An agent in a PID namespace of its own (a container) is told no process numbers: a rank that
# is killed is named to the others, and no number of 0 is.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

[ "$(id -u)" = 0 ] || skip 'making a namespace of processes needs root'
start_scheduler
start_daemon a0 unshare --kill-child=SIGKILL --pid --fork --mount-proc "$BIN/tally-agent" \
	--scheduler "$SCHEDULER" --name a0 --machine-id a0 --engines 1 --socket "$TMP/a0.sock"
wait_until 60 'the agent is registered' nodes_up 1
for r in 0 1; do start_rank job $r 2 a0 declare:w:20000 "train:w:$TMP/never"; done
train_more job.0 5 20
kill_now job.1 KILL
expect_error 20 job.0 \
	'EWORKERLOST rank 1 on machine a0 is gone \(its process has ended without detaching\)'
has_line scheduler 'process 0' && fail 'the scheduler says process 0'
has_line a0 '(pid|process) 0 ' && fail 'the agent says process 0'
say 'an agent in a PID namespace of its own: the rank is named, and no process 0'

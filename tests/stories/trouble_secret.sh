#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The cluster's join secret is replaced while a job trains: in each machine's file, and then the
# scheduler is started again.  Who has the new one late is refused until then, and comes late.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# new_secret NAME SECRET: that daemon's file, replaced at once.
new_secret() { (umask 077; echo "$2" > "$TMP/$1.new") && mv "$TMP/$1.new" "$TMP/$1.secret"; }
is_active()
{
	"$BIN/tally" status --timeout 1 > "$TMP/status" 2>&1 && ! grep -q recovering "$TMP/status"
}
for d in scheduler a0 a1 s0; do new_secret $d sesame; done
export TALLY_SECRET_FILE=$TMP/scheduler.secret

start_scheduler --secret-file "$TMP/scheduler.secret"
for a in a0 a1; do start_agent $a --secret-file "$TMP/$a.secret"; done
start_server s0 --secret-file "$TMP/s0.secret"
wait_until 60 'all nodes are registered' nodes_up 3
for r in 0 1; do
	start_rank job $r 2 a$r declare:w:100000 "train:w:$TMP/enough" declare:x:3000 rounds:x:3
done
train_more job.0 5 20

for d in scheduler a0 s0; do new_secret $d 'open wheat'; done
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state" \
	--secret-file "$TMP/scheduler.secret"
for d in a0 s0; do wait_line 20 $d 'the secret in .* is another one now'; done
wait_line 20 a1 'no connection to scheduler .* reason .*wrong join secret'
wait_until 20 'it has recovered' is_active
wait_until 20 'the job says whom it waits for' job_says job 'agent a1, [0-9]+ s left'
train_more job.0 10
rm "$TMP/a1.secret"
wait_line 10 a1 'the secret of before is used, reason cannot read'
new_secret a1 'open wheat'
wait_line 10 scheduler 'job job goes on with machine a1, which tells of it late'
wait_until 20 'all are back' nodes_up 3
train_more job.0 20
touch "$TMP/enough"
for r in 0 1; do expect_end 20 job.$r 0; done
works next a0 a1

# However often somebody is refused, the log has room for what happens to others.
echo sesame > "$TMP/wrong.secret"
chmod 600 "$TMP/wrong.secret"
knock()
{
	seq 250 | xargs -P 8 -I{} "$BIN/tally" status --secret-file "$TMP/wrong.secret" \
		> /dev/null 2>&1
	has_line scheduler 'wrong join secret.*more like this are left out'
}
wait_until 60 'refusals are left out' knock
kill_now s0 KILL
wait_line 10 scheduler 'server s0 .* -> dead'
say 'replaced in all files, one of them late, and the scheduler started again: the job goes on'

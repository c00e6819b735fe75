#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A server says what a job may cost it at most: when the job starts, and whenever its share
# is another one, also when it came later and had none at first.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# Per cent of the tensors, by what its log has said last.
part()
{
	sed -n 's/.*memory at most .* and \([0-9.]*\) % of the tensors.*/\1/p' "$TMP/$1.log" |
		tail -n 1
}
has_all() { [ "$(part "$1")" = 100.000 ]; }
# Not always a half each: a server that another program slowed down as it started has less.
is_shared()
{
	awk -v s0="$(part s0)" -v s1="$(part s1)" \
		'BEGIN { all = s0 + s1; exit !(s0 > 0 && s1 > 0 && 99.99 < all && all < 100.01) }'
}

start_cluster 2 1
for r in 0 1; do start_rank job $r 2 a$r declare:w:500000 "train:w:$TMP/enough"; done
train_more job.0 3 20
has_all s0 || fail 'the only server does not say that it has all'
start_server s1
wait_until 60 'each has a part, and says so' is_shared
kill_all s1
wait_until 20 's0 has all again, and says so' has_all s0
train_more job.0 3 20
touch "$TMP/enough"
for r in 0 1; do expect_end 20 job.$r 0; done

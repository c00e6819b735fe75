#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ALONE: it sets huge pages aside on the whole machine.
# Arenas of huge pages: jobs train in them, and a process that gives its pages back before
# they are sealed, and has others take them, hurts nobody but itself.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

PAGES=96
knob=/proc/sys/vm/nr_hugepages
grep -q '^Hugepagesize: *2048 kB' /proc/meminfo || skip 'huge pages of 2 MiB are needed'
exec {lock}< $knob
flock $lock				# one run at a time: the knob is the machine's
before=$(< $knob)
give_back() { echo "$before" > $knob; }
at_exit give_back
{ echo $(( before + PAGES )) > $knob; } 2>/dev/null || skip 'no right to set huge pages aside'
huge() { sed -n "s/^HugePages_$1: *//p" /proc/meminfo; }
(( $(huge Free) >= PAGES )) || skip "no room for $PAGES huge pages"

# not_huge WHAT: nobody's fault where a cluster beside this one has taken them.
not_huge()
{
	pgrep -x tally-agent | grep -qvx -e "$(pid_of a0)" -e "$(pid_of a1)" &&
		skip 'another cluster on this machine takes huge pages'
	fail "$1"
}

start_cluster 2 1
start_rank calm 0 2 a0 declare:w:200000 "train:w:$TMP/enough"
start_rank calm 1 2 a1 declare:w:200000 "train:w:$TMP/enough"
train_more calm.0 1 20
# Not by what is free: daemons of a run before may be on their way out.
grep -q '^KernelPageSize: *2048 kB' "/proc/$(pid_of a0)/smaps" ||
	not_huge 'the arenas are not of huge pages'
say 'training in huge pages'

start_rank huge 0 3 a0 declare:w:100000 submit:w wait:30
start_rank huge 2 3 a1 declare:w:100000 submit:w wait:30
start_daemon huge.1 env TALLY_JOB=huge TALLY_RANK=1 TALLY_WORLD_SIZE=3 \
	TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" "$ROOT/tests/trouble_hostile.py" huge
wait_line 20 huge.1 '^struck'
has_line huge.1 '^WRONG: small pages' && not_huge 'the attack has small pages'
has_line huge.1 '^refused' || fail 'pages that are not there any more were accepted'
has_line huge.1 '^WRONG' && fail 'that is not the attack'
for r in 0 2; do
	expect_error 10 huge.$r 'EWORKERLOST rank 1 on machine a0 is gone .* has broken the rules'
done
expect_end 10 huge.1 0
has_line huge.1 '^told EPROTO rank 1 named memory that it does not have' ||
	fail 'the liar does not hear why'
train_more calm.0 5
touch "$TMP/enough"
for r in 0 1; do expect_end 20 calm.$r 0; done
for d in scheduler a0 a1 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say 'huge pages that were given back: refused, and nobody else noticed'

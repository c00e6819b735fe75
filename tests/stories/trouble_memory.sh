#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Of all that the daemons allocate one in eight cannot be had for some seconds, while jobs come and
# go and connections are lost.  No daemon ends; when there is memory again all are nodes, and jobs
# are as ever.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

[ -z "${SAN:-}" ] || skip 'a sanitizer wants to be loaded first'
${CC:-cc} -shared -fPIC -O1 -o "$TMP/no_memory.so" "$ROOT/tests/no_memory.c" ||
	fail 'what is to be preloaded cannot be built'
export NO_MEMORY=$TMP/none NO_MEMORY_PERMILLE=125
poor() { LD_PRELOAD=$TMP/no_memory.so "$@"; }
poor start_cluster 2 2
daemons='scheduler a0 a1 s0 s1'
# ends SECONDS NAME: well, or with an error of Tally's; not with a wrong sum, nor without a word.
ends()
{
	local status

	wait_until "$1" "$2 ends" ended "$2"
	wait "$(pid_of "$2")"
	status=$?
	[ $status = 0 ] || { [ $status = 1 ] && has_line "$2" '^ERROR E[A-Z]+ .'; } ||
		fail "$2 ended with $status, and no error"
}
all_run() { local d; for d in $daemons; do is_running "$(pid_of $d)" || fail "$d has ended"; done; }

for r in 0 1; do start_rank calm $r 2 a$r declare:w:200000 "train:w:$TMP/enough"; done
train_more calm.0 5 20
touch "$TMP/none"
for (( i = 0; i < 6; i++ )); do
	for r in 0 1; do
		TROUBLE_TIMEOUT=2 start_rank poor$i $r 2 a$r declare:w:70000 rounds:w:3 \
			declare:x:9000 barrier:2 rounds:x:3
	done
	for (( n = 0; n < 40; n++ )); do (: > "/dev/tcp/${SCHEDULER/://}") 2> /dev/null; done
	for r in 0 1; do ends 90 poor$i.$r; done
	all_run
done
refused=$(wc -c < "$TMP/none")
rm "$TMP/none"
(( refused )) || fail 'memory was there all the time'
say "no memory, $refused times:" \
	"$(grep -lh ^ERROR "$TMP"/poor*.log | wc -l) of 12 ranks heard an error"

wait_until 60 'all are nodes again' nodes_up 4
touch "$TMP/enough"
for r in 0 1; do ends 60 calm.$r; done		# it may be one that was met
works after a0 a1
all_run
say 'with memory all is as before'

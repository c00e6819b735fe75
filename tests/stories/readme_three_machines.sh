#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The three machines of README.md, with its own commands: a, b and c are network
# namespaces, the daemons start by hand, two ranks run a checked benchmark.
#
# Only the line that sets NET and D is replaced, so that two runs never meet.

. "$(dirname "$0")/../lib.sh"

can_make_namespaces || skip 'making network namespaces needs root'
export PATH=$BIN:$PATH

readme_block()	# NAME: in $TMP/NAME.sh, with directory and namespaces of this run
{
	doc_block "three machines: $1" "$TMP/$1.sh"
	sed -i "s|^NET=demo D=/tmp/tally-demo|NET=$RUN D=$TMP/demo|" "$TMP/$1.sh"
}

for block in namespaces daemons look train clean-up; do readme_block "$block"; done
expect_text "$TMP/namespaces.sh" "^NET=$RUN D=$TMP/demo "

NAMESPACES=("$RUN-switch" "$RUN-a" "$RUN-b" "$RUN-c")	# gone at the end, however it comes
set -e
. "$TMP/namespaces.sh"
set +e
say 'three namespaces and a switch'

remember_pids()
{
	local m

	for m in a b c; do
		adopt $(ip netns pids "$NET-$m" 2>/dev/null)
	done
}

. "$TMP/daemons.sh"
five_nodes_up()
{
	remember_pids
	. "$TMP/look.sh" > "$TMP/nodes" 2>&1
	[ "$(grep -Ec '^[abc] +(agent|server) +up ' "$TMP/nodes")" = 5 ]
}
wait_until 60 'all five nodes are up' five_nodes_up
say 'two agents and three servers are up'

train() { . "$TMP/train.sh" > "$TMP/bench" 2> "$TMP/bench.log"; }
train &
trainer=$!
remember_pids
wait_for 60 eval '! is_running "$trainer"' || {
	remember_pids
	cp "$D"/*.log "$TMP"
	fail 'the benchmark does not end'
}
wait "$trainer" || fail "the benchmark ended with $?"
expect_text "$TMP/bench" '^# 0 wrong elements'
expect_text "$TMP/bench" '2 ranks on 2 machines'
[ "$(grep -Ec '^ +[0-9]+ ' "$TMP/bench")" = 5 ] || fail 'the table has not five sizes'
expect_text "$D/server-c.log" "job 1 up, machines 2"
for m in a b; do
	expect_text "$D/agent-$m.log" "job 1 'demo' up, .*servers 3"
done
say 'two ranks, three servers, no wrong element'

remember_pids
cp "$D"/*.log "$TMP"
. "$TMP/clean-up.sh" || fail 'the clean-up ended with an error'
none_running || fail 'a daemon is left after the clean-up'
[ ! -e "$D" ] || fail "$D is left after the clean-up"
ip netns list | grep -q "^$RUN-" && fail 'a namespace is left after the clean-up'
NAMESPACES=()
say 'nothing is left'
exit 0

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What 1,000 agents, 1,000 servers and 2,000 tensors cost the scheduler and the planner
# (bench/scale_bench.c): memory and bytes, the same on every machine, have a limit, and so
# has CPU time, which only something that grows faster than the cluster can reach.
. "$(dirname "$0")/../lib.sh"

bench=${BUILD:-$ROOT/build}/bench/scale_bench

"$bench" -l > "$TMP/once" || fail "more than its limits: $(cat "$TMP/once")"
sed -n '/limit/s/^/  /p' "$TMP/once"
"$bench" -l -t 4000 > "$TMP/more" && fail 'twice as many tensors keep the same limits'
expect_text "$TMP/more" 'MISSED$'

# counted FILE: messages, bytes and memory of each phase.
counted()
{
	awk 'NF > 9 && !/limit/ { print $(NF - 4), $(NF - 3), $(NF - 2), $(NF - 1), $NF }' "$1"
}
"$bench" > "$TMP/twice" || fail 'without limits it fails'
diff <(counted "$TMP/once") <(counted "$TMP/twice") || fail 'the same cluster cost something else'

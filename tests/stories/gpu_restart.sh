#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# Agents are killed and started again while their ranks train on GPUs (a CUDA and an NCCL of host
# memory), and mostly wait for these in no call of ours: a pause, no error, and right sums.
#
# tests/gpu/check.sh runs it on real ones: GPU_RANK and GPU_PLUGIN, GPU_TOPOLOGY where two ranks
# have one GPU, GPU_OPTIONS of the ranks.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

double=${BUILD:-$ROOT/build}/tests/gpu
RANK=${GPU_RANK:-$double/rank}
PLUGIN=${GPU_PLUGIN:-$double/libtally-cuda.so.0}
[ -x "$RANK" ] || fail "$RANK is not built: make tests-build"

start_scheduler --agent-grace 20
# One group for each machine on a0 and a1, one for each GPU on b0 and b1.
gpu_agent()
{
	local topology one=$ROOT/tests/data/gpu/scatter.topo each=$ROOT/tests/data/gpu/assisted.topo

	[ -z "${GPU_RANK:-}" ] || { one=${GPU_TOPOLOGY:-}; each=; }
	[ "${1:0:1}" = a ] && topology=$one || topology=$each
	start_agent "$1" ${topology:+--topology "$topology"}
}
for a in a0 a1 b0 b1; do gpu_agent $a; done
start_server s0
start_server g0 --machine-id a0		# its agent shows it memory
start_server h0 --machine-id b0
wait_until 60 'all nodes are registered' nodes_up 7

# start_job JOB 'OPTION...' AGENT...: two ranks on each; train: they are at it, too.
start_job()
{
	local job=$1 options=$2 r world=$(( 2 * ($# - 2) ))

	shift 2
	for (( r = 0; r < world; r++ )); do
		: > "$TMP/$job.$r.count"
		start_daemon "$job.$r" env TALLY_JOB="$job" TALLY_RANK=$r TALLY_WORLD_SIZE=$world \
			TALLY_SOCKET="$TMP/$(n=$(( r / 2 + 1 )); echo "${!n}").sock" \
			TROUBLE_COUNT="$TMP/$job.$r.count" \
			"$RANK" --until "$TMP/$job.stop" ${GPU_OPTIONS:-} $options "$PLUGIN"
	done
}

train()
{
	start_job "$@"
	wait_until 60 "$1 trains" has_rounds "$1.0" 2
}

finished()
{
	local r

	touch "$TMP/$1.stop"
	for (( r = 0; r < $2; r++ )); do expect_end 120 "$1.$r" 0; done
	say "$3: right sums"
}

# again JOB AGENT: it is killed, started with the same arguments, and the job goes on.
again()
{
	kill_all "$2"
	gpu_agent "$2"
	wait_until 20 "$2 takes $1 over" has_line "$2" "'$1' goes on"
	train_more "$1.0" 3
}

train group '' a0 a1
for a in a0 a1 a0; do again group $a; done
finished group 4 'one group for each machine'

train groups '' b0 b1
for a in b0 b1; do again groups $a; done
finished groups 4 'several groups on each machine'

train exact --exact a0
for (( i = 0; i < 2; i++ )); do again exact a0; done
finished exact 2 'several groups on one machine'

train alone '' a0
for (( i = 0; i < 3; i++ )); do again alone a0; done
finished alone 2 'one group on one machine'

# What the double alone can do.
if [ -z "${GPU_RANK:-}" ]; then
	export DOUBLE_WRITABLE=1
	train unpinned '' a0 b1
	for a in a0 b1; do again unpinned $a; done
	unset DOUBLE_WRITABLE
	finished unpinned 4 'results that the GPU cannot read where they are'
fi

# Twice while rounds are in flight: what is on the lanes of the first reads what the first agent of
# all had, of the second what the next one had.
mkdir "$TMP/steps"
start_job steps "--steps $TMP/steps" a0 a1
for n in 1 2; do
	for r in 0 1; do wait_line 60 steps.$r "started $n"; done
	kill_all a0
	gpu_agent a0
	wait_until 20 'a0 takes the job over' has_line a0 "'steps' goes on"
	touch "$TMP/steps/$n"
done
finished steps 4 'twice, with rounds in flight'

# For good.
train lost '' a0 a1
kill_all a1
for r in 2 3; do
	wait_until 60 "rank $r has an error" ended lost.$r
	has_line lost.$r 'EAGENT: .*not back within 30 s' || fail "rank $r: no EAGENT"
done
for r in 0 1; do
	wait_until 20 "rank $r has an error" ended lost.$r
	has_line lost.$r 'EWORKERLOST: rank 2 and 1 more on machine a1' || fail "rank $r: no name"
done
say 'gone for good: named'

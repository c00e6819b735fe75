#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What waits on a GPU is let go when a rank dies or a group of GPUs fails: every other rank
# gets an error that says why, and its stream goes on.
. "$(dirname "$0")/../lib.sh"

GPU=${BUILD:-$ROOT/build}/tests/gpu
PLUGIN=$GPU/libtally-cuda.so.0
[ -x "$GPU/rank" ] || fail "$GPU/rank is not built: make tests-build"

# play TOPOLOGY OPTION: machines of two ranks (each), all of which end well.
machines=2 each=2
play()
{
	timeout -k 10 100 "$BIN/tally" local --agents $machines --servers 1 \
		--ranks $(( each * machines )) --agent-arg \
		"--topology=$ROOT/tests/data/gpu/$1" -- "$GPU/rank" "$2" "$PLUGIN" \
		> "$TMP/out" 2> "$TMP/err" < /dev/null || {
		local status=$?

		cat "$TMP/err" >&2
		fail "$1 $2: ended with $status"
	}
}

# heard TEXT RANK...: each of them got that.
heard()
{
	local text=$1 r

	shift
	for r; do
		grep -E "rank $r got $text" "$TMP/err" > /dev/null || {
			cat "$TMP/err" >&2
			fail "rank $r did not get '$text'"
		}
	done
}

play scatter.topo --lost
heard 'EWORKERLOST: .*rank 1' 0 2 3
play assisted.topo --lost
heard 'EWORKERLOST: .*rank 1' 0 2 3
play scatter.topo --fails
# Both ranks of the group may see it, in a call of NCCL or between two; who does not is told
# that the first to end is lost.
heard 'EIO: (.*: )?NCCL: remote error' 1
heard '(EIO: (.*: )?NCCL: remote error|EWORKERLOST: .*rank 1)' 0
heard 'EWORKERLOST: .*rank [01] ' 2 3
play scatter.topo --crossed
heard "EMISMATCH: .*tensor .* all ranks start rounds on GPUs in the same order" 0 1 2 3

machines=1
play scatter.topo --crossed
heard "EMISMATCH: .*tensor .* all ranks start rounds on GPUs in the same order" 0 1
play scatter.topo --late
# A round that nobody else begins: whoever waits for it, or leaves meanwhile, gives it up.
TALLY_ROUND_TIMEOUT_MS=5000 play scatter.topo --alone=wait
heard 'EIO: .*tensor layer0: not done on its GPU after 5000 ms; .*rank 1' 0
TALLY_TIMEOUT_MS=5000 play scatter.topo --alone=leave
heard 'ETIMEDOUT: the session was left before round 1 of tensor layer0 was done' 0

play scatter.topo --mixed
heard 'EMISMATCH: rank 1 wants exact sums, rank 0 does not' 0 1

# One that has opened no GPU: whoever hears of anything, the one or the others, hears who.
each=4
play scatter.topo --host
waits='tally_gpu_open\(\) on machine .* waits for rank 1$'
heard "ETIMEDOUT: tensor 'a' .* not declared it; $waits" 1
heard "EWORKERLOST: .*rank 1 .*; $waits" 0 2 3
# For four attaches at once, too.
TALLY_TIMEOUT_MS=15000 play scatter.topo --shy
heard 'ETIMEDOUT: on machine .* these have not said which GPU they have: rank 1$' 0 2 3
export TALLY_TIMEOUT_MS=5000

# A group that does not come about: the deadline is the one that was said, and no multiple of it.
export DOUBLE_GPUS=g0,g1,g2,g3
before=$SECONDS
DOUBLE_STALLS=1 expect_status 1 timeout 100 "$BIN/tally" local --ranks 2 --agent-arg \
	"--topology=$ROOT/tests/data/gpu/scatter.topo" -- "$GPU/rank" "$PLUGIN"
expect_text "$TMP/err" 'gpu_open: ETIMEDOUT: NCCL: the group did not come about .* after 5000 ms'
[ $(( SECONDS - before )) -lt 25 ] || fail "5 s took $(( SECONDS - before )) s"

# One that dies on the way into its group: the other hears who, and that at once.
before=$SECONDS
TALLY_TIMEOUT_MS=60000 DOUBLE_DIES=1 expect_status 1 timeout 100 "$BIN/tally" local --ranks 2 \
	--agent-arg "--topology=$ROOT/tests/data/gpu/scatter.topo" -- "$GPU/rank" "$PLUGIN"
expect_text "$TMP/err" 'rank 0: gpu_open: EWORKERLOST: rank 1 on machine .* is gone'
[ $(( SECONDS - before )) -lt 30 ] || fail "it took $(( SECONDS - before )) s"

# No GPU and no driver: what the user can do is in the text.
for none in '' no-driver; do
	DOUBLE_GPUS=$none expect_status 1 timeout 60 "$BIN/tally" local -- "$GPU/rank" "$PLUGIN"
	expect_text "$TMP/err" 'ENOENT: this process sees no GPU: CUDA: .*nvidia-smi'
done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make check-gpu: the ranks of tests/stories/gpu_*.sh on real GPUs, with real NCCL: one for each
# GPU of the machine, up to 8, on one machine and on two that are played on it.  On a machine
# with one GPU two ranks have it; NCCL allows that to processes that seem to be of different
# hosts (--apart), and then goes by sockets; agents are told that a switch joins these ranks, or
# each would be a group of its own.  How NCCL went is said after each play, and what could not
# be played at the end.
#
# Then tests/torch/on_gpus.py, where PYTHON (Debian's) has a torch that sees the GPUs.
#
# Exits 77 where there is no GPU.  GPU_RANK, GPU_PLUGIN: those of tests/gpu's double.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
BUILD=$(realpath "${BUILD:-build}")
double=${GPU_RANK:-}
GPU_RANK=${GPU_RANK:-$BUILD/tests/gpu/rank-cuda}
GPU_PLUGIN=${GPU_PLUGIN:-$BUILD/lib/libtally-cuda.so.0}

skip() { echo "cannot run here: $1"; exit 77; }

[ -x "$GPU_RANK" ] || skip 'libtally-cuda was not built, no CUDA toolkit and NCCL were found'
gpus=$("$GPU_RANK" --gpus 2>&1) || skip "no GPU: $gpus"
DIR=$(mktemp -d "${TMPDIR:-/tmp}/tally-gpu-XXXXXX")
trap 'rm -rf "$DIR"' EXIT
TMP=$DIR/play
mkdir "$TMP"

# This machine, with its GPUs below a switch.
"$BUILD/bin/tally" doctor --rail 127.0.0.1 | sed -n '/^node = /,/^$/p' |
	sed -E 's/^( *gpu = ([^ ]*)) under=([^ ]*)/switch = sw-\2 under=\3\n\1 under=sw-\2/' \
	> "$DIR/shared.topo"

# many RANKS: more ranks of a machine than it has GPUs; agents=: the options for that.
many()
{
	agents=
	[ "$1" -gt "$gpus" ] || return 1
	agents=--agent-arg=--topology=$DIR/shared.topo
}

# play MACHINES RANKS OPTION...
play()
{
	local machines=$1 ranks=$2

	shift 2
	! many $(( ranks / machines )) || set -- --apart "$@"
	echo "machines $machines, ranks $ranks${1:+, $*}"
	rm -rf "${TMP:?}"/*
	NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$TMP/nccl.%h.%p \
		timeout -k 10 300 "$BUILD/bin/tally" local --agents "$machines" $agents \
		--servers 1 --ranks "$ranks" --keep-logs "$TMP/logs" \
		-- "$GPU_RANK" "$@" "$GPU_PLUGIN" 2> "$TMP/err" || {
		local status=$?

		cat "$TMP/err" >&2
		echo "FAILED: ended with $status" >&2
		exit 1
	}
	grep -h 'got E' "$TMP/err" | sed 's/^/  /' || :
	grep -ho 'GPUs [0-9].*' "$TMP"/logs/*agent* | sort -u | sed 's/^/  plan: /' || :
	cat "$TMP"/nccl.* 2> "$TMP/none" | grep -Eo ' via [A-Z][A-Za-z0-9/]*' | sort | uniq -c |
		sed 's/^ */  NCCL: /' || :
}

# heard TEXT RANK...: each of them got that in the last play.
heard()
{
	local text=$1 r

	shift
	for r; do
		grep -Eq "rank $r got $text" "$TMP/err" || {
			cat "$TMP/err" >&2
			echo "FAILED: rank $r did not get '$text'" >&2
			exit 1
		}
	done
}

each=$(( gpus < 2 ? 2 : gpus > 8 ? 8 : gpus ))	# ranks of a machine
play 1 1
play 1 $each
grep -hq "GPUs $each, groups 1, " "$TMP"/logs/*agent* || [ "$gpus" -gt 1 ] || {
	echo 'FAILED: two ranks of one GPU do not add up by NCCL' >&2
	exit 1
}
[ $each -eq 2 ] || play 1 2
play 2 $(( 2 * each ))
play 2 $(( 2 * each )) --exact
play 1 $each --captures
play 2 $(( 2 * each )) --lost
heard 'EWORKERLOST: .*rank 1' 0 2 $(( 2 * each - 1 ))
play 2 4 --crossed
heard 'EMISMATCH: .*tensor .* all ranks start rounds on GPUs in the same order' 0 1 2 3
play 1 2 --mixed
heard 'EMISMATCH: rank 1 wants exact sums, rank 0 does not' 0 1
TALLY_TIMEOUT_MS=5000 play 1 2 --shy
heard 'ETIMEDOUT: .*these have not said which GPU they have: rank 1' 0

# By itself a story of its own, over the double.
if [ -z "$double" ]; then
	echo 'agents that are killed and started again'
	! many 2 || topology=$DIR/shared.topo apart=--apart
	GPU_RANK=$GPU_RANK GPU_PLUGIN=$GPU_PLUGIN GPU_TOPOLOGY=${topology:-} \
		GPU_OPTIONS=${apart:-} bash tests/stories/gpu_restart.sh || {
		echo 'FAILED: agents that are killed and started again' >&2
		exit 1
	}
fi

# torch MACHINES RANKS N TEXT OPTION...: so many of them say that.
torch()
{
	local machines=$1 ranks=$2 n=$3 text=$4

	shift 4
	rm -rf "${TMP:?}"/*
	timeout -k 10 600 "$BUILD/bin/tally" local --agents "$machines" $agents --servers 1 \
		--ranks "$ranks" -- "$PYTHON" tests/torch/on_gpus.py "$@" > "$TMP/all" 2>&1 &&
		[ "$(grep -c "$text" "$TMP/all")" = "$n" ] || {
		cat "$TMP/all" >&2
		echo 'FAILED: PyTorch' >&2
		exit 1
	}
}

# Tensors of PyTorch; the line says why not.
export PYTHON=${PYTHON:-/usr/bin/python3} TALLY_LIBRARY=$BUILD/lib/libtally.so.0 RIG_DIR=$TMP
rm -rf "${TMP:?}"/*
if "$PYTHON" tests/torch/on_gpus.py --sees > "$TMP/sees" 2> "$TMP/err"; then
	for machines in 1 2; do
		ranks=$(( machines * each ))
		many "$each" || :
		echo "PyTorch: machines $machines, ranks $ranks"
		torch $machines "$ranks" "$ranks" 'all well'
		echo "PyTorch: machines $machines, ranks $ranks, lost"
		torch $machines "$ranks" $(( ranks - 1 )) 'heard that rank 1 is lost' lost
	done
else
	echo "PyTorch: skipped, $PYTHON: $(cat "$TMP/err" "$TMP/sees" | tail -1)"
fi

skipped='a group that fails when it is asked to (the double does)'
[ "$gpus" -gt 1 ] || skipped="a GPU for each rank (NVLink, PCIe between GPUs), $skipped"
[ "$gpus" -le 8 ] || skipped="more than 8 of its GPUs, $skipped"
echo "note: GPUs $gpus; not tested: $skipped"
echo 'check-gpu passed'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/sim_set.sh SIM SEEDS FIRST: that many seeds of the simulator from FIRST on, in two
# processes at a time.  A seed that fails is named, how to see it again, and what happened at last.
set -u
run=("$(dirname "$0")/sim_run.sh" "$1") seeds=$2 first=$3
half=$(( (seeds + 1) / 2 ))
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"${run[@]}" --seeds "$half" --first "$first" > "$out/a" 2>&1 &
a=$!
rc=0
if (( seeds > half )); then
	"${run[@]}" --seeds $(( seeds - half )) --first $(( first + half )) > "$out/b" 2>&1 || rc=1
fi
wait "$a" || rc=1
cat "$out"/*
exit "$rc"

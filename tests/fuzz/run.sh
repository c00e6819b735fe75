#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/run.sh TARGET SECONDS: fuzzes for so long, from the seeds in
# tests/fuzz/corpus/NAME where there are some, and those that tests/fuzz/seeds.c makes.
# What it finds is printed (base64) and fails; nothing is written into the tree, and what targets
# write into TMPDIR, which is memory where there is /dev/shm, is gone at the end.
set -eu
target=$1 seconds=$2
name=$(basename "$target")
seeds=$(dirname "$0")/corpus/$name
tmp=$(mktemp -d /dev/shm/tally-fuzz-XXXXXX 2> /dev/null ||
	mktemp -d "${TMPDIR:-/tmp}/tally-fuzz-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
export TMPDIR=$tmp
mkdir "$tmp/corpus"
[ -d "$seeds" ] && cp "$seeds"/* "$tmp/corpus/"
"$(dirname "$target")/seeds" "$name" "$tmp/corpus"
if ! "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
	-artifact_prefix="$tmp/" -print_final_stats=1 "$tmp/corpus" > "$tmp/log" 2>&1; then
	cat "$tmp/log"
	for f in "$tmp"/crash-* "$tmp"/timeout-* "$tmp"/oom-* "$tmp"/leak-*; do
		[ -f "$f" ] && { echo "${f##*/}:"; base64 -w 0 "$f"; echo; }
	done
	exit 1
fi
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$tmp/log")
echo "$name: ${runs:-0} inputs in $seconds s"
[ "${runs:-0}" -gt 0 ]

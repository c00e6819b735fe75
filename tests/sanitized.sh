#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Daemons under a sanitizer: tests/sanitized.sh SAN, after `make SAN=SAN build` and a plain
# `make build tests-build`, which the ranks come from: they have their own tests, and Python
# cannot load a library with a sanitizer in it.  Passes when the runs end well and no
# process, however it ended, had anything reported.
set -eu
cd "$(dirname "$0")/.."
BUILD=$(realpath "${BUILD:-build}")
ranks=$BUILD/tests/e2e
export LIB=$BUILD/lib
export BUILD=$BUILD/san-${1//,/-}
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT

export PATIENCE=4 TROUBLE_PACE=0.1	# a round takes some 20 ms of two CPUs and more
export TSAN_OPTIONS="log_path=$reports/tsan second_deadlock_stack=1"
export ASAN_OPTIONS="log_path=$reports/asan"
export UBSAN_OPTIONS="log_path=$reports/ubsan print_stacktrace=1"
status=0
# Two engines each, so that they speak to each other; sums, and ranks out of step.
timeout 300 "$BUILD/bin/tally" local --agents 2 --servers 1 --ranks 3 --agent-arg --engines=2 \
	--server-arg --engines=2 -- "$ranks" ahead soak || status=1
# Ranks, servers, agents that die or are stopped, with all kinds of work in flight: three at a
# time, the longest first.  The last ones are about what one thread does, an agent's control
# thread above all; what its engines have to do with it unit tests do under TSan, too.
stories=(failover grow trouble_lost shrink)
[ "$1" = thread ] || stories=(agent_restart "${stories[@]}" trouble_daemons trouble_back
	trouble_number trouble_together)
printf '%s\n' "${stories[@]}" |
	xargs -P 3 -I{} tests/run.sh --stories -k {} || status=1
for report in "$reports"/*; do
	[ -e "$report" ] || continue
	cat "$report"
	status=1
done
exit $status

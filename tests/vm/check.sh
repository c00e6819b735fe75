#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Behind `make check-rdma`: boots the virtual machine and runs tests/vm/guest in it, one
# after another; words name the ones to run.  The totals are the last line.
#
# `stories [NAME...]` alone runs stories of failures, over RDMA.  `systemd` and `packages` alone
# run in a machine whose first process systemd is.
#
# `bench` alone, which measures, runs where time is the number of instructions: with two
# processors, which this machine emulates now faster and now slower, the same two programs
# differ by a third from one minute to the next.
set -eu
cd "$(dirname "$0")/../.."
export BUILD=${BUILD:-build}
# Emulated: some hosts take 250 seconds for all, others 400; those with much beside it more.
SECONDS_MAX=${VM_SECONDS:-1200}

[ $# -gt 0 ] || set -- verbs conformance e2e device faults shrink
[ "$*" != bench ] || exec tests/vm/vm.py -c -t "$SECONDS_MAX" bash tests/vm/guest/bench.sh
if [ "$1" = stories ]; then
	exec tests/vm/vm.py -t "${VM_SECONDS:-7200}" -m 4096 \
		bash tests/vm/guest/stories.sh "${@:2}"
fi
machine=()
case $* in systemd | packages) machine=(-s) ;; esac
scripts=()
for name; do scripts+=("tests/vm/guest/$name.sh"); done
exec tests/vm/vm.py "${machine[@]}" -t "$SECONDS_MAX" \
	python3 tests/run.py -j 1 -t "$SECONDS_MAX" -- "${scripts[@]}"

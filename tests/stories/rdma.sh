#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ALONE
# A smoke test of what `make check-rdma` runs in whole: in a virtual machine with soft
# RoCE the conformance suite passes over RDMA.
. "$(dirname "$0")/../lib.sh"

for tool in qemu-system-x86_64 busybox ib_write_bw; do
	[ -n "$(type -P "$tool")" ] || skip "no $tool: deploy/install-packages.sh vm"
done
VM_SECONDS=300 "$ROOT/tests/vm/check.sh" conformance > "$TMP/out" 2>&1 || {
	cat "$TMP/out" >&2
	fail 'the conformance suite over RDMA'
}
say "$(tail -n 1 "$TMP/out") in a virtual machine"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The transports' conformance suite, over RDMA between two machines, too, by IPv4 and IPv6;
# and an agent whose queue pairs are never joined.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

machines 2
export TALLY_TEST_RDMA='10.66.0.1 10.66.0.2 fd66::1 fd66::2' CK_FORK=no
for t in test_xport test_xport_ends test_xport_stream test_xport_qp test_agent_rails; do
	CK_TAP_LOG_FILE_NAME=$TMP/$t.tap.log \
		timeout $(( 100 * PATIENCE )) "$BUILD/tests/$t" > "$TMP/$t.log" 2>&1 ||
		fail "$t"
	expect_text "$TMP/$t.log" '^100%: Checks: [0-9]+, Failures: 0'
	! grep -q 'rdma v. is not here' "$TMP/$t.log" || fail "$t left RDMA out"
	say "$(tail -n 1 "$TMP/$t.log")"
done

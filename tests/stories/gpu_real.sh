#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make check-gpu, on the GPUs that are here.
# TIMEOUT: 1800
. "$(dirname "$0")/../lib.sh"

BUILD=${BUILD:-$ROOT/build} "$ROOT/tests/gpu/check.sh"

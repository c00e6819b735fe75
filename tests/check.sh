#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Behind `make check`, after the build: lint, unit tests, simulator, a short run of
# every fuzz target, and the stories with real daemons.  Ends with the totals.
set -eu
cd "$(dirname "$0")/.."
MAKEFLAGS= "${MAKE:-make}" -j"$(nproc)" --no-print-directory BUILD="${BUILD:-build}" fuzz-build
exec tests/run.sh "$@"

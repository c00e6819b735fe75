#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Behind `make quickstart`: a cluster of real processes on this machine (a scheduler,
# two agents with a server each, one more server) trains examples/charlm on 4 ranks.
set -eu
cd "$(dirname "$0")/.."
bin=${BUILD:-build}/bin
text=${TEXT:-/usr/share/common-licenses/GPL-3}

if [ ! -r "$text" ]; then
	echo "quickstart: cannot read $text; give another text by TEXT=path" >&2
	exit 1
fi
echo "Training a character language model on $text"
echo "  1 scheduler, 2 agents with a server each, 1 CPU server; 4 ranks, 2 per agent"
echo
exec "$bin/tally" local --agents 2 --servers 1 --ranks 4 -- "$bin/charlm" -- "$text"

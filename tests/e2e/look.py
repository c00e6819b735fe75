#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `e2e --look` runs while tensors are declared: are the sizes at chunks' edges?

Every tensor has to be cut into as many chunks as the job's chunk size says, and each dtype
has to have one tensor of exactly a chunk, one an element smaller and one an element larger.
Needs TALLY_SCHEDULER and TALLY_JOB, and BIN where tally is.  Prints what is wrong, exits 1.
"""
import json
import os
import subprocess
import sys

DTYPES = 8


def ask(table):
    out = subprocess.run([os.path.join(os.environ["BIN"], "tally"), table, "--json", "--job",
                          os.environ["TALLY_JOB"]], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(out)[table]


chunk = ask("jobs")[0]["chunk_bytes"]
sizes = {}
wrong = []
for t in ask("tensors"):
    chunks = -(-t["bytes"] // chunk)
    if t["chunks"] != chunks:
        wrong.append(f"{t['name']}: {t['chunks']} chunks, not {chunks}")
    if t["count"]:
        element = t["bytes"] // t["count"]
        sizes.setdefault(t["dtype"], set()).add((t["bytes"] - chunk) / element)
for dtype in sorted(sizes):
    for i in (-1, 0, 1):
        if i not in sizes[dtype]:
            wrong.append(f"{dtype}: no tensor of a chunk ({chunk} bytes) and {i} elements")
if len(sizes) != DTYPES:
    wrong.append(f"{len(sizes)} dtypes, not {DTYPES}")
for line in wrong:
    print(f"look.py: {line}", file=sys.stderr)
sys.exit(bool(wrong))

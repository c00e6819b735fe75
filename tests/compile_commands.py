#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compile_commands.json from what `make -n` would run: reads commands, writes the JSON array."""
import json
import os
import re
import shlex
import sys


def main():
    found = {}
    for line in sys.stdin:
        if " -c " not in line or not re.search(r"\.c\s*$", line):
            continue
        arguments = shlex.split(line)
        found[arguments[-1]] = {"directory": os.getcwd(), "file": arguments[-1],
                                "arguments": arguments}
    json.dump([found[name] for name in sorted(found)], sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())

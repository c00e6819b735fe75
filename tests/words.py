#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words in texts for users.  Prints FILE:LINE: what, exits 1.

One word for one thing: a NIC is not a "card", which may be a GPU.  One of a thing is no
"1 servers": a counted noun has its "s" from plural() of common/base/parse.h.  Looked at are
strings in the sources of programs and libraries (not names in the code, not comments), all
documents, the units, and the header that users read.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CODE = ("cli/", "scheduler/", "server/", "worker-agent/", "client/", "common/", "proto/",
        "examples/")
TEXTS = (".md", ".service", ".socket", ".default", ".conf")
HEADERS = ("client/tally.h",)

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
PY_TOKEN = re.compile(r'#[^\n]*|""".*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
CARD = re.compile(r"(?<![\w\-/.])cards?(?![\w\-]|\.\w)", re.I)
# what a file of lines was called before; cuda's and the kernel's own names
KNOWN = {("common/topo/topo_line.c", '"card"')}

COUNT = r'%(?:l|ll|z|j)?[ud]|%" PRI[ui]\d+ "'
NOUNS = ("agent", "server", "rank", "node", "machine", "job", "tensor", "link", "engine", "NIC",
         "GPU", "user", "device", "iteration", "payload", "frame", "column")
COUNTED = re.compile(rf'(?:{COUNT}) (?:more |other |GPU |CPU )?({"|".join(NOUNS)})s\b')
# limits, which are never 1, and lists that begin at 2
MANY = ("more than %", "at most %", "1 to %", "at once", "has %u tensors already",
        "%u tensors complete at once", "cluster has %u jobs", "has %u jobs already",
        "nodes are registered already", "no memory for %u tensors", "spans %u machines",
        "%u servers for one job", "has %u ranks of job", "has %u ranks on agent",
        "across %u switches")

problems = []


def files():
    out = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                         capture_output=True, text=True, check=True).stdout
    return [f for f in out.split("\n") if f and os.path.isfile(os.path.join(ROOT, f))]


def look(path, text, start, quoted):
    """A string of code, or the whole of a document."""
    def complain(at, what):
        line = text.count("\n", 0, start + at) + 1
        problems.append(f"{path}:{line}: {what}")
    for m in CARD.finditer(quoted):
        if (path, quoted) not in KNOWN:
            complain(m.start(), f'"{m[0]}" in a text for users: a NIC is meant, or a GPU')


def joined(text):
    """Strings of C that follow each other, and formats between them, as one: (start, string)."""
    parts = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*(?:PRI\w+\s*)?"(?:\\.|[^"\\\n])*")*')
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    for m in parts.finditer(bare):
        yield m.start(), re.sub(r'"\s*"', "", m[0])


def check_code(path, text):
    token = PY_TOKEN if path.endswith(".py") else TOKEN
    for m in token.finditer(text):
        if m[0][0] in "\"'" and not re.search(r'#include\s*$', text[:m.start()]):
            look(path, text, m.start(), m[0])
    if path.endswith(".py"):
        return
    for start, string in joined(text):
        found = COUNTED.search(string)
        if found and not any(m in string for m in MANY):
            line = text.count("\n", 0, start) + 1
            problems.append(f'{path}:{line}: "{found[0]}" is said of one, too: '
                            f'"{found[1]}%s", plural(n)')


def main():
    for path in files():
        with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
            text = f.read()
        if path in HEADERS or (path.endswith(TEXTS) and not path.startswith("tests/")):
            look(path, text, 0, text)
        elif path.startswith(CODE) and path.endswith((".c", ".h", ".py")):
            check_code(path, text)
    for p in problems:
        print(p)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

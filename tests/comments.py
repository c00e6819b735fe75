#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Function comments drawn at random, for somebody who judges whether each can be understood alone.

	comments.py [--seed N] [--count 60]	prints FILE:LINE, the comment and the function
	comments.py --openings			refuses those whose first word names no subject

Drawn from the comments above the functions of scheduler/, server/, worker-agent/, client/, cli/,
proto/ and common/: definitions in .c files and declarations in headers.
"""
import argparse
import os
import random
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint     # noqa: E402

# A comment, and directly below it the first line of a function.
ABOVE = re.compile(r"(?:^|\n)(/\*(?:(?!\*/).)*\*/)\n((?!typedef|struct \w+ \{|enum|union|#)"
                   r"[A-Za-z_][\w \t*]*\b\w+\([^;{]*\)?)", re.S)
# Words that begin a comment without naming what it is about.
NAMELESS = re.compile(r"^(It|Who|What|That|Those|One|Whoever|Nobody|All that)\b")


def text_of(comment):
    """A comment's words, without its frame."""
    return re.sub(r"\s*\n\s*\*?\s*", " ", comment[2:-2].strip(" *\n\t")).strip()


def comments():
    """(path, line, comment, first line of the function) of every function comment."""
    for path in lint.files():
        if not path.endswith((".c", ".h")) or lint.folder_of(path) not in lint.LAYERS or \
                path.startswith("examples/"):
            continue
        text = lint.read(path)
        for m in ABOVE.finditer(text):
            line = text.count("\n", 0, m.start(2)) + 1
            yield path, line, text_of(m[1]), m[2].split("\n")[0]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    p.add_argument("--count", type=int, default=60, help="how many (60)")
    p.add_argument("--openings", action="store_true", help="refuse openings without a subject")
    a = p.parse_args()
    found = list(comments())
    if a.openings:
        bad = [c for c in found if NAMELESS.match(c[2])]
        for path, line, comment, _ in bad:
            print(f"{path}:{line}: {comment[:70]}")
        if bad:
            print(f"{len(bad)} of {len(found)} function comments begin without their subject")
        sys.exit(bool(bad))
    random.Random(a.seed).shuffle(found)
    for path, line, comment, function in found[:a.count]:
        print(f"{path}:{line}\n  {comment}\n    {function}\n")


if __name__ == "__main__":
    main()

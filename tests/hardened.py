#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs and libraries were built with, as their ELF files say (readelf).

	hardened.py FILE...

Prints FILE: what it lacks, and exits 1 if any lacks something.  Of each file: addresses that are
resolved before it starts and cannot be written to afterwards (BIND_NOW, RELRO), no memory that is
both written to and executed, no text relocations, no search path of its own, canaries on stacks,
checked forms of functions of the C library (FORTIFY); of programs, that they lie anywhere (PIE);
on x86-64, that functions say that they may be jumped to (CET: endbr64, by main() or what a
library exports).  The file's own mark for CET is not asked for: it says that all objects were
built so, and the C library's start files of many distributions were not.
"""
import re
import subprocess
import sys


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True,
                          check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout


def functions(path, library):
    """Offsets in the file of main(), or of a library's functions that others call."""
    loads = [[int(x, 16) for x in m] for m in re.findall(
        r"^ +LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+) 0x\w+ R E", readelf("-l", path), re.M)]
    names = readelf("--dyn-syms" if library else "--syms", path)
    for at, name in re.findall(r"^ +\d+: (\w+) +\d+ FUNC +\w+ +\w+ +\d+ (\w+)", names, re.M):
        for offset, address, size in loads:
            if (library or name == "main") and address <= int(at, 16) < address + size:
                yield offset + int(at, 16) - address


def has_endbr(path, library):
    with open(path, "rb") as f:
        data = f.read()
    starts = [data[at:at + 4] for at in functions(path, library)]
    return bool(starts) and all(x == b"\xf3\x0f\x1e\xfa" for x in starts)


def lacks(path):
    head, segments, dynamic = (readelf(o, path) for o in ("-h", "-l", "-d"))
    names = set(re.findall(r"\bUND (\w+)", readelf("--dyn-syms", path)))
    flags = [f for line in segments.splitlines() if re.match(r"\s+(LOAD|GNU_STACK)\s", line)
             for f in [re.search(r"\s([R ][W ][E ])\s+0x[0-9a-f]+$", line)] if f]
    library = "(SONAME)" in dynamic
    yield "RELRO", "GNU_RELRO" in segments
    yield "BIND_NOW", re.search(r"\(FLAGS(_1)?\).*\b(BIND_)?NOW\b", dynamic)
    yield "a stack that is not executable", "GNU_STACK" in segments
    yield "memory that is written to or executed, not both", \
        flags and not any("W" in f[1] and "E" in f[1] for f in flags)
    yield "code without relocations", "TEXTREL" not in dynamic
    yield "no search path (RPATH)", not re.search(r"\(R(UN)?PATH\)", dynamic)
    yield "canaries (-fstack-protector-strong)", "__stack_chk_fail" in names
    yield "checked functions (-D_FORTIFY_SOURCE)", \
        any(re.fullmatch(r"__\w+_chk", n) and n != "__stack_chk_fail" for n in names)
    yield "PIE", library or re.search(r"\(FLAGS_1\).*\bPIE\b", dynamic)
    if "X86-64" in head:
        yield "CET (-fcf-protection)", has_endbr(path, library)


def main():
    bad = False
    for path in sys.argv[1:]:
        for what, there in lacks(path):
            if not there:
                print(f"{path}: lacks {what}")
                bad = True
    if len(sys.argv) < 2:
        print("hardened.py FILE...", file=sys.stderr)
        return 2
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

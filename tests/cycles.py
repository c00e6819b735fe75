#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that call each other in a circle, folder by folder.

	cycles.py			fails where a folder has a larger circle than LARGEST allows
	cycles.py --show FOLDER		the files of its largest circle, and who calls what in it
	cycles.py --self-test		plants a circle, and has to find it

A call is the name of a function with external linkage, in the code of another file of the same
folder: called there, or handed on as a pointer.  A circle of files (a strongly connected component
of that graph) has to be understood as a whole, so the aim is 1: none.  A folder's number below may
only get smaller.
"""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint     # noqa: E402
import re       # noqa: E402

LARGEST = {
    "cli": 1, "client": 8, "common/base": 1, "common/ctl": 1, "common/kern": 1, "common/lane": 1,
    "common/net": 1,
    "common/place": 1, "common/rt": 1, "common/shm": 1, "common/topo": 1, "proto": 1,
    "scheduler": 27, "server": 3, "worker-agent": 14,
}
WORD = re.compile(r"(?<![.>\w])[A-Za-z_]\w*\b")      # no fields of structs


def calls(sources):
    """file -> {other file: {names called}} for {file: code without comments and strings}."""
    home = {}
    for path, bare in sources.items():
        for name, _ in lint.definitions(bare):
            home.setdefault(name, path)
    graph = {}
    for path, bare in sources.items():
        to = graph.setdefault(path, {})
        for name in set(WORD.findall(bare)):
            if home.get(name, path) != path:
                to.setdefault(home[name], set()).add(name)
    return graph


def circles(graph):
    """Strongly connected components, the largest first (Tarjan's algorithm)."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            at = stack.index(node)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return sorted(found, key=len, reverse=True)


def folders():
    """folder -> {file: code} of all C files below the folders of LARGEST."""
    found = {}
    for path in lint.files():
        top = lint.folder_of(path)
        if path.endswith(".c") and top in LARGEST:
            bare = lint.without_comments(lint.read(path), True)
            found.setdefault(top, {})[path] = bare
    return found


def show(folder):
    graph = calls(folders()[folder])
    for circle in circles(graph):
        if len(circle) == 1:
            break
        print(f"{len(circle)} files: {' '.join(os.path.basename(p) for p in circle)}")
        for path in circle:
            for other in sorted(set(graph[path]) & set(circle)):
                print(f"  {os.path.basename(path)} -> {os.path.basename(other)}: "
                      f"{' '.join(sorted(graph[path][other]))}")


def self_test():
    def function(name, value):
        return f"int {name}(void)\n{{\n\treturn {value};\n}}\n"

    sources = {"a.c": function("a", "b()"), "b.c": function("b", "0"), "c.c": function("c", "a()")}
    assert len(circles(calls(sources))[0]) == 1, "a circle where there is none"
    sources["b.c"] = function("b", "c()")
    assert circles(calls(sources))[0] == ["a.c", "b.c", "c.c"], "the planted circle is not found"


def main():
    if sys.argv[1:2] == ["--show"]:
        return show(sys.argv[2])
    self_test()
    bad = 0
    for folder, sources in sorted(folders().items()):
        largest = circles(calls(sources))[0]
        if len(largest) > LARGEST[folder]:
            bad += 1
            print(f"{folder}: {len(largest)} files call each other in a circle, "
                  f"{LARGEST[folder]} may: tests/cycles.py --show {folder}")
        elif len(largest) < LARGEST[folder]:
            bad += 1
            print(f"{folder}: the largest circle has {len(largest)} files now: say so in LARGEST")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

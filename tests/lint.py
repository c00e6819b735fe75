#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the tree that a compiler does not know.  Prints FILE:LINE: what, exits 1.

Layers: who may include whom, and what a core may not touch (LAYERS, CORE_BANS).
Homes:  things that live in one greppable place each (HOMES).
Shape:  licence line, line length, file length, headers that say what they are for,
        every function with external linkage declared and explained in a header.
Documents: error codes, frames, control messages and limits are those of the code.
"""
import fnmatch
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINE_MAX = 100
FILE_MAX = 800
TAB = 8

# ---- layers ----------------------------------------------------------------------

# folder: what its files may include besides their own folder and system headers
LAYERS = {
    "common/base": [],
    "common/kern": ["common/base"],
    "common/shm": ["common/base"],
    "common/place": ["common/base"],
    "common/topo": ["common/base"],
    "proto": ["common/base"],
    # the cores of both ends of a lane, and what they share
    "common/lane": ["common/base", "common/kern", "proto/cell.h"],
    "common/net": ["common/base", "common/shm", "proto/frame.h", "proto/speech.h"],
    # topo: what hwloc, NVML and override files say is put into its structs
    "common/rt": ["common/base", "common/shm", "common/topo"],
    "common/ctl": ["common/base", "common/shm", "common/rt", "proto"],
    "client": ["common/base", "common/shm", "proto"],
    # kern: the plain C sums that `tally bench` compares with; rt: clock, host facts
    "cli": ["common/base", "common/ctl", "common/rt", "common/place", "common/topo",
            "common/kern", "common/net", "proto",
            "client/tally.h", "client/gpu/plugin.h"],   # doctor measures by it
    "scheduler": ["common", "proto"],
    "server": ["common", "proto"],
    "worker-agent": ["common", "proto"],
    "examples": ["client/tally.h"],
}
CORE_LAYERS = ["common/base", "common/kern", "common/place", "proto/frame.h", "proto/msg.h",
               "common/shm/ring.h"]     # for the plain struct of a submission
# The generated code stays inside proto, and libuv's loop inside rt.
PRIVATE = {"proto/tally.pb-c.h": "proto", "common/rt/loop_int.h": "common/rt",
           "common/kern/impl.h": "common/kern"}

PROGRAMS = ("scheduler", "server", "worker-agent")
# In the programs' folders these are cores, the rest is shell.
CORES = ("scheduler/sched.h", "scheduler/sched_*", "server/*_core*", "worker-agent/*_core*",
         "worker-agent/agent_front*")
NOT_CORES = ("*/sched_io*",)
PURE = ("common/base/*", "common/kern/*", "common/place/*", "common/topo/*",
        "common/lane/*")

CORE_BANS = {
    r"<(time|sys/time|sys/socket|sys/un|netinet/\w+|netdb|pthread|poll|sys/epoll|unistd|fcntl"
    r"|sys/mman|signal)\.h>": "a core does no I/O, keeps no time and has no threads",
    r"\b(clock_gettime|gettimeofday|time|clock|nanosleep|usleep|sleep)\s*\(":
        "a core gets the time in its event",
    r"(?<![.>])\b(malloc|calloc|realloc|strdup|asprintf|free)\s*\(": "a core has no heap",
    r"\b(getenv|secure_getenv)\s*\(": "a core does not read the environment",
    r"\b(log_(line|error|warn|info|debug)|printf|puts|perror)\s*\(": "a core does not log",
    r"(?<![.>])\b(socket|connect|accept4?|send|recv|sendmsg|recvmsg|read|write|open|close)\s*\(":
        "a core does no I/O",
    r"\b(rand|random|srand|drand48)\s*\(": "a core gets its randomness as an input",
}

# ---- homes -----------------------------------------------------------------------

HEAP = "the heap"
C_BESIDES = ("tests/*", "bench/*", "examples/*")
HOMES = [
    (r"<uv\.h>", "libuv", ("common/rt/*", "tests/unit/test_loop.c")),  # sets its clock
    (r"<(cuda\w*|nccl)\.h>", "CUDA and NCCL", ("client/gpu/cuda.c", "tests/gpu/*",
                                                   "bench/gpu/*")),
    (r"<libmnl/", "libmnl", ("common/rt/shaper.c",)),
    (r"<(infiniband|rdma)/", "verbs", ("common/net/xport_rdma*", "bench/rdma_ladder.c")),
    (r"<(\w*mmintrin|x86intrin|immintrin)\.h>", "intrinsics",
     ("common/*_avx2.c", "common/*_avx512.c", "common/*_sse42.c")),
    (r"<protobuf-c/", "protobuf-c", ("proto/*",)),
    (r"\b(secure_)?getenv\s*\(", "the environment",
     ("common/rt/opt.c", "common/rt/log.c", "common/rt/notify.c", "client/env.c",
      "cli/cmd.c") + C_BESIDES),
    # log.c prints the wall clock for people; nothing else looks at it
    (r"\b(clock_gettime|gettimeofday)\s*\(", "the clock",
     ("common/rt/clock.c", "common/rt/log.c", "client/clock.c") + C_BESIDES),
    # and in the shells of the programs, see check_homes
    (r"\b(malloc|calloc|realloc|aligned_alloc|posix_memalign|strdup|asprintf|vasprintf)\s*\(",
     HEAP, ("common/rt/*", "common/ctl/*", "common/net/*", "client/mem.c", "cli/*",
            "client/gpu/cuda.c") + C_BESIDES),       # a library of its own
]
CLIENT_BANS = {
    r"\b(exit|_exit|abort|printf|puts|perror|vprintf)\s*\(": "the library never prints or exits",
    r"\b(stderr|stdout)\b": "the library never prints",
    r"\b(signal|sigaction|sigprocmask|pthread_sigmask)\s*\(": "the library takes no signals",
}
CLIENT_LOG = "client/log.c"  # where TALLY_LOG asks for it
CLIENT_WRITES = {
    r"\bSTDERR_FILENO\b": "lines on stderr are log.c's",
}
CLIENT_THREADS = {          # who opens a GPU has asked
    r"\b(pthread_create|thrd_create|fork)\s*\(": "the library starts nothing unasked",
}

# ---- reading ---------------------------------------------------------------------

problems = []


def complain(path, line, what):
    problems.append(f"{path}:{line}: {what}")


def files():
    """Tracked and new files, none that git ignores."""
    try:
        out = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                             capture_output=True, text=True, check=True).stdout
        found = set(out.split("\n")) - {""}
    except (OSError, subprocess.CalledProcessError):
        found = set()
        for folder, below, names in os.walk(ROOT):
            below[:] = [b for b in below if b not in (".git", "build", "__pycache__")]
            found |= {os.path.relpath(os.path.join(folder, n), ROOT) for n in names}
    return sorted(f for f in found if os.path.isfile(os.path.join(ROOT, f)))


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def without_comments(text, strings):
    """Comments, and strings too where asked, as blanks: lines keep their numbers."""
    def swap(m):
        return blank(m) if m[0][0] == "/" or strings else m[0]
    return TOKEN.sub(swap, text)


def matches(path, globs):
    return any(fnmatch.fnmatch(path, g) for g in globs)


def folder_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "common" else parts[0]


def is_core(path):
    return matches(path, CORES) and not matches(path, NOT_CORES)


def is_shell(path):
    return folder_of(path) in PROGRAMS and not is_core(path)


def allows(rules, target):
    return any(target == r or target.startswith(r + "/") for r in rules)


# ---- rules -----------------------------------------------------------------------

def check_includes(path, code):
    folder = folder_of(path)
    if folder not in LAYERS:
        return
    rules = CORE_LAYERS if is_core(path) else LAYERS[folder]
    for n, line in enumerate(code.split("\n"), 1):
        m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not m:
            continue
        target = m[1]
        if target in PRIVATE and folder != PRIVATE[target]:
            complain(path, n, f"{target} is private to {PRIVATE[target]}")
        elif target.startswith(folder + "/"):
            if is_core(path) and not is_core(target):
                complain(path, n, f"a core includes a shell's {target}")
        elif not allows(rules, target):
            complain(path, n, f"{'a core' if is_core(path) else folder} may not include {target}")


def check_bans(path, bare, bans):
    for n, line in enumerate(bare.split("\n"), 1):
        for pattern, why in bans.items():
            m = re.search(pattern, line)
            if m:
                complain(path, n, f"{m[0].strip('( ')}: {why}")


def check_homes(path, bare):
    for n, line in enumerate(bare.split("\n"), 1):
        for pattern, what, homes in HOMES:
            if what == HEAP and is_shell(path):
                continue
            if re.search(pattern, line) and not matches(path, homes):
                complain(path, n, f"{what} has its home elsewhere: {', '.join(homes[:3])}")


UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")


def check_shape(path, text):
    lines = text.split("\n")
    if len(lines) - 1 > FILE_MAX:
        complain(path, FILE_MAX, f"{len(lines) - 1} lines; {FILE_MAX} is the end")
    for n, line in enumerate(lines, 1):
        if len(line.expandtabs(TAB)) > LINE_MAX:
            complain(path, n, f"{len(line.expandtabs(TAB))} columns; {LINE_MAX} is the end")
        if line != line.rstrip():
            complain(path, n, "blanks at the end of the line")
        if UNFINISHED.search(line):
            complain(path, n, "unfinished work: finish it or open an issue")


SPDX = "SPDX-License-Identifier: Apache-2.0"


def check_licence(path, text):
    lines = text.split("\n")
    if path.endswith(".c"):
        want = [f"// {SPDX}"]
    elif path.endswith((".h", ".proto")):
        want = [f"/* {SPDX} */", f"// {SPDX}"] if path.endswith(".proto") else [f"/* {SPDX} */"]
    else:
        if not any(SPDX in line for line in lines[:3]):
            complain(path, 1, f"no '{SPDX}' in the first lines")
        return
    if lines[0] not in want:
        complain(path, 1, f"the first line is not '{want[0]}'")


def check_story(path, text):
    """A header is a contract, a .c file opens with its story."""
    if path.endswith(".h") and not re.match(r"[^\n]*\n/\*", text):
        complain(path, 2, "the header does not begin with what it is for")


def check_shell(path, text):
    """The second function of a name replaces the first, without a word."""
    names = {}
    for m in re.finditer(r"^(\w+)\(\)", text, re.M):
        line = text.count("\n", 0, m.start()) + 1
        if m[1] in names:
            complain(path, line, f"{m[1]}() is in line {names[m[1]]}, too")
        names[m[1]] = line


DEFINITION = re.compile(
    r"^(?!static\b|typedef\b|return\b|else\b|extern\b|[A-Z_]*INLINE\b|#)"
    r"((?:[A-Za-z_][\w ]*[\s*]+)+?)(\w+)\(([^;{}]*)\)\s*\{", re.M)


def definitions(bare):
    for m in DEFINITION.finditer(bare):
        before = re.sub(r"(?m)^#.*(\\\n.*)*$", "", bare[:m.start()]).rstrip()
        if before and before[-1] not in ";}":
            continue            # the second line of a definition that begins above
        if m[2] not in ("if", "for", "while", "switch", "main"):
            yield m[2], bare.count("\n", 0, m.start(2)) + 1


def paragraphs(text):
    """(first line's number, text) of every run of lines without a blank one."""
    start, lines = 1, []
    for n, line in enumerate(text.split("\n"), 1):
        if line.strip():
            if not lines:
                start = n
            lines.append(line)
        elif lines and not in_comment("\n".join(lines)):
            yield start, "\n".join(lines)
            lines = []
    if lines:
        yield start, "\n".join(lines)


def in_comment(text):
    return text.count("/*") > text.count("*/")


# A declaration with external linkage at the left margin: not static inline.
DECLARED = re.compile(r"^(?!static\b|typedef\b|#|\s|\*|/)[A-Za-z_][\w\s*]*?\b(\w+)\s*\(", re.M)


def declarations(text):
    """name -> (line, explained?) of every function declared in a header."""
    found = {}
    told = " ".join(re.findall(r"/\*.*?\*/", text, re.S))
    for start, para in paragraphs(text):
        bare = without_comments(para, True)
        explained = bare != para and re.search(r"/\*", para) is not None
        for m in DECLARED.finditer(bare):
            if m[1].isupper() or m[1] in ("__attribute__", "if", "for", "while", "return"):
                continue
            named = re.search(rf"\b{m[1]}\b", told) is not None
            found[m[1]] = (start + bare.count("\n", 0, m.start(1)), explained or named)
    return found


API = "client/tally.h"
API_FUNCTION = re.compile(r"^TALLY_API [^;]*?\b(tally_\w+)\(")


def check_api(text):
    """What users call is explained one by one: in the comment that ends just above it, behind
    it, or by name in a comment of its paragraph."""
    for start, para in paragraphs(text):
        above = False
        told = " ".join(re.findall(r"/\*.*?\*/", para, re.S))
        for m in re.finditer(r"/\*.*?\*/|^TALLY_API [^;]*;([ \t]*/\*)?", para, re.S | re.M):
            name = API_FUNCTION.match(m[0])
            if name and not (above or m[1] or re.search(rf"\b{name[1]}\b", told)):
                line = start + para.count("\n", 0, m.start())
                complain(API, line, f"{name[1]}() has no comment of its own")
            above = name is None


def check_functions(sources, headers):
    declared, pasted = {}, []
    for path, text in headers.items():
        for name, (line, explained) in declarations(text).items():
            declared.setdefault(name, path)
            if not explained:
                complain(path, line, f"{name}() is not explained")
        pasted += re.findall(r"\b(\w+_)##", text)
    for path, text in sources.items():
        for name, line in definitions(without_comments(text, True)):
            if name not in declared and not name.startswith(tuple(pasted) or ("\0",)):
                complain(path, line, f"{name}() is neither static nor declared in a header")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def check_errors():
    """docs/FAILURES.md says of every code what it means for the job."""
    codes = re.findall(r"^\tX\((E\w+),\s+\d+,", read("common/base/err.h"), re.M)
    rows = re.findall(r"^\| (E[A-Z]+) \| (?:yes|no) \|", read("docs/FAILURES.md"), re.M)
    if not codes or rows != codes:
        complain("docs/FAILURES.md", 1, "its codes are not those of common/base/err.h, in order")


def camel(struct):
    return "".join(word.capitalize() for word in struct.removeprefix("msg_").split("_"))


def proto_fields():
    """message of tally.proto -> [(number, name, type)] as docs/PROTOCOL.md has them."""
    found = {}
    for m in re.finditer(r"^message (\w+) \{\n(.*?)^\}", read("proto/tally.proto"), re.M | re.S):
        found[m[1]] = [(int(no), name, kind) for kind, name, no in
                       re.findall(r"^\t((?:repeated )?\w+) (\w+) = (\d+)", m[2], re.M)]
    return found


# Frames end where control messages begin; a message's section ends at the next heading.
DOC_FRAME = re.compile(r"^\| (\d+) \| ([A-Z]+) \| (agent|server|both) \|", re.M)
DOC_SECTION = re.compile(r"^#### (.+)\n((?:(?!#).*\n?)*)", re.M)
DOC_FIELD = re.compile(r"^\| (\d+) \| (\w+) \| ([\w ]+) \|", re.M)


def check_protocol():
    """docs/PROTOCOL.md has every frame, message and field, with its number and type."""
    path = "docs/PROTOCOL.md"
    text = read(path)
    frames = re.findall(r'^\tX\((\w+), +(\d+), (?:true|false), +"(\w+)"', read("proto/frame.h"),
                        re.M)
    if not frames or DOC_FRAME.findall(text) != [(no, name, who) for name, no, who in frames]:
        complain(path, 1, "its frames are not those of proto/frame.h, in order")

    table = re.findall(r"^\tX\((\w+), +(\d+), (msg_\w+),", read("proto/msg.h"), re.M)
    messages = {name: (no, camel(struct)) for name, no, struct in table}
    fields = proto_fields()
    told, explained = [], set()
    for m in DOC_SECTION.finditer(text):
        line = text.count("\n", 0, m.start()) + 1
        here = re.findall(r"(\w+) \((\d+)\)", m[1])
        shapes = {messages[name][1] for name, _ in here if name in messages}
        if not here:
            shapes = {m[1].partition(",")[0]}
        told += here
        for shape in shapes:
            rows = [(int(no), name, kind) for no, name, kind in DOC_FIELD.findall(m[2])]
            if rows and rows != fields.get(shape):
                complain(path, line, f"its fields are not those of {shape} in proto/tally.proto")
            if rows:
                explained.add(shape)
    if not table or sorted(told) != sorted((name, no) for name, (no, _) in messages.items()):
        complain(path, 1, "its control messages are not those of proto/msg.h")
    for shape in sorted(fields.keys() - explained):
        complain(path, 1, f"it does not have the fields of {shape}")
    if f"| type | 1 to {max(int(no) for _, no, _ in table)}, below |" not in text:
        complain(path, 1, "it does not say how many types there are")


def check_limits():
    """A limit that docs/PROTOCOL.md names exists."""
    limits = set(re.findall(r"^#define (\w+)", read("common/base/limits.h"), re.M))
    text = read("docs/PROTOCOL.md")
    for m in re.finditer(r"`([A-Z][A-Z0-9_]*_(?:MAX|MIN|MS))`", text):
        if m[1] not in limits:
            complain("docs/PROTOCOL.md", text.count("\n", 0, m.start()) + 1,
                     f"there is no {m[1]} in common/base/limits.h")


def main():
    sources, headers = {}, {}
    for path in files():
        if not path.endswith((".c", ".h", ".proto", ".py", ".sh")) or path.startswith("docs/"):
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            text = f.read()
        check_licence(path, text)
        check_shape(path, text)
        if path.endswith(".sh"):
            check_shell(path, text)
        if not path.endswith((".c", ".h")):
            continue
        code, bare = without_comments(text, False), without_comments(text, True)
        check_includes(path, code)
        check_homes(path, bare)
        if is_core(path) or matches(path, PURE):
            check_bans(path, bare, CORE_BANS)
        if folder_of(path) == "client":
            check_bans(path, bare, CLIENT_BANS)
        if folder_of(path) == "client" and path != CLIENT_LOG:
            check_bans(path, bare, CLIENT_WRITES)
        if folder_of(path) == "client" and path not in ("client/gpu.c", "client/gpu/cuda.c"):
            check_bans(path, bare, CLIENT_THREADS)
        if folder_of(path) in LAYERS and folder_of(path) != "examples":
            check_story(path, text)
            (headers if path.endswith(".h") else sources)[path] = text
    check_functions(sources, headers)
    check_api(headers[API])
    check_errors()
    check_protocol()
    check_limits()
    for p in sorted(set(problems)):
        print(p)
    print(f"lint: {len(set(problems))} problems" if problems else "lint: clean")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

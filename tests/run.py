#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs test programs and sums them up.

	tests/run.py [-j N] [-t SECONDS] [-k WORD] PROGRAM...

A program is a path, with arguments if there are any: a binary of the Check
library (counts as many tests as its line "100%: Checks: 12, Failures: 0,
Errors: 0" says) or anything else that exits 0 (one test), 77 (skipped, says why
in its last line) or otherwise (failed).  Each gets a deadline and a process
group of its own, which is killed as a whole.  Python and shell programs are
run by their interpreters, whatever their mode.  A script may say "# TIMEOUT: 1800"
for a longer deadline, "# ALONE" or "# ALONE: why" to run after all others and by itself, and
"# LONG" to begin before others.  -t SECONDS gives those more time, too, that ask for less.

One line per program, with what its lines "note: ..." say (what a passed test has not tested here,
how long training stood still), the output of those that failed, how many were skipped, for want
of root above all, and alone on the last line "N passed, N failed".  Exit status 1 when one failed,
or none ran.
"""
import argparse
import concurrent.futures
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

NOTE = re.compile(r"^\s*note: (.*)$", re.M)
CHECKS = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)", re.M)
SKIPPED = 77
NEEDS_ROOT = re.compile(r"\broot\b")
FIRST_LINES = 12
OUTPUT_LINES = 210     # the end of a simulator transcript fits

running = set()
lock = threading.Lock()
stopping = threading.Event()


def command(program):
    path, *args = shlex.split(program)
    if os.sep not in path:
        path = os.path.join(".", path)
    by = {".py": [sys.executable], ".sh": ["bash"]}.get(os.path.splitext(path)[1], [])
    return by + [path] + args


def wishes(program, seconds):
    """(deadline, LONG, ALONE or "") as the script itself says, near its top."""
    path = shlex.split(program)[0]
    if not path.endswith((".py", ".sh")):
        return seconds, ""
    try:
        with open(path, encoding="utf-8") as f:
            head = "".join(f.readlines(1000))
    except OSError:
        return seconds, ""
    wish = re.search(r"^# TIMEOUT: (\d+)$", head, re.M)
    when = re.search(r"^# (ALONE|LONG)(?:: .*)?$", head, re.M)
    return (max(int(wish[1]), seconds) if wish else seconds), when[1] if when else ""


def signal_group(pid, signum):
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        pass


def run_to_end(program, seconds, out):
    """Returns the exit status, or None when the time was up."""
    # Not a session of its own: the kernel shares each CPU out among sessions first, and a shell
    # that mostly sleeps is then kept waiting for seconds while what it watches goes on.
    child = subprocess.Popen(command(program), stdin=subprocess.DEVNULL, stdout=out,
                             stderr=subprocess.STDOUT, process_group=0)
    with lock:
        running.add(child.pid)
    try:
        return child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        # A story tidies up behind itself when it is told to go.
        signal_group(child.pid, signal.SIGTERM)
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            pass
        return None
    finally:
        signal_group(child.pid, signal.SIGKILL)
        child.wait()
        with lock:
            running.discard(child.pid)


def counts(status, text):
    """(passed, failed, skipped) of a program that ended so and wrote this."""
    found = CHECKS.findall(text)
    if found:
        checks = sum(int(f[0]) for f in found)
        bad = sum(int(f[1]) + int(f[2]) for f in found)
        if status != 0 and bad == 0:
            bad = 1         # it crashed after its report, or a sanitizer spoke
            checks = max(checks, 1)
        return checks - bad, bad, 0
    if status == 0:
        return 1, 0, 0
    return (0, 0, 1) if status == SKIPPED else (0, 1, 0)


def run(program, seconds):
    start = time.monotonic()
    if stopping.is_set():
        return program, 0.0, (0, 1, 0), "not started: interrupted", ""
    with tempfile.TemporaryFile() as out:
        try:
            status = run_to_end(program, seconds, out)
        except OSError as e:
            return program, 0.0, (0, 1, 0), f"cannot run: {e.strerror}", ""
        out.seek(0)
        text = out.read().decode(errors="replace")
    took = time.monotonic() - start
    total = counts(status, text)
    if status is None:
        return program, took, (0, 1, 0), f"still running after {seconds} s", text
    if total[2]:
        return program, took, total, text.strip().rpartition("\n")[2], text
    if status < 0:
        return program, took, total, f"killed by signal {-status}", text
    return program, took, total, f"exit status {status}" if status else "", text


def word(total):
    return "FAILED" if total[1] else "skipped" if total[2] else "ok"


def show(result):
    program, took, total, why, text = result
    name = os.path.basename(shlex.split(program)[0])
    if name in ("run.sh", "sim_run.sh"):
        name = os.path.basename(shlex.split(program)[1])
    detail = f"{total[0]} passed" + (f", {total[1]} failed" if total[1] else "")
    if total[2]:
        detail = why
    elif why:
        detail += f" ({why})"
    elif notes := NOTE.findall(text):
        detail += "; " + "; ".join(notes)
    print(f"{word(total):8}{name:36} {took:7.2f} s  {detail}", flush=True)
    if total[1] and text:
        lines = text.rstrip().split("\n")
        left_out = len(lines) - FIRST_LINES - OUTPUT_LINES
        if left_out > 0: # what failed stands first, what it led to last
            lines[FIRST_LINES:-OUTPUT_LINES] = [f"... {left_out} lines left out"]
        for line in lines:
            print("    " + line)
        sys.stdout.flush()


def stop(signum, _frame):
    stopping.set()
    with lock:
        for pid in list(running):
            signal_group(pid, signal.SIGTERM)
    sys.exit(128 + signum)


def main():
    p = argparse.ArgumentParser(description="Runs test programs and sums them up.")
    p.add_argument("-j", type=int, default=5, metavar="N",
                   help="programs at a time (5: most wait more than they compute)")
    p.add_argument("-t", type=float, default=900, metavar="SECONDS",
                   help="deadline of each program (900)")
    p.add_argument("-k", default="", metavar="WORD", help="only programs whose path has it")
    p.add_argument("program", nargs="*")
    a = p.parse_args()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, stop)
    chosen = {"LONG": [], "": [], "ALONE": []}
    for x in a.program:
        if a.k in x:
            seconds, when = wishes(x, a.t)
            chosen[when].append((x, seconds))
    passed = failed = skipped = rootless = 0
    together = chosen["LONG"] + chosen[""]
    for some, at_a_time in ((together, max(1, a.j)), (chosen["ALONE"], 1)):
        with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
            jobs = [pool.submit(run, *x) for x in some]
            for job in concurrent.futures.as_completed(jobs):
                result = job.result()
                show(result)
                passed += result[2][0]
                failed += result[2][1]
                skipped += result[2][2]
                rootless += result[2][2] and NEEDS_ROOT.search(result[3]) is not None
    if skipped:
        print(f"{skipped} skipped")
    if rootless and os.geteuid():
        print(f"NOT RUN: {rootless} that need root; `sudo make check` runs them, too")
    if not passed and not failed:
        print("no test ran")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: Tally and its peers measured side by side; docs/BENCHMARKS.md says how.

Prints a table, and writes it to table.txt, results.json and goodput.svg.  Exit status 1 when
a contestant ended or was wrong; what is not installed or a missed target is no failure.  130
when it was interrupted, the terminal was closed or SIGTERM came: then what there is is written.
"""
import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import sys
import time

import jobs
import plot
import rows

HEAD = (f"{'':38} {'Tally':>12} {'peer':>12} {'':20} {'ratio':>7} {'min':>7} {'max':>7}"
        f" {'target':>8}")
STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Table:
    """What is printed, line by line; all of it is kept."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)
        with contextlib.suppress(OSError):      # the terminal may be closed
            print(line, flush=True)


class Result:
    """A row's values of all rounds."""

    def __init__(self, row):
        self.row, self.ours, self.theirs = row, [], []
        self.left_out, self.broken = None, False

    def leave_out(self, why):
        self.left_out, self.broken = str(why), isinstance(why, jobs.Broken)

    def counts(self):
        return bool(self.theirs) and not self.left_out

    def ratio(self, ours, theirs):
        return theirs / ours if self.row.speedup else ours / theirs

    def summary(self):
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        ratio, target = self.ratio(ours, theirs), self.row.target
        each = [self.ratio(a, b) for a, b in zip(self.ours, self.theirs)]
        met = None
        if target:
            met = ratio <= target[1] if target[0] == "<=" else ratio >= target[1]
        return {"name": self.row.name, "unit": self.row.unit, "tally": ours,
                "peer": self.row.peer, "peer_value": theirs, "ratio": ratio,
                "ratio_is": "peer / tally" if self.row.speedup else "tally / peer",
                "ratio_min": min(each), "ratio_max": max(each), "rounds": len(each),
                "target": " ".join(map(str, target)) if target else None, "met": met}


def measure_rounds(env, results, rounds):
    """Every round has every row; ours and the peer's come one right after the other."""
    for _ in range(rounds):
        for r in results:
            if r.left_out:
                continue
            try:
                ours, theirs = r.row.ours(env), r.row.theirs(env)
            except (jobs.Missing, jobs.Broken) as e:
                r.leave_out(e)
                continue
            r.ours.append(ours)
            r.theirs.append(theirs)


def measure(scene, results, rounds, seconds):
    try:
        measure_rounds(rows.Env(scene, seconds), results, rounds)
    except (jobs.Broken, jobs.Missing) as e:
        for r in results:
            r.leave_out(e)
    finally:
        jobs.close_all()


def measure_all(scenes, table, results, rounds, seconds):
    for scene in scenes:
        its = [Result(row) for row in scene.rows]
        results += its
        try:
            measure(scene, its, rounds, seconds)
        finally:
            for r in its:
                show(r, table)


def number(x, unit):
    if unit == "s" and x < 0.01:
        return f"{x * 1e6:.1f} us"
    return f"{x:.4g} {unit}"


def show(result, table):
    if result.left_out:
        table.say(f"{result.row.name:38} left out: {result.left_out}")
    if not result.counts():
        return
    s = result.summary()
    verdict = {True: "met", False: "MISSED", None: ""}[s["met"]]
    table.say(f"{s['name']:38} {number(s['tally'], s['unit']):>12} "
              f"{number(s['peer_value'], s['unit']):>12} {s['peer']:20} {s['ratio']:7.3f} "
              f"{s['ratio_min']:7.3f} {s['ratio_max']:7.3f} {s['target'] or '':>8} {verdict}")


def chosen(words, absent):
    """Scenes with the rows that have one of the words; without words, all rows."""
    pattern = "|".join(r"(?<!\w)" + re.escape(w) for w in words)
    for scene in rows.everything():
        scene.rows = [r for r in scene.rows
                      if re.search(pattern, f"{r.name} {r.peer}") and r.needs not in absent]
        if scene.rows:
            yield scene


def draw(summaries):
    """The SVG of the shaped clusters of four, or None when none was measured."""
    found = {s["name"]: s for s in summaries}
    gloo = found.get("shaped (4,4) 64 MiB, Gloo")
    names = {k: f"shaped (4,{k}) 64 MiB" for k in range(5)}
    tally = {k: found[name]["tally"] for k, name in names.items() if name in found}
    if not tally:
        return None
    return plot.goodput(4, 64 * rows.MIB, rows.GBIT, tally, gloo and gloo["peer_value"])


def write(folder, summaries, table):
    os.makedirs(folder, exist_ok=True)
    files = {"results.json": json.dumps(summaries, indent=1) + "\n",
             "table.txt": "\n".join(table.lines) + "\n", "goodput.svg": draw(summaries)}
    for name, text in files.items():
        if text:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)


def peers_absent(words, table):
    """Of those that a row asks for: to look for torch is to import it."""
    wanted = {row.needs for scene in chosen(words, ()) for row in scene.rows}
    absent = {key for key, (_, here) in jobs.PEERS.items() if key in wanted and not here()}
    for key in sorted(absent):
        table.say(f"left out: every row with {key}; for it: apt-get install {jobs.PEERS[key][0]}")
    return absent


def commit():
    try:
        return jobs.output(["git", "-C", jobs.ROOT, "describe", "--always", "--dirty"]).strip()
    except jobs.Broken:
        return "unknown"


def machine():
    """What the numbers depend on; a busy machine makes them worse."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((x.partition(":")[2].strip() for x in f if x.startswith("model name")), "?")
    load = os.getloadavg()[0]
    return (f"commit {commit()}, {time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} CPUs "
            f"({model}), Linux {os.uname().release}, load {load:.2f}"
            f"{': NOT QUIET, numbers are worse than they should be' if load > 0.5 else ''}")


def arguments():
    p = argparse.ArgumentParser(description="Measures Tally and its peers side by side.")
    p.add_argument("-k", action="append", default=[], metavar="WORD",
                   help="only rows whose name or peer has that, from the beginning of a word; "
                        "may be repeated")
    p.add_argument("--rounds", type=int, metavar="N", help="rounds of each row (5)")
    p.add_argument("--quick", action="store_true", help="two short rounds")
    p.add_argument("--list", action="store_true", help="the names of the rows, and nothing else")
    p.add_argument("--out", default=os.path.join(jobs.BUILD, "bench"), metavar="DIR",
                   help="where the files go ($BUILD/bench)")
    a = p.parse_args()
    for word in a.k:
        if not any(chosen([word], ())):
            p.error(f"no row has '{word}'; --list names them")
    if a.rounds is not None and a.rounds < 1:
        p.error("--rounds: at least 1")
    a.rounds = a.rounds or (2 if a.quick else 5)
    return a


def deaf():
    for s in STOPPING:
        signal.signal(s, signal.SIG_IGN)


def stop(*_):
    deaf()      # nobody disturbs the clean-up
    raise KeyboardInterrupt


def main():
    a = arguments()
    if a.list:
        for scene in chosen(a.k, ()):
            print("\n".join(r.name for r in scene.rows))
        return 0
    try:
        os.makedirs(a.out, exist_ok=True)
    except OSError as e:
        print(f"run.py: --out {a.out}: {e.strerror}", file=sys.stderr)
        return 2
    for s in STOPPING:
        if signal.getsignal(s) != signal.SIG_IGN:       # as nohup has it
            signal.signal(s, stop)
    table, results, interrupted = Table(), [], False
    try:
        scenes = list(chosen(a.k, peers_absent(a.k, table)))
        table.say(machine())
        table.say(HEAD)
        measure_all(scenes, table, results, a.rounds, 0.3 if a.quick else 1.0)
        deaf()
    except KeyboardInterrupt:
        interrupted = True
        jobs.close_all()
        table.say("interrupted: the last rows have fewer rounds, those after them are missing")
    summaries = [r.summary() for r in results if r.counts()]
    if summaries:
        write(a.out, summaries, table)
        if not a.k and not interrupted:
            write(os.path.join(a.out, "whole"), summaries, table)
    table.say(f"written to {a.out}" if summaries else "nothing was measured, nothing is written")
    if interrupted:
        return 130
    return 1 if any(r.broken for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: Tally and its peers measured side by side; docs/BENCHMARKS.md says how.

Prints a table, and writes results.json and goodput.svg.  Exit status 1 when a contestant
ended or was wrong; what is not installed or a missed target is no failure.
"""
import argparse
import json
import os
import re
import signal
import statistics
import sys

import jobs
import plot
import rows

HEAD = (f"{'':38} {'Tally':>12} {'peer':>12} {'':20} {'ratio':>7} {'min':>7} {'max':>7}"
        f" {'target':>8}")


class Result:
    """A row's values of all rounds."""

    def __init__(self, row):
        self.row, self.ours, self.theirs = row, [], []
        self.left_out, self.broken = None, False

    def leave_out(self, why):
        self.left_out, self.broken = str(why), isinstance(why, jobs.Broken)

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


def measure(scene, rounds, seconds):
    results = [Result(row) for row in scene.rows]
    env = None
    try:
        env = rows.Env(scene, seconds)
        measure_rounds(env, results, rounds)
    except (jobs.Broken, jobs.Missing) as e:
        for r in results:
            r.leave_out(e)
    finally:
        if env:
            env.close()
    return results


def number(x, unit):
    if unit == "s" and x < 0.01:
        return f"{x * 1e6:.1f} us"
    return f"{x:.4g} {unit}"


def show(result):
    if result.left_out:
        print(f"{result.row.name:38} left out: {result.left_out}", flush=True)
        return
    s = result.summary()
    verdict = {True: "met", False: "MISSED", None: ""}[s["met"]]
    print(f"{s['name']:38} {number(s['tally'], s['unit']):>12} "
          f"{number(s['peer_value'], s['unit']):>12} {s['peer']:20} {s['ratio']:7.3f} "
          f"{s['ratio_min']:7.3f} {s['ratio_max']:7.3f} {s['target'] or '':>8} {verdict}",
          flush=True)


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


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    print(f"written: {path}")


def peers_absent():
    absent = {key for key, (_, here) in jobs.PEERS.items() if not here()}
    for key in sorted(absent):
        print(f"left out: every row with {key}; for it: apt-get install {jobs.PEERS[key][0]}")
    return absent


def machine():
    """What the numbers depend on besides Tally; a busy machine makes them worse."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((x.partition(":")[2].strip() for x in f if x.startswith("model name")), "?")
    load = os.getloadavg()[0]
    return (f"{os.cpu_count()} CPUs ({model}), Linux {os.uname().release}, load {load:.2f}"
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
                   help="where results.json and goodput.svg go ($BUILD/bench)")
    a = p.parse_args()
    if a.rounds is not None and a.rounds < 1:
        p.error("--rounds: at least 1")
    a.rounds = a.rounds or (2 if a.quick else 5)
    return a


def main():
    a = arguments()
    if a.list:
        for scene in chosen(a.k, ()):
            print("\n".join(r.name for r in scene.rows))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    scenes = list(chosen(a.k, peers_absent()))
    print(machine())
    print(HEAD)
    results = []
    for scene in scenes:
        for r in measure(scene, a.rounds, 0.3 if a.quick else 1.0):
            show(r)
            results.append(r)
    summaries = [r.summary() for r in results if not r.left_out]
    write(a.out, "results.json", json.dumps(summaries, indent=1) + "\n")
    picture = draw(summaries)
    if picture:
        write(a.out, "goodput.svg", picture)
    return 1 if any(r.broken for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())

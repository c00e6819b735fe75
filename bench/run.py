#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: Tally and its peers measured side by side; docs/BENCHMARKS.md says how.

Prints a table, and writes results.json and goodput.svg into $BUILD/bench.
"""
import argparse
import json
import os
import re
import statistics
import sys
import time

import jobs
import rows

JSON_KEYS = ("name", "tally", "peer", "peer_value", "ratio", "target", "met")


class Result:
    """A row's values of all rounds."""

    def __init__(self, row):
        self.row, self.ours, self.theirs, self.missing = row, [], [], None

    def ratio(self, ours, theirs):
        return theirs / ours if self.row.speedup else ours / theirs

    def ratios(self):
        return [self.ratio(a, b) for a, b in zip(self.ours, self.theirs)]

    def summary(self):
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        ratio, target = self.ratio(ours, theirs), self.row.target
        met = None
        if target:
            met = ratio <= target[1] if target[0] == "<=" else ratio >= target[1]
        return {"name": self.row.name, "unit": self.row.unit, "tally": ours,
                "peer": self.row.peer, "peer_value": theirs, "ratio": ratio,
                "ratio_is": "peer / tally" if self.row.speedup else "tally / peer",
                "ratio_min": min(self.ratios()), "ratio_max": max(self.ratios()),
                "rounds": len(self.ours), "target": " ".join(map(str, target or ())),
                "met": met}


def measure_row(env, result):
    """One round of one row: ours and the peer's, one right after the other."""
    ours = result.row.ours(env)
    theirs = result.row.theirs(env)
    result.ours.append(ours)
    result.theirs.append(theirs)


def measure_scene(scene, rounds, seconds):
    results = [Result(row) for row in scene.rows]
    env = None
    try:
        env = rows.Env(scene, seconds)
        for _ in range(rounds):
            for r in results:
                if r.missing:
                    continue
                try:
                    measure_row(env, r)
                except jobs.Missing as e:
                    r.missing = str(e)
    except (jobs.Broken, jobs.Missing) as e:
        for r in results:
            r.missing = r.missing or str(e)
    finally:
        if env:
            env.close()
    return results


def number(x, unit):
    if unit == "s" and x < 0.01:
        return f"{x * 1e6:.1f} us"
    return f"{x:.4g} {unit}"


HEAD = (f"{'':36} {'Tally':>12} {'peer':>12} {'':18} {'ratio':>7} {'min':>7} {'max':>7}"
        f" {'target':>8}")


def show(result):
    if result.missing:
        print(f"{result.row.name:36} left out: {result.missing}", flush=True)
        return
    s = result.summary()
    verdict = {True: "met", False: "MISSED", None: ""}[s["met"]]
    print(f"{s['name']:36} {number(s['tally'], s['unit']):>12} "
          f"{number(s['peer_value'], s['unit']):>12} {s['peer']:18} {s['ratio']:7.3f} "
          f"{s['ratio_min']:7.3f} {s['ratio_max']:7.3f} {s['target']:>8} {verdict}", flush=True)


def chosen(word):
    for scene in rows.everything():
        scene.rows = [r for r in scene.rows if re.search(word, r.name)]
        if scene.rows:
            yield scene


def main():
    p = argparse.ArgumentParser(description="Measures Tally and its peers side by side.")
    p.add_argument("-k", default="", metavar="REGEX",
                   help="only rows whose name has it")
    p.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of each row (5)")
    p.add_argument("--seconds", type=float, default=1.0, metavar="S",
                   help="of each measurement, about (1)")
    a = p.parse_args()
    print(HEAD)
    results = []
    for scene in chosen(a.k):
        for r in measure_scene(scene, a.rounds, a.seconds):
            show(r)
            results.append(r)
    path = os.path.join(jobs.BUILD, "bench", "results.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump([r.summary() for r in results if not r.missing], f, indent=1)
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

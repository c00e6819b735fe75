# SPDX-License-Identifier: Apache-2.0
"""What the files of TALLY_TIMELINE must hold: timeline_check.py FILE RANK open|closed."""

import collections
import json
import sys

KINDS = {"framework", "copy", "network", "sum"}
# of a round, in this order; the result may begin to come while there is more to push
STAGES = ("turn awaited", "push", "sum awaited")
SLACK_US = 4  # of the agent's clock


def events(path, is_closed):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if not is_closed:
        assert text.endswith("},\n"), text[-100:]
        text = text[:-2] + "]"
    return json.loads(text)


def check_round(tracks, spans):
    """The stages follow each other within the process's own span of the round."""
    by = {tracks[s["tid"]]: s for s in spans if s["cat"] != "copy"}
    whole = by.get("round")
    if not whole:
        return 0  # cut off
    begin, end = whole["ts"], whole["ts"] + whole["dur"]
    for s in spans:
        assert begin - SLACK_US <= s["ts"] and s["ts"] + s["dur"] <= end + SLACK_US, (whole, s)
        assert s["args"] == whole["args"], (whole, s)
    if "push" not in by:
        assert "sum" in by and "result" not in by, by  # all ranks on one machine
        return 1
    at = by[STAGES[0]]["ts"]
    for stage in STAGES:
        assert abs(by[stage]["ts"] - at) <= SLACK_US, (stage, by)
        at = by[stage]["ts"] + by[stage]["dur"]
    result = by["result"]
    assert by["push"]["ts"] - SLACK_US <= result["ts"] <= at + SLACK_US
    assert result["ts"] + result["dur"] >= at - SLACK_US
    return 1


def main():
    path, rank, ended = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    all_ = events(path, ended == "closed")
    names = {e["tid"]: e["args"]["name"] for e in all_ if e["name"] == "thread_name"}
    tracks = {tid: name.rstrip("0123456789 ") for tid, name in names.items()}
    spans = [e for e in all_ if e["ph"] == "X"]
    assert {e["pid"] for e in all_} == {rank}
    assert {s["cat"] for s in spans} == KINDS, {s["cat"] for s in spans}
    last = {}
    for s in sorted(spans, key=lambda s: s["ts"]):
        assert s["dur"] >= 0 and s["ts"] >= last.get(s["tid"], 0) - 0.002, s  # printed digits
        last[s["tid"]] = s["ts"] + s["dur"]
    rounds = collections.defaultdict(list)
    for s in spans:
        if "args" in s:
            rounds[s["name"], s["args"]["round"]].append(s)
    whole = sum(check_round(tracks, members) for members in rounds.values())
    mine = [s["name"] for s in spans if s["cat"] == "framework" and "args" not in s]
    for name in ('forward "3"', "ddp0: backward, first to last bucket", "optimizer0: step waits",
                 "op0: all_reduce"):
        assert name in mine, (name, mine)
    assert any("ddp0/bucket" in name for name in mine)
    said = [e["args"]["spans"] for e in all_ if e["name"] == "left_out"]
    assert said == ([0] if ended == "closed" else []), said
    print(f"rank {rank}: {len(spans)} spans, {whole} rounds")


main()

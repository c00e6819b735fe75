# SPDX-License-Identifier: Apache-2.0
"""Ranks that do not do the same: both sides are named before anything is summed.

Four ranks; the odd ones differ.  Calls with a name meet by it, in any order.
"""

import sys
import time

import torch
from rig import raises
from torch import nn

import tally
import tally.torch as hvd

PATIENCE_S = 120  # of sessions; EMISMATCH is heard in less than half of it
VALUES = {"a": 1.0, "b": 10.0, "c": 100.0, "d": 1000.0}


def differ(job, text, function):
    """The function fails with that text, on every rank, in a job of its own."""
    hvd.init(tally.Session(job=job, timeout=PATIENCE_S, round_timeout=PATIENCE_S))
    begin = time.monotonic()
    raises(tally.TallyError, f"EMISMATCH: .*{text}", function, hvd.rank() % 2)
    assert time.monotonic() - begin < PATIENCE_S / 2, "by the deadline"
    hvd.barrier()  # who leaves ends the job for those who have not heard yet
    hvd.shutdown()


def step(named, grads=None, **more):
    """One step of an optimizer of these (name, parameter)."""
    params = [p for _, p in named]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=1.0), named_parameters=named,
                                         **more)
    sum((p * (grads or {}).get(n, 1.0)).sum() for n, p in named).backward()
    optimizer.step()
    return optimizer


def layers(*shapes):
    return [(f"layer{i}", nn.Parameter(torch.zeros(s))) for i, s in enumerate(shapes)]


def optimizers_that_differ():
    differ("shape", r"has layer2 float32\[[68]\].* has layer2 float32\[[68]\]", lambda odd: step(
        layers((4,), (8,), (6,), (4,)) if odd else layers((4,), (2, 3), (8,), (4,))))
    differ("transposed", r"has layer0 float32\[[23], [23]\]", lambda odd: step(
        layers((2, 3) if odd else (3, 2))))
    differ("type", "has layer0 float(32|64)", lambda odd: step(
        [("layer0", nn.Parameter(torch.zeros(4, dtype=torch.float64 if odd else torch.float32)))]))
    differ("order", r"has [bc] float32\[4\].* has [bc] float32\[4\]", lambda odd: step(
        [(n, nn.Parameter(torch.zeros(4))) for n in ("acbd" if odd else "abcd")]))
    differ("name", "has (weight|gamma) .* has (weight|gamma) ", lambda odd: step(
        [("weight" if odd else "gamma", nn.Parameter(torch.zeros(4)))]))
    differ("op", "has (mean|sum) of float32", lambda odd: step(
        layers((4,)), op=hvd.Sum if odd else hvd.Average))
    differ("compression", "float16", lambda odd: step(
        layers((4,)), compression=hvd.Compression.fp16 if odd else hvd.Compression.none))
    differ("frozen", "layer|parameters", lambda odd: step(layers((4,), (4,))[: 1 if odd else 2]))
    differ("many", "layer|parameters", lambda odd: step(layers(*[(3,)] * (250 + odd))))


def broadcasts_that_differ():
    state = {"x": torch.zeros(5), "y": torch.ones(5)}
    differ("pairs", r"has [xy] float32\[5\]", lambda odd: hvd.broadcast_parameters(
        [(k, state[k]) for k in ("yx" if odd else "xy")], 0))
    differ("fewer", "tensors|[xy] float32", lambda odd: hvd.broadcast_parameters(
        [("x", state["x"])] + [("y", state["y"])] * (1 - odd), 0))


def calls_that_differ():
    differ("sizes", r"call \d+ of this group.*float32\[[45]\]",
           lambda odd: hvd.allreduce(torch.zeros(4 + odd)))
    for turn in range(8):  # ranks ask again and again, and each is told once
        differ(f"named{turn}", r"float32\[[45]\]",
               lambda odd: hvd.allreduce(torch.zeros(4 + odd), name="n"))

    def one_of_two(odd):
        n, m = (hvd.allreduce_async(torch.ones(size), name=name)
                for name, size in (("n", 4 + odd), ("nm", 3)))
        assert hvd.synchronize(m).tolist() == [1.0] * 3
        hvd.synchronize(n)
    differ("one", r"tensor 'op0/sum/n': .*float32\[[45]\]", one_of_two)

    def used_before(odd):
        for count in (4, 5):
            hvd.allreduce(torch.zeros(count))
        hvd.allreduce(torch.zeros(4 + odd))
    differ("used", r"call 3 of this group.*float32\[[45]\]", used_before)


def calls_with_names_meet_by_them():
    hvd.init(tally.Session(job="names", timeout=PATIENCE_S, round_timeout=PATIENCE_S))
    for turn in range(3):
        names = list(VALUES)[:: -1 if hvd.rank() % 2 else 1]
        handles = {k: hvd.allreduce_async(torch.full((3,), VALUES[k] + turn), name=k)
                   for k in names[hvd.rank() % 3 :] + names[: hvd.rank() % 3]}
        got = {k: hvd.synchronize(h)[0].item() for k, h in handles.items()}
        assert got == {k: v + turn for k, v in VALUES.items()}, got
    # one after the other, each waited for: also where another rank wants them in another order
    first, second = ("p", "q") if hvd.rank() % 2 else ("q", "p")
    handle = hvd.allreduce_async(torch.full((2,), VALUES["a" if second == "p" else "b"]),
                                 name=second)
    got = hvd.allreduce(torch.full((2,), VALUES["a" if first == "p" else "b"]), name=first)
    assert got[0] == (1 if first == "p" else 10)
    assert hvd.synchronize(handle)[0] == (1 if second == "p" else 10)
    hvd.shutdown()


def main():
    torch.set_num_threads(1)
    for story in (optimizers_that_differ, broadcasts_that_differ, calls_that_differ,
                  calls_with_names_meet_by_them):
        story()
        print(f"{story.__name__}", flush=True)
    print("all well", flush=True)


if __name__ == "__main__":
    sys.exit(main())

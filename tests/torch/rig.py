# SPDX-License-Identifier: Apache-2.0
"""What the ranks of the PyTorch tests share: a process group beside Tally, models, checks.

A rank's program imports it first; it finds the package, and gives each process one
thread, so that sums inside a rank are always made in the same order.
"""

import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../client/python"))
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)
dist._DEFAULT_FIRST_BUCKET_BYTES = 4096  # DDP's first bucket: small models get several, too
DEADLINE_S = 60


def start_gloo(name="gloo"):
    """The process group that DDP wants; its ranks meet in a file of the story's."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['RIG_DIR']}/{name}",
        rank=int(os.environ["TALLY_RANK"]),
        world_size=int(os.environ["TALLY_WORLD_SIZE"]),
    )


def mlp(seed=7, width=64, dtype=torch.float32):
    """A small model: odd sizes, so that nothing falls on a boundary."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(33, width), nn.Tanh(), nn.Linear(width, width + 1), nn.Tanh(),
        nn.Linear(width + 1, 5)
    ).to(dtype)


def batch(rank, step, rows=8, dtype=torch.float32):
    """Every rank's own data of a step, the same in every run."""
    g = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(rows, 33, generator=g)
    return x.to(dtype), torch.randint(0, 5, (rows,), generator=g)


def loss_of(model, rank, step, dtype=torch.float32):
    """The cross entropy of that batch, in float32."""
    x, y = batch(rank, step, dtype=dtype)
    return nn.functional.cross_entropy(model(x).float(), y)


def parameters(model):
    """All of a model's parameters, flat, a copy."""
    return torch.cat([p.detach().reshape(-1).float() for p in model.parameters()])


def gathered(tensor):
    """The tensor of every rank, by Gloo."""
    out = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(out, tensor)
    return out


def same_on_all_ranks(tensor):
    """Bit for bit, or an AssertionError."""
    for rank, other in enumerate(gathered(tensor.contiguous())):
        assert torch.equal(tensor, other), f"rank {rank} has other bits"


def meet():
    """Returns when all ranks are here."""
    dist.barrier()


def is_in_arena(tensor):
    """Does its memory belong to an arena: is it part of a memfd, as nothing of torch's is?"""
    at = tensor.data_ptr()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            first, last = (int(x, 16) for x in line.split()[0].split("-"))
            if first <= at < last:
                return "/memfd:" in line
    raise AssertionError("a tensor without memory")


def ask(verb):
    """What `tally VERB --json` says of the cluster."""
    told = subprocess.run([os.path.join(os.environ["BIN"], "tally"), verb, "--json"],
                          capture_output=True, check=True, timeout=DEADLINE_S)
    return json.loads(told.stdout)[verb]


def tensors():
    """(name, elements) of every declared tensor."""
    return [(t["name"], t["count"]) for t in ask("tensors")]


def wait_until(what, condition):
    """Returns when the condition holds; at the deadline an AssertionError names it."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.01)


def raises(kinds, text, function, *args):
    """The function raises one of these, with that text; returns the text."""
    try:
        function(*args)
    except kinds as error:
        assert re.search(text, str(error)), f"{text!r} is not in {error}"
        return str(error)
    raise AssertionError(f"nothing was raised: {text}")


def server_memory():
    """Bytes that the servers use, all together, heard after this question was asked: wait for
    what they should be, as what is heard may have been said before.  All servers count: one that
    is missed, because the machine stood still, is in the job again, where it has receive windows.
    """
    servers, said = int(os.environ["RIG_SERVERS"]), []

    def all_serve():
        return all(j["servers"] == servers for j in ask("jobs"))

    wait_until("every server is in the job", all_serve)
    begin = time.monotonic()

    def heard():
        age = (time.monotonic() - begin) * 1000
        said[:] = [n for n in ask("nodes") if n["kind"] == "server"]
        return len(said) == servers and all(
            n["heartbeat_age_ms"] < age and n["memory_used_bytes"] for n in said) and all_serve()

    wait_until("every server has told its memory", heard)
    return sum(n["memory_used_bytes"] for n in said)


def epochs():
    return [j["epoch"] for j in ask("jobs")]


def memory_is_as_before(empty, then):
    """What server_memory() was when epochs() were `then` it is again.  Nobody can say so where
    chunks have moved meanwhile: those of a small tensor may lie where a large one's were."""
    wait_until(f"the servers use {empty} bytes, as before",
               lambda: server_memory() <= empty or epochs() != then)

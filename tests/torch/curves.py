# SPDX-License-Identifier: Apache-2.0
"""The examples, run as every rank: each way gives Gloo's losses, up to rounding, and the
same parameters on all ranks.  Their bits go to the file that is the argument, for the
story to compare with those of another number of servers."""

import hashlib
import os
import sys

import rig
import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(rig.HERE, "../../examples/pytorch"))
import digits  # noqa: E402
import gpt  # noqa: E402
import tally  # noqa: E402
import tally.torch  # noqa: E402
import trainer  # noqa: E402

STEPS = 8


def main():
    rig.start_gloo(os.path.basename(sys.argv[1]) + ".gloo")
    session = tally.Session()
    tally.torch.init(session)
    bits = []
    for task in (digits.Digits(), gpt.Text()):
        want, _ = trainer.train(task, "gloo", STEPS, session.rank)
        assert want[-1] < 0.97 * want[0], want
        for way in ("ddp", "optimizer"):
            got, model = trainer.train(task, way, STEPS, session.rank, session)
            worst = max(abs(g - w) / w for g, w in zip(got, want))
            assert worst < 1e-4, (way, got, want)
            assert trainer.identical(model)
            data = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
            bits.append(f"{type(task).__name__} {way} {hashlib.sha256(data.tobytes()).hexdigest()}")
    if session.rank == 0:
        with open(sys.argv[1], "w", encoding="utf-8") as f:
            f.write("\n".join(bits) + "\n")
    dist.destroy_process_group()
    tally.torch.shutdown()
    print("all well")


main()

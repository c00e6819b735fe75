# SPDX-License-Identifier: Apache-2.0
"""BytePS's names for the calls on tensors; names, versions and priorities are not used."""

from ._calls import Compression, allreduce, allreduce_async, allreduce_async_, synchronize


def push_pull_async_inplace(tensor, average=True, name=None, version=0, priority=0):
    """BytePS's allreduce_async_()."""
    del version, priority
    return allreduce_async_(tensor, bool(average), name)


def push_pull_async(tensor, average=True, name=None, version=0, priority=0):
    """BytePS's allreduce_async()."""
    del version, priority
    return allreduce_async(tensor, bool(average), name)


def push_pull_inplace(tensor, average=True, name=None, version=0, priority=0):
    """BytePS's allreduce_()."""
    return synchronize(push_pull_async_inplace(tensor, average, name, version, priority))


def push_pull(tensor, average=True, name=None, version=0, priority=0,
              compression=Compression.none):
    """BytePS's allreduce()."""
    del version, priority
    return allreduce(tensor, bool(average), name, compression)


byteps_push_pull = push_pull_async_inplace


def declare(name, **params):
    """BytePS wants it before push_pull(); here there is nothing to do."""
    if params:
        raise ValueError(f"{name} is declared with {', '.join(params)}: Tally compresses only to "
                         "16 bits, by compression=Compression.fp16 or .bf16")


def suspend():
    """Is not there: an error says what is."""
    raise NotImplementedError(
        "tally.torch has no suspend(): call shutdown(), and later init() in all ranks of the new "
        "job; one that loses ranks goes on with tally.Session(on_loss='shrink'), but without "
        "gathers, and nobody comes back"
    )


def resume(num_workers=None, num_servers=None, global_rank=None, context=None):
    """Is not there, as suspend()."""
    raise NotImplementedError(
        "tally.torch has no resume(): call init(tally.Session(rank=..., world=...)) in all ranks "
        "of the new job, and make the DistributedOptimizer anew; servers come and go by themselves"
    )


def DistributedDataParallel(*args, **kwargs):
    """Is not there: an error says what is."""
    raise NotImplementedError(
        "tally.torch has no DistributedDataParallel: use torch's, with "
        "model.register_comm_hook(None, tally.torch.ddp_comm_hook(session))"
    )

# SPDX-License-Identifier: Apache-2.0
"""Tally for PyTorch; docs/PYTORCH.md is the guide.

With DistributedDataParallel:

    session = tally.Session()
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    model.register_comm_hook(None, tally.torch.ddp_comm_hook(session))

With Horovod's names:

    import tally.torch as hvd

    hvd.init()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
"""

from torch.distributed import Backend as _Backend

from ._batchnorm import SyncBatchNorm
from ._byteps import (
    DistributedDataParallel,
    byteps_push_pull,
    declare,
    push_pull,
    push_pull_async,
    push_pull_async_inplace,
    push_pull_inplace,
    resume,
    suspend,
)
from ._calls import (
    Adasum,
    Average,
    Compression,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allgather_async,
    allgather_object,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    broadcast_object,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    poll,
    synchronize,
)
from ._ddp import ddp_comm_hook
from ._optimizer import DistributedOptimizer
from ._states import broadcast_optimizer_state, broadcast_parameters
from ._world import (
    barrier,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
)

if hasattr(_Backend, "register_backend") and hasattr(_Backend, "default_device_backend_map"):
    from . import _backend  # noqa: F401  torch 2.1: init_process_group("tally")

__all__ = [
    "Adasum", "Average", "Compression", "DistributedDataParallel", "DistributedOptimizer",
    "Max", "Min", "Product", "Sum", "SyncBatchNorm", "allgather", "allgather_async",
    "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
    "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
    "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters", "byteps_push_pull",
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "ddp_comm_hook",
    "declare", "gloo_built", "gloo_enabled", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "init", "is_initialized",
    "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
    "nccl_built", "poll", "push_pull", "push_pull_async", "push_pull_async_inplace",
    "push_pull_inplace", "rank", "resume", "rocm_built", "shutdown", "size", "suspend",
    "synchronize",
]

_ABSENT = {
    "alltoall": "allgather() and take what is meant for this rank",
    "alltoall_async": "allgather_async() and take what is meant for this rank",
    "grouped_allgather": "allgather() for each",
    "grouped_allgather_async": "allgather_async() for each",
    "grouped_reducescatter": "grouped_allreduce() and take this rank's rows",
    "reducescatter": "allreduce() and take this rank's rows",
    "reducescatter_async": "allreduce_async() and take this rank's rows",
    "sparse_allreduce_async": "allreduce_async() of what to_dense() gives",
    "join": "the same number of steps on all ranks",
    "add_process_set": "a job of its own for each set of ranks, tally.Session(job=...)",
    "ProcessSet": "a job of its own for each set of ranks, tally.Session(job=...)",
    "elastic": "tally.Session(on_loss='shrink')",
    "start_timeline": "TALLY_TIMELINE in the environment",
    "stop_timeline": "TALLY_TIMELINE in the environment",
    "CrossBarrier": "DistributedOptimizer(..., cross_barrier=model)",
}


def __getattr__(name):
    """What Horovod and BytePS have and Tally has not: the error says what there is instead."""
    instead = f": there is {_ABSENT[name]}" if name in _ABSENT else ""
    raise AttributeError(f"tally.torch has no {name}{instead}")

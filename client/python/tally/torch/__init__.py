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

from ._ddp import ddp_comm_hook
from ._optimizer import Compression, DistributedOptimizer
from ._world import (
    Average,
    Sum,
    allgather,
    allreduce,
    allreduce_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

if hasattr(_Backend, "register_backend") and hasattr(_Backend, "default_device_backend_map"):
    from . import _backend  # noqa: F401  torch 2.1: init_process_group("tally")

__all__ = [
    "Average", "Compression", "DistributedOptimizer", "Sum", "allgather", "allreduce",
    "allreduce_", "barrier", "broadcast", "broadcast_", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "ddp_comm_hook", "init",
    "is_initialized", "local_rank", "local_size", "rank", "shutdown", "size",
]

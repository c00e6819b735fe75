# SPDX-License-Identifier: Apache-2.0
"""Tally for PyTorch; docs/PYTORCH.md is the guide.

    import tally, tally.torch

    session = tally.Session()
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    model.register_comm_hook(None, tally.torch.ddp_comm_hook(session))
"""

from ._ddp import ddp_comm_hook

__all__ = ["ddp_comm_hook"]

# SPDX-License-Identifier: Apache-2.0
"""Batch normalization over the batches of all ranks."""

import torch

from . import _world
from ._calls import Sum, allreduce


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """torch.nn.BatchNorm1d, 2d or 3d, with mean and variance of all ranks' batches, as Horovod's.

    Only in training; the sizes of batches may differ.  Forward and backward pass make two calls
    each that all ranks have to make, in the same order: what else they call comes before or
    after the model on all of them.
    """

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm wants at least two dimensions, not {input.dim()}")

    def forward(self, input):
        if (not self.training and self.running_mean is not None) or _world.size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        if input.shape[1] != self.num_features:
            raise ValueError(f"SyncBatchNorm of {self.num_features} channels got an input of "
                             f"{input.shape[1]}")
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        others = [d for d in range(x.dim()) if d != 1]
        shape = [-1 if d == 1 else 1 for d in range(x.dim())]
        mine = torch.cat([x.sum(others), x.new_tensor([x.numel() // x.shape[1]])])
        total = allreduce(mine, op=Sum)
        rows = total[-1].detach()
        if rows == 1:  # on all ranks alike
            raise ValueError("Expected more than 1 value per channel when training, got one in "
                             f"all ranks together, input size {input.size()}")
        if rows > 0:
            x = x - (total[:-1] / rows).view(shape)
            variance = allreduce((x * x).sum(others), op=Sum) / rows
            if self.training and self.track_running_stats:
                self._track(total[:-1].detach() / rows, variance.detach() * (rows / (rows - 1)))
            x = x * torch.rsqrt(variance + self.eps).view(shape)
        elif self.training and self.track_running_stats:
            self.num_batches_tracked += 1  # all that torch does
        if self.affine:
            x = x * self.weight.view(shape) + self.bias.view(shape)
        return x.to(input.dtype)

    def _track(self, mean, variance):
        self.num_batches_tracked += 1
        part = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, now in ((self.running_mean, mean), (self.running_var, variance)):
            running.copy_(torch.lerp(running.to(now.dtype), now, part))

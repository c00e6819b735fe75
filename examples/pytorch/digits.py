#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Classifies scikit-learn's handwritten digits with a small convolutional network.

	tally local --agents 2 --servers 1 --ranks 4 -- /usr/bin/python3 examples/pytorch/digits.py

1797 pictures of 8 x 8 pixels come with scikit-learn (Debian: python3-sklearn); every
fifth is kept for the score.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn

import trainer


class Digits:
    """The task, as trainer.train() wants it."""

    rate, steps, every = 2e-3, 150, 25

    def __init__(self):
        pictures, labels = load_digits(return_X_y=True)
        x = torch.tensor(pictures, dtype=torch.float32).view(-1, 1, 8, 8) / 16
        y = torch.tensor(labels, dtype=torch.int64)
        kept = torch.arange(len(y)) % 5 == 0
        self._x, self._y, self._kept = x[~kept], y[~kept], (x[kept], y[kept])

    def model(self):
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 16, 128), nn.ReLU(), nn.Linear(128, 10),
        )

    def batch(self, generator):
        rows = torch.randint(0, len(self._y), (32,), generator=generator)
        return self._x[rows], self._y[rows]

    def loss(self, model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def score(self, model):
        with torch.no_grad():
            right = (model(self._kept[0]).argmax(1) == self._kept[1]).float().mean()
        return f"{100 * right:.1f} % of the kept pictures right"


if __name__ == "__main__":
    sys.exit(trainer.main(Digits(), __doc__.split("\n", maxsplit=1)[0]))

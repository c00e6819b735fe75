#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT, byte by byte, on the text of the GPL that every Debian carries.

	tally local --agents 2 --servers 1 --ranks 4 -- /usr/bin/python3 examples/pytorch/gpt.py

TEXT=path in the environment names another text.
"""

import os
import sys

import torch
from torch import nn

import trainer

TEXT = os.environ.get("TEXT") or "/usr/share/common-licenses/GPL-3"
WIDTH, HEADS, LAYERS, CONTEXT = 64, 4, 2, 48


class Layer(nn.Module):
    """Attention to what came before, then a small network, each added to its input."""

    def __init__(self):
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        rows, length, _ = x.shape
        joint = self.query_key_value(self.before_attention(x))
        q, k, v = joint.view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        weights = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = weights.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.network(self.before_network(x))


class GPT(nn.Module):
    """Probabilities of the next byte, as logits."""

    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)], nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, x):
        places = self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.layers(self.bytes(x) + places))


class Text:
    """The task, as trainer.train() wants it."""

    rate, steps, every = 3e-3, 200, 25

    def __init__(self):
        with open(TEXT, "rb") as f:
            self._text = torch.tensor(list(f.read()), dtype=torch.int64)
        if len(self._text) < 2 * CONTEXT:
            sys.exit(f"{TEXT}: too short to learn from")

    def model(self):
        return GPT()

    def batch(self, generator):
        starts = torch.randint(0, len(self._text) - CONTEXT, (16,), generator=generator)
        rows = torch.stack([self._text[s : s + CONTEXT + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]

    def loss(self, model, batch):
        return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def score(self, model):
        text = list(b"  The ")
        with torch.no_grad():
            for _ in range(60):
                text.append(int(model(torch.tensor([text[-CONTEXT:]]))[0, -1].argmax()))
        return "and it writes: " + bytes(text).decode("latin-1").replace("\n", " ").strip()


if __name__ == "__main__":
    sys.exit(trainer.main(Text(), __doc__.split("\n", maxsplit=1)[0]))

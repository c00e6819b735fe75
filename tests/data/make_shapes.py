#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tensor lists beside this file: the trainable parameters of known
networks, under the names, in the order and with the shapes that PyTorch gives
them.  One line per tensor: name, dtype, dimensions joined by 'x'.

The totals asserted below are the published ones."""

import math
import os


def batch_norm(name, n):
    return [(name + ".weight", [n]), (name + ".bias", [n])]


layer_norm = batch_norm


def linear(name, n_in, n_out):
    return [(name + ".weight", [n_out, n_in]), (name + ".bias", [n_out])]


def resnet50():
    t = [("conv1.weight", [64, 3, 7, 7])] + batch_norm("bn1", 64)
    n_in = 64
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], 1):
        for block in range(blocks):
            p = f"layer{stage}.{block}"
            t += [(p + ".conv1.weight", [width, n_in, 1, 1])] + batch_norm(p + ".bn1", width)
            t += [(p + ".conv2.weight", [width, width, 3, 3])] + batch_norm(p + ".bn2", width)
            t += [(p + ".conv3.weight", [4 * width, width, 1, 1])]
            t += batch_norm(p + ".bn3", 4 * width)
            if block == 0:
                t += [(p + ".downsample.0.weight", [4 * width, n_in, 1, 1])]
                t += batch_norm(p + ".downsample.1", 4 * width)
            n_in = 4 * width
    return t + linear("fc", 2048, 1000)


def vgg16():
    layers = [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0]
    t, n_in, at = [], 3, 0
    for n_out in layers:
        if n_out:
            t += [(f"features.{at}.weight", [n_out, n_in, 3, 3]), (f"features.{at}.bias", [n_out])]
            n_in = n_out
            at += 1  # the ReLU
        at += 1
    t += linear("classifier.0", 512 * 7 * 7, 4096)
    return t + linear("classifier.3", 4096, 4096) + linear("classifier.6", 4096, 1000)


def bert_pretraining(layers, h, vocab=30522):
    e = "bert.embeddings."
    t = [(e + "word_embeddings.weight", [vocab, h]), (e + "position_embeddings.weight", [512, h]),
         (e + "token_type_embeddings.weight", [2, h])] + layer_norm(e + "LayerNorm", h)
    for i in range(layers):
        p = f"bert.encoder.layer.{i}."
        for part in ("query", "key", "value"):
            t += linear(p + "attention.self." + part, h, h)
        t += linear(p + "attention.output.dense", h, h)
        t += layer_norm(p + "attention.output.LayerNorm", h)
        t += linear(p + "intermediate.dense", h, 4 * h) + linear(p + "output.dense", 4 * h, h)
        t += layer_norm(p + "output.LayerNorm", h)
    t += linear("bert.pooler.dense", h, h)
    # The decoder's matrix is the word embedding's.
    t += [("cls.predictions.bias", [vocab])] + linear("cls.predictions.transform.dense", h, h)
    t += layer_norm("cls.predictions.transform.LayerNorm", h)
    return t + linear("cls.seq_relationship", h, 2)


def gpt2(layers, h, vocab=50257):
    def conv1d(name, n_in, n_out):
        return [(name + ".weight", [n_in, n_out]), (name + ".bias", [n_out])]

    t = [("transformer.wte.weight", [vocab, h]), ("transformer.wpe.weight", [1024, h])]
    for i in range(layers):
        p = f"transformer.h.{i}."
        t += layer_norm(p + "ln_1", h) + conv1d(p + "attn.c_attn", h, 3 * h)
        t += conv1d(p + "attn.c_proj", h, h) + layer_norm(p + "ln_2", h)
        t += conv1d(p + "mlp.c_fc", h, 4 * h) + conv1d(p + "mlp.c_proj", 4 * h, h)
    return t + layer_norm("transformer.ln_f", h)


def write(name, tensors, parameters, count):
    assert sum(math.prod(d) for _, d in tensors) == parameters, name
    assert len(tensors) == count and len(dict(tensors)) == count, name
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, name + ".txt"), "w", encoding="ascii") as f:
        for tensor, dims in tensors:
            f.write(f"{tensor} float32 {'x'.join(map(str, dims))}\n")


if __name__ == "__main__":
    write("resnet50", resnet50(), 25557032, 161)
    write("vgg16", vgg16(), 138357544, 32)
    write("bert-large", bert_pretraining(24, 1024), 336226108, 398)
    write("bert-base", bert_pretraining(12, 768), 110106428, 206)
    write("gpt2", gpt2(12, 768), 124439808, 148)

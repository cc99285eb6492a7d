# SPDX-License-Identifier: Apache-2.0
"""Computes from a model's layers when its gradients become ready in a step.

A layer's time is its share of the model's multiplications. Backward takes twice as long as forward,
from the last layer to the first. A whole step takes its arithmetic at FLOPS. That is what a V100
sustains on ResNet-50 in mixed precision: about 810 images/s, 25 GFLOP each forward and backward.
Real layers differ, because small ones wait for memory.

Buckets are those of DistributedDataParallel after its first step: parameters in the order in which
they become ready, 1 MiB and then 25 MiB each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

FLOPS = 20e12
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20
BYTES = 4  # of one gradient


@dataclass(frozen=True)
class Layer:
    shapes: tuple[tuple[int, ...], ...]
    products: float  # multiplications forward, for one sample


@dataclass(frozen=True)
class Bucket:
    ready: float  # seconds after the step began
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Model:
    name: str
    batch: int  # samples of each rank
    layers: tuple[Layer, ...]

    def bytes(self) -> int:
        return sum(BYTES * math.prod(shape) for layer in self.layers for shape in layer.shapes)

    def seconds(self) -> float:
        """Returns the seconds of a step without communication: forward and backward, with two
        operations for each multiplication.
        """
        return self.batch * sum(layer.products for layer in self.layers) * 2 * 3 / FLOPS

    def buckets(self) -> list[Bucket]:
        whole = sum(layer.products for layer in self.layers)
        found: list[Bucket] = []
        open_shapes: list[tuple[int, ...]] = []
        held, done, limit = 0, 0.0, FIRST_BUCKET
        for layer in reversed(self.layers):
            done += layer.products
            ready = self.seconds() * (1 + 2 * done / whole) / 3
            for shape in reversed(layer.shapes):
                open_shapes.append(shape)
                held += BYTES * math.prod(shape)
                if held >= limit:
                    found.append(Bucket(ready, tuple(open_shapes)))
                    open_shapes, held, limit = [], 0, BUCKET
        if open_shapes:
            found.append(Bucket(self.seconds(), tuple(open_shapes)))
        return found


def convolution(inputs: int, outputs: int, kernel: int, pixels: int, norm: bool = True) -> Layer:
    """A convolution. `pixels` is the side of its output. Its batch norm, or its bias, belongs to
    it.
    """
    rest = ((outputs,), (outputs,)) if norm else ((outputs,),)
    products = outputs * inputs * kernel * kernel * pixels * pixels
    return Layer(((outputs, inputs, kernel, kernel), *rest), products)


def linear(inputs: int, outputs: int, times: int = 1) -> Layer:
    return Layer(((outputs, inputs), (outputs,)), inputs * outputs * times)


def resnet50() -> Model:
    layers = [convolution(3, 64, 7, 112)]
    inputs = 64
    for width, blocks, pixels in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        for block in range(blocks):
            before = pixels * 2 if block == 0 and width > 64 else pixels
            layers += [convolution(inputs, width, 1, before), convolution(width, width, 3, pixels)]
            layers.append(convolution(width, 4 * width, 1, pixels))
            if block == 0:
                layers.append(convolution(inputs, 4 * width, 1, pixels))
            inputs = 4 * width
    return Model("resnet50", 64, (*layers, linear(2048, 1000)))


def vgg16() -> Model:
    layers = []
    inputs = 3
    for width, count, pixels in (
        (64, 2, 224),
        (128, 2, 112),
        (256, 3, 56),
        (512, 3, 28),
        (512, 3, 14),
    ):
        for _ in range(count):
            layers.append(convolution(inputs, width, 3, pixels, norm=False))
            inputs = width
    return Model(
        "vgg16", 32, (*layers, linear(512 * 49, 4096), linear(4096, 4096), linear(4096, 1000))
    )


def bert_base() -> Model:
    """BERT on sequences of 128. Embeddings are ready last, and cost almost nothing."""
    tokens, width = 128, 768
    embeddings = Layer(((30522, width), (512, width), (2, width), (width,), (width,)), 0.0)
    layers = []
    for _ in range(12):
        layers += [linear(width, width, tokens) for _ in range(3)]
        scores = Layer(((width,), (width,)), 2 * tokens * tokens * width)
        layers += [scores, linear(width, width, tokens), linear(width, 4 * width, tokens)]
        layers += [linear(4 * width, width, tokens), Layer(((width,), (width,)), 0.0)]
    return Model("bert-base", 32, (embeddings, *layers, linear(width, width)))


def swin_t() -> Model:
    """Swin-T on pictures of 224 pixels, in windows of 7 x 7."""
    pixels, window = 56, 49
    layers = [convolution(3, 96, 4, pixels, norm=False), Layer(((96,), (96,)), 0.0)]
    for stage, blocks in enumerate((2, 2, 6, 2)):
        width, heads, tokens = 96 << stage, 3 << stage, pixels * pixels
        norm = Layer(((width,), (width,)), 0.0)
        for _ in range(blocks):
            scores = Layer((((2 * 7 - 1) ** 2, heads),), 2 * tokens * window * width)
            layers += [norm, linear(width, 3 * width, tokens), scores, linear(width, width, tokens)]
            layers += [norm, linear(width, 4 * width, tokens), linear(4 * width, width, tokens)]
        if stage < 3:
            pixels //= 2
            layers.append(Layer(((4 * width,), (4 * width,)), 0.0))
            layers.append(Layer(((2 * width, 4 * width),), 8 * width * width * pixels * pixels))
    return Model("swin-t", 64, (*layers, Layer(((768,), (768,)), 0.0), linear(768, 1000)))


MODELS: dict[str, Callable[[], Model]] = {
    "resnet50": resnet50,
    "swin-t": swin_t,
    "vgg16": vgg16,
    "bert-base": bert_base,
}

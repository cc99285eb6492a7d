# SPDX-License-Identifier: Apache-2.0
"""What a remedy would gain, before it is tried: from the shares that phases have of a step.

A remedy makes one share of a step quicker by a ratio, and can never gain more than that share
(Amdahl). The ratios are those that were measured elsewhere, each with its source below. They are
rough, so each prediction has a range.

Pure functions. They hold on the CPU: phases of a GPU's program are host time, and tell nothing of
the device.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline._core.records import Breakdown


class Ratio(NamedTuple):
    """How many times quicker a share gets: the usual, the worst and the best that was seen."""

    usual: float
    low: float
    high: float


class Program(NamedTuple):
    """What the first optimizer of a program updates, and how."""

    tensors: int
    elements: int
    convolutions: float  # share of the elements that belong to convolutions
    single_pass: bool  # fused=True


class Prediction(NamedTuple):
    """Steps get quicker by `gain`, between `low` and `high`: time without over time with, less 1.
    `share`: of a step without it, by which it is bounded."""

    gain: float
    low: float
    high: float
    share: float
    of: str  # what takes that share, in words

    @property
    def bound(self) -> float:
        return quicker(self.share, float("inf"))

    def __str__(self) -> str:
        return (
            f"predicted {self.gain * 100:+.0f} % ({self.low * 100:+.0f} to {self.high * 100:+.0f}):"
            f" {self.of} {self.share * 100:.0f} % of a step, so {self.bound * 100:+.0f} % is"
            " the most"
        )

    def told(self) -> dict[str, float]:
        return {"gain": self.gain, "low": self.low, "high": self.high, "share": self.share}


MOST_SHARE = 0.99  # what is left to the rest of a step, so that every bound is finite


def quicker(share: float, ratio: float) -> float:
    """The gain of a step if this share of it gets so many times quicker."""
    return 1 / (1 - share * (1 - 1 / ratio)) - 1


def _predicted(share: float, ratio: Ratio, of: str) -> Prediction:
    share = min(max(share, 0.0), MOST_SHARE)
    gain, low, high = (quicker(share, each) for each in ratio)
    return Prediction(gain, low, high, share, of)


def _without(share: float, ratio: float) -> float:
    """The share before it got so many times quicker."""
    return share * ratio / (1 - share + share * ratio)


# PyTorch's default step (a loop on the CPU) against the library's, by elements: bench/optim of
# 30 M parameters in docs/benchmarks.md; small ones are bound by what a tensor costs the host.
_OPTIMIZER = ((10_000_000, Ratio(4.0, 2.5, 4.7)), (0, Ratio(2.5, 1.5, 4.7)))
_SINGLE_PASS = Ratio(1.0, 0.95, 1.15)  # PyTorch's fused step, which is left as it is


def optimizer(found: Breakdown, program: Program, acts: bool) -> Prediction:
    """Of fused optimizers. `acts`: the steps were made with them."""
    ratio = next(ratio for least, ratio in _OPTIMIZER if program.elements >= least)
    if program.single_pass:
        ratio = _SINGLE_PASS
    share = found.shares["optimizer"]
    if acts:
        share = _without(share, ratio.usual)
    return _predicted(share, ratio, "the optimizer takes")


# The communicator against Gloo: one host's shared memory, and the wire between hosts
# (docs/benchmarks.md). What ranks wait for each other is in the share, and gets no quicker.
_ONE_HOST, _HOSTS = Ratio(2.0, 1.0, 3.3), Ratio(1.35, 1.0, 1.53)


def gradients(found: Breakdown, one_host: bool, acts: bool) -> Prediction:
    """Of gradients over our communicator."""
    ratio = _ONE_HOST if one_host else _HOSTS
    share = found.shares["comm_exposed"]
    if acts:
        share = _without(share, ratio.usual)
    return _predicted(share, ratio, "waiting for gradients takes")


# Compiled forward and backward passes against eager ones, on two cores. On a quiet machine with
# PyTorch 2.14 (docs/reach.md): transformers 1.2 to 1.7, a perceptron of small products 1.6 and of
# large ones 1.0; convolutions 0.75 (SqueezeNet), 0.97 to 1.15 (others). Beside other work:
# perceptrons 1.18 to 1.27; GPT-2 1.0 to 1.34, ViT 1.06 to 1.28, BERT 1.0, PyTorch's encoder 0.83 to
# 0.86; a UNet 1.16 to 1.24, ResNet-18 0.83 to 0.87, SqueezeNet 0.69 to 0.77. The time that a
# parameter's tensor takes tells whether operations are small: what surrounds an operation costs
# some 10 microseconds, and compiling spares it.
SMALL = 0.5e-3  # seconds for each tensor
_SMALL, _LARGE = Ratio(1.35, 0.95, 1.6), Ratio(1.2, 0.83, 1.7)
_CONVOLUTIONS = Ratio(1.05, 0.69, 1.24)


def compiled(found: Breakdown, program: Program) -> Prediction:
    """Of a compiled model. The steps are eager ones."""
    # Of a loop that takes its batches from no loader of PyTorch nobody tells where forward begins.
    forward = found.shares["forward"] or found.shares["unattributed"]
    share = forward + found.shares["backward"]
    each = share * found.seconds / max(1, program.tensors)
    ratio = _SMALL if each < SMALL else _LARGE
    if program.convolutions > 0.5:
        ratio = _CONVOLUTIONS
    return _predicted(share, ratio, "forward and backward take")


def workers(waited: float, rest: float, gain: float) -> Prediction:
    """Of more workers of a loader: the gain that its model has found (loader/_workers/gain.py), of
    seconds that a step waits for its batch, and of its rest. Other processes may take the
    processors that it counts on.
    """
    share = min(waited / max(1e-9, waited + rest), MOST_SHARE)
    most = quicker(share, float("inf"))
    usual = min(max(0.0, gain), most)
    return Prediction(usual, usual / 2, min(1.25 * usual, most), share, "waiting for batches takes")

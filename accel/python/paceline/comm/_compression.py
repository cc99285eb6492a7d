# SPDX-License-Identifier: Apache-2.0
"""Sends gradients in fewer bytes between hosts, with error feedback: what one step loses is added
to a later step (class Lossy). `ddp_hook(model, compression=…)` and
spec.acceleration.compression use it.

    FP16, BF16, Int8        every value, in 16 or 8 bits
    TopK:ratio=0.01         the largest values only, one in a hundred
    PowerSGD:rank=1         matrices as products of two thin ones
    DGC(optimizer)          the largest values of the accumulated momentum of SGD
    OneBit(optimizer)       signs, for SGD or OneBitAdam

The last two change or read the optimizer, so only a program can ask for them.

A bucket is compressed after `start` passes, at least two, because DistributedDataParallel rebuilds
its buckets after the first. Buckets of less than 4096 values are sent uncompressed, and so are
types other than float32, float16 and bfloat16. The residuals of float16 and bfloat16 are float32.
FP16 and BF16 do not change buckets that have 16 bits already.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Union

import torch

from paceline._core import contract
from paceline._core.environment import told
from paceline._core.log import say
from paceline.comm._dgc import Deep, Momentum
from paceline.comm._native import CODECS
from paceline.comm._one_bit import FrozenAdam, OneBitAdam
from paceline.comm._power_sgd import Power
from paceline.comm._reducer import Reducer

Tensor = torch.Tensor
Wait = Callable[[], Any]

HALVES = (torch.float16, torch.bfloat16)
LEAST = 4096  # values of a bucket
FIRST_START = 2
MILLION = 1_000_000
VERSION = 1


@dataclass(frozen=True)
class Codec:
    """A code of the library for each host's sum of gradients. `ratio`: of all values, with TopK."""

    name: str
    ratio: float = 0.0
    start: int = FIRST_START

    def __str__(self) -> str:
        settings = ([f"ratio={self.ratio:g}"] if self.ratio else []) + [f"start={self.start}"]
        return f"{self.name}:{','.join(settings)}"


@dataclass(frozen=True)
class PowerSGD:
    """PowerSGD (Vogels et al., arXiv:1905.13727): each matrix is sent as a product of two thin ones
    (class Lossy). Vectors and small matrices are sent whole.

    Args:
        rank: columns of the thin matrices, 1 or more.
        start: passes before the first that is compressed, 2 or more.
        seed: of the first thin matrices; the same on all ranks.

    Example:
        >>> paceline.comm.ddp_hook(  # doctest: +SKIP
        ...     model, compression=paceline.comm.PowerSGD(rank=2, start=500)
        ... )
        >>> str(paceline.comm.PowerSGD(rank=2, start=500))
        'PowerSGD:rank=2,start=500'
    """

    rank: int = 1
    start: int = 1000
    seed: int = 0

    def __str__(self) -> str:
        return f"PowerSGD:rank={self.rank},start={self.start}"


Compression = Union[Codec, Deep, FrozenAdam, PowerSGD]


def OneBit(optimizer: Any, start: int = FIRST_START) -> Codec | FrozenAdam:
    """Makes a compression that sends one sign for each value and one mean for 1024 values (class
    Lossy). Pass it to `ddp_hook`.

    Other optimizers divide gradients by their past size, which signs do not have.

    Args:
        optimizer: a torch.optim.SGD, or a OneBitAdam, which is compressed once its variance is
            frozen.
        start: passes before the first that is compressed, 2 or more.

    Raises:
        ValueError: if the optimizer is another, or `start` is below 2.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> str(paceline.comm.OneBit(torch.optim.SGD([weight], lr=0.1)))
        'OneBit:start=2'
    """
    if isinstance(optimizer, OneBitAdam):
        return FrozenAdam.of(optimizer, _at_least("start", start, FIRST_START))
    inner = [kind.__name__ for kind in type(optimizer).__mro__]
    if "SGD" not in inner:
        raise ValueError(
            f"paceline.comm.OneBit: optimizer is {type(optimizer).__qualname__}: signs alone are"
            " sound for SGD and OneBitAdam; use one of them, or Int8"
        )
    return Codec("OneBit", start=_at_least("start", start, FIRST_START))


def parse(text: str) -> Compression | None:
    """Reads a compression's text, for example "PowerSGD:rank=2,start=500". None for "" and
    "Disabled". A ValueError names the part that is wrong.
    """
    if text in ("", "Disabled"):
        return None
    name, _, settings_text = text.partition(":")
    if name in ("DGC", "OneBit"):
        raise ValueError(
            f"compression is {text!r}: {name} needs to know the optimizer: pass"
            f" paceline.comm.{name}(optimizer) to ddp_hook"
        )
    takes = contract.COMPRESSION.get(name)
    if takes is None:
        raise ValueError(
            f"compression is {text!r}: it must be Disabled or one of"
            f" {', '.join(contract.COMPRESSION)}"
        )
    settings: dict[str, Any] = {key: default for key, (_, _, default) in takes.items()}
    for one in settings_text.split(",") if settings_text else []:
        key, equals, value = one.partition("=")
        if key not in takes or not equals:
            raise ValueError(
                f"compression is {text!r}: {name} takes {', '.join(f'{known}=' for known in takes)}"
                f" not {one!r}"
            )
        kind, least, _ = takes[key]
        if not re.fullmatch(r"[0-9]+" if kind is int else r"[0-9]*\.?[0-9]+(e-[0-9]+)?", value):
            raise ValueError(f"compression is {text!r}: {key}= takes a number, not {value!r}")
        settings[key] = kind(value)
        if kind is int:
            _at_least(key, settings[key], int(least))
        elif not least <= settings[key] <= 1:
            raise ValueError(f"compression is {text!r}: {key} must be {least:f} to 1")
    return PowerSGD(**settings) if name == "PowerSGD" else Codec(name, **settings)


def why_not_class(how: Compression | None) -> str:
    """Returns an empty text if the job's numerics class allows the compression, else why not."""
    job = told(contract.NUMERICS)
    if how is None or job in ("", "Lossy"):
        return ""
    return f"compression is of class Lossy, and the job's {contract.NUMERICS} is {job}"


def _at_least(key: str, value: int, least: int) -> int:
    if value < least:
        why = (
            "DistributedDataParallel rebuilds its buckets after the first pass"
            if key == "start"
            else "the thin matrices need a column"
        )
        raise ValueError(f"compression: {key} is {value}: it must be {least} or more: {why}")
    return value


class Compressor:
    """Compresses one model's buckets, and keeps what each of them has lost so far."""

    def __init__(self, how: Compression, communicator: Reducer) -> None:
        self.how = how
        self.communicator = communicator
        self._buckets: dict[int, tuple[tuple[torch.Size, ...], Residual | Power]] = {}
        self._loaded: dict[int, dict[str, Any]] = {}
        self._before = 0  # passes of the run whose state was loaded
        self._passes = 0
        self._momentum = Momentum(how.momentum) if isinstance(how, Deep) else None
        self._in_halves = isinstance(how, Codec) and how.name in ("FP16", "BF16")
        self._has_several_hosts = "," in communicator.shape()
        self.dropped = 0

    def takes(self, buffer: Tensor, passes: int) -> bool:
        """Tells whether this bucket is compressed in this pass. All ranks get the same answer."""
        self._passes = self._before + passes
        late = passes >= FIRST_START and self._before + passes >= self.how.start
        fewer = buffer.dtype is torch.float32 or (buffer.dtype in HALVES and not self._in_halves)
        if isinstance(self.how, FrozenAdam):
            fewer = buffer.dtype is torch.float32 and self.how.is_frozen()
        return self._has_several_hosts and late and fewer and buffer.numel() >= LEAST

    def uncompressed(self, wait: Wait, bucket: Any, buffer: Tensor) -> Wait:
        """Returns the wait of a bucket that is sent uncompressed. It applies momentum afterwards,
        if the compression has taken it from the optimizer.
        """
        if isinstance(self.how, FrozenAdam) and self.how.is_frozen():
            return self.how.after(wait, bucket)
        return (
            wait if self._momentum is None else self._momentum.after(wait, bucket.index(), buffer)
        )

    def start(self, bucket: Any, buffer: Tensor) -> tuple[Wait | None, Wait]:
        """Begins the sum of a bucket, which is already divided by the number of ranks. Returns what
        to call when all buckets have begun, if anything, and the wait.
        """
        index = bucket.index()
        shapes = tuple(parameter.shape for parameter in bucket.parameters())
        known = self._buckets.get(index)
        if known is None or known[0] != shapes:
            if known is not None:
                self._drop(index, "the model's buckets are others now")
            known = self._buckets[index] = (shapes, self._make(index, shapes, buffer))
        wide = buffer.float()  # the buffer itself if it is float32
        if isinstance(self.how, Deep):
            self.how.check()
            self.how.clipped(wide, self.communicator.ranks)
        if isinstance(self.how, FrozenAdam):
            self.how.gather(bucket, 1 / self.communicator.ranks)
        turn, wait = known[1].start(self.communicator, wide, self._passes - self.how.start)
        if wide is buffer:
            return turn, wait

        def narrowed() -> None:
            wait()
            buffer.copy_(wide)

        return turn, narrowed

    def _make(self, index: int, shapes: tuple[torch.Size, ...], buffer: Tensor) -> Residual | Power:
        made: Residual | Power
        if isinstance(self.how, PowerSGD):
            made = Power(
                shapes, self.how.rank, self.how.seed + index, self.communicator.ranks, buffer.device
            )
        else:
            kept = 2 if isinstance(self.how, Deep) else 1
            how = (
                Codec("OneBit", start=self.how.start)
                if isinstance(self.how, FrozenAdam)
                else self.how
            )
            count = self.communicator.residual_count(buffer.numel()) * kept
            made = Residual(how, buffer.new_zeros(count, dtype=torch.float32))
        loaded = self._loaded.pop(index, None)
        if loaded is not None:
            if [list(shape) for shape in shapes] == loaded["shapes"]:
                made.load(loaded)
            else:
                self._drop(index, "the model's buckets are not those of the checkpoint")
        return made

    def _drop(self, index: int, why: str) -> None:
        self.dropped += 1
        say(f"what compression has lost of bucket {index} so far is dropped: {why}")

    def _place(self) -> dict[str, Any]:
        """Returns what a residual belongs to. It cannot be loaded anywhere else."""
        text = self.communicator.plan().partition("#")[0]  # "#" begins notes for readers
        plan = [word for word in text.split() if not word.startswith("choice=")]
        return {
            "version": VERSION,
            "compression": str(self.how),
            "rank": self.communicator.rank,
            "hosts": self.communicator.shape(),
            "plan": " ".join(plan),
        }

    def state_dict(self, passes: int) -> dict[str, Any]:
        """Returns this rank's residuals, by bucket, and what they belong to."""
        buckets = {
            index: {"shapes": [list(shape) for shape in shapes], **state.state_dict()}
            for index, (shapes, state) in self._buckets.items()
        }
        state = {
            **self._place(),
            "passes": self._before + passes,
            "buckets": {**self._loaded, **buckets},
        }
        return (
            state if self._momentum is None else {**state, "momentum": self._momentum.state_dict()}
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes residuals over. Raises ValueError if they belong to other ranks or another plan."""
        for key, mine in self._place().items():
            if state.get(key) != mine:
                raise ValueError(
                    f"paceline.comm.load_state_dict: {key} is {state.get(key)!r}, here it is"
                    f" {mine!r}: what compression has lost belongs to the ranks and the plan that"
                    " lost it; start without it"
                )
        self._before = int(state["passes"])
        self._buckets.clear()
        self._loaded = dict(state["buckets"])
        if self._momentum is not None:
            self._momentum.load(state["momentum"])


class Residual:
    """What coding has lost so far of this rank's part of its host's sum, for one bucket."""

    def __init__(self, how: Codec | Deep, nothing: Tensor) -> None:
        self._how = how
        self._residual = nothing

    def start(self, communicator: Reducer, buffer: Tensor, passes: int) -> tuple[Wait | None, Wait]:
        """Begins the coded sum, `passes` after the first compressed one. Nothing follows it."""
        if isinstance(self._how, Deep):
            codec, keep = CODECS["DGC"], self._how.keep(passes)
        else:
            codec, keep = CODECS[self._how.name], round(self._how.ratio * MILLION)
        started = communicator.all_reduce_coded(buffer.view(-1), self._residual, codec, keep)
        return None, started.wait

    def state_dict(self) -> dict[str, Any]:
        return {"rest": self._residual.clone()}

    def load(self, state: dict[str, Any]) -> None:
        self._residual.copy_(state["rest"])

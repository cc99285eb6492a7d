# SPDX-License-Identifier: Apache-2.0
"""Sums by way of hosts over PyTorch's own process groups, for gradients on GPUs in groups of NCCL: a reduce-scatter inside each host, an allreduce of
each shard between the ranks that have the same place in their hosts, an allgather inside the host.

There is no communicator beside PyTorch's: a second one of NCCL in the same process can deadlock with it. The sub-groups are PyTorch's too, made once by
all ranks in the same order, tried before the first backward, and used by all models. On a device everything goes onto one stream in the program's order, so our
collectives never run beside each other, and the host waits for nothing: who waits for a sum has the current stream wait. On the CPU, where the tests
are, PyTorch's calls wait themselves.

What a collective fails with is PyTorch's own error, and its own timeout ends it.
"""

from __future__ import annotations

import weakref
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist

from paceline.comm._communicator import CODECS
from paceline.comm._compression import Codec, Compression
from paceline.comm._layout import Layout
from paceline.comm._meeting import Members

Tensor = torch.Tensor

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
HALVES = {CODECS["FP16"]: torch.float16, CODECS["BF16"]: torch.bfloat16}


def carries(model: Any) -> bool:
    """Whether a model's gradients are this module's: they are on GPUs."""
    return any(parameter.is_cuda for parameter in model.module.parameters() if parameter.requires_grad)


def why_not_coded(how: Compression | None) -> str:
    """Empty where gradients on GPUs can be compressed so."""
    if how is None or (isinstance(how, Codec) and CODECS.get(how.name) in HALVES):
        return ""
    return f"compression is {how}: on GPUs it must be FP16 or BF16"


def why_not_group(members: Members) -> str:
    """Empty where sub-groups can be made: by all ranks of the job, and so for a group of all."""
    if members.numbers != tuple(range(dist.get_world_size())):
        return "a process group of some of the job's ranks, whose sub-groups all would have to make"
    return ""


class Begun:
    """A sum that is on its way."""

    def __init__(self, tensor: Tensor, event: Any) -> None:
        self.tensor = tensor
        self._event = event

    def wait(self) -> Tensor:
        """The tensor, for the current stream to use."""
        if self._event is not None:
            torch.cuda.current_stream(self.tensor.device).wait_event(self._event)
        return self.tensor


class Hierarchy:
    """To a model's gradients what a Communicator is. All ranks of the job make one, in the same order; `prove` comes next, and then sums, the same on all ranks.

    Arrays of less than `least` bytes go in `members`' group as they are."""

    def __init__(
        self, members: Members, layout: Layout, device: torch.device, timeout: timedelta, least: int = 0
    ) -> None:
        self.rank, self.ranks = members.rank, members.ranks
        self._group = members.group
        self._layout = layout
        self._device = device
        self._least = least
        self._inside, self._across = _sub_groups(layout, device.type, timeout)
        self._stream = _stream_of(device)
        # Newer PyTorch warns of the older names.
        self._scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        self._gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def prove(self) -> None:
        """A small sum of each kind, and a look at it: NCCL connects by it, which is no work for the middle of a backward."""
        for count in (1, 4 * self.ranks + 1):
            ones = torch.ones(count, device=self._device)
            if not bool((self._begin(ones, self._sum).wait() == self.ranks).all()):
                raise RuntimeError(
                    f"a sum of ones over groups of hosts {self._layout} is {float(ones[0])}, not {self.ranks}"
                )

    def shape(self) -> str:
        """How many ranks each host has: "4,4"."""
        return str(self._layout)

    def plan(self) -> str:
        return f"algorithm=hierarchical hosts={self._layout} # over PyTorch's groups of {BACKENDS[self._device.type]}"

    def rest_count(self, count: int) -> int:
        """How many values `allreduce_coded_start` keeps here of what an array of `count` loses: a shard's."""
        return -(-count // len(self._layout.hosts[0]))

    def allreduce(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, wherever the tensor is; waits for it."""
        there = tensor.to(self._device)
        dist.all_reduce(there, group=self._group)
        return tensor.copy_(there)

    def allreduce_start(self, tensor: Tensor) -> Begun:
        """The sum over all ranks of a contiguous tensor, in place: the same bits on all."""
        small = tensor.numel() * tensor.element_size() < self._least
        return self._begin(tensor, self._sum_in_group if small else self._sum)

    def allreduce_coded_start(self, tensor: Tensor, rest: Tensor, codec: int, _keep: int = 0) -> Begun:
        """`allreduce_start` of float32 in 16 bits between hosts. What is lost is added to the next: in `rest`, zeros at first, `rest_count` values
        on the tensor's device."""
        dtype = HALVES[codec]
        return self._begin(tensor, lambda flat: self._sum(flat, lambda shard: self._cross_in(dtype, shard, rest)))

    # -- on the stream -------------------------------------------------------------------------------------------------

    def _begin(self, tensor: Tensor, work: Callable[[Tensor], None]) -> Begun:
        if self._stream is None:
            work(tensor)
            return Begun(tensor, None)
        # The autograd engine's thread has a current stream of its own: this is it.
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            work(tensor)
            event = self._stream.record_event()
        tensor.record_stream(self._stream)
        return Begun(tensor, event)

    def _sum_in_group(self, flat: Tensor) -> None:
        dist.all_reduce(flat, group=self._group)

    def _sum(self, flat: Tensor, cross: Callable[[Tensor], None] | None = None) -> None:
        count = flat.numel()
        if count == 0:
            return
        shard = flat.new_empty(self.rest_count(count))
        whole = flat
        if shard.numel() * len(self._layout.hosts[0]) != count:
            whole = flat.new_zeros(shard.numel() * len(self._layout.hosts[0]))
            whole[:count].copy_(flat)
        self._scatter(shard, whole, group=self._inside)
        (cross or self._cross)(shard)
        self._gather(whole, shard, group=self._inside)
        if whole is not flat:
            flat.copy_(whole[:count])

    def _cross(self, shard: Tensor) -> None:
        dist.all_reduce(shard, group=self._across)

    def _cross_in(self, dtype: torch.dtype, shard: Tensor, rest: Tensor) -> None:
        shard.add_(rest)
        # A sum of finite values stays finite, with room for the roundings on its way; what is above comes later.
        most = torch.finfo(dtype).max / (2 * len(self._layout.hosts))
        sent = torch.where(shard.isinf(), shard, shard.clamp(-most, most)).to(dtype)
        torch.sub(shard, sent, out=rest)
        rest.masked_fill_(~rest.isfinite(), 0)
        dist.all_reduce(sent, group=self._across)
        shard.copy_(sent)


_made: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Any, Any]]] = weakref.WeakKeyDictionary()
_streams: dict[torch.device, Any] = {}


def _sub_groups(layout: Layout, kind: str, timeout: timedelta) -> tuple[Any, Any]:
    """This rank's host and its lane; made where no model on such a device has made them yet."""
    made = _made.setdefault(dist.distributed_c10d._get_default_group(), {})
    if (layout, kind) not in made:
        mine = []
        # Each group is made by all ranks, its members or not.
        for several in (layout.hosts, layout.lanes):
            groups = [dist.new_group(list(ranks), timeout=timeout, backend=BACKENDS[kind]) for ranks in several]
            mine.append(next(group for group, ranks in zip(groups, several) if dist.get_rank() in ranks))
        made[layout, kind] = (mine[0], mine[1])
    return made[layout, kind]


def _stream_of(device: torch.device) -> Any:
    """One for all models on a device; None on the CPU."""
    if device.type == "cpu":
        return None
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]

# SPDX-License-Identifier: Apache-2.0
"""Sums by way of hosts over PyTorch's own process groups, for gradients on GPUs in groups of NCCL:
a reduce-scatter inside each host, a sum of each shard between the ranks that own it, one of each
host (_across), an all-gather inside the host. There are as many shards as the smallest host has
ranks; in a larger host its first ranks own them, and it has a reduce and a broadcast of each shard
instead.

There is no communicator beside PyTorch's: a second one of NCCL in the same process can deadlock
with it. The sub-groups are PyTorch's too, made once by all ranks of the model's group in the same
order, tried before the first backward, and used by all models of that group. On a device everything
goes onto one stream in the program's order, so our collectives never run beside each other, and the
host waits for nothing: who waits for a sum has the current stream wait. On the CPU, where the tests
are, PyTorch's calls wait themselves.

What a collective fails with is PyTorch's own error, and its own timeout ends it.
"""

from __future__ import annotations

import inspect
import weakref
from datetime import timedelta
from typing import Any, Callable, Literal, overload

import torch
import torch.distributed as dist

from paceline.comm._across import Channel, grain_of
from paceline.comm._communicator import CODECS
from paceline.comm._compression import Compression, PowerSGD
from paceline.comm._layout import Layout
from paceline.comm._measured import Measured
from paceline.comm._members import Members

Tensor = torch.Tensor

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


def carries(model: Any) -> bool:
    """Whether a model's gradients are this module's: they are on GPUs."""
    return any(
        parameter.is_cuda for parameter in model.module.parameters() if parameter.requires_grad
    )


def told(how: Compression | None, device: torch.device) -> str:
    """What must be the same on all ranks. PowerSGD makes its factors orthonormal by PyTorch's sums,
    whose order belongs to a kind of GPU.
    """
    if isinstance(how, PowerSGD) and device.type == "cuda":
        return f"{how} on {torch.cuda.get_device_name(device)}"
    return str(how)


def why_not_group(members: Members) -> str:
    """Returns an empty text if sub-groups of this group can be made, else why not."""
    if _has_all(members):
        return ""
    if "use_local_synchronization" not in inspect.signature(dist.new_group).parameters:
        return (
            "a process group of some of the job's ranks, whose sub-groups all of them would have to"
            " make with this PyTorch"
        )
    if getattr(dist.distributed_c10d._get_default_group(), "bound_device_id", None) is not None:
        return (
            "a process group of some of the job's ranks, whose sub-groups all of them would have to"
            " make, for init_process_group was given a device_id"
        )
    return ""


class Work:
    """A sum that runs in the background, as torch.distributed's Work."""

    def __init__(self, tensor: Tensor, event: Any) -> None:
        self._tensor = tensor
        self._event = event

    def wait(self) -> bool:
        """Has the current stream wait for the sum; the host does not wait."""
        if self._event is not None:
            torch.cuda.current_stream(self._tensor.device).wait_event(self._event)
        return True

    def is_completed(self) -> bool:
        return self._event is None or bool(self._event.query())

    def result(self) -> list[Tensor]:
        return [self._tensor]


class Hierarchy:
    """To a model's gradients what a Communicator is. All ranks of `members` make one, in the same
    order; `prove` comes next, and then sums, the same on all ranks.

    Arrays of less than `least` bytes go in `members`' group as they are, and if `measured` larger
    ones too where that is quicker: the first of each size tell.
    """

    def __init__(
        self,
        members: Members,
        layout: Layout,
        device: torch.device,
        timeout: timedelta,
        least: int = 0,
        measured: bool = False,
    ) -> None:
        self.rank, self.ranks = members.rank, members.ranks
        self._group = members.group
        self._layout = layout
        self._device = device
        self._least = least
        host = next(number for number, ranks in enumerate(layout.hosts) if self.rank in ranks)
        self._owners = [
            members.numbers[rank] for rank, _ in zip(layout.hosts[host], layout.channels)
        ]
        self._even = len(layout.hosts[host]) == len(layout.channels)
        self._place = layout.hosts[host].index(self.rank)
        self._inside, across = _sub_groups(members, layout, device.type, timeout)
        self._channel = None if across is None else Channel(across, len(layout.hosts), host)
        self._stream = _stream_of(device)
        self._measured = Measured(("flat", "by hosts"), members.group) if measured else None
        # Newer PyTorch warns of the older names.
        self._scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        self._gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def prove(self, coded: bool) -> None:
        """A small sum of each kind, and a look at it: NCCL connects by it, which is no work for the
        middle of a backward. `coded`: sums will be.
        """
        for count in (1, 4 * self.ranks + 1):
            ones = torch.ones(count, device=self._device)
            self._look_at(self._begin(ones, self._sum), 0.0)
        if coded:
            rest = torch.zeros(self.residual_count(ones.numel()), device=self._device)
            self._look_at(self.all_reduce_coded(torch.ones_like(ones), rest, CODECS["Int8"]), 0.01)

    def _look_at(self, work: Work, tolerance: float) -> None:
        work.wait()
        worst = float((work.result()[0] / self.ranks - 1).abs().max())
        if not worst <= tolerance:
            raise RuntimeError(
                f"a sum of ones over groups of hosts {self._layout} is off by {worst:g} of"
                f" {self.ranks}, allowed is {tolerance:g}"
            )

    def shape(self) -> str:
        """How many ranks each host has: "4,4"."""
        return str(self._layout)

    def plan(self) -> str:
        how = (
            f"algorithm=hierarchical hosts={self._layout} # over PyTorch's groups of"
            f" {BACKENDS[self._device.type]}"
        )
        if self._measured is not None and self._measured.told():
            how += f", measured: {self._measured.told()}"
        return how

    def residual_count(self, count: int) -> int:
        """How many values `all_reduce_coded` keeps here of what an array of `count` loses: a
        shard's, of who owns one.
        """
        return (
            0 if self._channel is None else self._shard_of(count, grain_of(len(self._layout.hosts)))
        )

    def _shard_of(self, count: int, grain: int) -> int:
        return -(-count // (len(self._layout.channels) * grain)) * grain

    @overload
    def all_reduce(self, tensor: Tensor, *, async_op: Literal[False] = False) -> Tensor: ...

    @overload
    def all_reduce(self, tensor: Tensor, *, async_op: Literal[True]) -> Work: ...

    def all_reduce(self, tensor: Tensor, *, async_op: bool = False) -> Tensor | Work:
        """The sum over all ranks, in place, with the same bits on all. Waits for it, wherever the
        tensor is. With `async_op` the tensor is contiguous and on this device, and a Work comes
        back at once.
        """
        if not async_op:
            there = tensor.to(self._device)
            dist.all_reduce(there, group=self._group)
            return tensor.copy_(there)
        if tensor.numel() * tensor.element_size() < self._least:
            return self._begin(tensor, self._sum_in_group)
        return self._begin(tensor, self._sum if self._measured is None else self._sum_measured)

    def all_reduce_coded(self, tensor: Tensor, rest: Tensor, codec: int, keep: int = 0) -> Work:
        """`all_reduce` of float32 in fewer bytes between hosts, by one of CODECS; `keep`: of a
        million values, with TopK and DGC, and DGC's momentum. What is lost is added to the next: in
        `rest`, zeros at first, `residual_count` values on the tensor's device, of DGC twice as
        many.
        """

        def cross(channel: Channel, shard: Tensor) -> None:
            channel.add_coded(shard, rest, codec, keep)

        grain = grain_of(len(self._layout.hosts))
        return self._begin(tensor, lambda flat: self._sum(flat, cross, grain))

    # -- on the stream
    # ------------------------------------------------------------

    def _begin(self, tensor: Tensor, work: Callable[[Tensor], None]) -> Work:
        if self._stream is None:
            work(tensor)
            return Work(tensor, None)
        # The autograd engine's thread has its own current stream, so wait for the one of this
        # thread.
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            work(tensor)
            event = self._stream.record_event()
        tensor.record_stream(self._stream)
        return Work(tensor, event)

    def _sum_measured(self, flat: Tensor) -> None:
        assert self._measured is not None
        self._measured.sum(flat, (self._sum_in_group, self._sum))

    def _sum_in_group(self, flat: Tensor) -> None:
        dist.all_reduce(flat, group=self._group)

    def _sum(
        self, flat: Tensor, cross: Callable[[Channel, Tensor], None] = Channel.add, grain: int = 1
    ) -> None:
        count = flat.numel()
        if count == 0:
            return
        channels = len(self._layout.channels)
        size = self._shard_of(count, grain)
        whole = flat
        if size * channels != count:
            whole = flat.new_zeros(size * channels)
            whole[:count].copy_(flat)
        if self._even:
            shard = flat.new_empty(size)
            self._scatter(shard, whole, group=self._inside)
            assert self._channel is not None
            cross(self._channel, shard)
            self._gather(whole, shard, group=self._inside)
        else:
            shards = whole.view(channels, size)
            for shard, owner in zip(shards, self._owners):
                dist.reduce(shard, owner, group=self._inside)
            if self._channel is not None:
                cross(self._channel, shards[self._place])
            for shard, owner in zip(shards, self._owners):
                dist.broadcast(shard, owner, group=self._inside)
        if whole is not flat:
            flat.copy_(whole[:count])


_made: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Any, Any]]] = weakref.WeakKeyDictionary()
_streams: dict[torch.device, Any] = {}


def _has_all(members: Members) -> bool:
    return members.numbers == tuple(range(dist.get_world_size()))


def _sub_groups(members: Members, layout: Layout, kind: str, timeout: timedelta) -> tuple[Any, Any]:
    """This rank's host, and its channel or None; made where no model of this group on such a device
    has made them yet.
    """
    made = _made.setdefault(dist.distributed_c10d._get_default_group(), {})
    key = (members.numbers, layout, kind)
    if key not in made:
        # All ranks of the job make the group, members or not. If the job has ranks that do not know
        # of it, only the members make it.
        everyone = _has_all(members)
        options = {} if everyone else {"use_local_synchronization": True}
        mine = []
        for several in (layout.hosts, layout.channels):
            own = None
            for ranks in several:
                if everyone or members.rank in ranks:
                    numbers = [members.numbers[rank] for rank in ranks]
                    group = dist.new_group(
                        numbers, timeout=timeout, backend=BACKENDS[kind], **options
                    )
                    own = group if members.rank in ranks else own
            mine.append(own)
        made[key] = (mine[0], mine[1])
    return made[key]


def _stream_of(device: torch.device) -> Any:
    """One stream for all models on a device; None on the CPU."""
    if device.type == "cpu":
        return None
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]

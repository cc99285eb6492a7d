# SPDX-License-Identifier: Apache-2.0
"""Sums gradients on GPUs by way of hosts, over PyTorch's own process groups of NCCL. _ddp and
_patch use it.

Three collectives follow each other: a reduce-scatter inside each host, a sum of each shard between
hosts (_between_hosts), and an all-gather inside each host. There are as many shards as the smallest
host has ranks, and one rank of each host owns a shard. On a larger host the first ranks own them,
and each shard has a reduce and a broadcast instead.

All communicators are PyTorch's, because a second NCCL communicator in the same process can
deadlock. All ranks of a model's group make the sub-groups in the same order, try them before the
first backward, and use them for all models of that group.

On a GPU all sums go onto one stream in the program's order, so our collectives never overlap. The
order is not given up to overlap the three steps: NCCL before 2.26 can deadlock then, and later ones
unless NCCL_LAUNCH_ORDER_IMPLICIT is set (docs/designs/gradients.md). The host does not wait:
`Work.wait` makes the current stream wait. On the CPU, which only tests use, PyTorch's calls block.

If a collective fails, PyTorch raises its own error. PyTorch's timeout ends it.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable, Literal, overload

import torch
import torch.distributed as dist

from paceline.comm._between_hosts import Channel, grain_of
from paceline.comm._compression import Compression, PowerSGD
from paceline.comm._layout import Layout
from paceline.comm._measured import Choice, Meter
from paceline.comm._members import Members
from paceline.comm._native import CODECS

Tensor = torch.Tensor

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


def carries(model: Any) -> bool:
    """Tells whether this module sums a model's gradients, because they are on GPUs."""
    return any(
        parameter.is_cuda for parameter in model.module.parameters() if parameter.requires_grad
    )


def told(how: Compression | None, device: torch.device) -> str:
    """Returns the compression as a text that must be equal on all ranks. For PowerSGD it contains
    the kind of GPU, because the order of its sums depends on it.
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
    """Sums a model's gradients on GPUs, as a Communicator does on the CPU. All ranks of `members`
    construct it in the same order, then call `prove`, and then make the same sums.

    Arrays of less than `least` bytes are summed in `members`' group. With `choice` larger ones are
    too, where it says so. `sizes`: those that `measure` will try, in bytes; it makes the choice.
    """

    def __init__(
        self,
        members: Members,
        layout: Layout,
        device: torch.device,
        timeout: timedelta,
        least: int = 0,
        sizes: Sequence[int] = (),
        choice: Choice | None = None,
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
        self._groups = _groups_of(members, layout, device.type, timeout)
        self._inside, across = self._groups.inside, self._groups.across
        self._channel = None if across is None else Channel(across, len(layout.hosts), host)
        self._stream = _stream_of(device)
        self.choice = choice
        self._meter = self._make_meter(sizes) if sizes else None
        # Newer versions of PyTorch warn about the old names.
        self._scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        self._gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def _make_meter(self, sizes: Sequence[int]) -> Meter:
        with contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            # PyTorch keeps this memory for the sums, so that no rank alone is short of it later.
            torch.empty(2 * max(sizes) + 4 * self.ranks, dtype=torch.uint8, device=self._device)
        ways = [
            lambda array, way=way: self._begin(array, way).wait()
            for way in (self._sum_in_group, self._sum)
        ]
        return Meter((ways[0], ways[1]), self._group, self._device, sizes)

    def measure(self) -> Choice:
        """Measures for which sizes the way by hosts is quicker, and takes it for these only."""
        assert self._meter is not None
        self.choice, self._meter = self._meter.run(), None
        return self.choice

    def prove(self, coded: bool) -> None:
        """Makes a small sum of each kind, and checks it. NCCL connects in its first sum, which
        would delay a backward. With `coded` it tries a coded sum too. It checks them after the last
        one, so that a rank that finds an error keeps no other waiting.
        """
        sums = []
        for count in (1, 4 * self.ranks + 1):
            ones = torch.ones(count, device=self._device)
            sums.append((self._begin(ones, self._sum), 0.0))
        if coded:
            residual = torch.zeros(self.residual_count(count), device=self._device)
            ones = torch.ones(count, device=self._device)
            sums.append((self.all_reduce_coded(ones, residual, CODECS["Int8"]), 0.01))
        for work, tolerance in sums:
            self._look_at(work, tolerance)

    def _look_at(self, work: Work, tolerance: float) -> None:
        """Raises RuntimeError if a sum of ones is off by more than `tolerance` of a one."""
        work.wait()
        worst = float((work.result()[0] / self.ranks - 1).abs().max())
        if not worst <= tolerance:
            raise RuntimeError(
                f"a sum of ones over groups of hosts {self._layout} is off by {worst:g} of"
                f" {self.ranks}, allowed is {tolerance:g}"
            )

    def close(self) -> None:
        """Gives the sub-groups and their memory back, unless another model sums in them. All ranks
        call it, after their sums.
        """
        self._groups.users -= 1
        if self._groups.users > 0:
            return
        for made in _made.values():
            for key in [key for key, groups in made.items() if groups is self._groups]:
                del made[key]
        for group in (self._inside, self._groups.across):
            if group is not None:
                dist.destroy_process_group(group)

    def shape(self) -> str:
        """Returns how many ranks each host has, for example "4,4"."""
        return str(self._layout)

    def plan(self) -> str:
        """Returns how sums are done, for readers."""
        how = (
            f"algorithm=hierarchical hosts={self._layout} # over PyTorch's groups of"
            f" {BACKENDS[self._device.type]}"
        )
        if self.choice is not None:
            how += f", measured as times as quick as flat: {self.choice}"
        return how

    def residual_count(self, count: int) -> int:
        """Returns how many values the `residual` of `all_reduce_coded` has here for an array of
        `count`. It is a shard's size, or 0 if this rank owns none.
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
        """Sums a tensor on any device over all ranks, in place, and waits. All ranks get the same
        bits. With `async_op` it returns a Work at once, and the tensor must be contiguous and on
        this model's device.
        """
        if not async_op:
            there = tensor.to(self._device)
            dist.all_reduce(there, group=self._group)
            return tensor.copy_(there)
        size = tensor.numel() * tensor.element_size()
        chosen = self.choice is None or self.choice.by_hosts(size)
        by_hosts = chosen and size >= self._least
        return self._begin(tensor, self._sum if by_hosts else self._sum_in_group)

    def all_reduce_coded(self, tensor: Tensor, residual: Tensor, codec: int, keep: int = 0) -> Work:
        """Begins a sum of float32 whose values are coded between hosts, as
        Communicator.all_reduce_coded does. `residual` is on the tensor's device.
        """

        def cross(channel: Channel, shard: Tensor) -> None:
            channel.add_coded(shard, residual, codec, keep)

        grain = grain_of(len(self._layout.hosts))
        return self._begin(tensor, lambda flat: self._sum(flat, cross, grain))

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


class _Groups:
    """The group of this rank's host, and that of its channel or None. `users`: how many models sum
    in them.
    """

    def __init__(self, inside: Any, across: Any) -> None:
        self.inside, self.across = inside, across
        self.users = 0


_made: weakref.WeakKeyDictionary[Any, dict[Any, _Groups]] = weakref.WeakKeyDictionary()
_streams: dict[torch.device, Any] = {}


def _has_all(members: Members) -> bool:
    return members.numbers == tuple(range(dist.get_world_size()))


def _groups_of(members: Members, layout: Layout, kind: str, timeout: timedelta) -> _Groups:
    """Returns the sub-groups. The first model of a group makes them, and later models reuse
    them.
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
        made[key] = _Groups(mine[0], mine[1])
    made[key].users += 1
    return made[key]


def _stream_of(device: torch.device) -> Any:
    """Returns the stream that all models on a device share; None on the CPU."""
    if device.type == "cpu":
        return None
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]

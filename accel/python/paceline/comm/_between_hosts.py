# SPDX-License-Identifier: Apache-2.0
"""Sums one shard between hosts, whole or in fewer bytes with error feedback. _hierarchy uses it. It
runs over the process group of the ranks that own the shard, one of each host (a channel).

FP16, BF16, Int8: each rank owns a part of the shard. It receives the other ranks' codes of its
part, adds them to its own values in float32, and sends the coded sum to all. As in a ring, 2(N-1)/N
of the coded size cross a link. Each value is rounded once by each rank that sends it.

OneBit: each rank sends its codes to all ranks, which add them in the order of hosts.

TopK, DGC: the same with the largest values and their indices.

All ranks decode the same bytes in the same order, so they have the same bits. A rank keeps what its
own codes have lost. All work goes onto the current stream, and the host does not wait.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from paceline.comm._codes import FP16, INT8, ONE_BIT, bytes_of, decode, encode
from paceline.comm._native import CODECS

Tensor = torch.Tensor

DGC = CODECS["DGC"]
MILLION = 1_000_000
MOMENTUM_BITS = 20  # of `keep`, below DGC's momentum
ALIGNED = 4  # a part of a shard begins at a multiple of so many values, to be read in fours


class Channel:
    """A channel. `group` has one rank of each of `hosts` hosts; this rank's is number `place`."""

    def __init__(self, group: object, hosts: int, place: int) -> None:
        self._group = group
        self._hosts, self._place = hosts, place
        self._gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def add(self, shard: Tensor) -> None:
        """Sums a shard of any dtype, in place."""
        dist.all_reduce(shard, group=self._group)

    def add_coded(self, shard: Tensor, residual: Tensor, codec: int, keep: int) -> None:
        """Adds up a float32 shard whose size is a multiple of `grain_of(hosts)`. `residual` is as
        in `all_reduce_coded`.
        """
        if FP16 <= codec <= INT8:
            self._in_parts(shard, residual, codec)
        elif codec == ONE_BIT:
            self._signs(shard, residual)
        else:
            self._largest(shard, residual, codec, keep)

    def _in_parts(self, shard: Tensor, residual: Tensor, codec: int) -> None:
        hosts, mine = self._hosts, self._place
        values, residuals = shard.view(hosts, -1), residual.view(hosts, -1)
        size = bytes_of(codec, values.shape[1])
        sent = torch.empty(hosts, size, dtype=torch.uint8, device=shard.device)
        others = [slice(*ends) for ends in ((0, mine), (mine + 1, hosts)) if ends[0] < ends[1]]
        for some in others:
            arrays = some.stop - some.start
            encode(
                codec, values[some].view(-1), residuals[some].view(-1), sent[some].view(-1), arrays
            )
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=self._group)
        for some in others:
            decode(
                codec, got[some].view(-1), values[mine], sources=some.stop - some.start, onto=True
            )
        encode(codec, values[mine], residuals[mine], sent[mine])
        self._gather(got.view(-1), sent[mine], group=self._group)
        decode(codec, got.view(-1), shard, arrays=hosts)

    def _signs(self, shard: Tensor, residual: Tensor) -> None:
        sent = torch.empty(bytes_of(ONE_BIT, shard.numel()), dtype=torch.uint8, device=shard.device)
        encode(ONE_BIT, shard, residual, sent)
        got = sent.new_empty(self._hosts * sent.numel())
        self._gather(got, sent, group=self._group)
        decode(ONE_BIT, got, shard, sources=self._hosts)

    def _largest(self, shard: Tensor, residual: Tensor, codec: int, keep: int) -> None:
        count = shard.numel()
        late = residual[:count]
        if codec == DGC:
            gathered = residual[count:]
            gathered.mul_((keep >> MOMENTUM_BITS) / 1000).add_(shard)
            late.add_(gathered)
        else:
            late.add_(shard)
        kept = min(count, max(1, -(-count * (keep & ((1 << MOMENTUM_BITS) - 1)) // MILLION)))
        # topk counts NaN as the largest value.
        where = late.abs().topk(kept, sorted=False).indices
        sent = torch.stack([where.to(torch.int32), late[where].view(torch.int32)])
        for one in (late, gathered) if codec == DGC else (late,):
            one.index_fill_(0, where, 0)
            one.masked_fill_(~one.isfinite(), 0)  # never keep what is not finite
        got = sent.new_empty(self._hosts, *sent.shape)
        self._gather(got.view(-1), sent.view(-1), group=self._group)
        shard.zero_()
        for host in range(self._hosts):
            # A host sends each index once, so the order of additions is that of hosts.
            shard.index_add_(0, got[host, 0].long(), got[host, 1].view(torch.float32))


def grain_of(hosts: int) -> int:
    """A coded shard's size must be a multiple of this."""
    return ALIGNED * hosts

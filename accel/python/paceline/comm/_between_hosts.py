# SPDX-License-Identifier: Apache-2.0
"""One shard's sum between hosts, whole or in fewer bytes with error feedback. It goes over the
process group of the ranks that own the shard, one of each host (a channel).

FP16, BF16, Int8    each rank has a part of the shard: it gets the others' codes of it, adds them to
its own values in float32, codes the sum, and all get that. 2(N-1)/N of
                    the coded size cross a link, as in a ring, and each value is rounded once by
                    each rank that says it
OneBit              everyone's code to everyone, added up in the order of hosts
TopK, DGC           the same, of the largest values with their indices

Whatever the way, all ranks decode the same bytes in the same order, and so have the same bits. What
a rank's codes have lost stays with it. Everything goes onto the current stream, and the host waits
for nothing.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from paceline.comm._codes import FP16, INT8, ONE_BIT, bytes_of, decode, encode
from paceline.comm._communicator import CODECS

Tensor = torch.Tensor

DGC = CODECS["DGC"]
MILLION = 1_000_000
MOMENTUM_BITS = 20  # of `keep`, below DGC's momentum
ALIGNED = 4  # values: so that every part of a shard begins where floats may be read in fours


class Channel:
    """`group` has one rank of each host, this one's the `place`-th of `hosts`."""

    def __init__(self, group: object, hosts: int, place: int) -> None:
        self._group = group
        self._hosts, self._place = hosts, place
        self._gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def add(self, shard: Tensor) -> None:
        dist.all_reduce(shard, group=self._group)

    def add_coded(self, shard: Tensor, rest: Tensor, codec: int, keep: int) -> None:
        """Adds up a float32 shard whose size is a multiple of `grain_of(hosts)`. `rest` is as in
        `all_reduce_coded`."""
        if FP16 <= codec <= INT8:
            self._in_parts(shard, rest, codec)
        elif codec == ONE_BIT:
            self._signs(shard, rest)
        else:
            self._largest(shard, rest, codec, keep)

    def _in_parts(self, shard: Tensor, rest: Tensor, codec: int) -> None:
        hosts, mine = self._hosts, self._place
        values, rests = shard.view(hosts, -1), rest.view(hosts, -1)
        size = bytes_of(codec, values.shape[1])
        sent = torch.empty(hosts, size, dtype=torch.uint8, device=shard.device)
        others = [slice(*ends) for ends in ((0, mine), (mine + 1, hosts)) if ends[0] < ends[1]]
        for some in others:
            arrays = some.stop - some.start
            encode(codec, values[some].view(-1), rests[some].view(-1), sent[some].view(-1), arrays)
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=self._group)
        for some in others:
            decode(
                codec, got[some].view(-1), values[mine], sources=some.stop - some.start, onto=True
            )
        encode(codec, values[mine], rests[mine], sent[mine])
        self._gather(got.view(-1), sent[mine], group=self._group)
        decode(codec, got.view(-1), shard, arrays=hosts)

    def _signs(self, shard: Tensor, rest: Tensor) -> None:
        sent = torch.empty(bytes_of(ONE_BIT, shard.numel()), dtype=torch.uint8, device=shard.device)
        encode(ONE_BIT, shard, rest, sent)
        got = sent.new_empty(self._hosts * sent.numel())
        self._gather(got, sent, group=self._group)
        decode(ONE_BIT, got, shard, sources=self._hosts)

    def _largest(self, shard: Tensor, rest: Tensor, codec: int, keep: int) -> None:
        count = shard.numel()
        late = rest[:count]
        if codec == DGC:
            gathered = rest[count:]
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
            one.masked_fill_(~one.isfinite(), 0)  # enough such values are sent already
        got = sent.new_empty(self._hosts, *sent.shape)
        self._gather(got.view(-1), sent.view(-1), group=self._group)
        shard.zero_()
        for host in range(self._hosts):
            # No index comes twice from one host: one addition each.
            shard.index_add_(0, got[host, 0].long(), got[host, 1].view(torch.float32))


def grain_of(hosts: int) -> int:
    """A coded shard's size must be a multiple of this."""
    return ALIGNED * hosts

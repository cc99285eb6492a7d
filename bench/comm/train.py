# SPDX-License-Identifier: Apache-2.0
"""One rank of the training benchmark. The same model makes a step in turn under
DistributedDataParallel over Gloo, over ours, and without communication. It writes its results to
<folder>/rank-<n>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from paceline import comm
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def model() -> nn.Module:
    """A model of 12 MiB, which makes several buckets."""
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(12):
        layers += [nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 10))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    told = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "wire0"
    # A choice that was measured on another fabric does not apply here.
    os.environ["XDG_CACHE_HOME"] = str(told.folder)
    dist.init_process_group(
        "gloo", init_method=f"file://{told.folder}/gloo", rank=told.rank, world_size=told.ranks
    )
    contenders: dict[str, Any] = {
        "gloo": DistributedDataParallel(model(), bucket_cap_mb=4),
        "ours": DistributedDataParallel(model(), bucket_cap_mb=4),
        "alone": model(),
    }
    communicator = comm.ddp_hook(contenders["ours"])
    optimizers = {
        name: torch.optim.SGD(one.parameters(), lr=0.01) for name, one in contenders.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(
        -2, told.rounds
    ):  # the first two warm up; buckets are rebuilt after the first
        batch = torch.randn(
            64, 512, generator=torch.Generator().manual_seed(told.rank + 1000 * round_number + 5000)
        )
        for name, one in contenders.items():
            dist.barrier()
            begin = time.monotonic()
            optimizers[name].zero_grad()
            one(batch).pow(2).mean().backward()
            optimizers[name].step()
            if round_number >= 0:
                seconds[name].append(time.monotonic() - begin)
    trained = [
        torch.cat([p.detach().flatten() for p in contenders[name].parameters()])
        for name in ("gloo", "ours")
    ]
    if not torch.allclose(*trained, rtol=1e-4, atol=1e-6):
        raise RuntimeError("trained to something else")
    size = sum(p.numel() * p.element_size() for p in contenders["ours"].parameters())
    answer = {**seconds, "bytes": size, "plan": communicator.plan()}
    (told.folder / f"rank-{told.rank}.json").write_text(json.dumps(answer))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

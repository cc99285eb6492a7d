# SPDX-License-Identifier: Apache-2.0
"""Two ranks in network namespaces with a shaped link between them, and one gradient bucket, which
is ready only when backward has nothing left to compute: all of its allreduce is exposed. A timer of
the program's own stands around that allreduce.
"""

from __future__ import annotations

import statistics

import pytest
from links import Link
from ports import free_port
from programs import PRELUDE, Run, Train

PROGRAM = """
import weakref
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")

timed, callbacks = [], []
def timing_hook(state, bucket):
    began = time.perf_counter()
    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
    def done(future):
        timed.append(time.perf_counter() - began)
        return future.value()[0]
    callbacks.append(weakref.ref(done))
    return work.get_future().then(done)

def train():
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(1000, 1000, bias=False))  # 4 MB: one bucket
    model.register_comm_hook(None, timing_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for inputs, in DataLoader(TensorDataset(torch.randn(48, 1000)), batch_size=8):
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()
# The model is gone before the group is destroyed: else PyTorch 1.13 may abort or hang over a hook's
# last future. Gloo's thread lets go of a callback after the future is complete. If Python ends first,
# the process aborts, also with PyTorch 2.14.
train()
limit = time.monotonic() + 20
while any(callback() for callback in callbacks) and time.monotonic() < limit:
    time.sleep(0.001)
assert not any(callback() for callback in callbacks)
print("timed", dist.get_rank(), *timed, flush=True)
dist.destroy_process_group()
"""

STEPS = 6


def timed_by_program(run: Run) -> dict[int, list[float]]:
    lines = [line.split() for line in run.output.splitlines() if line.startswith("timed ")]
    return {int(line[1]): [float(value) for value in line[2:]] for line in lines}


def exposed(run: Run) -> float:
    """Least comm_exposed of all ranks' steps, which are within 5 % of the program's own timer.

    The wire bounds a step from below; a machine that is busy otherwise, or a rank that is late for
    its peer, only adds.
    """
    assert run.code == 0, run.output
    own = timed_by_program(run)
    least = []
    for ring in run.rings:
        # The first step also agrees on the buckets.
        told = [record.host["comm_exposed"] for record in ring.steps[1:]]
        assert len(own[ring.rank]) == STEPS and len(told) == STEPS - 1
        ratios = [ours / its for ours, its in zip(told, own[ring.rank][1:], strict=True)]
        assert statistics.median(ratios) == pytest.approx(1, rel=0.05), ratios
        assert (
            statistics.median(record.host["unattributed"] / record.wall for record in ring.steps)
            <= 0.02
        )
        least.append(min(told))
    return min(least)


def test_exposed_communication_follows_the_links_rate(train: Train, link: Link) -> None:
    least = []
    for megabits in (50, 25):
        link.rate(megabits)
        run = train(
            PROGRAM,
            ranks=2,
            within=[["ip", "netns", "exec", name] for name in link.names],
            MASTER_ADDR=link.addresses[0],
            MASTER_PORT=str(free_port()),
            GLOO_SOCKET_IFNAME="wire",
        )
        least.append(exposed(run))
        wire = 4_000_000 * 8 / (megabits * 1e6)  # two ranks: each sends the whole bucket once
        assert 0.9 * wire < least[-1] < 1.5 * wire, (wire, least)
    fast, slow = least
    assert slow / fast == pytest.approx(2, rel=0.1)


def test_the_program_knows_nothing_of_the_runtime() -> None:
    assert "paceline" not in PRELUDE + PROGRAM

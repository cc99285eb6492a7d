# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel on gloo, two ranks: exposed communication is told, and training is the
same to the bit.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import torch
from programs import Train


@pytest.fixture
def train(train_by_fork: Train) -> Train:
    return train_by_fork


NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)
only_new = pytest.mark.skipif(
    not NEW, reason="PyTorch 1.13 shards on GPUs only, and has no asynchronous checkpoints"
)

DDP = """
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        def run(steps=6):
            model = DistributedDataParallel(small())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(Slow(8 * steps), batch_size=8)
            for batch in loader:
                optimizer.zero_grad()
                (loss_of(model, batch) * (dist.get_rank() + 1)).backward()
                optimizer.step()
            return torch.cat([p.detach().flatten() for p in model.parameters()])
"""


def test_exposed_communication_is_a_phase_of_every_rank(train: Train) -> None:
    run = train(DDP + "        run()\n        dist.destroy_process_group()", ranks=2)
    assert run.code == 0, run.output
    assert [ring.rank for ring in run.rings] == [0, 1]
    for ring in run.rings:
        assert len(ring.steps) == 6
        assert all(
            record.host["comm_exposed"] > 0 and record.comm_exposed_ns is not None
            for record in ring.steps
        )
        assert all(record.sources["comm_exposed"] == 1 for record in ring.steps)
        assert ring.total("unattributed") == 0


def test_a_slow_peer_is_exposed_communication_not_backward(train: Train) -> None:
    run = train(
        DDP
        + """
        from torch.utils.data import Dataset
        class Uneven(Slow):
            def __getitem__(self, index):
                if dist.get_rank() == 1 and index % 8 == 0:
                    time.sleep(0.2)
                return super().__getitem__(index)
        Slow = Uneven
        run()
        dist.destroy_process_group()
        """,
        ranks=2,
    )
    assert run.code == 0, run.output
    fast, slow = run.rings
    # Medians: a rank may wait for a processor in some steps.
    exposed, backward = (
        statistics.median(record.host[phase] for record in fast.steps)
        for phase in ("comm_exposed", "backward")
    )
    assert exposed > 0.8 * 0.2
    assert backward < exposed / 2
    assert slow.total("data_wait", steps_only=True) >= 6 * 0.2


def test_a_communication_hook_registered_later_works(train: Train) -> None:
    run = train(
        DDP
        + """
        calls = []
        def hook(state, bucket):
            calls.append(bucket.index())
            future = dist.all_reduce(bucket.buffer().div_(2), async_op=True).get_future()
            return future.then(lambda done: done.value()[0])
        # PyTorch allows one hook, set before training: on a model that no backward has seen.
        def run():
            model = DistributedDataParallel(small())
            model.register_comm_hook(None, hook)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for batch in DataLoader(Slow(32), batch_size=8):
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
        # The model, which holds the process group, is gone before the group is destroyed, and so gloo's threads are: in
        # PyTorch 1.13 one that still lets go of the hook's last future aborts an ending interpreter (19 of 120 runs without
        # Paceline).
        run()
        assert len(calls) >= 4, calls
        dist.destroy_process_group()
        """,
        ranks=2,
    )
    assert run.code == 0, run.output
    assert all(len(ring.steps) == 4 for ring in run.rings)


def test_training_is_the_same_to_the_bit(train: Train) -> None:
    run = train(
        DDP
        + """
        traced = run()
        from paceline import _tracing
        _tracing.uninstall()
        assert torch.equal(traced, run())
        dist.destroy_process_group()
        """,
        ranks=2,
    )
    assert run.code == 0, run.output


SHARDED = """
        dist.init_process_group("gloo")
        torch.manual_seed(1)
        def train(model, steps=6):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for number, batch in enumerate(DataLoader(Slow(8 * steps), batch_size=8)):
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
"""


@only_new
@pytest.mark.parametrize("shards", ["fully_shard", "FullyShardedDataParallel"])
def test_sharded_training_exposes_its_communication(train: Train, shards: str) -> None:
    wrap = {
        "fully_shard": (
            """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (2,))
        model = small()
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        """
        ),
        "FullyShardedDataParallel": (
            """
        from torch.distributed.fsdp import FullyShardedDataParallel
        model = FullyShardedDataParallel(small(), device_id=torch.device("cpu"))
        """
        ),
    }[shards]
    run = train(SHARDED + wrap + "train(model)\n        dist.destroy_process_group()", ranks=2)
    assert run.code == 0, run.output
    for ring in run.rings:
        assert len(ring.steps) == 6
        # The last gradients are reduced when nothing is left to compute: that wait is backward's
        # end.
        assert all(record.host["comm_exposed"] > 0 for record in ring.steps)
        assert all(
            record.host["backward"] > 0 and record.host["forward"] > 0 for record in ring.steps
        )
        assert ring.total("unattributed") == 0


@only_new
def test_a_distributed_checkpoint_counts_as_long_as_it_holds_the_program(
    train: Train, tmp_path: Path
) -> None:
    run = train(
        DDP
        + f"""
        import torch.distributed.checkpoint as checkpoint
        class Weighty:
            def __reduce__(self):
                time.sleep(0.3)
                return (int, ())
        model = DistributedDataParallel(small())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        # Of its own: an asynchronous checkpoint communicates while training does.
        group = dist.new_group()
        waiting = None
        for number, batch in enumerate(DataLoader(Slow(48), batch_size=8)):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
            state = {{"model": model.state_dict(), "weight": Weighty() if number == 1 else 0}}
            began = time.perf_counter()
            if number == 1:
                checkpoint.save(state, process_group=group, checkpoint_id={str(tmp_path / "now")!r})
                print("saved", dist.get_rank(), time.perf_counter() - began, flush=True)
            elif number == 3:
                waiting = checkpoint.async_save(state, process_group=group, checkpoint_id={str(tmp_path / "later")!r})
                print("staged", dist.get_rank(), time.perf_counter() - began, flush=True)
        waiting.result()
        dist.destroy_process_group()
        """,
        ranks=2,
    )
    assert run.code == 0, run.output
    told = [line.split() for line in run.output.splitlines()]
    own = {
        (words[0], int(words[1])): float(words[2])
        for words in told
        if words[0] in ("saved", "staged")
    }
    for ring in run.rings:
        spent = [record.host["checkpoint"] for record in ring.steps]
        # A checkpoint after a step belongs to the next one.
        assert 0.3 <= spent[2] <= own["saved", ring.rank]
        assert 0 < spent[4] <= own["staged", ring.rank]
        assert [spent[i] for i in (0, 1, 3, 5)] == [0, 0, 0, 0]

# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel on gloo, two ranks: exposed communication is told, and training is the same to the bit."""

from __future__ import annotations

from programs import Train

DDP = """
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        def run(steps=6, hook=None):
            model = DistributedDataParallel(small())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(Slow(8 * steps), batch_size=8)
            for number, batch in enumerate(loader):
                if number == 2 and hook is not None:
                    model.register_comm_hook(None, hook)
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
        assert all(record.host["comm_exposed"] > 0 and record.comm_exposed_ns is not None for record in ring.steps)
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
                    time.sleep(0.05)
                return super().__getitem__(index)
        Slow = Uneven
        run()
        dist.destroy_process_group()
        """,
        ranks=2,
    )
    assert run.code == 0, run.output
    fast, slow = run.rings
    assert fast.total("comm_exposed", steps_only=True) > 0.8 * 5 * 0.05
    assert fast.total("backward", steps_only=True) < fast.total("comm_exposed", steps_only=True) / 2
    assert slow.total("data_wait", steps_only=True) >= 6 * 0.05


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
        model = DistributedDataParallel(small())
        model.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Slow(32), batch_size=8):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
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
        from paceline import _torch_marks
        _torch_marks.uninstall()
        assert torch.equal(traced, run())
        dist.destroy_process_group()
        """,
        ranks=2,
    )
    assert run.code == 0, run.output

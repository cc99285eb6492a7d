# SPDX-License-Identifier: Apache-2.0
"""Training loops as people write them, none of which knows Paceline, and what their records must
say.
"""

from __future__ import annotations

import statistics

import pytest
import torch
from programs import Train


@pytest.fixture
def train(train_by_fork: Train) -> Train:
    return train_by_fork


NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)


def test_an_ordinary_loop(train: Train) -> None:
    ring = train("""
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(Slow(40), batch_size=8)
        for epoch in range(3):
            for batch in loader:
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
        """).only()
    assert [record.step for record in ring.steps] == list(range(1, 16))
    assert ring.records[-1].final and len(ring.records) == 16
    assert all(record.samples == 8 for record in ring.steps)
    assert all(record.boundary == 1 and record.optimizer_mask == 1 for record in ring.steps)
    assert ring.total("unattributed") == 0
    for phase in ("data_wait", "forward", "backward", "optimizer"):
        assert all(record.host[phase] > 0 for record in ring.steps), phase
    # One rank: nothing to communicate, so the phase is absent, not zero.
    assert ring.steps[0].sources["comm_exposed"] == 0 and ring.steps[0].comm_exposed_ns is None
    assert ring.steps[0].sources["checkpoint"] == 1
    assert all(0 < record.overhead_ns < 1_000_000 and record.rss_mib > 20 for record in ring.steps)
    starts = [record.start_ns for record in ring.records]
    assert starts[1:] == [record.start_ns + record.wall_ns for record in ring.records[:-1]], (
        "steps follow without a hole"
    )
    assert ring.heartbeat_ns == 0, "an orderly end is told"


def test_gan_with_two_optimizers_is_one_step_an_iteration(train: Train) -> None:
    ring = train("""
        maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
        first = torch.optim.Adam(judge.parameters())
        second = torch.optim.Adam(maker.parameters())
        for real, _ in DataLoader(Slow(40), batch_size=8):
            first.zero_grad()
            (judge(real) - 1).pow(2).mean().backward()
            fake = maker(torch.randn(8, 4))
            judge(fake.detach()).pow(2).mean().backward()
            first.step()
            second.zero_grad()
            (judge(fake) - 1).pow(2).mean().backward()
            second.step()
        """).only()
    assert len(ring.steps) == 5
    assert all(
        record.optimizer_mask == 3 and record.optimizers_stepped == 2 for record in ring.steps
    )
    assert all(record.samples == 8 and record.micro_batches == 1 for record in ring.steps)
    assert ring.total("unattributed") == 0


def test_gradient_accumulation_counts_micro_batches(train: Train) -> None:
    ring = train("""
        model = small()
        optimizer = torch.optim.AdamW(model.parameters())
        for number, batch in enumerate(DataLoader(Slow(64), batch_size=4)):
            loss_of(model, batch).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        """).only()
    assert len(ring.steps) == 4
    assert all(record.micro_batches == 4 and record.samples == 16 for record in ring.steps)


def test_lbfgs_runs_its_closure_inside_step(train: Train) -> None:
    ring = train("""
        model = small()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        for batch in DataLoader(Slow(24), batch_size=8):
            def closure():
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                time.sleep(0.05)
                loss.backward()
                return loss
            optimizer.step(closure)
        """).only()
    assert len(ring.steps) == 3
    assert all(
        record.host["forward"] >= 0.05 and record.host["backward"] > 0 for record in ring.steps
    )
    assert ring.total("optimizer") < ring.total("forward")


def test_evaluation_is_told_from_training(train: Train) -> None:
    run = train("""
        spent = []
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        training, test = DataLoader(Slow(16), batch_size=8), DataLoader(Slow(16, wait=0.005), batch_size=8)
        for epoch in range(3):
            for batch in training:
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
            with torch.no_grad():
                began = time.perf_counter()
                for batch in test:
                    loss_of(model, batch)
                    time.sleep(0.02)
                spent.append(time.perf_counter() - began)
        print(*spent)
        """)
    ring = run.only()
    assert len(ring.steps) == 6
    own = [float(word) for word in run.output.split()]
    told = [record.host["evaluation"] for record in ring.records if record.host["evaluation"]]
    # The median: the program may lose its processor between its clock and a mark.
    ratios = [ours / its for ours, its in zip(told, own, strict=True)]
    assert statistics.median(ratios) == pytest.approx(1, rel=0.05), ratios
    assert ring.total("data_wait") < sum(own) / 4
    assert sum(record.samples or 0 for record in ring.steps) == 48


def test_evaluation_alone_opens_no_ring(train: Train) -> None:
    run = train("""
        with torch.no_grad():
            for batch in DataLoader(Slow(16), batch_size=8):
                small()(batch[0])
        """)
    assert (run.code, run.rings) == (0, [])


def test_a_loop_without_a_loader_claims_nothing_it_cannot_know(train: Train) -> None:
    ring = train("""
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(5):
            time.sleep(0.02)  # fetching or computing: no mark tells
            optimizer.zero_grad()
            model(torch.randn(8, 4)).sum().backward()
            optimizer.step()
        """).only()
    assert len(ring.steps) == 5
    assert all(
        record.host["unattributed"] > 0.02 and record.samples is None for record in ring.steps[1:]
    )


def test_checkpoints_are_a_phase(train: Train) -> None:
    run = train("""
        class Heavy:
            def __reduce__(self):
                began = time.perf_counter()
                time.sleep(0.05)
                spent.append(time.perf_counter() - began)
                return (int, ())
        spent, around = [], []
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Slow(32), batch_size=8):
            loss_of(model, batch).backward()
            optimizer.step()
            began = time.perf_counter()
            torch.save({"model": model.state_dict(), "heavy": Heavy()}, "checkpoint.pt")
            around.append(time.perf_counter() - began)
        print(sum(spent), sum(around))
        """)
    told = run.only().total("checkpoint")
    slept, around = (float(word) for word in run.output.split())
    assert slept <= told <= around, "the rest is the writing of the file"


@pytest.mark.skipif(not NEW, reason="PyTorch 1.13 has no torch.distributed.checkpoint.save")
def test_distributed_checkpoints_are_a_phase_too(train: Train) -> None:
    ring = train("""
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Slow(16), batch_size=8):
            loss_of(model, batch).backward()
            optimizer.step()
        import torch.distributed.checkpoint as dcp
        dcp.save(model.state_dict(), checkpoint_id="folder")
        """).only()
    assert ring.total("checkpoint") > 0


def test_exceptions_reach_the_program_and_leave_the_trace_sound(train: Train) -> None:
    ring = train("""
        class Broken(Slow):
            def __getitem__(self, index):
                if index == 5:
                    raise KeyError("a bad sample")
                return super().__getitem__(index)
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, g):
                raise ValueError("a bad gradient")
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        caught = []
        for attempt in range(3):
            try:
                for number, batch in enumerate(DataLoader(Broken(16), batch_size=2)):
                    loss = loss_of(model, batch)
                    if number == 1 and attempt == 2:
                        Bad.apply(loss).backward()
                    loss.backward()
                    optimizer.step()
            except (KeyError, ValueError) as error:
                caught.append(type(error).__name__)
        try:
            optimizer.step(lambda: 1 / 0)
        except ZeroDivisionError:
            caught.append("ZeroDivisionError")
        assert caught == ["KeyError", "KeyError", "ValueError", "ZeroDivisionError"], caught
        for batch in DataLoader(Slow(8), batch_size=2):
            loss_of(model, batch).backward()
            optimizer.step()
        """).only()
    last = ring.steps[-1]
    assert last.host["unattributed"] == 0 and last.host["forward"] > 0 and last.host["backward"] > 0


def test_the_programs_own_step_numbers(train: Train) -> None:
    ring = train("""
        import paceline
        for number in range(100, 105):
            time.sleep(0.01)
            paceline.step(number)
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, batch in enumerate(DataLoader(Slow(24), batch_size=8)):
            loss_of(model, batch).backward()
            optimizer.step()
            paceline.step(200 + number)
        print(paceline.explain())
        """).only()
    assert [record.user_step for record in ring.steps] == [101, 102, 103, 104, 200, 201, 202]
    assert [record.boundary for record in ring.steps] == [2, 2, 2, 2, 1, 1, 1]


SCALED = """
        import warnings
        warnings.simplefilter("ignore")
        scaler = torch.amp.GradScaler("cpu") if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler") \\
            else torch.cuda.amp.GradScaler()
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        for number, batch in enumerate(DataLoader(Slow(40), batch_size=8)):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            if number in (1, 3):
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        print(scaler.is_enabled())
"""
SCALER_SKIP = 1


def test_a_step_that_a_gradient_scaler_skipped_is_flagged(train: Train) -> None:
    run = train(SCALED)
    ring = run.only()
    # PyTorch 1.13 has a scaler for GPUs only: without one it is switched off, and steps every time.
    enabled = run.output.strip().endswith("True")
    assert [bool(record.flags & SCALER_SKIP) for record in ring.steps] == [
        enabled and i in (1, 3) for i in range(5)
    ]
    assert [record.optimizers_stepped for record in ring.steps] == [
        0 if enabled and i in (1, 3) else 1 for i in range(5)
    ]
    assert [record.step for record in ring.steps] == [1, 2, 3, 4, 5]
    assert all(record.host["optimizer"] > 0 and record.samples == 8 for record in ring.steps)
    assert ring.total("unattributed") == 0


def test_a_scaler_whose_optimizer_fails_leaves_no_trace(train: Train) -> None:
    ring = train("""
        class Failing(torch.optim.SGD):
            fails = False
            def step(self, closure=None):
                if self.fails:
                    raise RuntimeError("no step")
                return super().step(closure)
        scaler = torch.cuda.amp.GradScaler(enabled=False)
        model = small()
        optimizer = Failing(model.parameters(), lr=0.001)
        for number, batch in enumerate(DataLoader(Slow(24), batch_size=8)):
            optimizer.fails = number == 1
            scaler.scale(loss_of(model, batch)).backward()
            try:
                scaler.step(optimizer)
            except RuntimeError:
                optimizer.fails = False
        from paceline._tracing import _optimizers
        assert not _optimizers._scaled
        """).only()
    assert not any(record.flags & SCALER_SKIP for record in ring.steps)


def test_a_program_on_a_gpu_is_said_to_be_one(train: Train) -> None:
    """Its phases are host times, which name no bottleneck."""
    loop = """
        import paceline
        torch.cuda.is_initialized = lambda: {on_gpu}
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Slow(8), batch_size=8):
            loss_of(model, batch).backward()
            optimizer.step()
        assert ("phases are host time" in paceline.explain()) is {on_gpu}
        """
    kinds = [train(loop.format(on_gpu=on_gpu)).only().device_kind for on_gpu in (False, True)]
    assert kinds == [1, 2]

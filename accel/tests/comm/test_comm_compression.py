# SPDX-License-Identifier: Apache-2.0
"""Gradients in fewer bytes between hosts: what a model learns then, what a checkpoint keeps, what
is refused.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from programs import ROOT, Train
from test_comm import BEGIN, END, MODELS


@pytest.fixture
def train(train_by_fork: Train, tmp_path: Path) -> Train:
    return functools.partial(train_by_fork, XDG_CACHE_HOME=str(tmp_path))


# The example's model and data, small batches of them, once over: with steps that end at nothing,
# for what is learned not to depend on the last ones.
DIGITS = f"""
        sys.path.insert(0, {str(ROOT / "examples" / "digits")!r})
        from train import Digits, Path, make_model
        data = Path({str(ROOT / "examples" / "digits" / "digits.csv.gz")!r})
        learned, asked = Digits(data, train=True), Digits(data, train=False)

        def fit(compression, lr=0.1, momentum=0.9):
            torch.manual_seed(8)
            ddp = DistributedDataParallel(make_model())
            # SGD: signs mean nothing to others.
            optimizer = torch.optim.SGD(ddp.parameters(), lr=lr, momentum=momentum)
            if compression.startswith("OneBitAdam"):
                optimizer = paceline.comm.OneBitAdam(ddp.parameters(), lr=lr, freeze=20)
                compression = "Disabled" if compression.endswith("alone") else paceline.comm.OneBit(optimizer)
            if compression == "OneBit":
                compression = paceline.comm.OneBit(optimizer)
            if compression == "DGC":
                compression = paceline.comm.DGC(optimizer, ratio=0.05, warmup=20, clip=5)
            paceline.comm.ddp_hook(ddp, compression=compression, host=f"host-{{rank}}")
            torch.manual_seed(rank)
            mine = torch.randperm(len(learned), generator=torch.Generator().manual_seed(1))[rank::ranks]
            batches = mine[: len(mine) // 12 * 12].view(-1, 12)
            for step, batch in enumerate(batches):
                optimizer.param_groups[0]["lr"] = lr * (1 - step / len(batches))
                optimizer.zero_grad()
                nn.functional.cross_entropy(ddp(learned.images[batch]), learned.labels[batch]).backward()
                optimizer.step()
            agreed(torch.cat([p.detach().flatten() for p in ddp.parameters()]))
            ddp.eval()
            with torch.no_grad():
                return (ddp.module(asked.images).argmax(1) == asked.labels).float().mean().item()
"""


def test_the_digits_are_learned_as_well_as_without(train: Train) -> None:
    run = train(
        BEGIN
        + MODELS
        + DIGITS
        + """
        exact = fit("Disabled")
        assert exact > 0.85, exact
        # Begun at once PowerSGD costs so few steps up to 0.07, in PyTorch's hook up to 0.03, as the first guess is: not before 10.
        for compression in ("FP16", "Int8", "TopK:ratio=0.05", "PowerSGD:rank=2,start=10"):
            accuracy = fit(compression)
            assert accuracy > exact - 0.06, (compression, accuracy, exact)
        # Masking takes momentum away from what goes often: the rate is one for less of it.
        accuracy = fit("DGC", lr=0.4)
        assert accuracy > exact - 0.06, ("DGC", accuracy, exact)
        # Momentum would carry on what signs have overstated: without it, and beside 0.86 of the same steps uncompressed.
        accuracy = fit("OneBit", lr=0.4, momentum=0.0)
        assert accuracy > 0.78, accuracy
        adam, signs = fit("OneBitAdam alone", lr=0.003), fit("OneBitAdam", lr=0.003)
        assert adam > 0.85 and signs > adam - 0.06, (adam, signs)
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_power_sgd_is_torchs_to_rounding(train: Train) -> None:
    """At the same rank, and from the same first guess."""
    run = train(
        BEGIN
        + MODELS
        + """
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
        class Shapes(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.layers = nn.Sequential(nn.Linear(48, 96), nn.Tanh(), nn.Linear(96, 80), nn.Tanh(), nn.Linear(80, 32))
            def forward(self, x):
                return self.layers(x)
        seed = 12345
        for matrix_rank in (1, 3):
            results = []
            for ours in (False, True):
                ddp = DistributedDataParallel(Shapes())
                if ours:
                    how = paceline.comm.PowerSGD(rank=matrix_rank, start=2, seed=seed)
                    paceline.comm.ddp_hook(ddp, compression=how, host=f"host-{rank // 2}")
                else:
                    state = powerSGD_hook.PowerSGDState(None, matrix_rank, start_powerSGD_iter=2)
                    state.rng = type("Fixed", (), {"randint": staticmethod(lambda _: seed)})
                    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
                optimizer = torch.optim.SGD(ddp.parameters(), lr=0.02)
                for step in range(8):
                    torch.manual_seed(10 * step + rank)
                    optimizer.zero_grad()
                    x = torch.randn(64, 48)
                    (ddp(x) - x[:, :32].sin()).pow(2).sum(1).mean().backward()
                    optimizer.step()
                results.append(agreed(torch.cat([p.grad.flatten() for p in ddp.parameters()])))
            assert torch.allclose(*results, rtol=2e-3, atol=2e-5), (matrix_rank, (results[0] - results[1]).abs().max())
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


def test_one_bit_adams_steps_stay_as_large_where_gradients_are_rare(train: Train) -> None:
    """Of gradients that are all alike each update of Adam's is the learning rate, whatever number
    of them its variance has seen.
    """
    run = train("""
        import paceline.comm
        for restored in (False, True):
            often, rare, late = parameters = [nn.Parameter(torch.zeros(1)) for _ in range(3)]
            make = lambda: paceline.comm.OneBitAdam(parameters, lr=1.0, eps=0.0, freeze=20)
            optimizer = make()
            for step in range(120):
                before = [float(p.detach()) for p in parameters]
                often.grad = torch.ones(1)
                rare.grad = torch.ones(1) if step >= 19 else None
                late.grad = torch.ones(1) if step >= 20 else None
                if restored and step % 40 == 30:
                    kept, optimizer = optimizer.state_dict(), make()
                    optimizer.load_state_dict(kept)
                optimizer.step()
                moved = [was - float(p.detach()) for was, p in zip(before, parameters)]
                wanted = [1.0, float(step >= 19), 0.0]
                assert all(abs(one - other) < 1e-3 for one, other in zip(moved, wanted)), (step, moved)
        assert [optimizer.state[p]["variance_steps"] for p in parameters] == [20, 1, 0]
        assert all(torch.isfinite(state["exp_avg"]).all() for state in optimizer.state.values())
        # A checkpoint of a version that did not count.
        kept = optimizer.state_dict()
        for state in kept["state"].values():
            del state["variance_steps"]
        optimizer.load_state_dict(kept)
        assert [optimizer.state[p]["variance_steps"] for p in parameters] == [20, 20, 20]
""")
    assert run.code == 0, run.output


def test_one_bit_adam_is_adam_and_then_of_momentum(train: Train) -> None:
    run = train(
        BEGIN
        + MODELS
        + """
        class Wide(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.a, self.b, self.silent = nn.Linear(4, 256), nn.Linear(256, 64), nn.Parameter(torch.ones(5000))
            def forward(self, x):
                return self.b(self.a(x).relu()) + 0 * self.silent.sum()
        def fit(make, hook, number, host=""):
            model = Wide()
            optimizer = make(model.parameters())
            compression = paceline.comm.OneBit(optimizer) if hook else "Disabled"
            options = {"compression": compression, "host": host}
            model = DistributedDataParallel(model, bucket_cap_mb=0.04)
            if hook:
                paceline.comm.ddp_hook(model, **options)
            states = []
            for step in range(number):
                torch.manual_seed(10 * step + rank)
                optimizer.zero_grad()
                x = torch.randn(16, 4)
                (model(x) - x.sin().repeat(1, 16)).pow(2).mean().backward()
                optimizer.step()
                states.append(torch.cat([state["exp_avg_sq"].flatten() for state in optimizer.state.values()]))
            return agreed(torch.cat([p.detach().flatten() for p in model.parameters()])), states
        one_bit = lambda freeze: lambda p: paceline.comm.OneBitAdam(p, lr=0.01, weight_decay=0.1, freeze=freeze)
        adam, _ = fit(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1), False, 6)
        ours, states = fit(one_bit(6), False, 8)
        assert torch.allclose(adam, fit(one_bit(6), False, 6)[0], rtol=1e-5, atol=1e-6)
        # Frozen: the variance stays, the steps go on.
        assert torch.equal(states[5], states[7]) and not torch.equal(states[4], states[5]) and not torch.equal(adam, ours)
        # On one host momentum is summed as it is; what has no variance stays.
        same, _ = fit(one_bit(6), True, 12)
        alone, _ = fit(one_bit(6), False, 12)
        assert torch.allclose(alone, same, rtol=1e-4, atol=1e-5), (alone - same).abs().max()
        signs, states = fit(one_bit(6), True, 12, host=f"host-{rank}")
        way = alone - torch.cat([p.detach().flatten() for p in Wide().parameters()])
        missed = float((signs - alone).norm() / way.norm())
        assert 0.001 < missed < 0.5 and torch.equal(states[5], states[11]), missed
        for make, said in (
            (lambda: paceline.comm.OneBitAdam(Wide().parameters(), freeze=1), "freeze is 1"),
            (lambda: paceline.comm.OneBitAdam(Wide().parameters(), betas=(1, 0)), "betas is (1, 0)"),
            (lambda: paceline.comm.OneBit(paceline.comm.OneBitAdam(
                [{"params": [nn.Parameter(torch.ones(1))]}, {"params": [nn.Parameter(torch.ones(1))], "betas": (0.5, 0.9)}])), "several betas"),
        ):
            try:
                make()
            except ValueError as error:
                assert said in str(error), error
            else:
                raise AssertionError(said)
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_what_was_lost_belongs_to_a_checkpoint(train: Train) -> None:
    run = train(
        BEGIN
        + MODELS
        + """
        host = f"host-{rank // 2}"
        class Wide(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.a, self.b, self.scales = nn.Linear(4, 256), nn.Linear(256, 257), nn.Parameter(torch.ones(8, dtype=torch.float64))
            def forward(self, x, use=True):
                return self.b(self.a(x).relu()) * self.scales.sum().float()
        def make(compression):
            ddp = DistributedDataParallel(Wide(), bucket_cap_mb=0.2)
            return ddp, paceline.comm.ddp_hook(ddp, compression=compression, host=host)
        def lost(state):
            return [value for one in state["buckets"].values() for key, value in sorted(one.items()) if key == "rest"]
        deep = paceline.comm.DGC(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9), ratio=0.1)
        for compression in ("Int8", "TopK:ratio=0.1,start=3", deep, "PowerSGD:rank=2,start=2"):
            ddp, _ = make(compression)
            steps(ddp, number=2)
            assert not paceline.comm.state_dict(ddp)["buckets"]
            agreed(steps(ddp, number=4))
            kept = paceline.comm.state_dict(ddp)
            assert kept["passes"] == 6 and lost(kept) and all(one.abs().sum() > 0 for one in lost(kept))
            again, _ = make(compression)
            paceline.comm.load_state_dict(again, kept)
            # As they lie until the buckets are what they were.
            steps(again, number=2)
            assert all(torch.equal(*two) for two in zip(lost(paceline.comm.state_dict(again)), lost(kept)))
            steps(again, number=1)
            now = paceline.comm.state_dict(again)
            assert now["passes"] == 9 and len(lost(now)) == len(lost(kept))
            assert not any(torch.equal(*two) for two in zip(lost(now), lost(kept)))
            for key, value in (("compression", "FP16:start=2"), ("rank", 9), ("hosts", "4"), ("version", 0)):
                try:
                    paceline.comm.load_state_dict(again, {**kept, key: value})
                except ValueError as error:
                    assert f"{key} is {value!r}, here it is " in str(error), error
                else:
                    raise AssertionError(key)
        # Buckets that become others: said, and begun anew.
        from paceline.comm import _ddp
        compressor = _ddp._gradients[again].sums.compressor
        compressor._buckets = {index: ((), state) for index, (_, state) in compressor._buckets.items()}
        agreed(steps(again, number=1))
        assert compressor.dropped > 0

        # A step that is not finite ends with that step.
        for compression in ("FP16", "TopK:ratio=0.1", "PowerSGD:rank=2,start=2"):
            ddp, _ = make(compression)
            steps(ddp, number=3)
            def spoil(ddp, step):
                (ddp(torch.randn(8, 4)).sum() * float("inf" if rank == 1 else 1)).backward()
            saved = {name: value.clone() for name, value in ddp.module.state_dict().items()}
            assert not torch.isfinite(steps(ddp, number=1, body=spoil)).all()
            ddp.module.load_state_dict(saved)
            assert torch.isfinite(agreed(steps(ddp, number=2))).all(), compression
        print(*[line for line in paceline.explain().splitlines() if "of Wide" in line], sep="\\n")
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output
    assert (
        "of Wide: 4 ranks, class Lossy, compression PowerSGD:rank=2,start=2, algorithm="
        in run.output
    ), run.output


def test_buckets_in_16_bits_are_compressed_in_float32(train: Train) -> None:
    run = train(
        BEGIN
        + MODELS
        + """
        class Matrix(nn.Module):
            def __init__(self, dtype):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(64, 80, dtype=dtype))
            def forward(self, x):
                return (self.weight * x).sum()
        torch.manual_seed(rank)
        # gloo of PyTorch 1.13 knows no bfloat16.
        for dtype in (torch.float16, torch.bfloat16)[: int(torch.__version__[0])]:
            x = torch.randn(64, 80).to(dtype)
            mean = x.float()
            dist.all_reduce(mean)
            mean /= ranks
            for compression, close in (("Int8", 0.02), ("PowerSGD:rank=8,start=2", 0.5), ("FP16", 0)):
                ddp = DistributedDataParallel(Matrix(dtype))
                paceline.comm.ddp_hook(ddp, compression=compression, host=f"host-{rank // 2}")
                said = torch.zeros(64, 80)
                for number in range(42):
                    ddp.zero_grad()
                    ddp(x).backward()
                    grad = agreed(ddp.module.weight.grad.float())
                    said += grad if number >= 2 else 0
                buckets = paceline.comm.state_dict(ddp)["buckets"]
                if compression == "FP16":
                    assert not buckets, "as few bytes as it is"
                    continue
                assert buckets[0]["rest"].dtype is torch.float32 and buckets[0]["rest"].any()
                # What one step loses comes with a later one.
                assert (said / 40 - mean).abs().max() < close, (dtype, compression, (said / 40 - mean).abs().max())
                assert not torch.equal(grad, mean.to(dtype).float())
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


def test_compression_is_asked_for_or_refused(train: Train) -> None:
    run = train(
        BEGIN
        + MODELS
        + """
        from paceline.comm._compression import parse
        assert parse("") is None and parse("Disabled") is None
        for text in ("FP16:start=2", "TopK:ratio=0.001,start=5", "PowerSGD:rank=4,start=100"):
            assert str(parse(text)) == text
        adam = torch.optim.Adam(nn.Linear(1, 1).parameters())
        sgd = lambda **options: torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, **options)
        taken = sgd(momentum=0.9)
        deep = paceline.comm.DGC(taken, ratio=0.001, warmup=40)
        assert taken.param_groups[0]["momentum"] == 0 and str(deep) == "DGC:ratio=0.001,momentum=0.9,start=2,warmup=40"
        assert [deep.keep(n) & 0xfffff for n in (0, 9, 10, 20, 30, 40, 99)] == [250_000, 250_000, 62_500, 15_625, 3_906, 1000, 1000]
        assert deep.keep(0) >> 20 == 900
        deep.check()
        taken.param_groups[0]["momentum"] = 0.5
        try:
            deep.check()
            raise AssertionError("momentum twice")
        except RuntimeError as error:
            assert "momentum is 0.5 again" in str(error)
        for wrong, said in (
            (lambda: parse("fp8"), "'fp8': it must be Disabled or one of FP16"),
            (lambda: parse("Int8:ratio=1"), "Int8 takes start="),
            (lambda: parse("TopK:ratio=2"), "ratio must be"),
            (lambda: parse("TopK:ratio=x"), "takes a number, not 'x'"),
            (lambda: parse("PowerSGD:start=1"), "start is 1: it must be 2 or more"),
            (lambda: parse("PowerSGD:rank=0"), "rank is 0"),
            (lambda: paceline.comm.OneBit(adam), "optimizer is Adam"),
            (lambda: parse("DGC"), "pass paceline.comm.DGC(optimizer)"),
            (lambda: paceline.comm.DGC(adam), "optimizer is Adam"),
            (lambda: paceline.comm.DGC(sgd(momentum=0.9, nesterov=True)), "nesterov=True"),
            (lambda: paceline.comm.DGC(sgd(momentum=0.9, dampening=0.5)), "dampening=0.5"),
            (lambda: paceline.comm.DGC(sgd()), "momentum=0.0"),
            (lambda: paceline.comm.DGC(sgd(momentum=0.9), ratio=2), "ratio is 2"),
            (lambda: paceline.comm.DGC(sgd(momentum=0.9), start=1), "start is 1"),
            (lambda: paceline.comm.state_dict(wrap(True)), "not compressed"),
            # All ranks alike.
            (lambda: paceline.comm.ddp_hook(wrap(False), compression="Int8" if rank else "FP16"), "say the same on all"),
            (lambda: paceline.comm.ddp_hook(wrap(False), plan="" if rank else "algorithm=auto"), "say the same on all"),
        ):
            try:
                wrong()
            except ValueError as error:
                assert said in str(error), error
            else:
                raise AssertionError(said)
        os.environ["PACELINE_NUMERICS"] = "Reordered"
        try:
            paceline.comm.ddp_hook(wrap(False), compression="FP16")
            raise AssertionError("beyond the job's class")
        except ValueError as error:
            assert "class Lossy, and the job's PACELINE_NUMERICS is Reordered" in str(error), error
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


INJECTED = """
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        import paceline
        def told(variables):
            from paceline.comm import _patch
            for name in list(os.environ):
                if name.startswith(("PACELINE_COMM", "PACELINE_NUMERICS", "AIAK")):
                    del os.environ[name]
            os.environ.update(variables)
            _patch.install()
            model = DistributedDataParallel(small())
            for _ in range(4):
                model(torch.ones(2, 4)).sum().backward()
            lines = [line.strip() for line in paceline.explain().splitlines() if "over our" in line or " of Sequential" in line]
            _patch.uninstall()
            return lines
        first = DistributedDataParallel(small())
        line = next(line for line in paceline.explain().splitlines() if " of Sequential" in line)
        assert "class Lossy, compression PowerSGD:rank=2,start=1000, " in line, line
        del first
        from paceline.comm import _patch
        _patch.uninstall()
        auto = {"PACELINE_COMMUNICATION": "Auto"}
        for variables, switch, text in (
            ({**auto, "PACELINE_COMMUNICATION_COMPRESSION": "Int8", "PACELINE_NUMERICS": "Lossy"},
             "on (compression Int8:start=2); numerics class Lossy", "class Lossy, compression Int8:start=2, "),
            ({**auto, "PACELINE_COMMUNICATION_COMPRESSION": "Int8"}, "on; numerics class Reordered", "class Reordered, algo"),
            ({**auto, "PACELINE_COMMUNICATION_COMPRESSION": "zip"}, "on; numerics class Reordered", "class Reordered, algo"),
            ({"AIAK_HIERARCHICAL_ALLREDUCE": "1"}, "on; numerics class Reordered", "class Reordered, algo"),
            ({"AIAK_FP16_COMPRESSION": "1", "PACELINE_NUMERICS": "Reordered"}, "on; numerics class Reordered", "class Reordered, algo"),
            ({**auto, "AIAK_FP16_COMPRESSION": "1"}, "on (compression FP16:start=2); numerics class Lossy", "class Lossy, compression FP16:start=2, "),
            # Ranks that were told different things.
            ({**auto, "PACELINE_COMMUNICATION_COMPRESSION": "Int8" if dist.get_rank() else "FP16", "PACELINE_NUMERICS": "Lossy"},
             f"on (compression {'Int8' if dist.get_rank() else 'FP16'}:start=2); numerics class Lossy", "class Reordered, algo"),
        ):
            lines = told(variables)
            assert lines[0].endswith("over our communicator: " + switch) and text in lines[-1], (variables, lines)
        from paceline.comm import _report
        del os.environ["PACELINE_NUMERICS"]
        os.environ.update({"PACELINE_COMMUNICATION": "Disabled", "AIAK_FP16_COMPRESSION": "1"})
        _patch.install()
        assert _report.switch == "off (PACELINE_COMMUNICATION is Disabled)" and "PACELINE_NUMERICS" not in os.environ, _report.switch
        dist.destroy_process_group()
"""


def test_an_unmodified_program_is_compressed_if_the_job_asks(train: Train) -> None:
    run = train(
        INJECTED, ranks=2, AIAK_POWERSGD_COMPRESSION="1", AIAK_MATRIX_APPROXIMATION_RANK="2"
    )
    assert run.code == 0, run.output
    for line in (
        (
            "paceline: AIAK_POWERSGD_COMPRESSION: taken for PACELINE_COMMUNICATION=Auto,"
            " PACELINE_COMMUNICATION_COMPRESSION=PowerSGD:rank=2,start=1000,"
            " PACELINE_NUMERICS=Lossy; flat or hierarchical is chosen"
        ),
        "paceline: AIAK_HIERARCHICAL_ALLREDUCE: taken for PACELINE_COMMUNICATION=Auto; flat",
        (
            "paceline: gradients are not compressed: Int8:start=2 is of class Lossy, and"
            " PACELINE_NUMERICS is Reordered"
        ),
        (
            "paceline: gradients are not compressed: FP16:start=2 is of class Lossy, and"
            " PACELINE_NUMERICS is Reordered"
        ),
        (
            "paceline: gradients are not compressed: PACELINE_COMMUNICATION_COMPRESSION:"
            " compression is 'zip': it must be Disabled or one of"
        ),
        (
            "paceline: gradients are not compressed: PACELINE_COMMUNICATION_COMPRESSION is"
            " FP16:start=2 here and another on some rank"
        ),
    ):
        assert line in run.output, run.output

# SPDX-License-Identifier: Apache-2.0
"""paceline.optim over parameters of which each rank has a part (FSDP2): the same optimizer over whole parameters given the same gradients, torch's own
beside it, and checkpoints both ways. Shards are uneven, and one rank has none of some."""

from __future__ import annotations

import pytest
import torch
from programs import Train

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6), reason="a PyTorch without fully_shard"
)

SHARDED = """
        import copy
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import DTensor
        from paceline import optim
        from paceline.optim import _report
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (2,))
        def whole_model(dtype=torch.float32):
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 1)).to(dtype)
        def sharded_model(dtype=torch.float32):
            model = whole_model(dtype)
            for part in (model[0], model[2], model):
                fully_shard(part, mesh=mesh)
            return model
        def backward(model, number):
            generator = torch.Generator().manual_seed(2 * number + dist.get_rank())
            inputs = torch.randn(6, 4, generator=generator).to(next(model.parameters()).dtype)
            model.zero_grad()
            (model(inputs).square().mean() * 9).backward()
        def close(one, other):
            for p, q in zip(one.parameters(), other.parameters()):
                p, q = (t.full_tensor() if isinstance(t, DTensor) else t for t in (p, q))
                torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
"""


def test_a_shards_step_is_the_whole_ones(train_by_fork: Train) -> None:
    run = train_by_fork(
        SHARDED
        + """
        momentum = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
        for kind, options, dtype, limit in (
            (optim.AdamW, {"amsgrad": True}, torch.float32, None),
            (optim.AdamW, {}, torch.bfloat16, None),
            (optim.Adam, {"weight_decay": 0.1}, torch.float32, 0.5),
            (optim.SGD, momentum, torch.float32, None),
            (optim.SGD, {"lr": 0.1}, torch.bfloat16, 0.5),
            (optim.LARS, {"lr": 0.1}, torch.float32, 0.5),
        ):
            layers = kind is optim.LARS
            sharded, whole = sharded_model(dtype), whole_model(dtype)
            ours = kind(sharded.parameters(), max_grad_norm=limit, **options)
            theirs = kind(whole.parameters(), max_grad_norm=limit, **options)
            for number in range(3):
                backward(sharded, number)
                for p, q in zip(sharded.parameters(), whole.parameters()):
                    q.grad = p.grad.full_tensor()
                ours.step()
                theirs.step()
                assert limit is None or abs(ours.grad_norm - theirs.grad_norm) < 1e-5 * theirs.grad_norm
            outcome = _report.outcome_of(ours)
            assert (outcome.fused, list(outcome.elsewhere)) == (
                (0, ["shards of tensors, whose norms are of all ranks"]) if layers else (4, [])), vars(outcome)
            for p, q in zip(sharded.parameters(), whole.parameters()):
                same = p.full_tensor()
                if layers or limit:
                    torch.testing.assert_close(same, q, rtol=1e-5 if dtype is torch.float32 else 1e-2, atol=1e-6)
                else:
                    assert torch.equal(same, q), (kind, dtype)
                for key, value in ours.state[p].items():
                    held = theirs.state[q][key]
                    if isinstance(held, torch.Tensor) and held.dim():
                        assert type(value) is DTensor and value.placements == p.placements, key
                        assert limit or layers or torch.equal(value.full_tensor(), held), key
        print("equal")
        dist.destroy_process_group()
        """,
        ranks=2,
        OMP_NUM_THREADS="1",
    )
    assert run.code == 0 and run.output.count("equal") == 2, run.output


def test_beside_torchs_with_checkpoints_both_ways(train_by_fork: Train) -> None:
    run = train_by_fork(
        SHARDED
        + """
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
        def fit(model, optimizer, numbers, limit=None):
            for number in numbers:
                backward(model, number)
                if limit:
                    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit).full_tensor()
                optimizer.step()
            return norm if limit else optimizer.grad_norm
        one, other = sharded_model(), sharded_model()
        ours, theirs = optim.AdamW(one.parameters(), max_grad_norm=0.5), torch.optim.AdamW(other.parameters())
        norms = fit(one, ours, range(5)), fit(other, theirs, range(5), 0.5)
        assert abs(norms[0] - float(norms[1])) < 1e-5
        close(one, other)
        # From each to the other: as they are, and by name, as checkpoints are written.
        back, torchs = optim.AdamW(other.parameters(), max_grad_norm=0.5), torch.optim.AdamW(one.parameters())
        back.load_state_dict(copy.deepcopy(theirs.state_dict()))
        set_optimizer_state_dict(one, torchs, get_optimizer_state_dict(one, ours))
        fit(one, torchs, range(5, 9), 0.5)
        fit(other, back, range(5, 9))
        close(one, other)
        saved = get_optimizer_state_dict(other, back, options=StateDictOptions(full_state_dict=True))
        assert set(saved["state"]["0.weight"]) == {"step", "exp_avg", "exp_avg_sq"}
        assert saved["state"]["0.weight"]["exp_avg"].shape == (7, 4)
        # 16-bit ones, with masters, into an optimizer of ours.
        half, again = sharded_model(torch.bfloat16), sharded_model(torch.bfloat16)
        first = optim.AdamW(half.parameters(), lr=1e-3)
        fit(half, first, range(3))
        second = optim.AdamW(again.parameters(), lr=1e-3)
        for p, q in zip(half.parameters(), again.parameters()):
            q.data.copy_(p.data)
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        fit(half, first, range(3, 6))
        fit(again, second, range(3, 6))
        for p, q in zip(half.parameters(), again.parameters()):
            assert torch.equal(p.full_tensor(), q.full_tensor())
            assert first.state[p]["master_param"].dtype is torch.float32
        print("equal")
        dist.destroy_process_group()
        """,
        ranks=2,
        OMP_NUM_THREADS="1",
    )
    assert run.code == 0 and run.output.count("equal") == 2, run.output

# SPDX-License-Identifier: Apache-2.0
"""paceline.accelerate: one line instead of injection, with the same results; what it cannot speed
up it leaves, and says why.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import Train

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)
import paceline  # noqa: E402 - where it lies is known only now
from paceline._inject import operators  # noqa: E402
from paceline.optim import _patch  # noqa: E402


@pytest.fixture
def train(train_by_fork: Train) -> Train:
    return train_by_fork


@pytest.fixture
def put_back() -> Iterator[None]:
    yield
    _patch.uninstall()
    operators.uninstall()


# Trains with a learning-rate schedule; LINE is where a program may accelerate.
TRAINING = """
        import hashlib, json
        import paceline
        class Wide(Slow):
            def __getitem__(self, index):
                return super().__getitem__(index)[0].repeat(2048), torch.tensor(float(index % 2)), torch.rand(1)
        for kind, options in ((torch.optim.AdamW, {}), (torch.optim.SGD, {"momentum": 0.9})):
            torch.manual_seed(3)
            model = nn.Linear(8192, 1)
            other = nn.Linear(4, 1)
            optimizer = kind(model.parameters(), lr=1e-6, **options)
            own = kind(other.parameters(), lr=0.1, **options)
            early = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            loader = DataLoader(Wide(24), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True)
            LINE
            late = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            for _ in range(2):
                for batch in loader:
                    optimizer.zero_grad()
                    (loss_of(model, batch) * batch[2].mean()).backward()
                    optimizer.step()
                early.step(); late.step()
            other(torch.ones(2, 4)).sum().backward()
            own.step()
            for one in (model, other):
                print(hashlib.sha256(one.weight.detach().numpy().tobytes()).hexdigest())
        print(json.dumps(paceline.explain(as_dict=True)))
"""
GIVEN = "model, optimizer, loader = paceline.accelerate(model, optimizer, loader, **config)"


Results = tuple[list[str], dict[str, Any]]


def results(train: Train, line: str, config: str = "{}", **variables: str) -> Results:
    run = train(TRAINING.replace("LINE", f"config = {config}; {line}"), **variables)
    assert run.code == 0, run.output
    lines = run.output.splitlines()
    assert len(lines) == 5, run.output
    return lines[:4], json.loads(lines[4])


_plain: list[Results] = []


@pytest.fixture
def plain(train: Train) -> Results:
    """Of the program as it is, run once."""
    if not _plain:
        _plain.append(results(train, "pass"))
    return _plain[0]


def test_the_same_as_injected_and_only_what_it_is_given(train: Train, plain: Results) -> None:
    theirs, nothing = plain
    injected, _ = results(train, "pass", PACELINE_LOADER="Auto", PACELINE_OPTIMIZER="Auto")
    ours, told = results(train, GIVEN)
    assert ours[::2] == injected[::2] and ours[::2] != theirs[::2], (
        "the schedule made before it leads to ours as well"
    )
    assert ours[1::2] == theirs[1::2], "an optimizer that was not given is PyTorch's"
    assert nothing["fused optimizers"]["seen"] == [] and nothing["loader"]["state"] == "off"
    assert [(seen["name"], seen["state"]) for seen in told["fused optimizers"]["seen"]] == [
        ("torch.optim.adamw.AdamW", "on"),
        ("torch.optim.sgd.SGD", "on"),
    ]
    assert told["fused optimizers"]["state"] == told["loader"]["state"] == "on"
    assert (
        told["fused optimizers"]["numerics"] == "Reordered"
        and told["loader"]["numerics"] == "Bitwise"
    )
    assert nothing["fused operators"]["state"] == "off"
    assert told["fused operators"]["state"] == "on"
    assert told["fused operators"]["reason"] == "no model that it knows has been imported"
    assert told["loader"]["seen"][0]["in_slabs"] == 24


@pytest.mark.parametrize(
    "config,variables",
    [
        ("{'numerics': 'Bitwise'}", {}),
        ("{'fused': False}", {}),
        ("{'numerics': 'Lossy'}", {"PACELINE_NUMERICS": "Bitwise"}),
        ("{}", {"PACELINE_DISABLE": "1"}),
    ],
)
def test_bitwise_is_bitwise(
    train: Train, plain: Results, config: str, variables: dict[str, str]
) -> None:
    theirs, _ = plain
    ours, told = results(train, GIVEN, config, **variables)
    assert ours == theirs
    for seen in told["fused optimizers"]["seen"]:
        assert seen["reason"] == "numerics is Bitwise, and fused optimizers are of class Reordered"
    assert (told["loader"]["state"] == "on") == ("PACELINE_DISABLE" not in variables)
    assert (told["fused operators"]["state"] == "on") == ("fused" in config)


@pytest.mark.parametrize("unable", ["", "1"])
def test_ranks_agree_where_it_is_called(train: Train, unable: str) -> None:
    run = train(
        """
        import paceline
        dist.init_process_group("gloo")
        if os.environ["RANK"] == os.environ["UNABLE"]:
            os.environ["PACELINE_LIBRARY"] = "/nowhere.so"
        model = nn.parallel.DistributedDataParallel(small())
        model, optimizer = paceline.accelerate(model, torch.optim.AdamW(model.parameters(), lr=0.05))
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model, (torch.ones(2, 4), torch.ones(2))).backward()
            optimizer.step()
        print(*[seen["text"] for seen in paceline.explain(as_dict=True)["fused optimizers"]["seen"]])
        dist.destroy_process_group()
        """,
        ranks=2,
        UNABLE=unable,
    )
    assert run.code == 0, run.output
    assert run.output.count("4 tensors fused") == (0 if unable else 2), run.output
    assert not unable or (
        "another rank cannot" in run.output and "OSError: /nowhere.so" in run.output
    ), run.output


def test_without_injection_and_what_is_left_as_it_is(put_back: None) -> None:
    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    leaves = [torch.ones(3, requires_grad=True) for _ in range(4)]
    kinds = (torch.optim.SGD, torch.optim.RMSprop, Own, paceline_adamw())
    optimizers = [kind([leaf], lr=0.1) for kind, leaf in zip(kinds, leaves)]
    rows = torch.utils.data.DataLoader(torch.ones(4, 2))
    made = paceline.accelerate(optimizer=optimizers, loader=[rows])
    assert made[0] is optimizers and made[1] == [rows]
    for optimizer, leaf in zip(optimizers, leaves):
        leaf.grad = torch.ones(3)
        optimizer.step()
        assert (leaf < 1).all()
    told = paceline.explain(as_dict=True)
    said = {
        seen["name"].rsplit(".", 1)[-1]: seen["text"] for seen in told["fused optimizers"]["seen"]
    }
    assert said["SGD"].startswith(
        "1 tensors fused on the CPU, class Reordered; 1 steps by the library, median "
    )
    assert said["RMSprop"] == "PyTorch's own (no fused step for this class)"
    assert said["Own"] == "PyTorch's own (its class or the program has replaced its step)"
    assert "fused" in said["AdamW"]
    assert (
        "no workers"
        in [seen for seen in told["loader"]["seen"] if seen["name"].endswith("Tensor")][0]["reason"]
    )
    assert "fused optimizers in place of PyTorch's own: on (for those given" in paceline.explain()


def paceline_adamw() -> Any:
    from paceline.optim import AdamW

    return AdamW


def test_one_thing_is_returned_as_itself(put_back: None) -> None:
    model = torch.nn.Linear(1, 1)
    assert paceline.accelerate(model) is model
    optimizer = torch.optim.Adam(model.parameters())
    assert paceline.accelerate(optimizer=optimizer, fused=False) is optimizer
    assert paceline.accelerate(model, optimizer) == (model, optimizer)


@pytest.mark.parametrize(
    "given,error,said",
    [
        (
            {"numerics": "exact"},
            ValueError,
            "numerics is 'exact': it must be one of 'bitwise', 'reordered', 'lossy'",
        ),
        (
            {"precision": "fp8", "numerics": "lossy"},
            ValueError,
            "precision is 'fp8': it must be one of 'disabled', 'tf32', 'o1', 'o2'",
        ),
        ({"fused": "no"}, ValueError, "fused is 'no': it must be True or False"),
        (
            {"prefetch_next_epoch": 1},
            ValueError,
            "prefetch_next_epoch is 1: it must be None or True or False",
        ),
        ({"model": 3}, TypeError, "model is int: it must be a torch.nn.Module"),
        (
            {"optimizer": [None]},
            TypeError,
            "optimizer is NoneType: it must be a torch.optim.Optimizer",
        ),
        ({"loader": [1, 2]}, TypeError, "loader is int: it must be a torch.utils.data.DataLoader"),
    ],
)
def test_errors_name_the_value_and_what_it_must_be(
    given: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        paceline.accelerate(**given)
    assert said in str(raised.value)

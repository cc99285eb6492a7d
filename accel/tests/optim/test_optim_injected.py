# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own optimizers in unmodified programs: accelerated where the job asks for it, left
alone in every case that is not expressly supported, and said so.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from programs import Train


@pytest.fixture
def train(train_by_fork: Train) -> Train:
    return train_by_fork


NEW = int(torch.__version__.split(".")[0]) >= 2
ASKED = {"PACELINE_OPTIMIZER": "Auto", "OMP_NUM_THREADS": "1"}

# Trains, and prints the bits of the result; `fused` tells what paceline.explain() says of it.
LOOP = """
        import hashlib, paceline
        def fit(model, optimizer, steps=30):
            for number in range(steps):
                torch.manual_seed(number)
                batch = torch.randn(8, 4), torch.randn(8)
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
            return torch.cat([p.detach().flatten() for p in model.parameters()])
        def fused():
            return [line.strip() for line in paceline.explain().splitlines() if "torch.optim" in line or "__main__" in line]
"""

KINDS = """
        for kind, options in (
            (torch.optim.AdamW, dict(lr=0.01, amsgrad=True)), (torch.optim.Adam, dict(weight_decay=0.1)),
            (torch.optim.SGD, dict(lr=0.1)), (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
        ):
            model = small()
            optimizer = kind(model.parameters(), **options)
            result = fit(model, optimizer)
            state = optimizer.state_dict()
            torch.save((result, state), f"{name}-{kind.__name__}-{len(options)}.pt")
"""


def test_off_unless_asked(train: Train) -> None:
    run = train(
        LOOP
        + """
        model = small()
        fit(model, torch.optim.AdamW(model.parameters()), 1)
        assert "paceline.optim" not in sys.modules
        print([line for line in paceline.explain().splitlines() if "fused" in line])
        """
    )
    assert (
        run.code == 0
        and "off (PACELINE_OPTIMIZER is not set); numerics class Reordered" in run.output
    ), run.output


@pytest.mark.parametrize(
    "variables,said",
    [
        ({"PACELINE_OPTIMIZER": "Disabled"}, ""),
        (
            {"PACELINE_OPTIMIZER": "on"},
            "paceline: PACELINE_OPTIMIZER is 'on': it must be Auto or Disabled",
        ),
        ({"PACELINE_OPTIMIZER": "Auto", "PACELINE_NUMERICS": "Bitwise"}, ""),
        (
            {"PACELINE_OPTIMIZER": "Auto", "PACELINE_NUMERICS": "loose"},
            "paceline: PACELINE_NUMERICS is 'loose': it must be Bitwise, Reordered or Lossy",
        ),
        ({"PACELINE_OPTIMIZER": "Auto", "PACELINE_DISABLE": "1"}, ""),
    ],
)
def test_what_switches_it_off(train: Train, variables: dict[str, str], said: str) -> None:
    run = train(
        "step = torch.optim.Adam.step\nassert '_patch' not in step.__code__.co_filename",
        **variables,
    )
    assert run.code == 0 and run.output.startswith(said) and bool(run.output) == bool(said), (
        run.output
    )


def test_results_are_torchs_but_for_rounding_and_so_is_the_state(
    train: Train, tmp_path: Path
) -> None:
    assert train("        name = 'theirs'\n" + LOOP + KINDS).code == 0
    run = train(
        "        name = 'ours'\n"
        + LOOP
        + KINDS
        + "            print(fused()[-1], type(optimizer).__module__)\n",
        **ASKED,
    )
    assert run.code == 0, run.output
    lines = run.output.splitlines()
    said = "4 tensors fused on the CPU, class Reordered; 30 steps by the library, median "
    assert len(lines) == 4 and all(said in line and " ms torch.optim" in line for line in lines), (
        lines
    )
    files = sorted(tmp_path.glob("ours-*.pt"))
    assert len(files) == 4
    for file in files:
        ours, ours_state = torch.load(file)
        theirs, theirs_state = torch.load(str(file).replace("ours", "theirs"))
        assert torch.allclose(ours, theirs, atol=1e-5) and ours.shape == theirs.shape
        assert ours_state["param_groups"] == theirs_state["param_groups"]
        assert ours_state["state"].keys() == theirs_state["state"].keys()
        for number, state in theirs_state["state"].items():
            assert state.keys() == ours_state["state"][number].keys()
            for key, value in state.items():
                other = ours_state["state"][number][key]
                assert value is other is None or (
                    torch.allclose(value, other, atol=1e-5) and value.dtype == other.dtype
                )


def test_what_is_not_supported_is_torchs(train: Train) -> None:
    run = train(
        LOOP
        + """
        class Mine(torch.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)
        class Inherits(torch.optim.SGD):
            pass
        table = nn.Embedding(4, 3, sparse=True)
        sparse = torch.optim.SGD(table.parameters(), lr=0.1)
        table(torch.tensor([1])).sum().backward()
        before = table.weight.detach().clone()
        sparse.step()
        assert (table.weight != before).any(), "torch's SGD takes sparse gradients"
        kept = []
        for dtype, kind in ((torch.float64, torch.optim.Adam), (torch.float32, Mine),
                            (torch.float32, Inherits)):
            leaf = torch.ones(3, dtype=dtype, requires_grad=True)
            optimizer = kind([leaf], lr=0.1)
            kept.append(optimizer)
            leaf.grad = torch.ones_like(leaf)
            optimizer.step()
            assert (leaf < 1).all() and all(
                value.dtype == dtype for key, value in optimizer.state[leaf].items() if key != "step" and value is not None)
        lbfgs = torch.optim.LBFGS([leaf])
        lbfgs.step(lambda: (leaf ** 2).sum())
        print(*fused(), sep="\\n")
        """,
        **ASKED,
    )
    assert run.code == 0, run.output
    lines = run.output.splitlines()
    assert any(
        "SGD: 1 by PyTorch (gradients of layout torch.sparse_coo)" in line for line in lines
    ), lines
    assert any(
        "Adam: 1 by PyTorch (float64 gradients of float64 parameters)" in line for line in lines
    ), lines
    assert any("Inherits: 1 tensors fused" in line for line in lines), lines
    assert any("Mine: PyTorch's own (its class has a step of its own)" in line for line in lines), (
        lines
    )
    assert any("LBFGS: PyTorch's own (no fused step for this class)" in line for line in lines), (
        lines
    )


# What Transformers' TrainingArguments(optim=...) makes, and whether the library makes its steps.
OTHERS = "no fused step for this class"
NAMES = {
    "adamw_torch": ("torch.optim.AdamW(params)", ""),
    "adamw_torch_fused": (
        "torch.optim.AdamW(params, fused=True)",
        "fused=True on the CPU; ours: ",
    ),
    "sgd": ("torch.optim.SGD(params, lr=0.1)", ""),
    "adagrad": ("torch.optim.Adagrad(params)", OTHERS),
    "rmsprop": ("torch.optim.RMSprop(params)", OTHERS),
    "adafactor": ("Theirs(params, {})", OTHERS),  # of transformers.optimization
    "lion_32bit": ("Theirs(params, {})", OTHERS),  # of bitsandbytes
    "adamw_anyprecision": ("Theirs(params, {})", OTHERS),  # of torchdistx
    "muon": ("torch.optim.Muon(params[:1])", "its step is matrix products"),
}


def test_which_of_transformers_optimizers_are_taken_over(train: Train) -> None:
    release = tuple(map(int, torch.__version__.split(".")[:2]))
    missing = {"muon"} if release < (2, 9) else set()
    missing |= {"adamw_torch_fused"} if release < (2, 4) else set()
    cases = {name: case for name, case in NAMES.items() if name not in missing}
    run = train(
        LOOP
        + f"""
        class Theirs(torch.optim.Optimizer):
            def step(self, closure=None):
                pass
        for name, (made, why) in {cases!r}.items():
            params = [torch.ones(3, 2, requires_grad=True), torch.ones(2, requires_grad=True)]
            optimizer = eval(made)
            for param in params:
                param.grad = torch.ones_like(param)
            optimizer.step()
            told = paceline.explain(as_dict=True)["fused optimizers"]["seen"][-1]
            assert told["state"] == ("off" if why else "on") and why in told["reason"], (name, told)
            print(name)
        """,
        **ASKED,
    )
    assert run.code == 0 and run.output.split() == list(cases), run.output


def test_closures_schedulers_hooks_and_marks_go_on(train: Train) -> None:
    run = train(
        LOOP
        + """
        model = small()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        seen = []
        if hasattr(optimizer, "register_step_pre_hook"):
            optimizer.register_step_pre_hook(lambda *_: seen.append(1))
            optimizer.register_step_post_hook(lambda *_: seen.append(2))
        batch = torch.ones(8, 4), torch.zeros(8)
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss
        losses = []
        for _ in range(6):
            losses.append(float(optimizer.step(closure).detach()))
            schedule.step()
        assert losses[-1] < losses[0] and seen in ([], [1, 2] * 6), (losses, seen)
        print(*fused())
        """,
        **ASKED,
    )
    # The ring opens with the first backward, which a closure makes inside the first step.
    assert len(run.only().steps) == 5 and "4 tensors fused" in run.output, run.output


@pytest.mark.skipif(not NEW, reason="torch.compile came with PyTorch 2")
def test_a_compiled_step_is_torchs(train: Train) -> None:
    run = train(
        LOOP
        + """
        model = small()
        optimizer = torch.optim.AdamW(model.parameters())
        compiled = torch.compile(lambda: optimizer.step(), backend="eager")
        for _ in range(2):
            optimizer.zero_grad()
            loss_of(model, (torch.ones(2, 4), torch.ones(2))).backward()
            compiled()
        assert float(optimizer.state[next(model.parameters())]["step"]) == 2
        """,
        **ASKED,
    )
    assert run.code == 0, run.output


def test_two_optimizers_and_accumulation(train: Train) -> None:
    run = train(
        LOOP
        + """
        a, b = small(), small()
        first = torch.optim.Adam(a.parameters(), betas=(0.5, 0.999))
        second = torch.optim.SGD(b.parameters(), lr=0.1, momentum=0.9)
        for number in range(8):
            batch = torch.ones(4, 4), torch.zeros(4)
            (loss_of(a, batch) + loss_of(b, batch)).backward()
            if number % 4 == 3:
                first.step(); second.step(); first.zero_grad(); second.zero_grad()
        assert float(first.state[next(a.parameters())]["step"]) == 2
        print(*fused(), sep="\\n")
        """,
        **ASKED,
    )
    assert run.code == 0 and run.output.count("4 tensors fused") == 2, run.output


RANKS = """
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(small())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        result = fit(model, optimizer)
        other = result.clone()
        dist.broadcast(other, 0)
        assert torch.equal(result, other), "ranks differ"
        print(*fused())
        del model, optimizer  # and with them, in PyTorch 1.13, gloo's threads: they may hang in the group's destruction
        dist.destroy_process_group()
"""


def test_ranks_agree_to_use_it(train: Train) -> None:
    run = train(LOOP + RANKS, ranks=2, **ASKED)
    assert run.code == 0 and run.output.count("4 tensors fused on the CPU") == 2, run.output


def test_one_rank_that_cannot_leaves_it_to_torch_on_all(train: Train) -> None:
    spoiled = (
        "        if os.environ['RANK'] == '1':\n            os.environ['PACELINE_LIBRARY'] ="
        " '/nowhere.so'\n"
    )
    run = train(spoiled + LOOP + RANKS, ranks=2, **ASKED)
    assert run.code == 0 and "fused on the CPU" not in run.output, run.output
    assert (
        "4 by PyTorch (another rank cannot)" in run.output
        and "4 by PyTorch (OSError: /nowhere.so" in run.output
    )
    assert (
        "paceline: PyTorch's optimizers are left as they are on all ranks: OSError: /nowhere.so"
        in run.output
    )


def test_ranks_without_a_process_group_cannot_agree(train: Train) -> None:
    run = train(
        LOOP
        + "        m = small()\n        fit(m, o := torch.optim.SGD(m.parameters(), lr=0.1))\n     "
        "   print(*fused())",
        ranks=2,
        **ASKED,
    )
    assert run.output.count("2 ranks without a process group to agree in") == 2, run.output


def test_an_option_that_is_not_known_leaves_its_optimizers_alone(train: Train) -> None:
    run = train(
        LOOP
        + """
        from paceline.optim import _patch
        _patch._KNOWN.discard("nesterov")  # as an option of a later PyTorch
        model = small()
        for nesterov in (False, True):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov)
            fit(model, optimizer, 2)
            print(*fused(), sep="\\n")
        later = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        later.param_groups[0]["nesterov"] = True
        fit(model, later, 2)
        print(fused()[-1])
        """,
        **ASKED,
    )
    assert run.code == 0, run.output
    why = "nesterov=True, an option that this release does not know"
    assert run.output.count("SGD: 4 tensors fused on the CPU") >= 1, run.output
    assert f"SGD: PyTorch's own ({why})" in run.output, run.output
    assert f"SGD: 4 by PyTorch ({why})" in run.output, run.output


# What PyTorch's own step and the library's make of the same gradients.
VARIANTS = """
        import copy
        cases = [(torch.float32, kind, options) for kind, options in (
            (torch.optim.AdamW, dict(foreach=True)), (torch.optim.Adam, dict(weight_decay=0.1, amsgrad=True)),
        )]
        if {new}:
            cases += [(torch.float32, torch.optim.AdamW, dict(fused=True)), (torch.float32, torch.optim.Adam, dict(lr=torch.tensor(0.01)))]
        for dtype in (torch.bfloat16, torch.float16) if {new} else (torch.bfloat16,):
            cases += [(dtype, torch.optim.AdamW, dict(lr=0.01, eps=1e-3)), (dtype, torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
                      (dtype, torch.optim.SGD, dict(lr=0.1))]
        results = []
        for dtype, kind, options in cases:
            torch.manual_seed(3)
            leaves = [torch.randn(shape).to(dtype).requires_grad_() for shape in ((61, 37), (9001,), (), (3, 1))]
            try:
                optimizer = kind(leaves, **options)
                for number in range(6):
                    for leaf in leaves:
                        leaf.grad = torch.randn(leaf.shape).to(dtype)
                    if number == 3 and kind is not torch.optim.SGD:
                        for value in optimizer.state[leaves[1]].values():
                            if value.shape == leaves[1].shape and (value >= 0).all():
                                value[7] = float("inf")  # a second moment that has overflowed
                    optimizer.step()
            except RuntimeError as error:  # an older PyTorch has no such code for the CPU
                assert {old}, error
                continue
            results.append((dtype, [leaf.detach() for leaf in leaves], optimizer.state_dict()["state"]))
            if {ours}:  # PyTorch's fused step is as quick on the CPU, and stays
                expected = "4 by PyTorch (fused=True on the CPU" if "fused" in options else "4 tensors fused on the CPU"
                assert expected in fused()[-1], (dtype, kind, options, fused()[-1])
        torch.save(results, "{name}.pt")
"""


def test_options_and_types_that_programs_use_are_torchs_but_for_rounding(
    train: Train, tmp_path: Path
) -> None:
    old = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4)
    for name, variables in (("theirs", {}), ("ours", ASKED)):
        program = VARIANTS.format(new=NEW, old=old, name=name, ours=name == "ours")
        run = train(LOOP + program, **{"OMP_NUM_THREADS": "1", **variables})
        assert run.code == 0, run.output
    theirs, ours = (
        torch.load(tmp_path / f"{name}.pt", **({"weights_only": False} if NEW else {}))
        for name in ("theirs", "ours")
    )
    assert len(theirs) >= len(ours) >= 5
    for (dtype, leaves, state), (_, own_leaves, own_state) in zip(theirs, ours, strict=True):
        # PyTorch rounds each intermediate value to 16 bits; the library rounds results alone.
        close = (
            {"rtol": 1e-5, "atol": 1e-6} if dtype is torch.float32 else {"rtol": 0.05, "atol": 0.05}
        )
        for one, other in zip(leaves, own_leaves):
            assert torch.allclose(one, other, **close), (dtype, (one - other).abs().max())
        assert state.keys() == own_state.keys()
        for number, values in state.items():
            assert values.keys() == own_state[number].keys()
            for key, value in values.items():
                other = own_state[number][key]
                if value is None:
                    assert other is None
                    continue
                assert value.dtype is other.dtype and value.device == other.device, (dtype, key)
                assert not other.isnan().any(), (dtype, key)
                assert torch.equal(value.isinf(), other.isinf()), (dtype, key)
                finite = value.isfinite()
                assert torch.allclose(value[finite], other[finite], **close), (dtype, key)


def test_a_program_that_asks_pays_nothing_before_torch(train: Train) -> None:
    assert os.environ.get("PACELINE_OPTIMIZER") is None
    run = train("assert 'libpaceline' not in open('/proc/self/maps').read()", **ASKED)
    assert (run.code, run.output, run.rings) == (0, "", [])


def test_profilers_and_hooks_see_steps_as_ever(train: Train) -> None:
    run = train(
        LOOP
        + """
        ranges = []
        original = torch.autograd.profiler.record_function
        class counted(original):
            def __init__(self, name, *args):
                ranges.append(name)
                super().__init__(name, *args)
        torch.autograd.profiler.record_function = counted
        model = small()
        optimizer = torch.optim.AdamW(model.parameters())
        fit(model, optimizer, 2)
        steps = "Optimizer.step#AdamW.step"
        assert ranges.count(steps) == 2, ranges
        with torch.autograd.profiler.profile() as profile:
            fit(model, optimizer, 3)
        assert [event.name for event in profile.function_events].count(steps) == 3
        if hasattr(optimizer, "register_step_post_hook"):
            calls = []
            handle = optimizer.register_step_post_hook(lambda *_: calls.append(1))
            fit(model, optimizer, 2)
            handle.remove()
            fit(model, optimizer, 1)
            assert len(calls) == 2
        print("reached the end", fused())
        """,
        **ASKED,
    )
    assert run.code == 0 and "reached the end" in run.output and "by the library" in run.output, (
        run.output
    )


@pytest.mark.skipif(
    not hasattr(getattr(torch, "compiler", None), "is_compiling"), reason="no compiler of steps"
)
def test_a_compiled_step_is_compiled_as_ever(train: Train) -> None:
    run = train(
        LOOP
        + """
        model = small()
        optimizer = torch.optim.AdamW(model.parameters())
        fit(model, optimizer, 1)
        step = torch.compile(lambda: optimizer.step(), backend="eager")
        before = [parameter.detach().clone() for parameter in model.parameters()]
        for _ in range(2):
            step()
        from torch._dynamo.utils import counters
        assert counters["stats"]["unique_graphs"] >= 1, counters
        assert not any(torch.equal(one, other) for one, other in zip(before, model.parameters()))
        print("reached the end")
        """,
        **ASKED,
    )
    assert run.code == 0 and "reached the end" in run.output, run.output

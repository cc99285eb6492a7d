# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel in unmodified programs. It uses our communicator if the job asks for it and
that is safe, else PyTorch, with a message.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from programs import Run, Train

NEW = int(torch.__version__.split(".")[0]) >= 2
ASKED = {"PACELINE_COMMUNICATION": "Auto"}

# An ordinary program, which also prints a report at the end.
BEGIN = """
        from torch.nn.parallel import DistributedDataParallel
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        def fit(register=None, wrap=DistributedDataParallel, steps=4):
            model = wrap(small())
            if register:
                register(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for batch in DataLoader(Slow(8 * steps), batch_size=8):
                optimizer.zero_grad()
                (loss_of(model, batch) * (rank + 1)).backward()
                optimizer.step()
            return torch.cat([p.detach().flatten() for p in model.parameters()])
        def told():
            import paceline
            lines = paceline.explain().splitlines()
            return [line.strip() for line in lines if "over our" in line or " of Sequential" in line]
"""
END = """
        dist.destroy_process_group()
"""


def passes(train: Train, program: str, ranks: int, before: str = "", **environment: str) -> Run:
    """Runs an unmodified program in a job that asks for the communicator, and checks that it ends
    well. `before` comes before the program's first line.
    """
    run = train(before + BEGIN + program + END, ranks=ranks, **ASKED, **environment)
    assert run.code == 0, run.output
    return run


def test_off_unless_asked_and_within_the_class(train: Train) -> None:
    run = train("""
        import paceline
        assert "paceline.comm" not in sys.modules
        line = next(line for line in paceline.explain().splitlines() if "over our communicator" in line)
        assert line.endswith("off (PACELINE_COMMUNICATION is not set); numerics class Reordered"), line
        from paceline.comm import _patch, _report
        make = nn.parallel.DistributedDataParallel.__init__
        for variables, switch in (
            ({"PACELINE_COMMUNICATION": "Disabled"}, "off (PACELINE_COMMUNICATION is Disabled)"),
            ({"PACELINE_COMMUNICATION": "on"}, "off (PACELINE_COMMUNICATION is on, neither Auto nor Disabled)"),
            ({"PACELINE_COMMUNICATION": "Auto", "PACELINE_NUMERICS": "Bitwise"},
             "off (PACELINE_NUMERICS is Bitwise, and sums over our communicator are of class Reordered)"),
        ):
            os.environ.update(variables)
            _patch.install()
            assert _report.switch == switch and nn.parallel.DistributedDataParallel.__init__ is make, _report.switch
        os.environ["PACELINE_NUMERICS"] = "Lossy"
        _patch._USED += ("register_another_hook",)
        _patch.install()
        assert _report.switch == "off (PyTorch's DistributedDataParallel has no register_another_hook)"
        assert nn.parallel.DistributedDataParallel.__init__ is make
        """)
    assert run.code == 0, run.output
    said = [line for line in run.output.splitlines() if line.startswith("paceline: ")]
    assert (
        said[0] == "paceline: PACELINE_COMMUNICATION is 'on': it must be Auto or Disabled; "
        "gradients of PyTorch's DistributedDataParallel are left as they are"
    )
    assert len(said) == 2 and "it has no register_another_hook" in said[1], run.output


def test_an_argument_that_is_not_known_leaves_its_model_to_pytorch(train: Train) -> None:
    run = train(
        """
        import paceline
        from paceline.comm import _patch
        _patch.KNOWN -= {"bucket_cap_mb"}  # as an argument of a later PyTorch
        dist.init_process_group("gloo")
        default = nn.parallel.DistributedDataParallel(small())
        own = nn.parallel.DistributedDataParallel(small(), bucket_cap_mb=7)
        states = [(one["state"], one["reason"]) for one in paceline.explain(as_dict=True)["communication"]["seen"]]
        assert states[0] == ("on", "") and states[1][0] == "off", states
        assert "bucket_cap_mb=7, an argument that this release does not know" in states[1][1], states
        print("reached the end")
        del default, own
        dist.destroy_process_group()
        """,
        ranks=2,
        PACELINE_COMMUNICATION="Auto",
    )
    assert run.code == 0 and run.output.count("reached the end") == 2, run.output


def test_a_device_that_is_not_there_leaves_it_to_pytorch_on_all_ranks(train: Train) -> None:
    run = passes(
        train,
        """
        fit()
        """,
        ranks=2,
        before="""
        os.environ["PACELINE_SOCKET_IFNAME"] = "lo" if os.environ["RANK"] == "0" else "nosuch"
        """,
    )
    said = "gradients are communicated by PyTorch: "
    why = "PACELINE_SOCKET_IFNAME: 'nosuch' names no network device"
    assert f"{said}rank 1 cannot: {why}" in run.output and f"{said}{why}" in run.output, run.output


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            "chunk=1048576",
            ["PLAN is 'chunk=1048576' here and another", "PLAN is '' here and another"],
        ),
        (
            "algorithm=tree",
            [
                "rank 1 was given '2 ranks, algorithm=auto",
                "rank 0 was given '2 ranks, algorithm=tree",
            ],
        ),
        (
            "chunk=1",
            [
                "paceline.comm: plan: chunk=1: use bytes",
                "rank 0 does not come: plan: chunk=1: use bytes",
            ],
        ),
    ],
)
def test_a_plan_that_is_another_on_one_rank_leaves_it_to_pytorch_on_all(
    train: Train, plan: str, said: list[str]
) -> None:
    run = passes(
        train,
        """
        if rank == 0:
            os.environ["PACELINE_COMMUNICATION_PLAN"] = os.environ["PLAN"]
        begun = time.monotonic()
        fit()
        assert time.monotonic() - begun < 50, "a rank has waited for an agreement"
""",
        ranks=2,
        PLAN=plan,
    )
    assert run.output.count("gradients are communicated by PyTorch: ") == 2, run.output
    assert all(one in run.output for one in said), run.output


def test_process_groups_follow_each_other(train: Train) -> None:
    """Each group has a store of its own. On one rank its address may be that of an earlier store, and on
    another rank not.
    """
    run = train(
        """
        from paceline.comm._members import Members
        def names(number):
            dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet-{number}", rank=int(os.environ["RANK"]), world_size=2)
            made = [Members().next_name("kind") for _ in range(2)]
            nn.parallel.DistributedDataParallel(small())(torch.ones(1, 4)).sum().backward()
            dist.destroy_process_group()
            return made
        for number in range(3):
            assert names(number) == ["paceline/kind/0/all/1", "paceline/kind/0/all/2"], number
        # A new store may have the address of a former one, but its counts begin anew.
        dist.init_process_group("gloo")
        members = Members()
        for _ in range(10):
            members.store = dist.HashStore()
            assert members.next_name("kind") == "paceline/kind/0/all/1"
        # torchrun keeps its store over a restart, so names must differ.
        os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
        assert members.next_name("kind") == "paceline/kind/0.1/all/1"
        dist.destroy_process_group()
        """,
        ranks=2,
        **ASKED,
    )
    assert run.code == 0 and "paceline: " not in run.output, run.output


def test_a_rank_that_was_not_asked_is_named(train: Train) -> None:
    run = passes(
        train,
        """
        fit()
        """,
        ranks=3,
        before="""
        from datetime import timedelta
        from paceline._core import agreement
        agreement.AGREEMENT_TIMEOUT = timedelta(seconds=10)
        if os.environ["RANK"] == "1":
            from paceline.comm import _patch
            _patch.uninstall()
        """,
    )
    assert (
        run.output.count(
            "TimeoutError: rank 1 has not come within 10 s: give all ranks the same PACELINE_"
        )
        == 2
    )


def test_an_unmodified_program_trains_over_it(train: Train) -> None:
    run = passes(
        train,
        """
        ours = fit()
        print(*told(), sep="\\n")
        from paceline.comm import _patch
        _patch.uninstall()
        assert torch.equal(ours, fit()), "of two ranks, sums are gloo's to the bit"
        class Mine(DistributedDataParallel):
            def __init__(self, module):
                super().__init__(module, gradient_as_bucket_view=True)
        os.environ["PACELINE_COMMUNICATION_PLAN"] = "algorithm=flat chunk=8192"
        _patch.install()
        assert torch.equal(ours, fit(wrap=Mine))
        kept = Mine(small())
        print(*told(), sep="\\n")
""",
        ranks=2,
    )
    # The model of fit() no longer exists.
    assert run.output.count("over our communicator: on; numerics class Reordered") == 4, run.output
    assert (
        run.output.count(
            "Mine of Sequential: 2 ranks, class Reordered, algorithm=flat chunk=8192 order=0,1"
        )
        == 2
    )
    for ring in run.rings:
        steps = [record for record in ring.steps if record.comm_exposed_ns is not None]
        assert len(steps) == len(ring.steps) and all(
            record.host["comm_exposed"] > 0 for record in steps
        )
        assert ring.total("unattributed") == 0


def test_the_way_is_measured_once_kept_and_read_again(train_by_fork: Train, tmp_path: Path) -> None:
    asked = {**ASKED, "XDG_CACHE_HOME": str(tmp_path), "PACELINE_NODE_NAME": "here/there"}
    program = (
        BEGIN + "        kept = [DistributedDataParallel(small()) for _ in range(2)]\n       "
        " print(*told())\n" + END
    )
    first = train_by_fork(program, ranks=3, **asked)
    assert first.code == 0, first.output
    (file,) = (tmp_path / "paceline" / "comm").iterdir()
    assert file.name.startswith("here_there-") and file.name.endswith("-3.choice")
    assert first.output.count(f" choice={file.read_text().strip()} order=0,1,2") == 6, first.output
    file.write_text("0:flat,77:hierarchical/4096\n")
    assert (
        train_by_fork(program, ranks=3, **asked).output.count(
            " choice=0:flat,77:hierarchical/4096 "
        )
        == 6
    )
    # Training goes on without a folder that can be written.
    (tmp_path / "file").touch()
    again = train_by_fork(program, ranks=3, **{**asked, "XDG_CACHE_HOME": str(tmp_path / "file")})
    assert again.code == 0 and again.output.count(" choice=0:") == 6, again.output


def test_the_programs_own_hook_takes_its_place(train: Train) -> None:
    run = passes(
        train,
        """
        from paceline.comm import _patch
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        kinds = dist.BuiltinCommHookType
        calls = []
        def own(state, bucket):
            calls.append((state, bucket.index()))
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            work.wait()
            future = torch.futures.Future()
            future.set_result(bucket.buffer().div_(4))
            return future
        ways = (
            lambda model: model.register_comm_hook("state", own),
            lambda model: model._register_builtin_comm_hook(kinds.ALLREDUCE),
            lambda model: model._register_builtin_comm_hook(kinds.FP16_COMPRESS),
        )
        ours = [fit(way) for way in ways]
        assert calls and {state for state, _ in calls} == {"state"}
        kept = DistributedDataParallel(small())
        kept.register_comm_hook(None, own)
        print(*told(), sep="\\n")
        # A model takes one hook only, and PyTorch still checks it.
        for wrong, again in ((own, True), (3, False)):
            model = kept if again else DistributedDataParallel(small())
            try:
                model.register_comm_hook(None, wrong)
            except (RuntimeError, TypeError) as error:
                assert "only be called once" in str(error) or "must be callable" in str(error), error
            else:
                raise AssertionError(again)
        _patch.uninstall()
        for way, result in zip(ways, ours):
            assert torch.equal(fit(way), result)
        # A communicator ends with its model.
        import gc
        from paceline.comm import _handle
        _patch.install()
        fit()
        del kept, model
        gc.collect()
        assert not len(_handle._living)
""",
        ranks=2,
    )
    assert (
        run.output.count(
            "DistributedDataParallel of Sequential: by PyTorch (a hook of the program's)"
        )
        == 2
    ), run.output


def test_a_model_is_saved_whole(train: Train) -> None:
    """PyTorch saves a wrapped model with all its attributes. The loaded one is PyTorch's."""
    run = passes(
        train,
        """
        import copy, inspect, io
        def used(module):
            model = DistributedDataParallel(module)
            loss_of(model, next(iter(DataLoader(Slow(8), batch_size=8)))).backward()
            return model
        def loaded(module):
            file = io.BytesIO()
            torch.save(used(module), file)
            file.seek(0)
            asks = "weights_only" in inspect.signature(torch.load).parameters
            return torch.load(file, **({"weights_only": False} if asks else {}))
        def copied(module):
            return copy.deepcopy(used(module))
        print("weights", fit(wrap=loaded).tolist())
        print("weights", fit(wrap=copied).tolist())
        print("weights", fit().tolist())
    """,
        ranks=2,
    )
    weights = [line for line in run.output.splitlines() if line.startswith("weights")]
    assert len(weights) == 6 and len(set(weights)) == 1, run.output


def test_one_rank_that_cannot_leaves_it_to_pytorch_on_all(train: Train) -> None:
    run = passes(
        train,
        """
        if rank == 1:
            os.environ["PACELINE_LIBRARY"] = "/nowhere.so"
        model = DistributedDataParallel(small())
        again = DistributedDataParallel(small())
        model(torch.ones(2, 4)).sum().backward()
        print(*told(), sep="\\n")
""",
        ranks=3,
    )
    why = "rank 1 cannot: OSError: /nowhere.so"
    assert run.output.count(f"DistributedDataParallel of Sequential: by PyTorch ({why}") == 4, (
        run.output
    )
    # Each rank says it once.
    assert run.output.count(f"paceline: gradients are communicated by PyTorch: {why}") == 2, (
        run.output
    )
    assert (
        run.output.count("paceline: gradients are communicated by PyTorch: OSError: /nowhere.so")
        == 1
    ), run.output


def test_what_it_cannot_carry_is_pytorchs(train: Train) -> None:
    run = passes(
        train,
        """
        alone = [dist.new_group([n]) for n in range(2)][rank]
        class Registers(DistributedDataParallel):
            def register_comm_hook(self, state, hook):
                super().register_comm_hook(state, hook)
        kept = [DistributedDataParallel(small(), process_group=alone), Registers(small())]
        if torch.__version__ > "2":
            from torch.nn.parallel.distributed import _MixedPrecision
            half = _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
            try:
                kept.append(DistributedDataParallel(small(), mixed_precision=half))
            except Exception as error:  # without a GPU PyTorch itself refuses
                print("refused", type(error).__name__)
            from torch.distributed.fsdp import fully_shard
            fully_shard(small(), mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
        print(*told(), sep="\\n")
""",
        ranks=2,
    )
    assert (
        run.output.count("of Sequential: by PyTorch (one rank, with no other to communicate with)")
        == 2
    ), run.output
    assert (
        run.output.count(
            "Registers of Sequential: by PyTorch (a subclass that registers hooks in its own way)"
        )
        == 2
    )

# SPDX-License-Identifier: Apache-2.0
"""How a program or a job asks for compression, and what is refused."""

from __future__ import annotations

from comm_programs import MODELS, passes
from programs import Train


def test_compression_is_asked_for_or_refused(train: Train) -> None:
    passes(
        train,
        MODELS
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
            # Ranks that ask for different things.
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
""",
        ranks=2,
    )


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
            # Ranks with different settings.
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

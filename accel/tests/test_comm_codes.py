# SPDX-License-Identifier: Apache-2.0
"""Codes of gradients on GPUs by the library's kernels, without a GPU: a fake driver runs the
kernels' own source (device/fake_cuda.cpp), and what is on the CPU is taken for a GPU's.
comm_coding_device_test.cpp compares the kernels with the CPU's codes; here they are compared with
PyTorch's operators, and used.
"""

from __future__ import annotations

import pytest
from programs import Train
from test_comm import BEGIN, END, MODELS
from test_comm_hierarchy import FORCED, pytestmark

__all__ = ["pytestmark"]

ON_FAKE = """
        import ctypes
        fake = ctypes.CDLL(os.environ["FAKE"], mode=ctypes.RTLD_GLOBAL)
        fake.fake_cuda_log.restype = ctypes.c_char_p
        from paceline.comm import _codes
        _codes.stream_of = lambda device: 77
        cpu = torch.device("cpu")
        def launched():
            lines = [line.split() for line in fake.fake_cuda_log().decode().splitlines() if line.startswith("cuLaunch")]
            fake.fake_cuda_forget()
            return [words[1].removeprefix("paceline_coding_") for words in lines if words[5] == "77"]
"""


@pytest.fixture
def train(train_by_fork: Train, fake_device: dict[str, str]) -> Train:
    def run(program: str, ranks: int) -> None:
        result = train_by_fork(program, ranks=ranks, **fake_device)
        assert result.code == 0, result.output

    return run  # type: ignore[return-value]


def test_kernels_and_operators_make_the_same_of_everything(train: Train) -> None:
    train(
        BEGIN
        + ON_FAKE
        + """
        operators = _codes.Codes(cpu)
        _codes.KIND = "cpu"
        kernels = _codes.Codes(cpu)
        assert kernels.why_not_kernels == "" and operators.why_not_kernels == "not on a GPU"
        def same(one, other):
            assert torch.equal(one.nan_to_num(7.25, 1e38, -1e38), other.nan_to_num(7.25, 1e38, -1e38))
        torch.manual_seed(1)
        for codec in (_codes.FP16, _codes.BF16, _codes.INT8, _codes.ONE_BIT):
            for count in (1, 7, 256, 1024, 1300, 4100):
                for arrays in (1, 3):
                    values = torch.randn(arrays * count)
                    late = torch.randn(arrays * count) / 100
                    if count > 1024:
                        values[:1024] = late[:1024] = 0
                        values[1100:1200] *= 1e5
                    if count > 4000:
                        values[2100], values[4097] = float("inf"), float("nan")
                    said, rests = [], []
                    for way in (kernels, operators):
                        rest = late.clone()
                        codes = torch.full((arrays * _codes.bytes_of(codec, count),), 0x5a, dtype=torch.uint8)
                        way.encode(codec, values, rest, codes, arrays)
                        said.append(codes)
                        rests.append(rest)
                    same(*rests)
                    if count < 4000:  # else the payload of what is not a number
                        assert torch.equal(*said), (codec, count)
                    for sources, onto in ((1, False), (arrays, False), (arrays, True)):
                        sums = []
                        for way in (kernels, operators):
                            out = torch.full((arrays * count // sources,), 0.5)
                            way.decode(codec, said[0], out, arrays // sources, sources, onto)
                            sums.append(out)
                        same(*sums)
        assert set(launched()) == {f"{way}_{kind}" for way in ("encode", "decode") for kind in ("halves", "int8", "signs")}
        # What a driver refuses is an error.
        fake.fake_cuda_set(b"cuLaunchKernel", 1)
        try:
            kernels.encode(_codes.FP16, torch.ones(5), torch.zeros(5), torch.zeros(10, dtype=torch.uint8))
        except RuntimeError as error:
            assert "a kernel of codec 1 for 1 arrays of 5: code -8" in str(error), error
        else:
            raise AssertionError("refused")
"""
        + END,
        ranks=1,
    )


def test_sums_by_kernels_are_those_by_operators(train: Train) -> None:
    train(
        BEGIN
        + MODELS
        + ON_FAKE
        + FORCED
        + """
        kinds = ("FP16", "Int8", paceline.comm.OneBit(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)))
        for compression in kinds:
            seen = []
            for kind in ("cuda", "cpu"):
                _codes.KIND = kind
                # Ranks may differ: the second host has no module.
                if rank // 2 == 1:
                    _codes.KIND = "cuda"
                torch.manual_seed(5)
                ddp = by_hosts(nn.Linear(70, 80), compression)
                launched()
                for number in range(4):
                    torch.manual_seed(10 * number + rank)
                    ddp.zero_grad()
                    ddp(torch.randn(8, 70)).pow(2).sum().backward()
                assert bool(launched()) == (kind == "cpu" and rank // 2 == 0)
                seen.append(agreed(torch.cat([p.grad.flatten() for p in ddp.parameters()])))
            assert torch.equal(*seen), compression
        line = next(line for line in paceline.explain().splitlines() if "hierarchical hosts=2,2" in line)
        assert ("codes by the library's kernels" if rank // 2 == 0 else "codes by PyTorch's operators (not on a GPU)") in line, line
"""
        + END,
        ranks=4,
    )

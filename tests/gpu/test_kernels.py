# SPDX-License-Identifier: Apache-2.0
"""The GPU kernels compile for every supported architecture with both CUDA majors, and need what
they may. No GPU is needed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
KERNELS = {
    "attention": [
        "paceline_attention_backward",
        "paceline_attention_bias",
        "paceline_attention_forward",
        "paceline_attention_table",
    ],
    "fcos3d": ["paceline_fcos3d_targets"],
    "optim": ["paceline_optim_layers", "paceline_optim_norm", "paceline_optim_update"],
    "simota": ["paceline_simota_match", "paceline_simota_priors", "paceline_simota_write"],
}
MODULES = [
    f"{source}-cuda{major}-sm_{architecture}.cubin"
    for source in KERNELS
    for major in (12, 13)
    for architecture in (80, 90, 100)
]
# For 1,024 threads on each multiprocessor, whose loads are the bytes under way: 65,536 registers of
# them.
MOST_REGISTERS = 64
# Attention keeps the scores of a query in registers: those of four blocks of 128 threads forward,
# and of two backward.
MOST_OF_ATTENTION = {"paceline_attention_forward": 128, "paceline_attention_backward": 255}
Table = dict[tuple[str, str], dict[str, int]]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the modules go: not build/kernels, from where images take theirs."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def table(modules: Path) -> Table:
    """What scripts/kernels prints, by module and kernel."""
    command: list[str | Path] = [ROOT / "scripts/kernels", "--out", modules]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    names = ("registers", "shared", "stack", "code")
    rows = {}
    for line in answer.stdout.splitlines():
        words = line.split()
        if len(words) == 6 and words[0].endswith(".cubin"):
            rows[words[0], words[1]] = dict(zip(names, map(int, words[2:]), strict=True))
    return rows


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_every_kernel_and_none_spills(
    module: str, table: Table, modules: Path
) -> None:
    kernels = {kernel: needs for (of, kernel), needs in table.items() if of == module}
    assert sorted(kernels) == KERNELS[module.split("-")[0]]
    for kernel, needs in kernels.items():
        assert needs["stack"] == 0
        assert 0 < needs["registers"] <= MOST_OF_ATTENTION.get(kernel, MOST_REGISTERS)
        assert needs["code"] > 1000
    assert (modules / module).stat().st_size > 10_000


def test_no_module_goes_unchecked(table: Table) -> None:
    assert {module for module, _ in table} == set(MODULES)


def test_modules_of_other_sources_are_refused(table: Table, modules: Path, tmp_path: Path) -> None:
    """What would go into an image is of the sources that the library is of, to the byte; a folder
    without modules is well.
    """

    def check(folder: Path) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [ROOT / "scripts/kernels", "--check", "--out", folder]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert table
    assert [check(folder).returncode for folder in (modules, tmp_path, tmp_path / "none")] == [
        0,
        0,
        0,
    ]
    (tmp_path / MODULES[0]).touch()
    assert "run scripts/kernels" in check(tmp_path).stderr
    made_of = (modules / "sources.sha256").read_text()
    optim = ("block.hpp", "elements.hpp", "table.hpp", "optim.cu")
    ops = ("launches.hpp", "tiles.hpp", "warp.hpp", "attention.cu", "fcos3d.cu", "simota.cu")
    for file in (
        *("base/float16.hpp", "optim/formulas.hpp"),
        *(f"optim/device/{name}" for name in optim),
        *(f"ops/device/{name}" for name in ops),
    ):
        was = re.search(rf"(\w{{64}})  accel/src/{file}\n", made_of)
        assert was, made_of
        (tmp_path / "sources.sha256").write_text(made_of.replace(was[1], "0" * 64))
        assert check(tmp_path).returncode == 1


@pytest.mark.parametrize("source", (ROOT / "accel/src").rglob("*.cu"), ids=lambda path: path.stem)
def test_a_source_is_device_code_alone(source: Path) -> None:
    """It includes device code, and what C++ compilers and processors use too."""
    files, unread = [], [source]
    while unread:
        files.append(unread.pop())
        named = re.findall(r"#include (.*)", files[-1].read_text())
        assert all(name.startswith('"') for name in named), files[-1]
        unread += [files[-1].parent / name.strip('"') for name in named]
    assert {file.name for file in files} <= {
        *("attention.cu", "block.hpp", "elements.hpp", "fcos3d.cu", "float16.hpp", "formulas.hpp"),
        *("launches.hpp", "optim.cu", "simota.cu", "table.hpp", "tiles.hpp", "warp.hpp"),
    }
    assert not any("<<<" in file.read_text() for file in files)


def compile_source(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    source = folder / "broken.cu"
    source.write_text(text)
    command: list[str | Path] = [
        ROOT / "scripts/kernels",
        "--source",
        source,
        "--out",
        folder,
        "--architecture",
        "90",
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_source_that_does_not_compile_is_told_with_its_line(tmp_path: Path) -> None:
    answer = compile_source(tmp_path, '\nextern "C" __global__ void kernel() { not_a_word; }\n')
    assert answer.returncode == 1
    assert "broken.cu(2)" in answer.stderr and "not_a_word" in answer.stderr
    assert not list(tmp_path.glob("*.cubin"))


def test_a_stack_frame_is_seen_in_the_module_itself(tmp_path: Path) -> None:
    """An array that is indexed by what is known only at run time is in no register."""
    answer = compile_source(
        tmp_path,
        """
extern "C" __global__ void kernel(int* data, int n) {
  int held[64];
  for (int i = 0; i < 64; ++i) held[i] = data[i];
  for (int i = 0; i < n; ++i) held[data[i] & 63] += i;
  for (int i = 0; i < 64; ++i) data[i] = held[i];
}
""",
    )
    assert answer.returncode == 1
    assert "stack frame" in answer.stderr
    for major in (12, 13):
        assert re.search(
            rf"broken-cuda{major}-sm_90\.cubin +kernel +\d+ +0 +256 ", answer.stdout
        ), answer.stdout


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.usefixtures("table")  # the compilers are there
def test_an_nvcc_that_cannot_compile_gives_way_to_nvrtc(works: bool, tmp_path: Path) -> None:
    """The machine's host compiler may be newer than it knows."""
    homes = [path.parent for path in (CACHE / "paceline").glob("kernel-compilers-*/.complete")]
    home = max(homes, key=lambda path: path.stat().st_mtime)
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo release 12.9, || exit {0 if works else 1}\n'
    )
    nvcc.chmod(0o755)
    answer = subprocess.run(
        [sys.executable, ROOT / "tests/gpu/compiler"],
        env={"PATH": f"{tmp_path}:/bin", "PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout and (answer.stdout == f"--nvcc\n{nvcc}\n") == works, (
        answer.stdout + answer.stderr
    )


def test_without_a_gpu_the_gpus_command_says_so() -> None:
    answer = subprocess.run(
        [ROOT / "tests/gpu/run"],
        cwd="/",
        env={**os.environ, "PACELINE_PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2, answer.stdout + answer.stderr
    assert "sees no GPU" in answer.stderr
    assert answer.stdout == ""

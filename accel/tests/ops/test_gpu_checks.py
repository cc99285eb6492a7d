# SPDX-License-Identifier: Apache-2.0
"""The checks of tests/gpu/operator_checks.py on a fake device, whose driver runs the kernels' own
source on the CPU: they pass, and they launch kernels. Those of detection_checks.py need no device.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fake_device import BEGIN
from programs import ROOT

PROGRAM = (
    """
import os, sys, time
import torch
# CUDA looks for devices in the first backward pass: before the fake driver is there.
torch.cuda.is_available()
torch.zeros(1, requires_grad=True).sum().backward()
"""
    + BEGIN
    + """
sys.path.append("tests/gpu")
import operator_checks

def milliseconds(call):
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)

on_gpu(True)
checks = operator_checks.OperatorChecks(
    torch.device("cpu"), "aot_eager", lambda call: call(), milliseconds, 4, 128
)
for check in checks.all():
    check()
    assert launches(), check.__name__
print("reached the end")
"""
)


@pytest.mark.skipif(
    not hasattr(getattr(torch, "compiler", None), "is_exporting"), reason="PyTorch before 2.7"
)
def test_the_checks_of_operators(runtime: Path, fake_device: dict[str, str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(runtime / "python"), **fake_device},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "reached the end" in result.stdout, result.stdout + result.stderr


PLAIN = """
import sys, time
import torch
sys.path[:0] = ["tests/gpu", "accel/tests/ops", "accel/tests/inject"]
import detection_checks

def milliseconds(call):
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)

torch.set_num_threads(1)
for check in detection_checks.DetectionChecks(torch.device("cpu"), milliseconds, 9_000, 256).all():
    check()
print("reached the end")
"""


def test_the_checks_of_detection(runtime: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PLAIN],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(runtime / "python")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "reached the end" in result.stdout, result.stdout + result.stderr

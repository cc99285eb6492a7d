# SPDX-License-Identifier: Apache-2.0
"""A job whose host computes all the time, and whose device waits for batches: the device's clock
names the bottleneck. The device is the fake driver's, whose time moves as the program says.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from local import run_job

PROGRAM = """
import ctypes, os, time
from types import SimpleNamespace
import torch
from torch.utils.data import DataLoader, Dataset

fake = ctypes.CDLL(os.environ["FAKE"], mode=ctypes.RTLD_GLOBAL)
fake.cuCtxPushCurrent_v2.argtypes = [ctypes.c_void_p]
fake.cuCtxPushCurrent_v2(1)
fake.fake_cuda_work.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
fake.fake_cuda_advance.argtypes = [ctypes.c_uint64]
torch.cuda.is_initialized = lambda: True
torch.cuda.current_stream = lambda: SimpleNamespace(cuda_stream=7)

class Batches(Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        fake.fake_cuda_advance(9_000_000)
        return torch.ones(4, 4)

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Batches(), batch_size=None):
    loss = model(batch).mean()
    fake.fake_cuda_work(7, 3_000_000)
    time.sleep(0.05)  # the host's time is that of forward, slow though the first step may be
    loss.backward()
    optimizer.step()
fake.fake_cuda_advance(1_000_000_000)
"""


def test_the_clock_of_the_device_names_the_bottleneck(build: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    driver = build / "accel" / "tests" / "fake_cuda" / "libcuda.so.1"
    assert driver.exists(), f"{driver} is not built: scripts/build release fake_cuda"
    code, output = run_job(
        build, tmp_path, [sys.executable, str(tmp_path / "train.py")], {"FAKE": str(driver)}
    )
    assert code == 0, output
    assert re.search(r"bottleneck +data\b", output), output
    assert re.search(r"forward +[5-9]\d", output), output

# SPDX-License-Identifier: Apache-2.0
"""spec.network.gpuDirect, from the job's file to its ranks: the real launcher and the real probe,
on libraries that stand in for the drivers'. The probe opens them by the names that the drivers
have; FAKE_RULES says which calls fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from local import run_job

LIBRARIES = {"ibverbs": "libibverbs.so.1", "cuda": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}
SHOW = ["/bin/sh", "-c", 'echo "a step with level ${NCCL_NET_GDR_LEVEL:-unset}"']
LIMITS = {"nvidia.com/gpu": 2}


@pytest.fixture
def drivers(build: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a pod with two GPUs and two NICs."""
    folder = tmp_path / "drivers"
    folder.mkdir()
    for fake, name in LIBRARIES.items():
        (library,) = build.rglob(f"libpaceline_fake_{fake}.so")
        (folder / name).symlink_to(library)
    return {"LD_LIBRARY_PATH": str(folder)}


def run(
    build: Path, folder: Path, choice: str, environment: dict[str, str], replicas: int = 1
) -> tuple[int, str]:
    network = {"gpuDirect": choice}
    return run_job(
        build, folder, SHOW, environment, replicas=replicas, limits=LIMITS, network=network
    )


def test_required_runs_where_memory_was_registered(
    build: Path, tmp_path: Path, drivers: dict[str, str]
) -> None:
    code, output = run(build, tmp_path, "Required", drivers)
    assert code == 0, output
    assert (
        "gpuDirect: memory of every GPU here was registered with every RDMA device here" in output
    )
    assert "a step with level unset" in output


def test_required_fails_before_the_first_step_and_says_what_helps(
    build: Path, tmp_path: Path, drivers: dict[str, str]
) -> None:
    rules = {**drivers, "FAKE_RULES": "dmabuf mlx5_1 95;peer mlx5_1 14"}
    code, output = run(build, tmp_path, "Required", rules, replicas=2)
    assert code != 0
    assert "a step" not in output
    assert "spec.network.gpuDirect is Required, but in pod local-worker-" in output
    assert "dmabuf fails: registering memory of 0000:1b:00.0 with mlx5_1 as dma-buf" in output
    assert "remedy: install the driver with its open kernel modules" in output


def test_required_fails_where_a_driver_dies(
    build: Path, tmp_path: Path, drivers: dict[str, str]
) -> None:
    code, output = run(build, tmp_path, "Required", {**drivers, "FAKE_RULES": "open * die"})
    assert code != 0
    assert "a step" not in output
    assert "uverbs-access fails: opening mlx5_0: the process ended by signal 9" in output


def test_required_fails_where_there_is_no_device(
    build: Path, tmp_path: Path, drivers: dict[str, str]
) -> None:
    code, output = run(build, tmp_path, "Required", {**drivers, "FAKE_NICS": ""})
    assert code != 0
    assert "a step" not in output
    assert (
        "uverbs-access fails: no RDMA device: libibverbs lists none; remedy: ask for the RDMA"
        " device" in output
    )


def test_required_reads_what_nccl_is_told(
    build: Path, tmp_path: Path, drivers: dict[str, str]
) -> None:
    code, output = run(build, tmp_path, "Required", {**drivers, "NCCL_IB_DISABLE": "1"})
    assert code != 0
    assert "nccl-env fails: NCCL_IB_DISABLE=1 (the environment) turns RDMA off" in output


def test_preferred_warns_and_goes_on(build: Path, tmp_path: Path, drivers: dict[str, str]) -> None:
    code, output = run(
        build, tmp_path, "Preferred", {**drivers, "FAKE_RULES": "dmabuf * 95;peer * 14"}, replicas=2
    )
    assert code == 0, output
    assert (
        output.count("warning: spec.network.gpuDirect is Preferred, but in pod local-worker-") == 2
    )
    assert all(f"[{rank}] a step with level unset" in output for rank in range(2)), output


def test_disabled_tells_nccl(build: Path, tmp_path: Path, drivers: dict[str, str]) -> None:
    code, output = run(build, tmp_path, "Disabled", {**drivers, "FAKE_RULES": "open * die"})
    assert code == 0, output  # nobody asks the devices
    assert "a step with level LOC" in output
    assert "NCCL_NET_GDR_LEVEL=LOC" in output.split("environment of the ranks:")[1].splitlines()[0]


def test_required_without_accelerators_is_refused(build: Path, tmp_path: Path) -> None:
    code, output = run_job(build, tmp_path, SHOW, {}, network={"gpuDirect": "Required"})
    assert code != 0
    assert "spec.network.gpuDirect" in output and "nvidia.com/gpu" in output

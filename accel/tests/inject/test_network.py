# SPDX-License-Identifier: Apache-2.0
"""What is told of NCCL's settings, and what is done where its version calls for it."""

from __future__ import annotations

import json

import pytest
from programs import Train

LIST = "=mlx5_0:1,mlx5_3:1"
NETWORK = {
    "transport": "RDMA over 2 ports",
    "settings": [
        {"name": "GLOO_SOCKET_IFNAME", "value": "eth0", "reason": "it has this pod's address"},
        {"name": "NCCL_IB_HCA", "value": LIST, "reason": "left out: mlx5_1:1 (Ethernet)"},
    ],
    "old_gid_index": 3,
}
SET = {"PACELINE_NETWORK": json.dumps(NETWORK), "GLOO_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": LIST}
SHOWN = """
import json, paceline
print("explain", paceline.explain())
print("index", os.environ.get("NCCL_IB_GID_INDEX"))
print("told", json.dumps(paceline.explain(as_dict=True)["network"]))
"""
TITLE = "settings of NCCL: "


def with_nccl(version: str, cuda: str = "13.0") -> str:
    """Stands in for a PyTorch with this NCCL: the ones that run here have none."""
    return f"""
from paceline._core import network
torch.cuda.nccl.version = lambda: ({version})
torch.version.cuda = "{cuda}"
network.install()
"""


def test_each_setting_is_explained(train_by_fork: Train) -> None:
    run = train_by_fork(SHOWN, **SET)
    assert run.code == 0, run.output
    assert TITLE + "on (RDMA over 2 ports); numerics class Reordered\n" in run.output
    assert f"  NCCL_IB_HCA: {LIST} (left out: mlx5_1:1 (Ethernet))\n" in run.output
    assert "  GLOO_SOCKET_IFNAME: eth0 (it has this pod's address)\n" in run.output
    told = json.loads(run.output.partition("told ")[2].splitlines()[0])
    assert [entry["state"] for entry in told["seen"]] == ["on", "on"]
    assert told["seen"][1]["value"] == LIST


def test_a_setting_of_the_user_is_told_as_theirs(train_by_fork: Train) -> None:
    run = train_by_fork(
        "del os.environ['GLOO_SOCKET_IFNAME']\n" + SHOWN, **{**SET, "NCCL_IB_HCA": "mlx5"}
    )
    assert TITLE + "off (RDMA over 2 ports)" in run.output, run.output
    assert "  NCCL_IB_HCA: left alone (the job sets mlx5)\n" in run.output
    assert "  GLOO_SOCKET_IFNAME: left alone (the program has removed it)\n" in run.output


def test_on_one_host_nothing_is_told(train_by_fork: Train) -> None:
    run = train_by_fork(SHOWN)
    assert TITLE + "off (NCCL has one host, or no GPU)" in run.output, run.output


@pytest.mark.parametrize(
    ("version", "index", "mine"),
    [
        ("2, 20, 5", "3", ""),
        ("2, 20, 5", "7", "7"),
        ("2, 21, 5", "None", ""),
        ("2, 27, 3, ''", "None", ""),
    ],
)
def test_the_address_of_roce_is_told_to_an_nccl_that_does_not_look_for_it(
    train_by_fork: Train, version: str, index: str, mine: str
) -> None:
    program = with_nccl(version) + SHOWN
    run = train_by_fork(program, **SET, **({"NCCL_IB_GID_INDEX": mine} if mine else {}))
    assert f"index {index}\n" in run.output, run.output
    line = "  NCCL_IB_GID_INDEX: 3 (NCCL 2.20.5 does not look for a RoCE v2 address by itself)\n"
    assert (line in run.output) == (index == "3")


def test_without_nccl_its_version_changes_nothing(train_by_fork: Train) -> None:
    run = train_by_fork(SHOWN, **SET)
    assert "index None\n" in run.output, run.output
    assert "resiliency" not in run.output


@pytest.mark.parametrize("version", ["2, 28, 2", "2, 28, 3", "2, 28, 8", "2, 28, 9"])
def test_an_nccl_with_a_known_fault_is_named(train_by_fork: Train, version: str) -> None:
    warned = version in ("2, 28, 3", "2, 28, 8")
    dotted = version.replace(", ", ".")
    line = (
        "NVIDIA's resiliency extension avoids NCCL 2.28.3 to 2.28.8, and this is "
        f"{dotted}: pip install 'nvidia-nccl-cu12>=2.28.9'\n"
    )
    run = train_by_fork(with_nccl(version, "12.8") + SHOWN, ranks=2, **SET)
    assert run.output.count("paceline: " + line) == int(warned), run.output
    assert run.output.count(f"  NCCL {dotted}: {line}") == 2 * int(warned)


def test_a_text_that_is_none_of_the_launchers_costs_nothing(train_by_fork: Train) -> None:
    run = train_by_fork(SHOWN, PACELINE_NETWORK="{")
    assert run.code == 0, run.output
    assert "what NCCL was told is not explained: JSONDecodeError" in run.output

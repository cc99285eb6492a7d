# SPDX-License-Identifier: Apache-2.0
"""Paceline on a real RDMA device: soft RoCE in a virtual machine."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from guest import Answer, Guest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
BIN = BUILD / "bin"
Answers = dict[str, Answer]
# The cases of accel_test that run over the device and need no faults of a fake one.
COMMUNICATOR = {
    "bits": "comm_rdma_carries_the_same_bits_as_tcp",
    "sizes": "comm_rdma_carries_16_mib_and_odd_sizes_above_and_below_a_slot",
    "pairs": "comm_rdma_carries_what_goes_from_rank_to_rank",
    "alone": "comm_rdma_a_peer_that_left_or_does_not_come_is_named_by_two_alone",
    "leaving": "comm_rdma_what_was_sent_last_arrives_when_its_sender_leaves_at_once",
    "failures": "comm_rdma_killed_and_stopped_ranks_are_named",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    guest = Guest(tmp_path_factory.mktemp("guest"))
    guest.add_program(BIN / "paceline")
    guest.add_program(BIN / "paceline-probe")
    guest.add_program(BIN / "paceline-agent")
    guest.add_command("devices", "ibv_devinfo -v")
    guest.add_command(
        "pingpong",
        "ibv_rc_pingpong -g 1 -n 20 & left=60; until ibv_rc_pingpong -g 1 -n 20 192.0.2.1; "
        "do left=$((left - 1)); [ $left -gt 0 ] || exit 1; sleep 1; done; wait",
    )
    guest.add_command("fabric", "paceline fabric --json")
    guest.add_command("doctor", "paceline doctor --json")
    guest.add_command("probe", "paceline-probe 2> /dev/null")
    guest.add_command("live", "paceline doctor --live --json")
    guest.add_command("verdict", "PACELINE_JOB_NAME=resnet paceline-probe --pod-verdict")
    guest.add_command("pod", "PACELINE_JOB_NAME=resnet paceline-probe 2> /dev/null")
    look = "paceline-probe --output /tmp/look.json --exit-zero 2> /dev/null"
    guest.add_command(
        "agent", f"{look}; paceline-agent --print --registrations /tmp/look.json 2> /dev/null"
    )
    guest.add_program(BIN / "accel_test")
    sent = "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
    for name, case in COMMUNICATOR.items():
        guest.add_command(
            name, f"{sent}; PACELINE_TEST_RDMA=rxe0 accel_test {case}; code=$?; {sent}; exit $code"
        )
    return guest.boot()


def answer(answers: Answers, name: str) -> str:
    assert answers[name].code == 0, answers[name].output
    return answers[name].output


def test_the_device_works_at_all(answers: Answers) -> None:
    assert re.search(r"state:\s+PORT_ACTIVE", answer(answers, "devices"))
    assert "20 iters" in answer(answers, "pingpong")


def test_fabric_shows_the_port_and_its_addresses(answers: Answers) -> None:
    (device,) = json.loads(answer(answers, "fabric"))["rdma"]
    (port,) = device["ports"]
    assert (device["name"], port["state"], port["linkLayer"]) == ("rxe0", "ACTIVE", "Ethernet")
    mapped = "0000:0000:0000:0000:0000:ffff:c000:0201"  # 192.0.2.1
    assert {"gid": mapped, "index": 1, "netdev": "e0", "type": "RoCE v2"} in port["gids"]


def test_the_probe_registers_memory_with_the_device(answers: Answers) -> None:
    report = json.loads(answer(answers, "probe"))
    attempts = {attempt["step"]: attempt for attempt in report["attempts"]}
    assert {attempt.get("nic", "rxe0") for attempt in report["attempts"]} == {"rxe0"}
    assert attempts["port"]["saw"] == "port 1 MTU 1024 of 4096"
    for step in ("devices", "open", "host-memory"):
        assert attempts[step]["outcome"] == "done", attempts[step]
    # The driver of soft RoCE has no dma-buf, and there is no CUDA: reported, and no failure.
    assert (attempts["dmabuf-driver"]["outcome"], attempts["dmabuf-driver"]["errno"]) == (
        "refused",
        errno.EOPNOTSUPP,
    )
    assert attempts["gpus"]["outcome"] == "not-tried"
    assert "problem" not in report


def findings(told: dict[str, Any], check: str) -> list[dict[str, str]]:
    (found,) = [entry for entry in told["checks"] if entry["id"] == check]
    return found["findings"]


@pytest.mark.parametrize("name", ["doctor", "live"])
def test_doctor_judges_the_port_where_no_gpu_is_to_be_reached(answers: Answers, name: str) -> None:
    told = json.loads(answer(answers, name))
    assert told["failed"] == 0
    port = {"subject": "rxe0/1"}
    assert findings(told, "port-state") == [port | {"evidence": "ACTIVE, LinkUp", "status": "pass"}]
    assert findings(told, "link-layer") == [{"evidence": "Ethernet", "status": "pass"}]
    gid = "GID 1 is RoCE v2 with an IPv4 address"
    assert findings(told, "gid") == [port | {"evidence": gid, "status": "pass"}]
    # Its counters exist; the agent watches them for increases.
    (errors,) = findings(told, "port-errors")
    assert (errors["subject"], errors["status"], "one reading" in errors["evidence"]) == (
        "rxe0/1",
        "unknown",
        True,
    )
    netdev = {
        "subject": "e0",
        "status": "warn",
        "evidence": "MTU 1500: RoCE's 4096 wants at least 4200",
    }
    active = port | {"status": "warn", "evidence": "runs at 1024 of 4096 bytes"}
    assert findings(told, "mtu") == ([active, netdev] if name == "live" else [netdev])


def test_a_pod_is_told_that_nothing_is_proved_without_a_gpu(answers: Answers) -> None:
    verdict = json.loads(answer(answers, "verdict"))
    assert (verdict["ready"], verdict["check"]) == (None, "dmabuf"), verdict
    assert "finding the GPUs" in verdict["evidence"]
    pod = json.loads(answer(answers, "pod"))
    assert (pod["inPod"], pod["jobNics"], "e0" in pod["netdevs"]) == (True, ["rxe0"], True)
    assert "memlockBytes" not in pod


def test_the_agent_would_publish_the_device(answers: Answers) -> None:
    (device,) = json.loads(answer(answers, "agent"))["rdmaDevices"]
    assert (device["name"], device["up"], device["linkLayer"]) == ("rxe0", True, "Ethernet")


def packets(answers: Answers, name: str) -> int:
    """The bytes that the device sent while the command ran."""
    lines = answer(answers, name).splitlines()
    return int(lines[-1]) - int(lines[0])


@pytest.mark.parametrize("name", COMMUNICATOR)
def test_ranks_of_two_hosts_go_by_the_device(answers: Answers, name: str) -> None:
    assert packets(answers, name) > 100


def test_large_sums_are_carried_by_the_device_alone(answers: Answers) -> None:
    # Two ranks send 16 MiB each, in packets of at most 1024 bytes.
    assert packets(answers, "sizes") >= 2 * 16 * 1024

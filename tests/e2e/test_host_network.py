# SPDX-License-Identifier: Apache-2.0
"""Jobs in the network of their nodes: several pods of a node, each with ports of its own."""

from __future__ import annotations

from collections.abc import Callable

from jobs import UNTIL_TOLD, JobHandle, job
from kube import Object

Submit = Callable[[Object], JobHandle]


def in_host_network(name: str) -> Object:
    body = job(name, UNTIL_TOLD, replicas=2, scheduling={"podsPerNode": 1})
    body["spec"]["roles"][0]["template"]["spec"]["hostNetwork"] = True
    return body


def test_two_jobs_share_the_network_of_two_nodes(submit: Submit) -> None:
    """The second pod of each job meets the first one through the job's Service."""
    handles = [submit(in_host_network(name)) for name in ("left", "right")]
    for handle in handles:
        handle.wait_started(0, 2)
        handle.wait_phase("Running")
    ports = []
    for handle in handles:
        for pod in handle.pods():
            assert pod["status"]["podIP"] == pod["status"]["hostIP"]
            for port in pod["spec"]["containers"][0]["ports"]:
                ports.append((pod["spec"]["nodeName"], port["hostPort"]))
    assert len(set(ports)) == len(ports) == 8, ports
    for handle in handles:
        handle.tell()
    for handle in handles:
        handle.wait_phase("Succeeded")

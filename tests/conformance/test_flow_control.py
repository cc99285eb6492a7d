# SPDX-License-Identifier: Apache-2.0
"""At which level the real API server serves the operator's Lease, and its other requests."""

from __future__ import annotations

import re

from kube import Kube

OPERATOR = "system:serviceaccount:paceline-system:paceline-operator"


def level(kube: Kube, path: str) -> str:
    """The priority level that the API server chose, as its answer's header tells."""
    done = kube.kubectl_result(
        "get", "--raw", path, f"--as={OPERATOR}", "--as-group=system:serviceaccounts", "-v=8"
    )
    found = re.search(r"(?i)x-kubernetes-pf-prioritylevel-uid:?[^\w]*([0-9a-f-]{36})", done.stderr)
    assert found, done.stderr
    levels = kube.kubectl(
        "get",
        "prioritylevelconfigurations",
        "-o=jsonpath={range .items[*]}{.metadata.uid}={.metadata.name} {end}",
    )
    return dict(pair.split("=") for pair in levels.split())[found.group(1)]


def test_the_operators_lease_does_not_wait_behind_its_pods(admin: Kube) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/paceline-operator"
    admin.wait(
        "the FlowSchema is in force",
        lambda: level(admin, leases.format("paceline-system")) == "leader-election",
    )
    assert level(admin, leases.format("default")) == "workload-low"
    assert level(admin, "/api/v1/namespaces/default/pods/none") == "workload-low"

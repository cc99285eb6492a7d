# SPDX-License-Identifier: Apache-2.0
"""spec.elastic in the schema that the API server enforces, and the scale subresource."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kube import ApiError, Kube, Object

ROOT = Path(__file__).resolve().parents[3]
BOUNDS = {"role": "worker", "replicas": 2, "minReplicas": 1, "maxReplicas": 4}


@pytest.fixture(scope="module")
def kube() -> Kube:
    kube = Kube(Path(os.environ["PACELINE_TEST_KUBECONFIG"]))
    kube.kubectl("apply", "-f", str(ROOT / "crds"))
    kube.wait("TrainingJob is served", lambda: kube.is_established("trainingjobs.paceline.dev"))
    return kube


def role(name: str = "worker", **fields: Any) -> Object:
    trainer = {"name": "trainer", "image": "none", "command": ["train"]}
    return {"name": name, "template": {"spec": {"containers": [trainer]}}, **fields}


def job(name: str, *roles: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"framework": {"type": "Custom"}, "roles": list(roles), **spec},
    }


def refusal(kube: Kube, body: Object) -> str:
    with pytest.raises(ApiError) as caught:
        kube.create("trainingjobs", "default", body)
    return caught.value.message


def test_kubectl_scales_it(kube: Kube) -> None:
    kube.create("trainingjobs", "default", job("scales", role(), elastic=BOUNDS))
    kube.kubectl("scale", "trainingjob/scales", "--replicas=4", "-n", "default")
    assert kube.get("trainingjobs", "default", "scales")["spec"]["elastic"]["replicas"] == 4
    refused = kube.kubectl_result("scale", "trainingjob/scales", "--replicas=5", "-n", "default")
    assert refused.returncode != 0
    assert "replicas must be from minReplicas to maxReplicas" in refused.stderr, refused.stderr


def test_a_job_of_a_fixed_size_is_not_scaled(kube: Kube) -> None:
    kube.create("trainingjobs", "default", job("fixed", role(replicas=2)))
    refused = kube.kubectl_result("scale", "trainingjob/fixed", "--replicas=3", "-n", "default")
    assert refused.returncode != 0
    assert kube.get("trainingjobs", "default", "fixed")["spec"]["roles"][0]["replicas"] == 2


@pytest.mark.parametrize(
    ("roles", "elastic", "named"),
    [
        ([role(replicas=2)], BOUNDS, "every role needs replicas, but the one that elastic.role"),
        ([role()], None, "every role needs replicas"),
        ([role(), role("other")], BOUNDS, "every role needs replicas"),
        ([role("other", replicas=1)], BOUNDS, "elastic.role must be the name of a role"),
        ([role(kind="Evaluator")], BOUNDS, "of kind Worker"),
        ([role()], {**BOUNDS, "replicas": 5}, "from minReplicas to maxReplicas"),
        ([role()], {**BOUNDS, "minReplicas": 3}, "from minReplicas to maxReplicas"),
        ([role()], {"role": "worker", "replicas": 2}, "spec.elastic.minReplicas"),
        (
            [role(), role("other", replicas=9000)],
            {**BOUNDS, "maxReplicas": 1001},
            "at most 10000 replicas",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    kube: Kube, roles: list[Object], elastic: Object | None, named: str
) -> None:
    spec = {} if elastic is None else {"elastic": elastic}
    assert named in refusal(kube, job("wrong", *roles, **spec))


def test_only_the_number_changes_while_the_job_runs(kube: Kube) -> None:
    kube.create("trainingjobs", "default", job("bounded", role(), elastic=BOUNDS))
    kube.patch("trainingjobs", "default", "bounded", {"spec": {"elastic": {"replicas": 3}}})
    for change in ({"minReplicas": 2}, {"maxReplicas": 5}):
        with pytest.raises(ApiError) as caught:
            kube.patch("trainingjobs", "default", "bounded", {"spec": {"elastic": change}})
        assert "may change only while the job is suspended" in caught.value.message
    kube.patch("trainingjobs", "default", "bounded", {"spec": {"suspend": True}})
    bounds: Object = {"spec": {"elastic": {"maxReplicas": 5}}}
    kube.patch("trainingjobs", "default", "bounded", bounds)
    fixed: Object = {"spec": {"elastic": None, "roles": [role(replicas=2)]}}
    kube.patch("trainingjobs", "default", "bounded", fixed)
    assert "elastic" not in kube.get("trainingjobs", "default", "bounded")["spec"]

# SPDX-License-Identifier: Apache-2.0
"""spec.network in the schema that the API server enforces: the values, a typo, and that it stays as
it is while the job runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kube import ApiError, Kube, Object

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def kube() -> Kube:
    kube = Kube(Path(os.environ["PACELINE_TEST_KUBECONFIG"]))
    kube.kubectl("apply", "-f", str(ROOT / "crds"))
    kube.wait("TrainingJob is served", lambda: kube.is_established("trainingjobs.paceline.dev"))
    return kube


def job(name: str, **spec: Any) -> Object:
    trainer = {
        "name": "trainer",
        "image": "none",
        "command": ["train"],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    role = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [trainer]}}}
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"framework": {"type": "Custom"}, "roles": [role], **spec},
    }


@pytest.mark.parametrize("choice", ["Required", "Preferred", "Disabled"])
def test_a_choice_is_kept(kube: Kube, choice: str) -> None:
    made = kube.create(
        "trainingjobs", "default", job(f"j-{choice.lower()}", network={"gpuDirect": choice})
    )
    assert made["spec"]["network"] == {"gpuDirect": choice}


def test_a_job_that_says_nothing_of_it_has_none(kube: Kube) -> None:
    assert "network" not in kube.create("trainingjobs", "default", job("plain"))["spec"]


@pytest.mark.parametrize(
    ("network", "named"),
    [({"gpuDirect": "Off"}, "spec.network.gpuDirect"), ({"gpudirect": "Required"}, "gpudirect")],
)
def test_what_is_not_known_is_refused_by_name(kube: Kube, network: Object, named: str) -> None:
    with pytest.raises(ApiError) as caught:
        kube.create("trainingjobs", "default", job("wrong", network=network))
    assert named in caught.value.message


def test_it_changes_only_while_the_job_is_suspended(kube: Kube) -> None:
    kube.create("trainingjobs", "default", job("steady", network={"gpuDirect": "Preferred"}))
    for change in ({"network": {"gpuDirect": "Disabled"}}, {"network": None}):
        with pytest.raises(ApiError) as caught:
            kube.patch("trainingjobs", "default", "steady", {"spec": change})
        assert "network may change only while the job is suspended" in caught.value.message
    kube.patch("trainingjobs", "default", "steady", {"spec": {"suspend": True}})
    kube.patch("trainingjobs", "default", "steady", {"spec": {"network": None}})
    assert "network" not in kube.get("trainingjobs", "default", "steady")["spec"]

# SPDX-License-Identifier: Apache-2.0
"""spec.acceleration in the schemas that the API server enforces: how it is spelled, and what some
of it needs beside it.
"""

from __future__ import annotations

from typing import Any

import pytest
from kube import ApiError, Kube, Object

LOSSY = {"numerics": "Lossy"}


def create(kube: Kube, kind: str, name: str, acceleration: Any) -> Object:
    head = {"apiVersion": "paceline.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
    if kind == "RuntimeProfile":
        return kube.create("runtimeprofiles", "", {**head, "spec": {"acceleration": acceleration}})
    trainer = {"name": "trainer", "image": "none", "command": ["train"]}
    role = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [trainer]}}}
    spec = {"framework": {"type": "Custom"}, "roles": [role], "acceleration": acceleration}
    return kube.create("trainingjobs", "default", {**head, "spec": spec})


@pytest.mark.parametrize("kind", ["TrainingJob", "RuntimeProfile"])
def test_it_is_kept_as_it_is_spelled(admin: Kube, kind: str) -> None:
    ways: tuple[Object, ...] = (
        {"fp16": {}},
        {"bf16": {"startStep": 2}},
        {"int8": {"startStep": 999_999_999}},
        {"topK": {"ratio": "0.01", "startStep": 20}},
        {"topK": {"ratio": "0.000001"}},
        {"powerSGD": {"rank": 4, "startStep": 1000}},
    )
    for number, way in enumerate(ways):
        asked = {**LOSSY, "communication": "Auto", "compression": way}
        assert create(admin, kind, f"kept-{number}", asked)["spec"]["acceleration"] == asked
    create(
        admin,
        kind,
        "kept-off",
        {
            "mode": "Disabled",
            "compression": {"disabled": {}},
            "precision": "Disabled",
            "cudaGraph": "Disabled",
        },
    )
    for text in ("TF32", "O1", "O2"):
        asked = {**LOSSY, "precision": text, "cudaGraph": "Auto"}
        assert create(admin, kind, f"kept-{text.lower()}", asked)["spec"]["acceleration"] == asked


@pytest.mark.parametrize("kind", ["TrainingJob", "RuntimeProfile"])
@pytest.mark.parametrize(
    ("acceleration", "words"),
    [
        ({"compression": {"int8": {}}}, "write numerics: Lossy beside it, or remove compression"),
        ({"compression": {"fp16": {}}, "numerics": "Reordered"}, "write numerics: Lossy beside it"),
        (
            {**LOSSY, "compression": {"fp16": {}}, "communication": "Disabled"},
            "contradicts communication: Disabled",
        ),
        ({**LOSSY, "compression": {"fp16": {}}, "mode": "Disabled"}, "mode: Disabled contradicts"),
        ({**LOSSY, "compression": {}}, "write exactly one of disabled, fp16, bf16, int8, topK"),
        ({**LOSSY, "compression": {"fp16": {}, "int8": {}}}, "write exactly one of disabled"),
        ({**LOSSY, "compression": {"fp16": {}, "disabled": {}}}, "write exactly one of disabled"),
        ({**LOSSY, "compression": {"topK": {"ratio": "2"}}}, "compression.topK.ratio"),
        ({**LOSSY, "compression": {"topK": {"ratio": "0.10"}}}, "compression.topK.ratio"),
        ({**LOSSY, "compression": {"topK": {"ratio": 0.1}}}, "compression.topK.ratio"),
        (
            {**LOSSY, "compression": {"powerSGD": {"startStep": 1}}},
            "compression.powerSGD.startStep",
        ),
        ({**LOSSY, "compression": "Int8"}, "spec.acceleration.compression"),
        ({"precision": "O1"}, "write numerics: Lossy beside it, or remove precision"),
        ({**LOSSY, "precision": "TF32", "mode": "Disabled"}, "mode: Disabled contradicts"),
        ({**LOSSY, "precision": "O3"}, "spec.acceleration.precision"),
        ({"cudaGraph": "Auto", "mode": "Disabled"}, "mode: Disabled contradicts"),
        ({"cudaGraph": "On"}, "spec.acceleration.cudaGraph"),
        ({"loaderWorkers": "0"}, "spec.acceleration.loaderWorkers"),
        ({"loaderWorkers": "100"}, "spec.acceleration.loaderWorkers"),
        ({"loaderWorkers": "2", "loader": "Disabled"}, "contradicts loader: Disabled"),
        ({"loaderWorkers": "2", "mode": "Disabled"}, "mode: Disabled contradicts"),
    ],
)
def test_what_it_contradicts_is_refused_with_the_remedy(
    admin: Kube, kind: str, acceleration: Object, words: str
) -> None:
    with pytest.raises(ApiError) as caught:
        create(admin, kind, "wrong", acceleration)
    assert words in caught.value.message, caught.value.message


def test_what_came_of_it_has_its_place_in_the_status(admin: Kube) -> None:
    create(admin, "TrainingJob", "effects", {})
    whole = {"feature": "compile", "kept": True, "gain": -4, "reason": "r" * 256}

    def written(effects: Any) -> Any:
        change = {"status": {"acceleration": {"numerics": "Reordered", "effects": effects}}}
        job = admin.patch("trainingjobs", "default", "effects", change, "status")
        return job["status"]["acceleration"]["effects"]

    for effects in ([], [whole] * 16, [{"feature": "loader", "kept": False}]):
        assert written(effects) == effects
    for wrong in ([whole] * 17, [{**whole, "gain": 0.5}], [{"feature": "loader"}], [1]):
        with pytest.raises(ApiError):
            written(wrong)

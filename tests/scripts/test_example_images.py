# SPDX-License-Identifier: Apache-2.0
"""The images of the job files, by a YAML reader: whatever the file's layout is."""

from __future__ import annotations

from pathlib import Path

import pytest
from imaging.examples import ROOT, ExampleError, archives

JOB = """
# image: paceline/agent:dev (a comment names nothing)
kind: TrainingJob
spec:
  roles:
  - name: worker
    template: {spec: {initContainers: [{name: a, "image": 'paceline/runtime:dev'}], containers: [{name: b, image: >-
      paceline/pytorch:dev}]}}
---
kind: ConfigMap
data: {note: "image: nothing"}
"""


def test_the_shipped_examples_name_what_is_made() -> None:
    assert "pytorch" in archives(ROOT / "examples")


def test_images_are_found_wherever_a_container_stands(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("image: >-\n      paceline", "image: paceline"))
    assert archives(tmp_path) == ["pytorch", "runtime"]


def test_an_image_of_the_user_is_left_out(tmp_path: Path) -> None:
    both = "spec: {containers: [{image: my/jax:1}, {image: paceline/pytorch:dev}]}"
    (tmp_path / "job.yaml").write_text(both)
    assert archives(tmp_path) == ["pytorch"]


@pytest.mark.parametrize(
    "image", ["docker.io/library/busybox", "paceline/nothing:dev", "paceline/pytorch:v2"]
)
def test_an_image_that_nobody_makes_is_named(tmp_path: Path, image: str) -> None:
    (tmp_path / "job.yaml").write_text(f"spec: {{containers: [{{image: {image}}}]}}")
    with pytest.raises(ExampleError, match=f"job.yaml: image '{image}'"):
        archives(tmp_path)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("spec: {containers: [")
    with pytest.raises(ExampleError, match="job.yaml is not YAML"):
        archives(tmp_path)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match="holds no"):
        archives(tmp_path)

# SPDX-License-Identifier: Apache-2.0
"""A field of spec.acceleration is one entry of contract.yaml: the schema, the operator, the runtime
and the reference page follow from it. CONTRIBUTING.md shows the same steps.
"""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ("common/contract/contract.yaml", "crds/trainingjobs.yaml", "crds/runtimeprofiles.yaml")
FIELD = """
    - name: checkpoint
      values: [Auto, Disabled]
      default: ByMode
      numerics: Bitwise
      variable: PACELINE_CHECKPOINT
      meaning: >-
        Auto: checkpoints are written in the background.
"""
LOSSY = """
    - name: weights
      values: [Disabled, FP8]
      default: Disabled
      numerics: Lossy
      needs: optimizer
      variable: PACELINE_WEIGHTS
      meaning: >-
        FP8: weights are kept in 8 bits.
"""
END_OF_FEATURES = "\n  # Values with settings:"
PROGRAM = """
#include <iostream>

#include "operator/api/acceleration.hpp"

using namespace paceline::api;

int main(int, char** arguments) {
  FieldErrors errors;
  const auto read = [&](const char* text) {
    const auto value = nlohmann::json::parse(text);
    ObjectReader reader(value, "spec.acceleration", errors);
    const AccelerationChoice choice = read_acceleration(reader);
    reader.finish();
    return choice;
  };
  const AccelerationChoice job = read(arguments[1]);
  const RuntimeProfile profile{"quick", read(arguments[2])};
  nlohmann::json told = {{"errors", nlohmann::json::array()}};
  for (const FieldError& error : errors) told["errors"].push_back(to_string(error));
  if (const auto resolved = resolve(job, &profile)) {
    for (const auto& [name, value] : variables_of(*resolved)) told["variables"][name] = value;
    told["status"] = status_of(*resolved);
    told["kept"] = acceleration_of_status(told["status"]) == *resolved;
  }
  std::cout << told;
}
"""


def tree(folder: Path, *entries: str) -> Path:
    """What the generator reads, with these entries added to the features."""
    for name in INPUTS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    contract = folder / INPUTS[0]
    text = contract.read_text()
    assert END_OF_FEATURES in text
    contract.write_text(text.replace(END_OF_FEATURES, "".join(entries) + END_OF_FEATURES))
    return folder


def generate(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [ROOT / "scripts" / "contract", "--root", root, *options]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tree(tmp_path_factory.mktemp("grown"), FIELD, LOSSY)
    done = generate(root)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def operator(grown: Path) -> Path:
    """The operator's reading of spec.acceleration, compiled with the grown contract."""
    (grown / "main.cpp").write_text(PROGRAM)
    sources = [
        f"operator/api/{name}.cpp"
        for name in ("acceleration", "features/compression", "object_reader")
    ]
    sources += ["operator/api/field_error.cpp", "common/base/duration.cpp"]
    include = [f"-I{grown}", f"-I{ROOT}"]  # the grown contract hides the committed one
    command: list[str | Path] = ["g++", "-std=c++23", "-O0", *include]
    command += ["-o", grown / "program", grown / "main.cpp"]
    subprocess.run([*command, *(ROOT / source for source in sources)], check=True)
    return grown / "program"


def told(operator: Path, job: dict[str, str], profile: dict[str, str]) -> dict[str, Any]:
    command: list[str | Path] = [operator, json.dumps(job), json.dumps(profile)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_what_is_committed_is_what_the_contract_makes() -> None:
    done = generate(ROOT, "--check")
    assert done.returncode == 0, done.stderr


def test_the_schemas_have_the_field(grown: Path) -> None:
    for kind in ("trainingjobs", "runtimeprofiles"):
        document = yaml.safe_load((grown / "crds" / f"{kind}.yaml").read_text())
        root = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        asked = root["spec"]["properties"]["acceleration"]
        assert asked["properties"]["checkpoint"]["enum"] == ["Auto", "Disabled"]
        rules = "\n".join(rule["rule"] for rule in asked["x-kubernetes-validations"])
        assert "self.checkpoint == 'Disabled'" in rules
        assert "self.weights == 'Disabled' || (has(self.numerics)" in rules
        assert "self.optimizer != 'Disabled'" in rules
        if kind == "trainingjobs":
            status = root["status"]["properties"]["acceleration"]["properties"]
            assert status["checkpoint"]["enum"] == ["Auto", "Disabled"]
            assert status["weights"]["enum"] == ["FP8"]


def test_the_runtime_knows_the_variable(grown: Path) -> None:
    names = runpy.run_path(str(grown / "accel/python/paceline/_core/contract.py"))
    assert names["CHECKPOINT"] == "PACELINE_CHECKPOINT"
    assert names["VALUES"]["PACELINE_WEIGHTS"] == ("Disabled", "FP8")
    assert names["DEFAULTS"]["PACELINE_CHECKPOINT"] == "Disabled"


def test_the_reference_has_the_field_and_the_variable(grown: Path) -> None:
    page = (grown / "docs/reference/contract.md").read_text()
    assert "| `checkpoint` | `Auto`, `Disabled` | as `mode` says | Bitwise |" in page
    assert "| `PACELINE_CHECKPOINT` | `Auto`, `Disabled` | `Disabled` |" in page


def test_the_operator_carries_the_field_from_the_job_to_the_process(operator: Path) -> None:
    by_mode = told(operator, {"mode": "Auto"}, {})
    assert by_mode["errors"] == [] and by_mode["kept"]
    assert by_mode["variables"]["PACELINE_CHECKPOINT"] == "Auto"
    assert by_mode["status"]["checkpoint"] == "Auto"
    merged = told(operator, {"checkpoint": "Disabled"}, {"checkpoint": "Auto"})
    assert "PACELINE_CHECKPOINT" not in merged["variables"]
    assert merged["status"]["checkpoint"] == "Disabled" and "weights" not in merged["status"]


def test_the_operator_holds_a_lossy_field_to_its_class_and_its_need(operator: Path) -> None:
    lossy = {"mode": "Manual", "numerics": "Lossy", "weights": "FP8"}
    asked = told(operator, lossy, {})
    assert asked["variables"] == {
        "PACELINE_NUMERICS": "Lossy",
        "PACELINE_OPTIMIZER": "Auto",
        "PACELINE_WEIGHTS": "FP8",
    }
    assert asked["status"]["weights"] == "FP8" and asked["kept"]
    for change, problem in (
        ({"numerics": "Reordered"}, "loses precision, which only numerics: Lossy allows"),
        ({"optimizer": "Disabled"}, "contradicts optimizer: Disabled"),
        ({"mode": "Disabled"}, "contradicts mode: Disabled"),
        ({"weights": "FP4"}, "is not known; write one of Disabled, FP8"),
    ):
        (error,) = told(operator, lossy | change, {})["errors"]
        assert error.startswith("spec.acceleration.weights: ") and problem in error


def test_a_file_that_is_not_up_to_date_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    assert generate(root).returncode == 0
    (root / "common/contract/labels.hpp").write_text("// by hand\n")
    done = generate(root, "--check")
    assert done.returncode == 1
    assert "common/contract/labels.hpp is not what common/contract/contract.yaml" in done.stderr


def test_a_variable_and_a_metric_that_the_contract_lacks_are_named(tmp_path: Path) -> None:
    root = tree(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / "agent").mkdir()
    (root / "agent/main.cpp").write_text(
        'get("PACELINE_NEW"); gauge("paceline_new"); gauge("paceline_node_gpus", "Other words");\n'
    )
    (root / "dashboards").mkdir()
    (root / "dashboards/job.json").write_text('{"expr": "rate(paceline_gone_total[1m])"}\n')
    said = generate(root, "--check").stderr
    assert "agent/main.cpp: PACELINE_NEW is not in common/contract/contract.yaml" in said
    assert "agent/main.cpp: paceline_new is not in common/contract/contract.yaml" in said
    assert "no code exports paceline_node_gpus with this help" in said
    assert "no code exports paceline_nic_up: remove it" in said
    assert "dashboards/job.json: nothing exports paceline_gone_total" in said


def test_a_port_that_the_contract_lacks_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for name, text in (
        ("helm/paceline/templates/agent.yaml", "{name: http, containerPort: 9464}\nport: 9470\n"),
        ("dashboards/README.md", '| agent | 9471 |\nreplacement: "$1:29401"\n'),
        ("docs/operate/metrics.md", "curl http://AGENT:9472/metrics\n"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    said = [line for line in generate(root, "--check").stderr.splitlines() if ": port " in line]
    assert [line.split(" is not in ")[0] for line in said] == [
        "helm/paceline/templates/agent.yaml: port 9470",
        "dashboards/README.md: port 9471",
        "docs/operate/metrics.md: port 9472",
    ]

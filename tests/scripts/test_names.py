# SPDX-License-Identifier: Apache-2.0
"""What a document names and the tree lacks is told, and the other way round; each case breaks one
thing of a tree in which all is well.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from names import FOREIGN, HINT, RULES, Tree

SCHEMA = """spec:
  versions:
  - schema:
      openAPIV3Schema:
        properties:
          spec: {properties: {suspend: {type: boolean}, acceleration: {properties: {loader: {type: string}}}}}
          status: {properties: {phase: {type: string}}}
"""
README = """# Parts

`make lint` runs `scripts/lint format`, and so does `scripts/test unit`; `launcher/main.cpp` of `launcher/` has `start_ranks`, see [there](docs/reference/api.md#today).

    paceline run --map a=b -- python3 train.py --anything

`paceline_step_seconds_bucket` is a metric, `PACELINE_DISABLE` a variable, `spec.suspend` a field, `acceleration: {loader: Auto}` another,
`agent.enabled` a value, `tests/{a,b}*.py` and `bench/NAME/run` are files, `--map` is a flag and `MSG_ZEROCOPY` Linux'.
"""
GOOD = {
    "Makefile": ".PHONY: lint\n\nlint: ## checks\n\tscripts/lint\n",
    "README.md": README,
    "docs/reference/api.md": (
        "# API\n\n## Today\n\n```yaml\nspec:\n  suspend: false\n  acceleration: {loader:"
        " Auto}\nstatus:\n  phase\n```\n\n## The target\n\n  checkpoint: {}\n"
    ),
    "docs/operate/metrics.md": "# Metrics\n\n`paceline_step_seconds`\n",
    "dashboards/job.json": '{"expr": "rate(paceline_step_seconds_bucket[1m])"}\n',
    "crds/trainingjobs.yaml": SCHEMA,
    "helm/paceline/values.yaml": "agent: {enabled: true}\n",
    "common/contract/env.hpp": (
        'Variable kDisable{"PACELINE_DISABLE", "off"};\narray kUsers{  // for people\n '
        " kDisable};\n"
    ),
    "launcher/main.cpp": (
        '// As docs/reference/api.md says.\nvoid start_ranks() { name("paceline_step_seconds"); }\n'
    ),
    "accel/src/main.cpp": "// library\n",
    "docs/variables.md": "`PACELINE_X`\n",
    "tests/x.cpp": 'getenv("PACELINE_X");\n',
    "cli/main.cpp": 'app.add_subcommand("run"); run->add_option("--map");\n',
    "scripts/lint": "check_format() { :; }\n",
    "scripts/test": 'SUITES = {\n    "unit": Suite(),\n}\n',
    "tests/a1.py": "",
    "tests/b1.py": "",
}


def complaints(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    tree = Tree(root)
    return [complaint for rule in RULES for complaint in rule(tree)]


def test_a_tree_whose_names_all_exist_is_well(tmp_path: Path) -> None:
    assert complaints(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("Makefile", "\tscripts/lint\n", "", "Makefile: lint has no recipe"),
        ("Makefile", "lint: ## checks\n\tscripts/lint\n", "", "Makefile: lint has no recipe"),
        ("Makefile", "## checks", "", "Makefile: lint has no `## …`"),
        ("Makefile", ".PHONY: lint", ".PHONY:", "Makefile: lint is not in .PHONY"),
        (
            "README.md",
            "make lint",
            "make lint-all",
            "README.md:3: the Makefile has no target lint-all",
        ),
        (
            "README.md",
            "    paceline run",
            "    make gone\n    paceline run",
            "README.md:5: the Makefile has no target gone",
        ),
        (
            "cli/main.cpp",
            "app.",
            "// `make gone`\napp.",
            "cli/main.cpp: the Makefile has no target gone",
        ),
        (
            "README.md",
            "launcher/main.cpp",
            "launcher/gone.cpp",
            "README.md:3: there is no launcher/gone.cpp",
        ),
        ("README.md", "{a,b}", "{a,c}", "there is no tests/c*.py"),
        ("README.md", "`launcher/`", "`starter/`", "README.md:3: there is no starter"),
        (
            "launcher/main.cpp",
            "reference/api.md",
            "api.md",
            "launcher/main.cpp: there is no docs/api.md",
        ),
        (
            "README.md",
            "api.md#today",
            "gone.md",
            "README.md: the link docs/reference/gone.md leads nowhere",
        ),
        (
            "README.md",
            "#today",
            "#tomorrow",
            "README.md: the link docs/reference/api.md#tomorrow leads nowhere",
        ),
        (
            "README.md",
            "scripts/lint format",
            "scripts/lint shape",
            "README.md:3: scripts/lint knows no shape",
        ),
        ("scripts/test", '"unit"', '"units"', "README.md:3: scripts/test knows no unit"),
        ("cli/main.cpp", '"run"', '"start"', "README.md:5: paceline knows no run"),
        ("README.md", "run --map", "run --maps", "README.md:5: paceline knows no --maps"),
        ("README.md", "`--map`", "`--maps`", "README.md:8: nothing takes --maps"),
        (
            "README.md",
            "start_ranks",
            "stop_ranks",
            "README.md:3: nothing in the code is called stop_ranks",
        ),
        (
            "README.md",
            "_step_seconds_bucket",
            "_gone_total",
            "nothing in the code is called paceline_gone_total",
        ),
        (
            "docs/operate/metrics.md",
            "paceline_step_seconds",
            "it",
            "metrics.md: paceline_step_seconds is exported and",
        ),
        (
            "dashboards/job.json",
            "step_seconds",
            "gone",
            "dashboards/job.json: paceline_gone_bucket is exported by nobody",
        ),
        (
            "README.md",
            "PACELINE_DISABLE",
            "NOTHING",
            "env.hpp: PACELINE_DISABLE is for people to set",
        ),
        (
            "README.md",
            "PACELINE_DISABLE",
            "PACELINE_OFF",
            "nothing in the code is called PACELINE_OFF",
        ),
        (
            "launcher/main.cpp",
            "void",
            '// "PACELINE_NEW"\nvoid',
            "launcher/main.cpp: PACELINE_NEW is not in",
        ),
        (
            "accel/src/main.cpp",
            "library",
            'getenv("PACELINE_X"); //',
            "accel/src/main.cpp: PACELINE_X is not in",
        ),
        ("README.md", "spec.suspend", "spec.paused", "README.md:7: no CRD has spec.paused"),
        (
            "README.md",
            "{loader: Auto}",
            "{reader: Auto}",
            "README.md:7: no CRD has spec.acceleration.reader",
        ),
        (
            "docs/reference/api.md",
            "suspend: false",
            "paused: false",
            "docs/reference/api.md: no CRD has spec.paused",
        ),
        (
            "crds/trainingjobs.yaml",
            "phase",
            "stage",
            "docs/reference/api.md: stage of crds/trainingjobs.yaml is not among",
        ),
        (
            "README.md",
            "agent.enabled",
            "agent.on",
            "README.md:8: helm/paceline/values.yaml has no agent.on",
        ),
    ],
)
def test_one_wrong_name_is_told(tmp_path: Path, file: str, old: str, new: str, told: str) -> None:
    assert old in GOOD[file]
    said = complaints(tmp_path, {**GOOD, file: GOOD[file].replace(old, new, 1)})
    assert any(told in complaint for complaint in said), said


def test_a_planned_field_is_no_error(tmp_path: Path) -> None:
    said = GOOD["README.md"].replace("spec.suspend", "spec.checkpoint")
    assert complaints(tmp_path, {**GOOD, "README.md": said}) == []


@pytest.mark.parametrize(
    "said",
    [
        "`kubectl get pods -o jsonpath={.items[*].status.ready}`",
        "    kubectl get pod -o name  # status.ready",
        "`agent.cpp`",
    ],
)
def test_what_is_of_kubernetes_or_a_file_is_no_field_and_no_value(
    tmp_path: Path, said: str
) -> None:
    files = {**GOOD, "README.md": f"{README}\n{said}\n", "agent/inject/agent.cpp": ""}
    assert complaints(tmp_path, files) == []


@pytest.mark.parametrize(
    "said",
    [
        "make all-of-theirs",
        "launcher/theirs.cpp",
        "scripts/lint shape",
        "--their-flag",
        "their_function()",
        "spec.theirs",
        "agent.theirs",
    ],
)
def test_what_is_of_another_project_has_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    files = {**GOOD, "README.md": f"{README}\n`{said}`\n"}
    told = complaints(tmp_path, files)
    assert told and all(complaint.endswith(HINT) for complaint in told), told
    monkeypatch.setattr("names.FOREIGN", FOREIGN | {said})
    assert complaints(tmp_path, files) == []


@pytest.mark.parametrize("said", ["docs/theirs.md", "make all-of-theirs"])
def test_code_too_may_name_what_is_of_another_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    files = {**GOOD, "cli/main.cpp": f"{GOOD['cli/main.cpp']}// `{said}`\n"}
    assert [complaint for complaint in complaints(tmp_path, files) if complaint.endswith(HINT)]
    monkeypatch.setattr("names.FOREIGN", FOREIGN | {said})
    assert complaints(tmp_path, files) == []

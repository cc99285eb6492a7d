# SPDX-License-Identifier: Apache-2.0
"""`paceline convert` on the examples that other projects publish, as their Go modules carry them
(published/modules.txt). Each becomes what published/outcomes.txt says: TrainingJobs that the real
API server accepts, TrainingJobs with fields that someone has to complete, or an error.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from kube import ApiError, Kube, Object
from testbed import BUILD, ROOT

HERE = Path(__file__).resolve().parent / "published"
TABLE = HERE / "outcomes.txt"
KINDS = {
    "kubeflow.org": {"PyTorchJob", "TFJob", "PaddleJob", "XGBoostJob", "JAXJob", "MPIJob"},
    "trainer.kubeflow.org": {"TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"},
    "jobset.x-k8s.io": {"JobSet"},
    "batch.volcano.sh": {"Job"},
}
OUTCOMES = ("converted", "to do", "refused")  # by the exit code


def documents(text: str) -> list[Object]:
    """The documents of a file, or none if it is a template of Helm."""
    try:
        return [item for item in yaml.safe_load_all(text) if isinstance(item, dict)]
    except yaml.YAMLError:
        return []


def known(document: Object) -> bool:
    group = str(document.get("apiVersion", "")).partition("/")[0]
    return document.get("kind") in KINDS.get(group, ())


def may_hold_jobs(text: str) -> bool:
    """Spares most files the parser, which takes seconds for those that define kinds."""
    kinds = "|".join(kind for group in KINDS.values() for kind in group)
    return "CustomResourceDefinition" not in text and bool(re.search(f"kind: *.?({kinds})", text))


def job_with(runtime: Object) -> Object:
    """A job that trains with a runtime: the project publishes most of them without one."""
    reference = {"kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    return {
        "apiVersion": runtime["apiVersion"],
        "kind": "TrainJob",
        "metadata": {"name": "published"},
        "spec": {
            "runtimeRef": reference,
            "trainer": {"numNodes": 2, "command": ["python3", "train.py"]},
        },
    }


def examples() -> dict[str, str]:
    """The text of each file that holds a job of a kind that is read, or a runtime, by its path."""
    fetched = subprocess.run([HERE / "fetch"], stdout=subprocess.PIPE, text=True, check=True)
    home = Path(fetched.stdout.strip().splitlines()[-1])
    found = {}
    for file in sorted(home.rglob("*.yaml")):
        text = file.read_text(errors="replace")
        if not may_hold_jobs(text):
            continue
        jobs = [document for document in documents(text) if known(document)]
        if not jobs:
            continue
        if all(job["kind"].endswith("Runtime") for job in jobs):
            text += "---\n" + yaml.safe_dump(job_with(jobs[0]))
        found[str(file.relative_to(home))] = text
    return found


def converted(file: Path) -> tuple[str, list[Object]]:
    """The outcome, with a line for each reason without its remedy, and the TrainingJobs."""
    done = subprocess.run(
        [BUILD / "bin" / "paceline", "convert", "-f", file.name],
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [
        re.sub(rf"^{re.escape(file.name)}:(\d+:)? ", "", line) for line in done.stderr.splitlines()
    ]
    if done.returncode != 2:
        lines = [line.removeprefix("to do: ") for line in lines if line.startswith("to do: ")]
    assert bool(lines) == (done.returncode != 0), done.stderr
    reasons = dict.fromkeys(line.partition(";")[0] for line in lines)
    outcome = OUTCOMES[done.returncode] + "".join(f"\n  {reason}" for reason in reasons)
    return outcome, [item for item in documents(done.stdout) if item.get("kind") == "TrainingJob"]


def dry_run(kube: Kube, job: Object) -> str:
    """What the API server finds wrong with a job, or an empty text."""
    path = kube.path("trainingjobs", "default") + "?dryRun=All&fieldValidation=Strict"
    # Its own namespace is not on this server.
    metadata = {key: value for key, value in job["metadata"].items() if key != "namespace"}
    try:
        kube.request("POST", path, {**job, "metadata": metadata})
    except ApiError as error:
        return error.message
    return ""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[Object]]]:
    folder = tmp_path_factory.mktemp("published")
    found = {}
    for number, (path, text) in enumerate(examples().items()):
        file = folder / f"{number}.yaml"
        file.write_text(text)
        found[path] = converted(file)
    return found


def test_each_example_becomes_what_the_table_says(
    outcomes: dict[str, tuple[str, list[Object]]], tmp_path: Path
) -> None:
    new = tmp_path / "outcomes.txt"
    new.write_text("".join(f"{path}: {outcome}\n" for path, (outcome, _) in outcomes.items()))
    assert new.read_text() == TABLE.read_text(), (
        f"if the new outcomes are right: cp {new} {TABLE.relative_to(ROOT)}"
    )


def test_the_api_server_accepts_each_job(
    admin: Kube, outcomes: dict[str, tuple[str, list[Object]]]
) -> None:
    wrong = []
    for path, (outcome, jobs) in outcomes.items():
        assert bool(jobs) != outcome.startswith("refused"), path
        wrong += [f"{path}: {said}" for job in jobs if (said := dry_run(admin, job))]
    assert not wrong, "\n".join(wrong)

# SPDX-License-Identifier: Apache-2.0
"""Every property of the CRDs on the real API server, with cases made from the schemas.

A case is a wrong type, a value outside a bound, an unknown neighbour, or a change of a running job.
Each is accepted, or refused by an error that names the field. None is dropped in silence.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agents import Account, apply, fabric
from job_properties import ALWAYS, BASE, CASES, NEVER, QUEUED
from kube import ApiError, Kube, Object
from schemas import ELEMENT, KEY, VALUE, Property, kind_of, merged, properties, wrong_types

ROOT = Path(__file__).resolve().parents[2]
SPACE = "properties"
# The API server reads these itself, before the schema.
OPEN = "x-kubernetes-preserve-unknown-fields"
HEAD = ("apiVersion", "kind", "metadata")


def schema_of(plural: str) -> Object:
    definition = yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text())
    schema: Object = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def of(plural: str, *roots: str) -> list[Property]:
    found = [p for p in properties(schema_of(plural)) if p.path[0] not in HEAD]
    return [p for p in found if not roots or p.path[0] in roots]


def spec_properties() -> list[Property]:
    """Those below a TrainingJob's spec, with paths from there."""
    found = [p for p in of("trainingjobs", "spec") if len(p.path) > 1]
    return [Property(p.path[1:], p.schema, p.owner) for p in found]


def is_leaf(schema: Object) -> bool:
    """Whether the property holds no further properties that the schema knows."""
    return not ({"properties", "items", "additionalProperties"} & schema.keys())


def outside(schema: Object) -> Iterator[Any]:
    """Values of the right type just beyond each bound."""
    if "enum" in schema:
        yield "Nonsense"
    if "pattern" in schema:
        yield "!"
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if schema.get("minLength"):
        yield ""
    if "maxLength" in schema:
        yield "a" * (schema["maxLength"] + 1)
    if schema.get("minItems"):
        yield []
    if "maxProperties" in schema:
        inner = schema["additionalProperties"]
        value = 1 if inner.get("type") == "integer" or kind_of(inner) != "string" else "x"
        yield {f"k{i}": value for i in range(schema["maxProperties"] + 1)}


def named(prop: Property) -> str:
    """The place as the API server's errors write it."""
    return str(prop).replace(ELEMENT, "[0]").replace(VALUE, f".{KEY}")


PLURALS = ("trainingjobs", "runtimeprofiles", "nodefabrics")
BASES: dict[str, Object] = {
    "nodefabrics": fabric("one"),
    "trainingjobs": BASE,
    "runtimeprofiles": {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "RuntimeProfile",
        "metadata": {"name": "base"},
        "spec": {"acceleration": {}},
    },
}


@pytest.fixture(scope="module")
def server(admin: Kube) -> Kube:
    """A namespace with one job that no operator acts on, and a profile."""
    admin.create("namespaces", "", {"metadata": {"name": SPACE}})
    admin.create("trainingjobs", SPACE, left_alone("kept"))
    admin.create("runtimeprofiles", "", {**BASES["runtimeprofiles"], "metadata": {"name": "one"}})
    return admin


@pytest.fixture(scope="module")
def writers(server: Kube, agent: Account) -> dict[str, Kube]:
    """Who may write the objects of a kind."""
    own = agent("one")
    apply(own, "nodefabrics", "", fabric("one"))
    return {"trainingjobs": server, "runtimeprofiles": server, "nodefabrics": own}


def left_alone(name: str) -> Object:
    body = {**copy.deepcopy(BASE), "metadata": {"name": name}}
    body["spec"]["managedBy"] = "nobody.example/else"
    return body


def attempt(kube: Kube, plural: str, document: Object) -> str:
    """What the API server says to the document as a trial; empty: it accepts it. A status is
    written by itself, as the operator and the agents do.
    """
    space, name = (SPACE, "kept") if plural == "trainingjobs" else ("", "one")
    try:
        if "status" in document:
            path = kube.path(plural, space, name, "status")
            content = "application/merge-patch+json"
            kube.request("PATCH", f"{path}?dryRun=All&fieldValidation=Strict", document, content)
        else:
            body = merged(BASES[plural], document)
            path = kube.path(plural, space)
            kube.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", body)
    except ApiError as error:
        return error.message
    return ""


def unnamed(kube: Kube, plural: str, prop: Property, value: Any) -> str:
    """What is wrong with how a bad value is met; empty: it is refused by name."""
    message = attempt(kube, plural, prop.holding(value))
    shown = f"{prop} = {json.dumps(value)[:60]}"
    if not message:
        return f"{shown} is accepted"
    return "" if named(prop) in message else f"{shown}: no name in: {message[:400]}"


@pytest.mark.parametrize("plural", PLURALS)
def test_wrong_types_and_bounds_are_refused_by_name(writers: dict[str, Kube], plural: str) -> None:
    cases, faults = 0, []
    for prop in of(plural):
        for value in (*wrong_types(prop.schema), *outside(prop.schema)):
            faults.append(unnamed(writers[plural], plural, prop, value))
            cases += 1
    print(f"{plural}: {cases} cases of {len(of(plural))} properties")
    assert not any(faults), "\n".join(filter(None, faults))


@pytest.mark.parametrize("plural", PLURALS)
def test_unknown_fields_are_named(writers: dict[str, Kube], plural: str) -> None:
    """Beside every field that the schema knows; a template's pod has its own test."""
    schema = schema_of(plural)
    objects = [Property((), schema, ""), *of(plural)]
    faults = []
    for place in objects:
        if "properties" not in place.schema or OPEN in place.schema:
            continue
        document = place.holding({"notAField": 1})
        message = attempt(writers[plural], plural, document)
        if 'unknown field "' not in message or "notAField" not in message:
            faults.append(f"{place}: {message[:300]}")
    assert not faults, "\n".join(faults)


def test_clients_hear_of_unknown_fields(server: Kube, tmp_path: Path) -> None:
    """kubectl refuses them by default. Other clients are warned by the API server."""
    body = {**copy.deepcopy(BASE), "metadata": {"name": "typo"}}
    body["spec"]["failurePolicy"]["maxRestart"] = 1
    file = tmp_path / "typo.json"
    file.write_text(json.dumps(body))
    said = server.kubectl_result("apply", "-n", SPACE, "-f", str(file))
    assert said.returncode != 0
    assert 'unknown field "spec.failurePolicy.maxRestart"' in said.stderr, said.stderr
    said = server.kubectl_result("apply", "--validate=warn", "-n", SPACE, "-f", str(file))
    assert said.returncode == 0
    assert 'unknown field "spec.failurePolicy.maxRestart"' in said.stderr, said.stderr
    server.delete("trainingjobs", SPACE, "typo")


def test_table_knows_every_property() -> None:
    leaves = {str(prop) for prop in spec_properties() if is_leaf(prop.schema)}
    assert leaves == set(CASES), f"not in the table: {leaves ^ set(CASES)}"


def replace(kube: Kube, name: str, spec: Object) -> str:
    """Writes a whole spec; answers the refusal, or nothing."""
    body = kube.get("trainingjobs", SPACE, name)
    path = kube.path("trainingjobs", SPACE, name)
    try:
        kube.request("PUT", f"{path}?fieldValidation=Strict", {**body, "spec": spec})
    except ApiError as error:
        return error.message
    return ""


def check_changes(kube: Kube, name: str, job: str, specs: list[Object]) -> None:
    """Each spec is accepted after the one before, and stored as it is written."""
    for spec in specs:
        refusal = replace(kube, job, spec)
        assert not refusal, f"{name}: {refusal}"
        stored = kube.get("trainingjobs", SPACE, job)["spec"]
        assert merged(stored, spec) == stored, f"{name}: {spec} is stored as {stored}"


def test_changes_of_a_job(server: Kube) -> None:
    """A -> B -> A of each property, and its removal: while the job runs, while it is queued and
    while it is suspended. What may not change now is refused by name.
    """
    refusals = {NEVER: "managedBy is decided", QUEUED: "while the job is queued or suspended"}
    paths = {str(prop): prop.path for prop in spec_properties()}
    for number, (name, case) in enumerate(CASES.items()):
        job, path = f"change-{number}", paths[name]
        values = [case.a, case.b, case.a, *([] if case.required else [None])]
        others = {"managedBy": "nobody.example/else", "suspend": False}
        others = {key: value for key, value in others.items() if key != name}
        running = [{**others, **case.document(path, value)} for value in values]
        body = {**left_alone(job), "spec": running[0]}
        server.create("trainingjobs", SPACE, body)
        server.patch("trainingjobs", SPACE, job, {"status": {"phase": "Running"}}, "status")
        if case.changes == ALWAYS:
            check_changes(server, name, job, running)
            continue
        words = refusals.get(case.changes, "may change only while the job is suspended")
        for spec in (spec for spec in running[1:] if spec != running[0]):
            refusal = replace(server, job, spec)
            assert path[0] in refusal and words in refusal, f"{name} of a running job: {refusal}"
        if case.changes == NEVER:
            continue
        if case.changes == QUEUED:
            server.patch("trainingjobs", SPACE, job, {"status": {"phase": "Queued"}}, "status")
            check_changes(server, name, job, [*running, running[0]])
            server.patch("trainingjobs", SPACE, job, {"status": {"phase": "Running"}}, "status")
        check_changes(server, name, job, [{**spec, "suspend": True} for spec in running])

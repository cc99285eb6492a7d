# SPDX-License-Identifier: Apache-2.0
"""What the operator writes for other projects fits the definitions that those publish
(published/modules.txt), on the real API server. Their controllers do not run: the tests answer in
their place, which the definitions judge as well.
"""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from job_properties import BASE
from jobs import JobHandle
from kube import GROUPS, Kube, Object
from schemas import merged
from test_effects import nodes_named, operator_at_work

PUBLISHED = Path(__file__).resolve().parent / "published"
SPACE = "foreign"
# Each kind as the operator asks for it, and who publishes its definition.
DEFINITIONS = {
    "provisioningrequests": "apis@*/config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml",
    "capacitybuffers": "karpenter@*/pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml",
    "podgroups": "volcano@v1.15.0/config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml",
}


def definitions() -> dict[str, Object]:
    fetched = subprocess.run([PUBLISHED / "fetch"], stdout=subprocess.PIPE, text=True, check=True)
    home = Path(fetched.stdout.strip().splitlines()[-1])
    found = {}
    for kind, pattern in DEFINITIONS.items():
        (file,) = home.glob(pattern)
        found[kind] = yaml.safe_load(file.read_text())
    return found


@pytest.fixture(scope="module")
def kube(admin: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """The API server with the definitions, nodes and a namespace, and an operator at work."""
    admin.create("namespaces", "", {"metadata": {"name": SPACE}})
    found = definitions()
    names = [body["metadata"]["name"] for body in found.values()]
    admin.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(found.values()))
    try:
        for kind, body in found.items():
            admin.wait(
                f"{kind} are served",
                functools.partial(admin.is_established, body["metadata"]["name"]),
            )
            version = next(v["name"] for v in body["spec"]["versions"] if v["served"])
            GROUPS[kind] = f"/apis/{body['spec']['group']}/{version}"
        folder = tmp_path_factory.mktemp("operator")
        with nodes_named(admin, SPACE), operator_at_work(admin, folder):
            yield admin
    finally:
        for name in names:
            admin.delete("customresourcedefinitions", "", name)


def submit(kube: Kube, name: str, change: Object) -> JobHandle:
    spec = merged(BASE["spec"], change)
    kube.create("trainingjobs", SPACE, {**BASE, "metadata": {"name": name}, "spec": spec})
    return JobHandle(kube, SPACE, name)


def the_one(kube: Kube, kind: str) -> Object:
    """The object that the operator writes. What the definition does not know is not in it."""

    def only() -> Object | None:
        found = kube.list(kind, SPACE)
        assert len(found) <= 1, found
        return found[0] if found else None

    made = kube.wait(f"the operator writes one of {kind}", only, SPACE, timeout=30)
    assert made
    return made


def answer(kube: Kube, kind: str, condition: str, message: str) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    said = {"type": condition, "status": "True", "reason": "Test", "message": message}
    said |= {"lastTransitionTime": now}
    name = the_one(kube, kind)["metadata"]["name"]
    kube.patch(kind, SPACE, name, {"status": {"conditions": [said]}}, "status")


def test_autoscalers_are_asked_in_their_own_words(kube: Kube) -> None:
    """And what they answer is told."""
    no_node = {"roles": [{"template": {"spec": {"nodeSelector": {"pool": "none"}}}}]}
    handles = {
        kind: submit(kube, name, merged(no_node, {"scheduling": {"provision": way}}))
        for kind, name, way in (
            ("provisioningrequests", "requests", "ProvisioningRequest"),
            ("capacitybuffers", "buffers", "CapacityBuffer"),
        )
    }
    request, buffer = (the_one(kube, kind)["spec"] for kind in handles)
    (pods,) = request["podSets"]
    assert request["provisioningClassName"].startswith("best-effort-atomic-scale-up.")
    assert (pods["count"], buffer["replicas"]) == (2, 2)
    for reference in (pods["podTemplateRef"], buffer["podTemplateRef"]):
        template = kube.get("podtemplates", SPACE, reference["name"])["template"]
        assert template["spec"]["nodeSelector"] == {"pool": "none"}
    answer(kube, "provisioningrequests", "Accepted", "looks for two nodes")
    answer(kube, "capacitybuffers", "ReadyForProvisioning", "keeps room for two pods")
    words = {
        "provisioningrequests": "Accepted: looks for two nodes",
        "capacitybuffers": "ReadyForProvisioning: keeps room for two pods",
    }
    for kind, handle in handles.items():
        kube.wait(
            f"the job tells what {kind} say",
            lambda kind=kind, handle=handle: words[kind] in handle.condition("Placed")["message"],
            SPACE,
            timeout=60,
        )
        handle.delete()


def test_volcano_gets_its_pod_group(kube: Kube) -> None:
    priority = {"metadata": {"name": "gang"}, "value": 5, "preemptionPolicy": "Never"}
    kube.create("priorityclasses", "", priority)
    scheduling = {"backend": "Volcano", "queue": "team", "priorityClassName": "gang"}
    handle = submit(kube, "grouped", {"scheduling": scheduling})
    group = the_one(kube, "podgroups")
    want = {"minMember": 2, "queue": "team", "priorityClassName": "gang"}
    assert merged(group["spec"], want) == group["spec"]
    assert group["spec"]["minResources"]["cpu"] == "100m"
    kube.wait("the gang's pods wait for Volcano", lambda: len(handle.pods()) == 2, SPACE)
    for pod in handle.pods():
        assert pod["spec"]["schedulerName"] == "volcano"
        group_of = pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
        assert group_of == group["metadata"]["name"]
    handle.delete()

# SPDX-License-Identifier: Apache-2.0
"""The chart as Helm renders it: what the pods may do, who may write what, and that a wrong value is
an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from rendered import ROOT, mounts, one, pod_of, render, rules, template


def test_the_agents_api_wants_a_certificate_and_asks_who_reads(
    objects: list[dict[str, Any]],
) -> None:
    assert not [
        word
        for word in pod_of(objects, "DaemonSet", "paceline-agent")["containers"][0]["args"]
        if "api" in word
    ]
    served = render("--set", "agent.api.tlsSecret=agent-tls", "--set", "agent.api.port=9999")
    spec = pod_of(served, "DaemonSet", "paceline-agent")
    agent = spec["containers"][0]
    assert {"--api-certificate=/tls/tls.crt", "--api-key=/tls/tls.key"} <= set(agent["args"])
    assert {"name": "tls", "mountPath": "/tls", "readOnly": True} in agent["volumeMounts"]
    secret = next(volume["secret"] for volume in spec["volumes"] if volume["name"] == "tls")
    assert secret == {"secretName": "agent-tls", "defaultMode": 0o400}
    more = rules(served, "ClusterRole", "paceline-agent")
    fewer = rules(objects, "ClusterRole", "paceline-agent")
    assert {name: verbs for name, verbs in more.items() if name not in fewer} == {
        "authentication.k8s.io/tokenreviews": {"create"},
        "authorization.k8s.io/subjectaccessreviews": {"create"},
    }


def test_links_are_measured_where_the_api_is_served_and_with_a_token_of_its_own() -> None:
    served = render(
        "--set=agent.api.tlsSecret=t",
        "--set=agent.links.enabled=true",
        "--set=agent.links.serverName=agents",
    )
    spec = pod_of(served, "DaemonSet", "paceline-agent")
    (agent,) = spec["containers"]
    assert "--links-port=9466" in agent["args"]
    settings = {entry["name"]: entry.get("value") for entry in agent["env"]}
    assert settings["AGENT_API_PORT"] == "9465"
    assert settings["AGENT_LINKS_TOKEN"] == "/agents-token/token"
    assert settings["AGENT_LINKS_CA"] == "/tls/ca.crt"
    assert settings["AGENT_LINKS_SERVER_NAME"] == "agents"
    assert {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in agent[
        "env"
    ]
    assert mounts(agent)["agents-token"] == ("/agents-token", True)
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "agents-token"]
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "paceline-agent"
    assert rules(served, "ClusterRole", "paceline-agent")["paceline.dev/nodefabrics/links"] == {
        "create"
    }
    # Without: no port, no token, no right.
    plain = pod_of(render("--set=agent.api.tlsSecret=t"), "DaemonSet", "paceline-agent")
    assert "links" not in str(plain["containers"]) and "agents-token" not in str(plain["volumes"])


def test_nodes_are_marked_only_where_asked(objects: list[dict[str, Any]]) -> None:
    args = pod_of(objects, "Deployment", "paceline-operator")["containers"][0]["args"]
    assert not [word for word in args if word in ("--node-labels", "--fault-taint")]
    for value, flag in (("nodeLabels", "--node-labels"), ("faultTaint", "--fault-taint")):
        asked = render("--set", f"operator.{value}=true")
        args = pod_of(asked, "Deployment", "paceline-operator")["containers"][0]["args"]
        assert [word for word in args if word in ("--node-labels", "--fault-taint")] == [flag]
        assert rules(asked, "ClusterRole", "paceline-operator")["/nodes"] == {
            "get",
            "list",
            "watch",
            "patch",
        }


def test_priority_classes_never_preempt(objects: list[dict[str, Any]]) -> None:
    classes = [item for item in objects if item["kind"] == "PriorityClass"]
    assert {item["metadata"]["name"] for item in classes} == {
        "paceline-low",
        "paceline-normal",
        "paceline-high",
        "paceline-placeholder",
    }
    # Cluster Autoscaler adds no nodes for pods below -10.
    assert one(objects, "PriorityClass", "paceline-placeholder")["value"] == -10
    assert all(
        item["preemptionPolicy"] == "Never" and isinstance(item["value"], int) for item in classes
    )


def test_custom_resources_are_the_repository_s(objects: list[dict[str, Any]]) -> None:
    rendered = {
        item["metadata"]["name"]: item
        for item in objects
        if item["kind"] == "CustomResourceDefinition"
    }
    files = sorted((ROOT / "crds").glob("*.yaml"))
    assert files
    for file in files:
        definition = yaml.safe_load(file.read_text())
        assert rendered[definition["metadata"]["name"]]["spec"] == definition["spec"]
        assert file.stat().st_size < 200_000


# The API server adds a default to jobs that run already. People upgrade the CRDs first, so the
# operator of the release before must know the field.
DEFAULTS = {
    "framework.launcher",
    "framework.processesPerReplica",
    "scheduling",
    "scheduling.gangTimeout",
    "failurePolicy",
    "failurePolicy.backoff",
    "failurePolicy.forceDeleteAfter",
    "failurePolicy.gracePeriod",
    "failurePolicy.maxRestarts",
    "successPolicy",
    "suspend",
    "cleanPodPolicy",
    "managedBy",
}


def defaults(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    if "default" in schema:
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from defaults(inner, f"{path}.{name}".removeprefix("."))
    for many in ("items", "additionalProperties"):
        if isinstance(schema.get(many), dict):
            yield from defaults(schema[many], f"{path}[]")


def test_fields_that_came_later_have_no_default_in_the_schema() -> None:
    found = set()
    for file in sorted((ROOT / "crds").glob("*.yaml")):
        for version in yaml.safe_load(file.read_text())["spec"]["versions"]:
            found |= set(defaults(version["schema"]["openAPIV3Schema"]))
    assert found == {f"spec.{field}" for field in DEFAULTS}


def test_two_operators_stand_on_two_nodes_and_go_one_after_the_other(
    objects: list[dict[str, Any]],
) -> None:
    spec = one(objects, "Deployment", "paceline-operator")["spec"]
    assert spec["replicas"] == 2
    rolling = {"maxUnavailable": 0, "maxSurge": 1}
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    budget = one(objects, "PodDisruptionBudget", "paceline-operator")["spec"]
    assert budget["maxUnavailable"] == 1 and budget["selector"] == spec["selector"]
    (apart,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"].values()
    (term,) = (weighted["podAffinityTerm"] for weighted in apart)
    assert term == {"topologyKey": "kubernetes.io/hostname", "labelSelector": spec["selector"]}


def test_a_single_operator_has_no_budget_that_stops_a_drain() -> None:
    alone = render("--set=operator.replicas=1")
    assert one(alone, "Deployment", "paceline-operator")["spec"]["replicas"] == 1
    assert not [item for item in alone if item["kind"] == "PodDisruptionBudget"]


def test_no_webhook_stands_before_the_objects_of_others(objects: list[dict[str, Any]]) -> None:
    """One that is down would stop what has nothing to do with Paceline."""
    assert not [item["kind"] for item in objects if "Webhook" in item["kind"]]
    assert not [item for item in objects if item["kind"] == "APIService"]


def test_every_pod_of_a_workload_is_selected(objects: list[dict[str, Any]]) -> None:
    for item in objects:
        if item["kind"] in ("Deployment", "DaemonSet"):
            labels = item["spec"]["template"]["metadata"]["labels"]
            assert item["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_values_reach_the_objects() -> None:
    objects = render(
        "--set=images.runtime=registry.example/runtime:1",
        "--set=agent.runtimeClassName=nvidia",
        "--set=agent.probeSeconds=7",
        "--set=images.pullSecrets={one}",
        "--set=agent.namespace=elsewhere",
        "--set=log.format=json",
        "--set=log.level=warning",
    )
    operator = pod_of(objects, "Deployment", "paceline-operator")
    assert "--runtime-image=registry.example/runtime:1" in operator["containers"][0]["args"]
    assert operator["imagePullSecrets"] == [{"name": "one"}]
    agent = pod_of(objects, "DaemonSet", "paceline-agent")
    assert agent["runtimeClassName"] == "nvidia"
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"} in agent["containers"][0][
        "env"
    ]
    assert "--probe-seconds=7" in agent["containers"][0]["args"]
    for pod in (operator, agent):
        assert {"--log-format=json", "--log-level=warning"} <= set(pod["containers"][0]["args"])
    # Only the one-shot container may compute on a GPU.
    (look,) = agent["initContainers"]
    assert look["env"] == [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
    ]
    policy = one(objects, "ValidatingAdmissionPolicy", "paceline-agent-own-node")
    assert (
        "system:serviceaccount:elsewhere:paceline-agent"
        in policy["spec"]["variables"][0]["expression"]
    )


def test_critical_classes_have_the_quota_that_gke_asks_for(objects: list[dict[str, Any]]) -> None:
    workloads = {"operator": "Deployment", "agent": "DaemonSet"}
    for part, kind in workloads.items():
        quota = one(objects, "ResourceQuota", f"paceline-{part}")
        workload = one(objects, kind, f"paceline-{part}")
        assert quota["metadata"]["namespace"] == workload["metadata"]["namespace"]
        (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
        assert scope == {
            "scopeName": "PriorityClass",
            "operator": "In",
            "values": [workload["spec"]["template"]["spec"]["priorityClassName"]],
        }
        assert quota["spec"]["hard"] == {"pods": "1G"}
    other = render("--set=operator.priorityClassName=infra", "--set=agent.priorityClassName=")
    assert not [item for item in other if item["kind"] == "ResourceQuota"]
    assert pod_of(other, "Deployment", "paceline-operator")["priorityClassName"] == "infra"
    assert "priorityClassName" not in pod_of(other, "DaemonSet", "paceline-agent")


def test_pods_take_labels_annotations_arguments_and_variables_of_users() -> None:
    workloads = {"operator": "Deployment", "agent": "DaemonSet"}
    settings = (
        "podLabels.team=a",
        "podAnnotations.note=b",
        "extraArgs={--one}",
        "extraEnv[0].name=HTTPS_PROXY",
        "extraEnv[0].value=http://proxy:3128",
    )
    objects = render(*[f"--set={part}.{setting}" for part in workloads for setting in settings])
    for part, kind in workloads.items():
        template_of = one(objects, kind, f"paceline-{part}")["spec"]["template"]
        assert template_of["metadata"]["labels"]["team"] == "a"
        assert template_of["metadata"]["annotations"]["note"] == "b"
        assert template_of["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
        (container,) = template_of["spec"]["containers"]
        assert container["args"][-1] == "--one"
        assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"]


def test_the_agent_can_be_left_out() -> None:
    objects = render("--set=agent.enabled=false")
    assert not [item for item in objects if "agent" in item["metadata"]["name"]]
    one(objects, "Deployment", "paceline-operator")


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("images.pullPolicy=Sometimes", "pullPolicy"),
        ("operator.replica=2", "replica"),
        ("agent.probeSeconds=0", "probeSeconds"),
        ("agent.podLabels.level=1", "podLabels"),
        ("log.format=xml", "format"),
        ("agent.privilegedLook=true", "privilegedLook"),
        ("agent.privilegedLook.enable=true", "privilegedLook"),
        ("agent.privilegedLook.keepDir=/run/../etc", "keepDir"),
        ("agent.links.enabled=true", "needs agent.api.tlsSecret"),
        ("agent.links.port=0", "port"),
        ("agent.devicePlugin.slots=0", "slots"),
        ("agent.devicePlugin.stateDir=relative", "stateDir"),
        ("agent.devicePlugin.stateDir=/var/../etc", "stateDir"),
        ("priorityClasses.mine=high", "priorityClasses"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, named: str) -> None:
    done = template(f"--set={setting}")
    assert done.returncode != 0
    assert re.search(named, done.stderr), done.stderr

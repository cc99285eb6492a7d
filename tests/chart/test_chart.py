# SPDX-License-Identifier: Apache-2.0
"""The chart as Helm renders it: what the pods may do, who may write what, and that a wrong value is
an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "paceline"


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    helm = shutil.which("helm")
    assert helm, "helm is not on PATH: tests/cluster/build-tools builds it"
    command = [
        helm,
        "template",
        "paceline",
        str(CHART),
        "--namespace",
        "paceline-system",
        "--include-crds",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def render(*arguments: str) -> list[dict[str, Any]]:
    done = template(*arguments)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return render()


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    found = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def pod_of(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return one(objects, kind, name)["spec"]["template"]["spec"]


def rules(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, set[str]]:
    """Verbs by "group/resource"."""
    table: dict[str, set[str]] = {}
    for rule in one(objects, kind, name)["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                table.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    return table


def test_operator_fits_pod_security_restricted(objects: list[dict[str, Any]]) -> None:
    spec = pod_of(objects, "Deployment", "paceline-operator")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"] + spec.get("initContainers", []):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not security.get("privileged", False)
    assert not any("hostPath" in volume for volume in spec.get("volumes", []))
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        assert not spec.get(key, False), key


def mounts(container: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """Path and whether it is read-only, by volume."""
    return {
        mount["name"]: (mount["mountPath"], mount.get("readOnly", False))
        for mount in container.get("volumeMounts", [])
    }


def test_agent_is_root_without_any_capability_and_writes_nowhere(
    objects: list[dict[str, Any]],
) -> None:
    spec = pod_of(objects, "DaemonSet", "paceline-agent")
    assert spec["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        assert not spec.get(key, False), key
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["volumes"] == [
        {"name": "sys", "hostPath": {"path": "/sys", "type": "Directory"}},
        {"name": "look", "emptyDir": {"sizeLimit": "32Mi"}},
        {"name": "keep", "hostPath": {"path": "/run/paceline-look", "type": "DirectoryOrCreate"}},
    ]
    assert mounts(container) == {"sys": ("/host/sys", True), "look": ("/look", True)}
    assert {"--pci-config=/look/pci-config", "--registrations=/look/registrations.json"} <= set(
        container["args"]
    )


def test_one_container_is_privileged_and_ends_before_the_agent(
    objects: list[dict[str, Any]],
) -> None:
    (look,) = pod_of(objects, "DaemonSet", "paceline-agent")["initContainers"]
    assert "restartPolicy" not in look  # a sidecar would stay
    assert look["command"] == ["/usr/bin/paceline-probe"]
    # It writes its files, and of the node the one folder that keeps its proofs for the next look.
    assert look["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert mounts(look) == {
        "sys": ("/host/sys", True),
        "look": ("/look", False),
        "keep": ("/keep", False),
    }
    # Whatever it finds, the agent starts.
    assert look["args"] == [
        "--sys=/host/sys",
        "--pci-config=/look/pci-config",
        "--output=/look/registrations.json",
        "--keep=/keep",
        "--exit-zero",
    ]
    assert "env" not in look
    for item in objects:
        if item["kind"] in ("Deployment", "DaemonSet"):
            pod = item["spec"]["template"]["spec"]
            privileged = [
                container["name"]
                for container in pod["containers"] + pod.get("initContainers", [])
                if container["securityContext"].get("privileged", False)
            ]
            assert privileged == (["look"] if item["metadata"]["name"] == "paceline-agent" else [])


def test_the_privileged_look_can_be_left_out() -> None:
    objects = render("--set=agent.privilegedLook.enabled=false")
    spec = pod_of(objects, "DaemonSet", "paceline-agent")
    assert "initContainers" not in spec
    (container,) = spec["containers"]
    assert mounts(container) == {"sys": ("/host/sys", True)}
    assert [volume["name"] for volume in spec["volumes"]] == ["sys"]
    assert not [word for word in container["args"] if "look" in word]


def test_the_privileged_look_can_keep_nothing_on_the_node() -> None:
    spec = pod_of(render("--set=agent.privilegedLook.keepDir="), "DaemonSet", "paceline-agent")
    (look,) = spec["initContainers"]
    assert mounts(look) == {"sys": ("/host/sys", True), "look": ("/look", False)}
    assert [volume["name"] for volume in spec["volumes"]] == ["sys", "look"]
    assert not [word for word in look["args"] if "keep" in word]


def test_the_device_plugin_takes_four_folders_and_no_privilege() -> None:
    objects = render("--set=agent.devicePlugin.enabled=true")
    spec = pod_of(objects, "DaemonSet", "paceline-agent")
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        assert not spec.get(key, False), key
    (agent,) = spec["containers"]
    assert agent["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert mounts(agent) == {
        "sys": ("/host/sys", True),
        "look": ("/look", True),
        "runtime": ("/runtime", True),
        "state": ("/var/lib/paceline", False),
        "device-plugins": ("/var/lib/kubelet/device-plugins", False),
        "pod-resources": ("/var/lib/kubelet/pod-resources", True),
    }
    assert [
        volume for volume in spec["volumes"] if volume["name"] not in ("sys", "look", "keep")
    ] == [
        {"name": "runtime", "emptyDir": {}},
        {"name": "state", "hostPath": {"path": "/var/lib/paceline", "type": "DirectoryOrCreate"}},
        {
            "name": "device-plugins",
            "hostPath": {"path": "/var/lib/kubelet/device-plugins", "type": "Directory"},
        },
        {
            "name": "pod-resources",
            "hostPath": {"path": "/var/lib/kubelet/pod-resources", "type": "Directory"},
        },
    ]
    assert {
        "--runtime=/runtime",
        "--runtime-state=/var/lib/paceline",
        "--runtime-slots=128",
        "--kubelet-dir=/var/lib/kubelet",
    } <= set(agent["args"])
    # What brings the runtime is nobody, and sees nothing of the node.
    (runtime,) = [
        container for container in spec["initContainers"] if container["name"] == "runtime"
    ]
    assert runtime["image"] == "paceline/runtime:dev"
    assert runtime["command"] == [
        "/opt/paceline-image/bin/paceline-launcher",
        "install",
        "/runtime",
    ]
    assert runtime["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
    }
    assert mounts(runtime) == {"runtime": ("/runtime", False)}
    assert [container["name"] for container in spec["initContainers"]] == ["look", "runtime"]


def test_the_device_plugin_goes_where_it_is_told_and_without_the_look() -> None:
    objects = render(
        "--set=agent.devicePlugin.enabled=true",
        "--set=agent.privilegedLook.enabled=false",
        "--set=agent.devicePlugin.slots=7",
        "--set=agent.devicePlugin.stateDir=/data/paceline",
        "--set=agent.devicePlugin.kubeletDir=/var/lib/k0s/kubelet",
        "--set=images.runtime=registry.example/runtime:1",
    )
    spec = pod_of(objects, "DaemonSet", "paceline-agent")
    (agent,) = spec["containers"]
    (runtime,) = spec["initContainers"]
    assert runtime["image"] == "registry.example/runtime:1"
    # Inside as on the node: the kubelet mounts what the agent names.
    folders = {
        volume["name"]: volume["hostPath"]["path"]
        for volume in spec["volumes"]
        if "hostPath" in volume
    }
    assert folders == {
        "sys": "/sys",
        "state": "/data/paceline",
        "device-plugins": "/var/lib/k0s/kubelet/device-plugins",
        "pod-resources": "/var/lib/k0s/kubelet/pod-resources",
    }
    for name in ("state", "device-plugins", "pod-resources"):
        assert mounts(agent)[name][0] == folders[name]
    assert {
        "--runtime-state=/data/paceline",
        "--runtime-slots=7",
        "--kubelet-dir=/var/lib/k0s/kubelet",
    } <= set(agent["args"])


def test_namespaces_carry_the_level_their_pods_need(objects: list[dict[str, Any]]) -> None:
    agents = one(objects, "Namespace", "paceline-agents")
    assert agents["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    for item in objects:
        if item["kind"] == "DaemonSet":
            assert item["metadata"]["namespace"] == "paceline-agents"
        if item["kind"] == "Deployment":
            assert item["metadata"]["namespace"] == "paceline-system"


def test_nobody_has_a_wildcard_or_may_escalate(objects: list[dict[str, Any]]) -> None:
    roles = [item for item in objects if item["kind"] in ("Role", "ClusterRole")]
    assert len(roles) == 5
    for role in roles:
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"], role[
                "metadata"
            ]["name"]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
            assert not {"pods/exec", "nodes/proxy", "serviceaccounts/token"} & set(
                rule["resources"]
            )


def test_agent_may_write_only_fabric_and_lease(objects: list[dict[str, Any]]) -> None:
    assert rules(objects, "ClusterRole", "paceline-agent") == {
        "/nodes": {"get"},
        "paceline.dev/nodefabrics": {"get", "create", "patch"},
        "paceline.dev/nodefabrics/status": {"patch"},
    }
    assert rules(objects, "Role", "paceline-agent") == {
        "coordination.k8s.io/leases": {"create", "patch"}
    }


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
    assert {"--api-certificate=/tls/tls.crt", "--api-key=/tls/tls.key", "--api-port=9999"} <= set(
        agent["args"]
    )
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
    assert {
        "--links-port=9466",
        "--links-token=/agents-token/token",
        "--links-ca=/tls/ca.crt",
        "--links-server-name=agents",
    } <= set(agent["args"])
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


def test_operator_may_do_what_it_does_and_no_more(objects: list[dict[str, Any]]) -> None:
    assert rules(objects, "ClusterRole", "paceline-operator") == {
        "paceline.dev/trainingjobs": {"get", "list", "watch", "delete"},
        "paceline.dev/trainingjobs/status": {"patch"},
        "paceline.dev/runtimeprofiles": {"list", "watch"},
        "paceline.dev/nodefabrics": {"list", "watch"},
        "/pods": {"get", "list", "watch", "create", "patch", "delete"},
        "/services": {"get", "create"},
        "/secrets": {"get", "create"},
        "/nodes": {"list", "watch"},
        "/resourcequotas": {"list", "watch"},
        "scheduling.k8s.io/priorityclasses": {"list", "watch"},
        "/persistentvolumeclaims": {"get"},
        "/persistentvolumes": {"get"},
        "storage.k8s.io/storageclasses": {"get"},
        "events.k8s.io/events": {"create", "patch"},
    }
    assert rules(objects, "Role", "paceline-operator") == {
        "coordination.k8s.io/leases": {"get", "create", "update"}
    }
    assert rules(objects, "Role", "paceline-operator-agents") == {
        "coordination.k8s.io/leases": {"list"}
    }
    assert (
        one(objects, "Role", "paceline-operator-agents")["metadata"]["namespace"]
        == "paceline-agents"
    )
    assert (
        "--agent-namespace=paceline-agents"
        in pod_of(objects, "Deployment", "paceline-operator")["containers"][0]["args"]
    )


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
    }
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

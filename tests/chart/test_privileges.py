# SPDX-License-Identifier: Apache-2.0
"""What the pods of the chart may do: security contexts, mounts and rules of access."""

from __future__ import annotations

from typing import Any

from rendered import mounts, one, pod_of, render, rules


def test_operator_fits_pod_security_restricted(objects: list[dict[str, Any]]) -> None:
    spec = pod_of(objects, "Deployment", "paceline-operator")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert "runAsUser" not in spec["securityContext"]  # OpenShift would refuse one of our choice
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


def test_on_openshift_the_agents_may_use_its_privileged_constraints(
    objects: list[dict[str, Any]],
) -> None:
    name = "paceline-agent-privileged"
    assert not [item for item in objects if item["metadata"]["name"] == name]
    binding = one(render("--api-versions=security.openshift.io/v1"), "RoleBinding", name)
    assert binding["metadata"]["namespace"] == "paceline-agents"
    assert binding["roleRef"]["name"] == "system:openshift:scc:privileged"
    assert [(who["name"], who["namespace"]) for who in binding["subjects"]] == [
        ("paceline-agent", "paceline-agents")
    ]


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
    assert len(roles) == 6
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


def test_operator_may_do_what_it_does_and_no_more(objects: list[dict[str, Any]]) -> None:
    assert rules(objects, "ClusterRole", "paceline-operator") == {
        "paceline.dev/trainingjobs": {"get", "list", "watch", "delete"},
        "paceline.dev/trainingjobs/status": {"patch"},
        "paceline.dev/runtimeprofiles": {"list", "watch"},
        "paceline.dev/runtimeprofiles/status": {"patch"},
        "paceline.dev/nodefabrics": {"list", "watch"},
        "/pods": {"get", "list", "watch", "create", "patch", "delete"},
        "/services": {"get", "create"},
        "/secrets": {"create"},
        "/nodes": {"get", "list", "watch"},
        "/resourcequotas": {"list", "watch"},
        "scheduling.k8s.io/priorityclasses": {"list", "watch"},
        "kueue.x-k8s.io/workloads": {"get", "list", "watch", "create", "patch", "delete"},
        "kueue.x-k8s.io/workloads/status": {"patch"},
        "kueue.x-k8s.io/localqueues": {"list", "watch"},
        "kueue.x-k8s.io/resourceflavors": {"list", "watch"},
        "kueue.x-k8s.io/topologies": {"list", "watch"},
        "kueue.x-k8s.io/workloadpriorityclasses": {"get"},
        "scheduling.volcano.sh/podgroups": {"get", "create", "delete"},
        "scheduling.x-k8s.io/podgroups": {"get", "create", "delete"},
        "scheduling.k8s.io/podgroups": {"get", "create", "delete"},
        "scheduling.run.ai/podgroups": {"get", "create", "delete"},
        "/persistentvolumeclaims": {"get"},
        "/persistentvolumes": {"get", "list"},
        "storage.k8s.io/storageclasses": {"get"},
        "storage.k8s.io/csidrivers": {"get"},
        "autoscaling.x-k8s.io/provisioningrequests": {"list", "create", "delete"},
        "autoscaling.x-k8s.io/capacitybuffers": {"list", "create", "delete"},
        "/podtemplates": {"list", "create", "delete"},
        "events.k8s.io/events": {"create", "patch"},
    }
    assert rules(objects, "Role", "paceline-operator") == {
        "coordination.k8s.io/leases": {"get", "create", "update"},
        "/secrets[paceline-operator-key]": {"get"},
    }
    assert rules(objects, "Role", "paceline-operator-agents") == {
        "coordination.k8s.io/leases": {"list"}
    }
    assert (
        one(objects, "Role", "paceline-operator-agents")["metadata"]["namespace"]
        == "paceline-agents"
    )
    autoscaler = "paceline-operator-autoscaler"
    assert rules(objects, "Role", autoscaler) == {"/configmaps[cluster-autoscaler-status]": {"get"}}
    assert one(objects, "Role", autoscaler)["metadata"]["namespace"] == "kube-system"
    assert (
        "--agent-namespace=paceline-agents"
        in pod_of(objects, "Deployment", "paceline-operator")["containers"][0]["args"]
    )

# SPDX-License-Identifier: Apache-2.0
"""What breaks while a job runs: a rank, a pod, a container's memory. The gang goes on, or ends and
says who did it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from jobs import UNTIL_TOLD, JobHandle, job
from kube import Kube, Object
from testbed import Cluster

Submit = Callable[[Object], JobHandle]


def kill_rank(handle: JobHandle, pod: str, local_rank: int) -> float:
    """SIGKILL to one rank; answers the uptime at which it happened."""
    script = f"read up _ </proc/uptime; kill -9 $(cat /tmp/pid.{local_rank}); echo $up"
    return float(handle.kube.execute(handle.namespace, pod, script))


def test_killed_rank_restarts_the_gang_in_place(kube: Kube, submit: Submit, namespace: str) -> None:
    handle = submit(job("killed", UNTIL_TOLD, replicas=2, processes=2))
    handle.wait_started(0, 4)
    pods = handle.pod_uids()
    killed = kill_rank(handle, "killed-worker-1-0", 0)
    started = handle.wait_started(1, 4)
    print(f"all ranks respawned {max(started.values()) - killed:.2f} s after the kill")
    assert handle.pod_uids() == pods, "the pods were replaced"
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert status["restarts"] == 1
    assert status["attempt"] == 1
    assert {role["name"]: role["incarnations"] for role in status["roles"]} == {"worker": [0, 0]}


@pytest.mark.parametrize("index", [1, 0], ids=["worker", "rank0"])
def test_deleted_pod_is_replaced_and_the_gang_resumes(
    kube: Kube, submit: Submit, namespace: str, index: int
) -> None:
    handle = submit(job("deleted", UNTIL_TOLD, replicas=2, processes=2))
    handle.wait_started(0, 4)
    handle.wait_phase("Running")
    victim = f"deleted-worker-{index}-0"
    before = dict(zip(handle.pod_names(), handle.pod_uids(), strict=True))
    kube.delete("pods", namespace, victim)
    replacement = f"deleted-worker-{index}-1"
    kube.wait(f"{replacement} exists", lambda: replacement in handle.pod_names(), namespace)

    # A launcher of rank 0 that ends may still count the loss, and the operator counts after it.
    attempts = (1, 2) if index == 0 else (1,)

    def resumed() -> bool:
        names = handle.pod_names()
        started = any(len(handle.start_times(attempt)) == 4 for attempt in attempts)
        return len(names) == 2 and victim not in names and started

    kube.wait("the gang resumed with the new pod", resumed, namespace, poll=0.3)
    kept = f"deleted-worker-{1 - index}-0"
    assert dict(zip(handle.pod_names(), handle.pod_uids(), strict=True))[kept] == before[kept]
    handle.wait_phase("Running")
    handle.tell()
    status = handle.wait_phase("Succeeded")
    incarnations = status["roles"][0]["incarnations"]
    assert incarnations[index] == 1 and incarnations[1 - index] == 0
    assert status["restarts"] == 0, "a deletion from outside spent the budget"


def test_spent_budget_fails_with_the_culprit(kube: Kube, submit: Submit) -> None:
    script = """
    [ "$RANK" = 1 ] && { echo "about to break"; echo "cannot read shard 7" >&2; exit 3; }
    sleep 600
    """
    budget = {"gracePeriod": "1s", "maxRestarts": 1}
    handle = submit(job("spent", script, replicas=2, failurePolicy=budget))
    status = handle.wait_phase("Failed")
    assert status["restarts"] == 1
    culprit = status["culprit"]
    assert culprit["rank"] == 1 and culprit["exitCode"] == 3, culprit
    assert culprit["pod"] == "spent-worker-1-0"
    assert any("cannot read shard 7" in line for line in culprit["lastLines"]), culprit
    condition = handle.condition("Failed")
    assert condition["status"] == "True" and "rank 1" in condition["message"], condition
    kube.wait(
        "no rank keeps running",
        lambda: all(pod["status"]["phase"] in ("Failed", "Succeeded") for pod in handle.pods()),
        handle.namespace,
    )


def test_a_rule_moves_a_rank_to_another_node(submit: Submit) -> None:
    """Exit code 77 stands for a node that the program trusts no more."""
    script = """
    [ "$RANK" = 1 ] && [ "$PACELINE_ATTEMPT" = 0 ] && exit 77
    exit 0
    """
    rules = [{"name": "bad-node", "exitCodes": [77], "action": "ReplaceNode"}]
    policy = {"gracePeriod": "1s", "maxRestarts": 0, "rules": rules}
    handle = submit(job("moved", script, replicas=2, failurePolicy=policy))
    status = handle.wait_phase("Succeeded")
    assert status["restarts"] == 0 and status["disruptions"] == 1, status
    excluded = status["excludedNodes"][0]
    assert "failurePolicy.rules[0] (bad-node) says ReplaceNode" in excluded["message"], excluded
    assert status["roles"][0]["incarnations"] == [0, 1]


def test_a_rule_fails_a_job_with_restarts_left(submit: Submit) -> None:
    rules = [{"name": "config", "exitCodes": ["2-3"], "action": "FailJob"}]
    policy = {"gracePeriod": "1s", "maxRestarts": 3, "rules": rules}
    handle = submit(job("ruled", "exit 2", failurePolicy=policy))
    status = handle.wait_phase("Failed")
    assert status["restarts"] == 0, status
    assert status["culprit"]["rule"] == "failurePolicy.rules[0] (config) says FailJob"
    assert "exited with code 2" in status["message"], status["message"]


GROW = """
echo "rank $RANK attempt $PACELINE_ATTEMPT started at 0"
if [ "$PACELINE_ATTEMPT" = 0 ] && [ "$RANK" = 1 ]; then
  x=0123456789abcdef
  while :; do x=$x$x; done
fi
[ "$PACELINE_ATTEMPT" = 0 ] && sleep 60
exit 0
"""


def test_rank_out_of_memory(cluster: Cluster, submit: Submit) -> None:
    """On cgroup v1 the kernel kills the rank and the gang restarts in place; on v2 the kubelet has
    it kill the whole container, and the pod is replaced. Both cost one restart.
    """
    limits = {"memory": "64Mi"}
    handle = submit(
        job(
            "hungry",
            GROW,
            replicas=1,
            processes=2,
            limits=limits,
            failurePolicy={"gracePeriod": "1s"},
        )
    )
    status = handle.wait_phase("Succeeded")
    assert status["restarts"] == 1
    assert status["attempt"] == 1
    in_place = "cgroup v1" in cluster.call("status")
    assert status["roles"][0]["incarnations"] == [0 if in_place else 1]


def test_killed_container_is_replaced(
    kube: Kube, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    """What an out-of-memory kill of the launcher looks like: the container ends by SIGKILL without
    a last word.
    """
    handle = submit(job("container", UNTIL_TOLD, replicas=2))
    handle.wait_started(0, 2)
    # A log can be read before the kubelet has reported the container.
    handle.wait_phase("Running")
    pod = kube.get("pods", namespace, "container-worker-1-0")
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    command = ["ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", container]
    cluster.on_node(pod["spec"]["nodeName"], *command)
    kube.wait("a new incarnation", lambda: "container-worker-1-1" in handle.pod_names(), namespace)

    def resumed() -> bool:
        attempt = handle.status["attempt"]
        return attempt > 0 and len(handle.start_times(attempt)) == 2

    kube.wait("the gang resumed", resumed, namespace, poll=0.3)
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert status["restarts"] == 1
    assert status["roles"][0]["incarnations"] == [0, 1]

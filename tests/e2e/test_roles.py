# SPDX-License-Identifier: Apache-2.0
"""A job with a parameter server: a lost worker comes back while the others go on and reach it by the
name that they hold, and the job ends with its workers.
"""

from __future__ import annotations

from collections.abc import Callable

from jobs import UNTIL_TOLD, JobHandle, job, role, trainer
from kube import Kube, Object

Submit = Callable[[Object], JobHandle]

# Ends only when it is told to, and then with an exit code of its own.
SERVES = "trap 'exit 3' TERM; while :; do sleep 0.1; done"

# Rank 1 tells its address to those who connect. Rank 0 asks again and again, by the name that its
# rank table had when it started.
TALKS = """
if [ "$RANK" = 1 ]; then
  while :; do echo "rank 1 is at $PACELINE_POD_IP" | nc -l -p 7070; done &
else
  name=$(sed 's/.*"host":"\\(served-worker-1[^"]*\\)".*/\\1/' "$PACELINE_RANK_TABLE")
  while :; do nc -w 1 "$name" 7070 2>/dev/null; sleep 0.2; done &
fi
"""


def uids_by_name(handle: JobHandle) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in handle.pods()}


def test_lost_worker_of_a_server_is_replaced_alone(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    spec = job("served", TALKS + UNTIL_TOLD, replicas=2)
    server = {**role("server", 1, trainer(SERVES)), "kind": "ParameterServer"}
    workers = {**spec["spec"]["roles"][0], "startAfter": "server"}
    spec["spec"]["roles"] = [server, workers]
    handle = submit(spec)
    before = handle.wait_started(0, 2)
    handle.wait_phase("Running")
    uids = uids_by_name(handle)

    def rank_one_is_heard() -> bool:
        address = handle.pods()[2]["status"].get("podIP")
        return f"rank 1 is at {address}\n" in kube.logs(namespace, "served-worker-0-0")

    kube.wait("rank 0 hears rank 1", rank_one_is_heard, namespace, poll=0.3)
    kube.delete("pods", namespace, "served-worker-1-0")

    def is_back() -> bool:
        assert handle.phase == "Running", handle.status
        # The log of the lost pod can be read until the pod is gone.
        gone = "served-worker-1-0" not in handle.pod_names()
        return gone and handle.start_times(0).get(1, 0) > before[1]

    kube.wait("the worker is back", is_back, namespace, poll=0.3)
    after = uids_by_name(handle)
    assert set(after) == {"served-server-0-0", "served-worker-0-0", "served-worker-1-1"}
    for kept in ("served-server-0-0", "served-worker-0-0"):
        assert after[kept] == uids[kept]
    assert handle.start_times(0)[0] == before[0], "the other worker started again"
    kube.wait("rank 0 hears the new rank 1", rank_one_is_heard, namespace, poll=0.3)
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert (status["attempt"], status["restarts"]) == (0, 0)
    succeeded = {entry["name"]: entry["succeeded"] for entry in status["roles"]}
    assert succeeded == {"server": 1, "worker": 2}

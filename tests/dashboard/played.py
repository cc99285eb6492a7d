# SPDX-License-Identifier: Apache-2.0
"""The series of a job on two GPUs that trains a language model, for panels that no job on a CPU
fills: times of the device, tokens, MFU.
"""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

NAMESPACE, JOB = "played", "llm"
STEP_S = 0.25
TOKENS_A_STEP = 8192
PEAK = 989.4e12
# Shares of a step, on both clocks: the host waits in the optimizer for what the device computes.
HOST = {"data_wait": 0.02, "forward": 0.14, "backward": 0.19, "optimizer": 0.6, "other": 0.05}
DEVICE = {
    "forward": 0.27,
    "backward": 0.5,
    "comm_exposed": 0.08,
    "optimizer": 0.05,
    "idle_host": 0.06,
    "idle_gap": 0.04,
}


def series(seconds: float) -> str:
    """What a scrape finds after that time."""
    steps = seconds / STEP_S
    lines = []

    def add(name: str, kind: str, values: list[tuple[str, float]]) -> None:
        lines.append(f"# TYPE {name} {kind}")
        for labels, value in values:
            lines.append(f'{name}{{namespace="{NAMESPACE}",job="{JOB}"{labels}}} {value}')

    ranks = [f',role="worker",rank="{rank}",node="node-{rank}",gpu="GPU0"' for rank in (0, 1)]
    add("paceline_steps_total", "counter", [(rank, steps) for rank in ranks])
    add("paceline_tokens_total", "counter", [(rank, steps * TOKENS_A_STEP) for rank in ranks])
    add(
        "paceline_step_phase_seconds_total",
        "counter",
        [
            (f'{rank},phase="{phase}",clock="{clock}"', seconds * share)
            for rank in ranks
            for clock, shares in (("host", HOST), ("device", DEVICE))
            for phase, share in shares.items()
        ],
    )
    share = 0.41 + 0.02 * ((seconds / 7) % 1)
    add("paceline_job_mfu_ratio", "gauge", [("", share)])
    add("paceline_job_flops_per_second", "gauge", [("", share * PEAK)])
    straggler = ',kind="straggler",subject="compute",rank="1",node="node-1"'
    add("paceline_job_finding", "gauge", [(straggler, 1)])
    return "\n".join(lines) + "\n"


class Played:
    """Serves them with `with`, on `address`."""

    def __init__(self) -> None:
        began = time.monotonic()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = series(time.monotonic() - began).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = Thread(target=self.server.serve_forever)

    def __enter__(self) -> Played:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

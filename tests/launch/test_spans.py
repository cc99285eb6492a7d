# SPDX-License-Identifier: Apache-2.0
"""The spans of a job's life, sent by the real launcher to a collector that is played here. Their
JSON is read by OpenTelemetry's own protobufs, which know no other fields.
"""

from __future__ import annotations

import http.server
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local import run_job

ROOT = Path(__file__).resolve().parents[2]
PROTOBUFS = ["opentelemetry-proto==1.45.2", "protobuf==7.36.2"]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

# Trains some steps and fails; trains some more in the next attempt.
PROGRAM = """
import os, sys, time
import paceline

print("TRACEPARENT", os.environ.get("TRACEPARENT"), flush=True)
for number in range(40):
    time.sleep(0.1)
    paceline.step(number)
sys.exit(3 if os.environ["PACELINE_ATTEMPT"] == "0" else 0)
"""
# Ids are hexadecimal in OTLP's JSON, and base64 in that of protobuf: the one difference.
VALIDATE = """
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

for body in json.load(sys.stdin):
    for resource in body["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in {"traceId", "spanId", "parentSpanId"} & set(span):
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    message = json_format.ParseDict(body, ExportTraceServiceRequest())
    for resource in message.resource_spans:
        for span in resource.scope_spans[0].spans:
            assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
            assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
print("valid")
"""


class Collector(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def spans(self) -> list[dict[str, Any]]:
        return [
            span
            for body in self.requests
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.headers.append({"path": self.path, **dict(self.headers)})
        self.server.requests.append(json.loads(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def run(build: Path, folder: Path, **environment: str) -> tuple[int, str]:
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "train.py"]
    policy = {"maxRestarts": 1, "backoff": "100ms"}
    return run_job(build, folder, command, environment, replicas=2, failurePolicy=policy)


def test_a_collector_gets_the_life_of_a_job(
    build: Path, tmp_path: Path, collector: Collector
) -> None:
    code, output = run(
        build,
        tmp_path,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://localhost:{collector.server_port}",
        OTEL_EXPORTER_OTLP_HEADERS="api-key=secret",
        TRACEPARENT=f"00-{TRACE}-{PARENT}-01",
    )
    assert code == 0, output
    found = subprocess.run(
        [ROOT / "scripts" / "pypi-tool", *PROTOBUFS], check=True, capture_output=True, text=True
    ).stdout.split()[-1]
    told = json.dumps(collector.requests)
    done = subprocess.run([found, "-c", VALIDATE], input=told, capture_output=True, text=True)
    assert done.stdout == "valid\n", done.stderr
    assert all(one["path"] == "/v1/traces" for one in collector.headers)
    assert all(one["api-key"] == "secret" for one in collector.headers)

    # The launcher sends spans again whose answer came too late.
    told_once = {span["spanId"]: span for span in collector.spans()}.values()
    spans = {span["name"]: span for span in told_once}
    assert len(spans) == len(told_once) - 1, "only the first step comes twice"
    assert set(spans) == {
        "rendezvous",
        "attempt 0",
        "attempt 1",
        "first step",
        "restart",
        "job local",
    }
    assert {span["traceId"] for span in spans.values()} == {TRACE}
    root = spans["job local"]
    assert root["parentSpanId"] == PARENT and "status" not in root
    assert "code 3" in spans["attempt 0"]["status"]["message"], spans["attempt 0"]
    assert "status" not in spans["attempt 1"]
    assert all(spans[name]["parentSpanId"] == root["spanId"] for name in ("attempt 0", "restart"))
    order = [spans[name] for name in ("rendezvous", "attempt 0", "restart", "attempt 1")]
    for former, later in itertools.pairwise(order):
        assert former["endTimeUnixNano"] == later["startTimeUnixNano"]
    for attempt in (0, 1):
        within = spans[f"attempt {attempt}"]["spanId"]
        for rank in (0, 1):
            assert output.count(f"[{rank}] TRACEPARENT 00-{TRACE}-{within}-01") == 1, output


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("http://127.0.0.1:9", "spans do not reach the collector at 127.0.0.1:9"),
        ("http://nobody.invalid:4318", 'no server of DNS knows "nobody.invalid"'),
        ("https://127.0.0.1:4318", "no spans are exported: OTEL_EXPORTER_OTLP_ENDPOINT is"),
    ],
)
def test_a_job_goes_on_without_a_collector(
    build: Path, tmp_path: Path, endpoint: str, says: str
) -> None:
    began = time.monotonic()
    code, output = run(build, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert code == 0, output
    assert output.count(says) == 1, output
    assert time.monotonic() - began < 60

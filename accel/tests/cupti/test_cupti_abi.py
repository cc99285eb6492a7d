# SPDX-License-Identifier: Apache-2.0
"""Our declarations of CUPTI's interface (accel/src/cupti/abi.hpp) against NVIDIA's headers of two
releases. Only a compiler is needed: the comparison is made of static assertions.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# An environment that has them: `scripts/test cupti` makes it.
HEADERS = os.environ.get("PACELINE_CUPTI_HEADERS", "")
RELEASES = {"12.9": ("cuda_cupti", "9", "5", "4", "2"), "13.5": ("cu13", "11", "6", "4", "2")}

# Of each record, our member and NVIDIA's.
MEMBERS = {
    ("Kernel", "Kernel{}"): {
        "start": "start",
        "end": "end",
        "device": "deviceId",
        "stream": "streamId",
        "name": "name",
        "queued": "queued",
    },
    ("Memcpy", "Memcpy{}"): {
        "copy_kind": "copyKind",
        "bytes": "bytes",
        "start": "start",
        "end": "end",
        "device": "deviceId",
        "stream": "streamId",
    },
    ("Memset", "Memset{}"): {
        "bytes": "bytes",
        "start": "start",
        "end": "end",
        "device": "deviceId",
        "stream": "streamId",
    },
    ("GraphTrace", "GraphTrace{}"): {
        "start": "start",
        "end": "end",
        "device": "deviceId",
        "stream": "streamId",
    },
    ("Overhead", "Overhead3"): {"start": "start", "end": "end"},
}
NUMBERS = {
    "kSuccess": "CUPTI_SUCCESS",
    "kMultipleSubscribers": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
    "kMemcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "kMemset": "CUPTI_ACTIVITY_KIND_MEMSET",
    "kConcurrentKernel": "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "kOverhead": "CUPTI_ACTIVITY_KIND_OVERHEAD",
    "kGraphTrace": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "kHostToDevice": "CUPTI_ACTIVITY_MEMCPY_KIND_HTOD",
    "kHostToArray": "CUPTI_ACTIVITY_MEMCPY_KIND_HTOA",
    "kForced": "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED",
}
FUNCTIONS = {
    "cuptiSubscribe": "subscribe",
    "cuptiUnsubscribe": "unsubscribe",
    "cuptiActivityEnable": "enable",
    "cuptiActivityDisable": "disable",
    "cuptiActivityRegisterCallbacks": "register_callbacks",
    "cuptiActivityFlushAll": "flush",
    "cuptiActivityGetNextRecord": "next_record",
    "cuptiActivityGetNumDroppedRecords": "dropped_records",
    "cuptiGetTimestamp": "timestamp",
    "cuptiActivityEnableLatencyTimestamps": "latency_timestamps",
}


def program(versions: tuple[str, ...]) -> str:
    lines = [
        "#include <cupti_activity.h>",  # not all of CUPTI: it needs the newest cuda.h
        "#include <cstddef>",
        '#include "cupti/library.hpp"',
        "using namespace paceline::cupti;",
        # Pointers and enumerations are compared by their sizes.
        "template <typename R, typename... A> constexpr bool same(R (*)(A...), auto ours) {",
        "  return []<typename Q, typename... B>(Q (*)(B...)) {",
        "    return sizeof(R) == sizeof(Q) && ((sizeof(A) == sizeof(B)) && ...);",
        "  }(ours);",
        "}",
    ]
    for ours, theirs in NUMBERS.items():
        lines.append(f"static_assert(static_cast<long>({ours}) == static_cast<long>({theirs}));")
    for ((ours, form), members), version in zip(MEMBERS.items(), (*versions, "")):
        theirs = f"CUpti_Activity{form.format(version)}"
        lines.append(f"static_assert(sizeof({ours}) <= sizeof({theirs}));")
        for one, other in members.items():
            lines += [
                f"static_assert(offsetof({ours}, {one}) == offsetof({theirs}, {other}));",
                f"static_assert(sizeof({ours}::{one}) == sizeof({theirs}::{other}));",
            ]
    for theirs, ours in FUNCTIONS.items():
        lines.append(f"static_assert(same(&{theirs}, decltype(Library::{ours}){{}}));")
    return "\n".join([*lines, "int main() {}", ""])


@pytest.mark.skipif(not HEADERS, reason="scripts/test cupti brings the headers")
@pytest.mark.parametrize("release", RELEASES)
def test_our_declarations_are_those_of_the_headers(release: str) -> None:
    folder, *versions = RELEASES[release]
    command = ["g++", "-std=c++23", "-fsyntax-only", "-Wno-invalid-offsetof", "-x", "c++", "-"]
    (packages,) = Path(HEADERS).glob("lib/python*/site-packages/nvidia")
    for include in (ROOT / "accel/src", packages / folder / "include", packages / "cu13/include"):
        command.append(f"-I{include}")
    done = subprocess.run(
        command, input=program(tuple(versions)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

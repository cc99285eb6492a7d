# SPDX-License-Identifier: Apache-2.0
"""A strict check of the Chrome JSON trace format, as ui.perfetto.dev reads it."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

# What each kind of event must have, beside ph, name, pid, tid and ts.
KINDS = {
    "X": {"dur"},
    "M": {"args"},
    "i": {"s"},
    "s": {"id", "cat"},
    "t": {"id", "cat"},
    "f": {"id", "cat"},
    "C": {"args"},
}
Event = dict[str, Any]


def read(path: Path) -> tuple[dict[str, Any], list[Event]]:
    """The document and its events, after every event was checked."""
    text = path.read_bytes()
    if path.suffix == ".gz":
        text = gzip.decompress(text)
    document = json.loads(text, parse_constant=lambda word: pytest_fail(f"{word} is not JSON"))
    events = document["traceEvents"]
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in events:
        check(event)
    named = {event["pid"] for event in events if event["name"] == "process_name"}
    assert {event["pid"] for event in events} == named, (
        "a process without a name, or without events"
    )
    return document, events


def pytest_fail(text: str) -> None:
    raise AssertionError(text)


def check(event: Event) -> None:
    kind = event["ph"]
    assert kind in KINDS, event
    assert isinstance(event["name"], str), event
    for number in ("pid", "tid"):
        assert isinstance(event[number], int), event
    assert isinstance(event["ts"], (int, float)) and abs(event["ts"]) < 1e15, event
    assert KINDS[kind] <= event.keys(), event
    if kind == "X":
        assert event["dur"] >= 0, event
    if kind == "i":
        assert event["s"] in ("t", "p"), event


def nested(events: list[Event]) -> None:
    """On each track an event lies within the one that contains its begin."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], -event["dur"], event["name"]))
    for track in tracks.values():
        open_until = []
        for begin, negative, name in sorted(track):
            while open_until and open_until[-1] <= begin + 0.002:
                open_until.pop()
            end = begin - negative
            assert not open_until or end <= open_until[-1] + 0.002, name
            open_until.append(end)


def names_of(events: list[Event], kind: str) -> dict[int, str]:
    return {event["pid"]: event["args"]["name"] for event in events if event["name"] == kind}

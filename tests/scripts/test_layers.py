# SPDX-License-Identifier: Apache-2.0
"""linting.layers finds includes that go uphill and files that include themselves."""

from __future__ import annotations

import pytest
from linting import layers

Graph = dict[str, dict[str, int]]


def test_rooms_of_the_repository_name_only_rooms_above_them() -> None:
    assert layers.check_table() == []


def test_a_table_with_a_cycle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "ROOMS", {"a": "b", "b": "a"})
    assert layers.check_table() == ["scripts/linting/layers.py: a names b, which is not above it"]


def test_an_include_from_the_ground_up_is_named_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layers, "ROOMS", {"base": "", "base/net": "base", "cli": "base/"})
    graph: Graph = {
        "base/net/port.cpp": {"base/error.hpp": 3},
        "base/error.cpp": {"base/net/port.hpp": 7},
        "cli/main.cpp": {"base/net/port.hpp": 1},
    }
    assert layers.check_rooms(graph) == ["base/error.cpp:7: base may not include base/net/port.hpp"]


def test_a_file_outside_every_room_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "ROOMS", {"base": ""})
    problems = layers.check_rooms({"attic/box.cpp": {}})
    assert len(problems) == 1
    assert problems[0].startswith("attic/box.cpp: in no room")


def test_a_source_and_its_header_count_as_one_file() -> None:
    graph: Graph = {
        "a/one.cpp": {"a/one.hpp": 1, "a/two.hpp": 2},
        "a/one.hpp": {},
        "a/two.hpp": {},
        "a/two.cpp": {"a/two.hpp": 1},
    }
    assert layers.cycles(graph) == []
    graph["a/two.hpp"] = {"a/one.hpp": 1}
    assert layers.cycles(graph) == [["a/one", "a/two"]]

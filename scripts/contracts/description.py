# SPDX-License-Identifier: Apache-2.0
"""What the loaded contract.yaml describes, and the words that several generated files share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

SOURCE = "common/contract/contract.yaml"
Contract = dict[str, Any]


def variables(contract: Contract) -> list[tuple[str, dict[str, Any]]]:
    """Groups of variables: those that contract.yaml lists, and those of spec.acceleration."""
    groups = [(group["group"], dict(group["names"])) for group in contract["variables"]]
    acceleration = contract["acceleration"]
    numerics = {**acceleration["numerics"], "name": "numerics"}
    own: dict[str, Any] = {}
    for field in [numerics, *acceleration["features"]]:
        own[field["variable"]] = {
            "by": "operator",
            "for": ["python"],
            "person": True,
            "values": field.get("values", []),
            "default": default_of(field),
            "meaning": field["meaning"],
            "field": field["name"],
        }
    return [*groups, ("Acceleration", own)]


def default_of(field: dict[str, Any]) -> str:
    """What the training process takes where its variable is not set."""
    return "Disabled" if field["default"] == "ByMode" else str(field["default"])


def constant(name: str, prefix: str = "PACELINE_") -> str:
    """kJobName of PACELINE_JOB_NAME, kStepSeconds of paceline_step_seconds, kCudaGraph of
    cudaGraph.
    """
    words = name.removeprefix(prefix).split("_")
    lower = [word.lower() if word.isupper() else word for word in words]
    return "k" + "".join(word[0].upper() + word[1:] for word in lower)


def quoted(text: object) -> str:
    return json.dumps(str(text), ensure_ascii=False)


def pattern(grammar: dict[str, Any], off: str) -> str:
    """The values of a grammar as a regular expression that CEL's, ECMAScript's and Python's engines
    read alike.
    """

    def number(name: str) -> str:
        setting = grammar["settings"][name]
        if "decimals" in setting:
            return rf"{name}=0\.[0-9]{{0,{setting['decimals'] - 1}}}[1-9]"
        least = setting["least"]
        if least == 1:
            return f"{name}=[1-9][0-9]{{0,8}}"
        return f"{name}=([{least}-9]|[1-9][0-9]{{1,8}})"

    def some(names: list[str]) -> str:
        """One or more of them, in this order."""
        first = number(names[0])
        if len(names) == 1:
            return first
        return f"({first}|({first},)?{some(names[1:])})"

    same: dict[tuple[str, ...], list[str]] = {}
    for name, settings in grammar["names"].items():
        same.setdefault(tuple(settings), []).append(name)
    ways = [
        (names[0] if len(names) == 1 else f"({'|'.join(names)})")
        + (f"(:{some(list(settings))})?" if settings else "")
        for settings, names in same.items()
    ]
    if "digits" in grammar:
        ways.append(f"[1-9][0-9]{{0,{grammar['digits'] - 1}}}")
    return f"^({'|'.join([off, *ways])})$"


def settings_of(grammar: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(name, setting, what it takes) with the default that this name has."""
    for name, settings in grammar["names"].items():
        own = grammar.get("defaults", {}).get(name, {})
        for setting in settings:
            known = grammar["settings"][setting]
            yield name, setting, {**known, "default": own.get(setting, known["default"])}

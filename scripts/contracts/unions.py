# SPDX-License-Identifier: Apache-2.0
"""How a job writes a value that has settings: as an object with exactly one member, which names the
way. The training process gets the same value as a text. operator/api/features/compression.cpp turns
one into the other.
"""

from __future__ import annotations

from typing import Any

from contracts.description import Contract, quoted, settings_of

OFF = "disabled"
# Of each way of the grammar `compression`: its member, and what it does.
WAYS = {
    "FP16": ("fp16", "Every value in 16 bits, with the exponent of IEEE's half precision."),
    "BF16": ("bf16", "Every value in 16 bits, with the exponent of float32."),
    "Int8": ("int8", "Every value in 8 bits, and a scale for 256 values."),
    "TopK": ("topK", "The largest values, and their indices."),
    "PowerSGD": ("powerSGD", "Matrices as products of two thin ones."),
}
FIELDS = {
    "ratio": ("ratio", "Share of the values that are sent, in quotes: from 0.000001 and below 1."),
    "rank": ("rank", "Columns of the thin matrices."),
    "start": ("startStep", "Steps before the first that is compressed."),
}
MOST = 999_999_999
MEANING = (
    "Those gradients go between hosts in fewer bytes, with error feedback. Exactly one member says"
    f" how; {OFF} turns off what a RuntimeProfile turns on."
)
EXAMPLE = "compression: {powerSGD: {rank: 1, startStep: 1000}}"


def is_union(field: dict[str, Any], contract: Contract) -> bool:
    """Whether a feature of spec.acceleration takes values that have settings."""
    grammars = contract["acceleration"]["grammars"]
    return "grammar" in field and bool(grammars[field["grammar"]]["settings"])


def members(grammar: dict[str, Any]) -> list[str]:
    return [OFF, *(WAYS[name][0] for name in grammar["names"])]


def spec_schema(grammar: dict[str, Any]) -> list[str]:
    """What stands below the type and the description of the field that a person writes."""
    names = members(grammar)
    given = ", ".join(f"has(self.{name})" for name in names)
    rule = f"[{given}].exists_one(given, given)"
    message = f"write exactly one of {', '.join(names[:-1])} and {names[-1]}, such as {EXAMPLE}"
    lines = [
        # Two appliers with a member each would make an object with two members.
        "x-kubernetes-map-type: atomic",
        "x-kubernetes-validations:",
        f"  - rule: {quoted(rule)}",
        f"    message: {quoted(message)}",
        "properties:",
        f"  {OFF}: {{type: object, description: Gradients are sent whole.}}",
    ]
    for name in grammar["names"]:
        member, meaning = WAYS[name]
        lines += [f"  {member}:", "    type: object", f"    description: {quoted(meaning)}"]
        lines.append("    properties:")
        for field, about, found in _settings(grammar, name):
            description = f"{about} Unset: {found['default']}."
            lines += [f"      {field}:", f"        description: {quoted(description)}"]
            lines += [f"        {line}" for line in _limits(found)]
    return lines


def status_schema(grammar: dict[str, Any]) -> list[str]:
    """The same of the field that the operator writes."""
    lines = ["properties:"]
    for name in grammar["names"]:
        lines += [f"  {WAYS[name][0]}:", "    type: object", "    properties:"]
        for field, _, found in _settings(grammar, name):
            kind = "string, maxLength: 8" if "decimals" in found else "integer, format: int32"
            lines.append(f"      {field}: {{type: {kind}}}")
    return lines


def _settings(grammar: dict[str, Any], name: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(field, meaning, what it takes) of each setting of a way."""
    return [
        (*FIELDS[setting], found) for way, setting, found in settings_of(grammar) if way == name
    ]


def _limits(found: dict[str, Any]) -> list[str]:
    if "decimals" in found:
        digits = rf"^0\.[0-9]{{0,{found['decimals'] - 1}}}[1-9]$"
        return ["type: string", "maxLength: 8", f"pattern: '{digits}'"]
    bounds = [f"minimum: {found['least']}", f"maximum: {MOST}"]
    return ["type: integer", "format: int32", *bounds]

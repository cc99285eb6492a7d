# SPDX-License-Identifier: Apache-2.0
"""The parts of the CRDs that scripts/contract writes."""

from __future__ import annotations

import re
from typing import Any

from contracts import unions
from contracts.description import Contract, pattern, quoted
from contracts.unions import is_union


def schema(contract: Contract, kind: str) -> list[str]:
    """spec.acceleration of a TrainingJob or a RuntimeProfile, below its type and description."""
    acceleration = contract["acceleration"]
    features = acceleration["features"]
    lines = ["x-kubernetes-validations:"]

    def rule(expression: str, message: str) -> None:
        lines.append(f"  - rule: {quoted(expression)}")
        lines.append(f"    message: {quoted(message)}")

    objects = {field["name"] for field in features if is_union(field, contract)}

    def off(name: str) -> str:
        is_off = (
            f"has(self.{name}.{unions.OFF})" if name in objects else f"self.{name} == 'Disabled'"
        )
        return f"!has(self.{name}) || {is_off}"

    shown = [
        name + (": Auto" if field.get("values") == ["Auto", "Disabled"] else "")
        for field in features
        for name in [field["name"]]
    ]
    rule(
        "!has(self.mode) || self.mode != 'Disabled' || ("
        + " && ".join(f"({off(field['name'])})" for field in features)
        + ")",
        f"mode: Disabled contradicts {', '.join(shown[:-1])} and {shown[-1]}: remove them, or write"
        " mode: Manual",
    )
    for field in features:
        name = field["name"]
        if field["numerics"] == "Lossy":
            rule(
                f"{off(name)} || (has(self.numerics) && self.numerics == 'Lossy')",
                f"{name} loses precision, which only numerics: Lossy allows: write numerics: Lossy"
                f" beside it, or remove {name}",
            )
        if needs := field.get("needs"):
            rule(
                f"{off(name)} || !has(self.{needs}) || self.{needs} != 'Disabled'",
                f"{name} contradicts {needs}: Disabled: remove one of them",
            )
    lines.append("properties:")
    if kind == "TrainingJob":
        lines += [
            "  runtimeProfileName:",
            "    type: string",
            "    description: The RuntimeProfile that says what is unset here. Unset, the one named"
            " default, where there is one.",
            "    maxLength: 253",
        ]
    for name in ("mode", "numerics"):
        field = acceleration[name]
        lines += property_of(name, field, f"{field['meaning']} {field['unset'][kind]}", contract)
    for field in features:
        meaning = unions.MEANING if field["name"] in objects else field["meaning"]
        meaning += f" Numerics class: {field['numerics']}."
        if kind == "RuntimeProfile":
            by_mode = field["default"] == "ByMode"
            default = unions.OFF if field["name"] in objects else field["default"]
            meaning += " Unset: " + ("as mode says." if by_mode else f"{default}.")
        lines += property_of(field["name"], field, meaning, contract)
    return lines


def property_of(
    name: str, field: dict[str, Any], description: str, contract: Contract
) -> list[str]:
    def of_type(kind: str) -> list[str]:
        return [f"  {name}:", f"    type: {kind}", f"    description: {quoted(description)}"]

    if "values" in field:
        return [*of_type("string"), f"    enum: [{', '.join(field['values'])}]"]
    grammar = contract["acceleration"]["grammars"][field["grammar"]]
    if is_union(field, contract):
        return [*of_type("object"), *(f"    {line}" for line in unions.spec_schema(grammar))]
    return [
        *of_type("string"),
        "    maxLength: 64",
        f"    pattern: '{pattern(grammar, 'Disabled')}'",
    ]


def status_schema(contract: Contract) -> list[str]:
    """status.acceleration: a feature that mode does not govern is there only if it is not at its
    default.
    """
    numerics = ", ".join(contract["acceleration"]["numerics"]["values"])
    lines = [
        "properties:",
        "  profile: {type: string, maxLength: 253}",
        f"  numerics: {{type: string, enum: [{numerics}]}}",
    ]
    for field in contract["acceleration"]["features"]:
        if is_union(field, contract):
            grammar = contract["acceleration"]["grammars"][field["grammar"]]
            lines += [f"  {field['name']}:", "    type: object"]
            lines += [f"    {line}" for line in unions.status_schema(grammar)]
            continue
        limits = "maxLength: 64"
        if "values" in field:
            left = [value for value in field["values"] if value != field["default"]]
            limits = f"enum: [{', '.join(left)}]"
        lines.append(f"  {field['name']}: {{type: string, {limits}}}")
    return lines


def with_block(text: str, name: str, lines: list[str]) -> str:
    """`text` with what stands between the two comments that name the block exchanged."""
    found = re.search(rf"^( *)# begin {name} .*\n((?:.*\n)*?) *# end {name}\n", text, re.M)
    if found is None:
        raise ValueError(f"there is no '# begin {name}' with its '# end {name}'")
    block = "".join(f"{found[1]}{line}\n" for line in lines)
    return text[: found.start(2)] + block + text[found.end(2) :]

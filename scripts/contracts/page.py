# SPDX-License-Identifier: Apache-2.0
"""docs/reference/contract.md: contract.yaml as tables for people."""

from __future__ import annotations

from typing import Any

from contracts import unions
from contracts.description import SOURCE, Contract, default_of, settings_of, variables
from contracts.unions import is_union

WRITERS = {
    "operator": "operator",
    "run": "`paceline run`",
    "launcher": "launcher",
    "agent": "agent",
    "person": "a person",
}
READERS = {
    "operator": "operator, agent",
    "launcher": "launcher",
    "library": "libpaceline.so",
    "python": "package paceline",
    "program": "the program",
}
HEAD = f"""# Settings, names and metrics

`scripts/contract` makes this page from [`{SOURCE}`](../../{SOURCE}): edit that file.

| question | section |
|---|---|
| What may a job write in `spec.acceleration`? | [Acceleration](#acceleration) |
| Which environment variables may I set? | [Variables](#environment-variables) |
| What do labels, ports and exit codes mean? | [Names and numbers](#names-and-numbers) |
| Which metrics are exported? | [Metrics](#metrics) |
"""


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def code(text: object) -> str:
    return f"`{text}`"


def choice(values: list[str]) -> str:
    return ", ".join(map(code, values))


def acceleration(contract: Contract) -> str:
    known = contract["acceleration"]
    rows = []
    for name in ("mode", "numerics"):
        field = known[name]
        default = code(field["default"]) if "default" in field else "`Auto`"
        rows.append([code(name), choice(field["values"]), default, "", field["meaning"]])
    for field in known["features"]:
        values = field.get("values")
        meaning = field["meaning"]
        default = "as `mode` says" if field["default"] == "ByMode" else code(default_of(field))
        if is_union(field, contract):
            default = code(unions.OFF)
            values, meaning = unions.members(known["grammars"][field["grammar"]]), unions.MEANING
        elif values is None:
            grammar = known["grammars"][field["grammar"]]
            values = ["Disabled", *grammar["names"]]
            values += [f"1 to {10 ** grammar['digits'] - 1}"] if "digits" in grammar else []
        rows.append([code(field["name"]), choice(values), default, field["numerics"], meaning])
    text = "\n## Acceleration\n\n"
    text += "Fields of `spec.acceleration` of a TrainingJob and of a RuntimeProfile.\n"
    text += "The default holds where neither of the two names the field.\n\n"
    text += table(["field", "values", "default", "class", "meaning"], rows)
    for name, grammar in known["grammars"].items():
        if not grammar["settings"]:
            continue
        text += f"\n`{name}` is an object with exactly one member: `{unions.EXAMPLE}`.\n"
        text += "Its variable has the same as a text: `PowerSGD:rank=1,start=1000`.\n\n"
        rows = [
            [
                code(unions.WAYS[way][0]),
                code(unions.FIELDS[setting][0]),
                code(f"{way}:{setting}="),
                code(found["default"]),
                found["meaning"],
            ]
            for way, setting, found in settings_of(grammar)
        ]
        text += table(["member", "field", "in the variable", "default", "meaning"], rows)
    return text


def kind(entry: dict[str, Any]) -> str:
    if entry.get("values"):
        return choice(entry["values"])
    if entry.get("type") == "whole":
        return f"{entry['least']} to {entry['most']}"
    return entry.get("type", "text")


def meaning(entry: dict[str, Any]) -> str:
    if "field" in entry:
        return code(f"spec.acceleration.{entry['field']}")
    return str(entry["meaning"])


def environment(contract: Contract) -> str:
    text = "\n## Environment variables\n\n"
    text += "You may set those marked yes, in a pod template or around `paceline run`.\n"
    text += "Paceline sets all others and refuses them in a template.\n"
    text += "On one machine, `paceline run` sets what in a cluster the operator does.\n"
    for title, group in variables(contract):
        rows = [
            [
                code(name),
                kind(entry),
                code(entry["default"]) if "default" in entry else "",
                WRITERS[entry["by"]],
                ", ".join(READERS[reader] for reader in entry["for"]),
                "yes" if entry.get("person") else "",
                meaning(entry),
            ]
            for name, entry in group.items()
        ]
        heads = ["variable", "value", "default", "set by", "read by", "you may set it", "meaning"]
        text += f"\n### {title}\n\n" + table(heads, rows)
    return text


def names(contract: Contract) -> str:
    text = "\n## Names and numbers\n"
    for group in contract["names"]:
        key = next(key for key in ("name", "port", "code", "bytes") if key in first_of(group))
        rows = [[code(entry[key]), entry["meaning"]] for entry in group["constants"].values()]
        text += f"\n### {group['group']}\n\n" + table([key, "meaning"], rows)
        if "note" in group:
            text += f"\n{group['note']}\n"
    return text


def first_of(group: dict[str, Any]) -> dict[str, Any]:
    return next(iter(group["constants"].values()))


def metrics(contract: Contract) -> str:
    text = "\n## Metrics\n\nWhat is not measured has no series; it is never 0.\n"
    text += "[Metrics](../operate/metrics.md) says who serves them and how to read them.\n"
    for group in contract["metrics"]:
        shared = choice(group["labels"])
        text += f"\n### {group['group']}\n\n"
        text += f"Labels of every series: {shared}.\n\n" if shared else ""
        rows = [
            [
                code(name),
                entry["type"],
                entry.get("unit", ""),
                choice(entry.get("labels", [])),
                entry["help"].rstrip("."),
            ]
            for name, entry in group["series"].items()
        ]
        text += table(["metric", "type", "unit", "more labels", "meaning"], rows)
    return text


def page(contract: Contract) -> str:
    parts = (acceleration, environment, names, metrics)
    return HEAD + "".join(part(contract) for part in parts)

# SPDX-License-Identifier: Apache-2.0
"""Reads OpenAPI schemas, and makes values from them that are wrong.

A property's path is written as in error messages. `[]` stands for each element of a list, and `{}`
for each value of a map: `spec.roles[].template.metadata.labels{}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kube import Object

ELEMENT, VALUE = "[]", "{}"
KEY = "example"  # stands for any key of a map


@dataclass(frozen=True)
class Property:
    """A place of a schema that holds a value. `owner` is the component that has the property."""

    path: tuple[str, ...]
    schema: Object
    owner: str

    def __str__(self) -> str:
        text = ""
        for part in self.path:
            text += part if part in (ELEMENT, VALUE) else f".{part}"
        return text.removeprefix(".")

    @property
    def key(self) -> str:
        """The last name of the path."""
        return next(part for part in reversed(self.path) if part not in (ELEMENT, VALUE))

    def holding(self, value: Any) -> Any:
        """The smallest document that has the value at this path."""
        for part in reversed(self.path):
            value = [value] if part == ELEMENT else {KEY if part == VALUE else part: value}
        return value


def _component(schema: Object) -> str:
    """The name of the component that a schema refers to, or an empty one."""
    references = [schema, *schema.get("allOf", [])]
    found = next((part["$ref"] for part in references if "$ref" in part), "")
    return str(found).rpartition("/")[2]


def properties(schema: Object, components: Object | None = None) -> list[Property]:
    """Every property below a schema, parents first. A component is not entered inside itself."""

    def walk(schema: Object, path: tuple[str, ...], above: tuple[str, ...]) -> Iterator[Property]:
        name = _component(schema)
        again = name in above
        if name:
            schema, above = (components or {})[name], (*above, name)
        if path:
            yield Property(
                path, schema, owners[-1] if (owners := above[:-1] if name else above) else ""
            )
        if again:
            return
        places = dict(schema.get("properties", {}))
        if isinstance(schema.get("items"), dict):
            places[ELEMENT] = schema["items"]
        if isinstance(schema.get("additionalProperties"), dict):
            places[VALUE] = schema["additionalProperties"]
        for key, inner in places.items():
            yield from walk(inner, (*path, key), above)

    return list(walk(schema, (), ()))


def kind_of(schema: Object) -> str:
    """A type of JSON, or what takes several: `int-or-string` or `quantity`."""
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return "int-or-string"
    if "oneOf" in schema:
        return "quantity"
    return str(schema["type"])


WRONG: dict[str, list[Any]] = {
    "string": [5, ["text"]],
    "integer": ["many", {"a": 1}],
    "boolean": ["yes", 1],
    "array": [5, {"a": 1}],
    "object": [5, ["text"]],
    "int-or-string": [True, ["text"]],
    "quantity": [True, ["text"]],
}


def wrong_types(schema: Object) -> list[Any]:
    """Values of types that the schema refuses."""
    if schema.get("format") == "date-time":
        return [5, "yesterday"]  # the API server lets a list of texts pass for a time
    return WRONG[kind_of(schema)]


def merged(base: Any, change: Any) -> Any:
    """`change` laid over `base`: maps by key, and lists element by element."""
    if isinstance(base, dict) and isinstance(change, dict):
        return {
            key: merged(base[key], change[key])
            if key in base and key in change
            else change.get(key, base.get(key))
            for key in [*base, *(key for key in change if key not in base)]
        }
    if isinstance(base, list) and isinstance(change, list) and change:
        pairs = [merged(old, new) for old, new in zip(base, change, strict=False)]
        return pairs + base[len(pairs) :] + change[len(pairs) :]
    return change

# SPDX-License-Identifier: Apache-2.0
"""The C++ headers and the Python module that scripts/contract writes, one function for each.

Nothing here reads or writes files. clang-format lays out the C++.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from contracts.description import (
    SOURCE,
    Contract,
    constant,
    default_of,
    pattern,
    quoted,
    settings_of,
    variables,
)

ROOT = Path(__file__).resolve().parents[2]


def cpp(purpose: str, body: str, includes: str, space: str) -> str:
    text = f"""// SPDX-License-Identifier: Apache-2.0
// {purpose} Made by scripts/contract from {SOURCE}: edit that file.
#pragma once

{includes}
namespace {space} {{

{body}
}}  // namespace {space}
"""
    command = ["clang-format-19", f"--style=file:{ROOT / '.clang-format'}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout


def env_header(contract: Contract) -> str:
    most = 0
    body = ""
    names: list[str] = []
    persons: list[str] = []
    groups = variables(contract)
    for _, group in groups:
        most = max([most, *(len(entry.get("values", [])) for entry in group.values())])
    for title, group in groups:
        body += f"// {title}.\n"
        for name, entry in group.items():
            fields = [quoted(name), quoted(entry["meaning"])]
            more = [quoted(entry["default"])] if "default" in entry else ['""']
            more.append("{" + ", ".join(map(quoted, entry.get("values", []))) + "}")
            more += [str(entry[key]) for key in ("least", "most") if key in entry]
            while more and more[-1] in ('""', "{}"):
                more.pop()
            body += f"inline constexpr Variable {constant(name)}{{{', '.join(fields + more)}}};\n"
            names.append(constant(name))
            if entry.get("person"):
                persons.append(constant(name))
        body += "\n"
    body = f"""
struct Variable {{
  std::string_view name;
  std::string_view meaning;
  /// What an absent variable means; empty: nothing in particular.
  std::string_view fallback{{}};
  /// All that may be written, where it is one of a few words; the rest is empty.
  std::array<std::string_view, {most}> values{{}};
  // of a whole number
  int least = 0;
  int most = 0;
}};

{body}
// What a person may set, in a pod template or around `paceline run`. Paceline sets all others.
inline constexpr std::array kUsers{{{", ".join(persons)}}};

constexpr bool is_users(std::string_view name) {{
  for (const Variable& variable : kUsers)
    if (variable.name == name) return true;
  return false;
}}

inline constexpr std::array kAll{{{", ".join(names)}}};
"""
    return cpp(
        "Every environment variable of Paceline's own. Frameworks' variables (PET_*, MASTER_ADDR,"
        " PYTHONPATH, NCCL_*) are composed by the launcher, which sees the values of the image and"
        " of the user.",
        body,
        "#include <array>\n#include <string_view>\n",
        "paceline::env",
    )


def labels_header(contract: Contract) -> str:
    body = ""
    for group in contract["names"]:
        body += f"// {group['group']}.{' ' + group['note'] if 'note' in group else ''}\n"
        for name, entry in group["constants"].items():
            if entry.get("for") == "chart":
                continue
            body += f"/// {entry['meaning'][0].upper() + entry['meaning'][1:]}.\n"
            if "name" in entry:
                body += f"inline constexpr std::string_view {name} = {quoted(entry['name'])};\n"
            for key, kind in (("port", "std::uint16_t"), ("code", "int"), ("bytes", "std::size_t")):
                if key in entry:
                    body += f"inline constexpr {kind} {name} = {entry[key]};\n"
        body += "\n"
    return cpp(
        "Names and numbers that the parts of Paceline share through the Kubernetes API.",
        body,
        "#include <cstddef>\n#include <cstdint>\n#include <string_view>\n",
        "paceline::contract",
    )


def acceleration_header(contract: Contract) -> str:
    acceleration = contract["acceleration"]
    features = acceleration["features"]

    def words(values: list[str]) -> str:
        return ", ".join(quoted(value) for value in values)

    body = ""
    for name, kind in (("mode", "Mode"), ("numerics", "Numerics")):
        values = acceleration[name]["values"]
        body += f"enum class {kind} {{{', '.join(constant(value) for value in values)}}};\n"
        body += f"inline constexpr std::array<std::string_view, {len(values)}> "
        body += f"{constant(kind)}Names{{{words(values)}}};\n"
    default = constant(acceleration["numerics"]["default"])
    body += f"""
inline constexpr Numerics kDefaultNumerics = Numerics::{default};
/// What turns a feature off, whatever else it may be set to.
inline constexpr std::string_view kOff = "Disabled";
/// What turns on a feature that has no other settings.
inline constexpr std::string_view kOn = "Auto";

enum class Feature : std::size_t {{{", ".join(constant(f["name"]) for f in features)}}};

struct FeatureRule {{
  std::string_view name;      // of the field of spec.acceleration
  std::string_view variable;  // by which the training process learns of it
  /// What may be written. Empty: what `pattern` matches.
  std::span<const std::string_view> values;
  std::string_view pattern;  // ECMAScript
  std::string_view problem;  // what is wrong with a value that `pattern` does not match
  std::string_view remedy;   // and what to write
  /// What holds where neither the job nor the profile names the field; with `by_mode` only
  /// unless mode is Auto.
  std::string_view fallback;
  bool by_mode;
  Numerics numerics;  // its class
  std::optional<Feature> needs;
}};

"""
    for field in features:
        if "values" in field:
            body += f"inline constexpr std::array<std::string_view, {len(field['values'])}> "
            body += f"{constant(field['name'])}Values{{{words(field['values'])}}};\n"
    body += "/// In the order of Feature.\n"
    body += f"inline constexpr std::array<FeatureRule, {len(features)}> kFeatures{{{{\n"
    for field in features:
        name = constant(field["name"])
        grammar = acceleration["grammars"].get(field.get("grammar"), {})
        shape = quoted(pattern(grammar, "Disabled")) if grammar else '""'
        needs = f"Feature::{constant(field['needs'])}" if "needs" in field else "std::nullopt"
        body += f"""FeatureRule{{
  .name = {quoted(field["name"])},
  .variable = {quoted(field["variable"])},
  .values = {name + "Values" if "values" in field else "{}"},
  .pattern = {shape},
  .problem = {quoted(grammar.get("problem", ""))},
  .remedy = {quoted(grammar.get("remedy", ""))},
  .fallback = {quoted(default_of(field))},
  .by_mode = {str(field["default"] == "ByMode").lower()},
  .numerics = Numerics::{constant(field["numerics"])},
  .needs = {needs},
}},
"""
    body += "}};\n"
    return cpp(
        "The fields of spec.acceleration, as data: what may be written, the defaults, and which"
        " variable tells the training process.",
        body,
        "#include <array>\n#include <cstddef>\n#include <optional>\n#include <span>\n"
        "#include <string_view>\n",
        "paceline::contract",
    )


def library_header(contract: Contract) -> str:
    body = ""
    for _, group in variables(contract):
        for name, entry in group.items():
            if "library" in entry["for"]:
                body += f"/// {entry['meaning']}\n"
                body += f"inline constexpr const char* {constant(name)} = {quoted(name)};\n"
    purpose = "The environment variables that libpaceline.so reads."
    return cpp(purpose, body, "", "paceline::runtime_env")


def python_module(contract: Contract) -> str:
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        f"# Made by scripts/contract from {SOURCE}: edit that file.",
        '"""The environment variables that the runtime reads, with their values and defaults."""',
        "",
        "from __future__ import annotations",
        "",
    ]
    values, defaults = [], []
    for _, group in variables(contract):
        for name, entry in group.items():
            if "python" not in entry["for"]:
                continue
            own = name.removeprefix("PACELINE_")
            lines.append(f'{own} = "{name}"')
            if entry.get("values"):
                words = ", ".join(map(quoted, entry["values"]))
                values.append(f"    {own}: ({words}{',' if len(entry['values']) == 1 else ''}),")
            if "default" in entry:
                defaults.append(f"    {own}: {quoted(entry['default'])},")
    lines += ["", "# What may be written, where it is one of a few words."]
    lines += ["VALUES: dict[str, tuple[str, ...]] = {", *values, "}"]
    lines += ["# What holds where the variable is not set, or empty."]
    lines += ["DEFAULTS: dict[str, str] = {", *defaults, "}"]
    for name, grammar in contract["acceleration"]["grammars"].items():
        if not grammar["settings"]:
            continue
        lines += ["# Ways, and of each setting: its type, the least value, the default."]
        lines += [f"{name.upper()}: dict[str, dict[str, tuple[type, float, float]]] = {{"]
        ways: dict[str, list[str]] = {}
        for way, setting, known in settings_of(grammar):
            kind = "float" if "decimals" in known else "int"
            least = known.get("least", f"1e-{known.get('decimals', 0)}")
            told = f'"{setting}": ({kind}, {least}, {known["default"]})'
            ways.setdefault(way, []).append(told)
        lines += [f'    "{way}": {{{", ".join(told)}}},' for way, told in ways.items()]
        lines += ["}"]
    return "\n".join(lines).replace("1e-6", "1e-06") + "\n"


# -- CRDs -----------------------------------------------------------------------------------------

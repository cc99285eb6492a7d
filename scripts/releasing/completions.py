# SPDX-License-Identifier: Apache-2.0
"""Shell completions of a command line, made from the text that its --help prints.

The text is CLI11's: a line "Options:" or "Subcommands:", and below it one indented line for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

# Where CLI11 begins descriptions.
COLUMN = 30


@dataclass(frozen=True)
class Option:
    """One option, with all of its names and whether a value follows it."""

    names: tuple[str, ...]
    takes_value: bool
    about: str


@dataclass
class Command:
    """A program or one of its subcommands."""

    name: str
    about: str = ""
    options: list[Option] = field(default_factory=list)
    subcommands: list[Command] = field(default_factory=list)


def parse(name: str, text: str) -> Command:
    """What one --help text says; of the subcommands only names and descriptions."""
    command = Command(name, text.strip().split("\n", 1)[0])
    lines = text.splitlines()
    section = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.endswith(":") and not line.startswith(" "):
            section = line[:-1]
        if not re.match(r"  \S", line):
            continue
        # A description that does not fit beside its option is on the next line.
        below = following.startswith(" " * COLUMN)
        head, about = (line, following.strip()) if below else (line[:COLUMN], line[COLUMN:])
        names, *words = head.split()
        if section == "Options":
            takes_value = bool(words) and words[0].isupper() and words[0] != "REQUIRED"
            command.options.append(Option(tuple(names.split(",")), takes_value, about))
        elif section == "Subcommands":
            command.subcommands.append(Command(names, about))
    return command


def describe(program: str, help_of: Callable[[list[str]], str]) -> Command:
    """The whole command line. `help_of` returns the --help text for a list of subcommands."""
    root = parse(program, help_of([]))
    root.subcommands = [parse(sub.name, help_of([sub.name])) for sub in root.subcommands]
    return root


def _names(command: Command) -> str:
    return " ".join(name for option in command.options for name in option.names)


def bash(root: Command) -> str:
    """Completes subcommands and options; files follow an option that takes a value."""
    cases = "".join(f"    {sub.name}) words='{_names(sub)}' ;;\n" for sub in root.subcommands)
    top = " ".join([*(sub.name for sub in root.subcommands), _names(root)])
    options = [option for sub in root.subcommands for option in sub.options]
    valued = {name for option in options if option.takes_value for name in option.names}
    return f"""# bash completion for {root.name}
_{root.name}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} words
  case $previous in
    {"|".join(sorted(valued))})
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
  esac
  case ${{COMP_WORDS[1]}} in
{cases}    *) words='{top}' ;;
  esac
  [[ $COMP_CWORD -gt 1 ]] || words='{top}'
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o filenames -F _{root.name} {root.name}
"""


def _zsh_options(command: Command) -> str:
    lines = []
    for option in command.options:
        about = option.about.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]")
        end = ":value:_files" if option.takes_value else ""
        lines += [f"'{name}[{about.replace(':', chr(92) + ':')}]{end}'" for name in option.names]
    return " \\\n        ".join(lines)


def zsh(root: Command) -> str:
    about = "\n".join(
        f"    '{sub.name}:{sub.about.replace(chr(39), '')}'" for sub in root.subcommands
    )
    cases = "\n".join(
        f"    {sub.name})\n      _arguments \\\n        {_zsh_options(sub)} ;;"
        for sub in root.subcommands
    )
    return f"""#compdef {root.name}
local -a commands
if (( CURRENT == 2 )); then
  commands=(
{about}
  )
  _describe command commands
  _arguments {_zsh_options(root)}
else
  local name=$words[2]
  shift words
  (( CURRENT-- ))
  case $name in
{cases}
  esac
fi
"""


def fish(root: Command) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = [f"complete -c {root.name} -f"]

    def add(condition: str, command: Command) -> None:
        for option in command.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = " -r -F" if option.takes_value else ""
            lines.append(
                f"complete -c {root.name} -n {quoted(condition)} {names}{value}"
                f" -d {quoted(option.about)}"
            )

    for sub in root.subcommands:
        lines.append(
            f"complete -c {root.name} -n __fish_use_subcommand -a {sub.name} -d {quoted(sub.about)}"
        )
    add("__fish_use_subcommand", root)
    for sub in root.subcommands:
        add(f"__fish_seen_subcommand_from {sub.name}", sub)
    return "\n".join(lines) + "\n"

# SPDX-License-Identifier: Apache-2.0
"""The switches of a job: what it asks for, and whether its numerics class allows that."""

from __future__ import annotations

from paceline._core import contract
from paceline._core.environment import setting, told
from paceline._core.log import say

# From the strictest class to the loosest.
NUMERICS = contract.VALUES[contract.NUMERICS]


def why_off(variable: str, what: str, reordered: str = "", number: bool = False) -> str:
    """Returns an empty text if the job asks for the feature, else why it is off. `what` names what
    then stays as it is. `reordered` names what is of class Reordered, empty if nothing is. With
    `number` a whole number from 1 asks for it, too.
    """
    said = told(variable)
    if said in ("", "Disabled"):
        return f"off ({variable} is {said or 'not set'})"
    if said != "Auto" and not (number and said.isdecimal() and int(said) > 0):
        allowed = "Auto, Disabled or a number" if number else "Auto or Disabled"
        say(f"{variable} is {said!r}: it must be {allowed}; {what} left as they are")
        none = "none of Auto, Disabled and a number" if number else "neither Auto nor Disabled"
        return f"off ({variable} is {said}, {none})"
    if not reordered:
        return ""
    name, numerics = contract.NUMERICS, setting(contract.NUMERICS)
    if numerics not in NUMERICS:
        allowed = f"{', '.join(NUMERICS[:-1])} {{}} {NUMERICS[-1]}"
        say(f"{name} is {numerics!r}: it must be {allowed.format('or')}; {what} left as they are")
        return f"off ({name} is {numerics}, none of {allowed.format('and')})"
    if numerics == NUMERICS[0]:
        return f"off ({name} is {numerics}, and {reordered} are of class Reordered)"
    return ""

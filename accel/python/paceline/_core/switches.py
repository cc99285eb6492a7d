# SPDX-License-Identifier: Apache-2.0
"""The switches of a job: what it asks for, and whether its numerics class allows that."""

from __future__ import annotations

import os

from paceline._core import contract
from paceline._core.log import say

# From the strictest class to the loosest.
NUMERICS = contract.VALUES[contract.NUMERICS]


def why_off(variable: str, what: str, reordered: str = "") -> str:
    """Returns an empty text if the job asks for the feature, else why it is off. `what` names what
    then stays as it is. `reordered` names what is of class Reordered, empty if nothing is.
    """
    told = os.environ.get(variable, "")
    if told in ("", "Disabled"):
        return f"off ({variable} is {told or 'not set'})"
    if told != "Auto":
        say(f"{variable} is {told!r}: it must be Auto or Disabled; {what} left as they are")
        return f"off ({variable} is {told}, neither Auto nor Disabled)"
    numerics = os.environ.get(contract.NUMERICS, "") or "Reordered"
    if not reordered:
        return ""
    if numerics not in NUMERICS:
        say(
            f"PACELINE_NUMERICS is {numerics!r}: it must be Bitwise, Reordered or Lossy; {what}"
            " left as they are"
        )
        return f"off (PACELINE_NUMERICS is {numerics}, none of Bitwise, Reordered and Lossy)"
    if numerics == "Bitwise":
        return f"off (PACELINE_NUMERICS is Bitwise, and {reordered} are of class Reordered)"
    return ""

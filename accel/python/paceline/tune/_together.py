# SPDX-License-Identifier: Apache-2.0
"""Ranks for a change whose two ways differ by rounding, such as an optimizer's step: replicas would
drift apart if some ranks used it and some did not. So ranks go on only if all of them know that all
have come: a rank that has waited in vain makes the others leave too.
"""

from __future__ import annotations

from typing import Any

from paceline._core.agreement import agree
from paceline.tune._ranks import Ranks


class Together(Ranks):
    def _exchange(self, what: str, value: Any, waits: bool) -> list[Any]:
        """Raises RuntimeError on all ranks if one of them has not got the others' values."""
        if self._store is None:
            return [value]
        found, why = [], ""
        try:
            found = super()._exchange(what, value, True)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        refused = agree(self._store, f"{self._name}/{what}/all", self.rank, self.count, why)
        if refused:
            raise RuntimeError(refused)
        return found

# SPDX-License-Identifier: Apache-2.0
"""How ranks begin a trial at the same step, and come to the same verdict.

They use the store of the process group, and no collective: a rank that makes other steps than the
rest (uneven data, an error) then costs a time-out, and no hang. Both ways of a change must agree
with each other, so ranks that decide differently stay correct.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from paceline._core.agreement import agree, numbered
from paceline._core.environment import attempt

PATIENCE = timedelta(seconds=30)
EVERY = 16  # steps between two looks at the store while a rank waits for the first


class Ranks:
    """The ranks of the default process group, or this process alone."""

    def __init__(self, what: str) -> None:
        module = sys.modules.get("torch.distributed.distributed_c10d")
        self._store: Any = None
        self.rank, self.count = 0, 1
        if module is not None and module.is_initialized() and module.get_world_size() > 1:
            self._store = module._get_default_store()
            self.rank, self.count = module.get_rank(), module.get_world_size()
            self._name = numbered(self._store, f"paceline/{what}/{attempt()}", self.rank)
        self._looks = self._asked = 0
        self._has_come = False
        self.lacks_ranks = False  # rank 0 is ready, and another rank has not come

    def begins_at(self, step: int, ready: bool) -> int | None:
        """The step at which all ranks begin. Rank 0 names it when it is `ready` and all ranks have
        called this. None: not yet known.

        A rank may have nothing to try, and never call this. So no rank waits for it: nothing begins
        then. Called at the end of each step, with its number.
        """
        if self._store is None:
            return step if ready else None
        if not self._has_come:
            self._has_come = True
            self._store.add(f"{self._name}/came", 1)
        # Counted, since a store of PyTorch 1.13 cannot tell whether it has a key.
        key, named = f"{self._name}/begins", f"{self._name}/named"
        if self.rank == 0:
            if not ready or (self.lacks_ranks and step % EVERY):
                return None
            self.lacks_ranks = self._store.add(f"{self._name}/came", 0) < self.count
            if self.lacks_ranks:
                return None
            begins = (step // EVERY + 3) * EVERY
            self._store.set(key, str(begins))
            self._store.add(named, 1)
            return begins
        if step % EVERY or self._store.add(named, 0) == 0:
            return None
        return int(self._store.get(key))

    def of_rank_0(self, value: Any) -> Any:
        """Rank 0's value. Rank 0 gives it before it names the step at which all begin, and the
        others ask after that, so that none waits."""
        if self._store is None:
            return value
        key = f"{self._name}/of rank 0"
        if self.rank == 0:
            self._store.set(key, json.dumps(value))
            return value
        return json.loads(self._store.get(key))

    def all_can(self, why: str) -> str:
        """Returns an empty text if all ranks can, else why one cannot."""
        if self._store is None:
            return why
        return agree(self._store, f"{self._name}/able", self.rank, self.count, why)

    def greatest(self, value: float) -> float:
        """The greatest of the ranks' values."""
        self._asked += 1
        return max(float(each) for each in self._exchange(f"usual {self._asked}", value, True))

    def agreed(self, ratios: Sequence[float], why: str) -> tuple[Sequence[float], str]:
        """Makes of one rank's numbers those of all: each pair's mean. The second value says why
        some rank leaves the trial; empty if none does. A rank that leaves waits for no other.
        """
        self._looks += 1
        given = {"ratios": list(ratios), "why": why}
        found = self._exchange(f"look {self._looks}", given, not why)
        reasons = [each["why"] for each in found if each["why"]]
        if reasons:
            return ratios, reasons[0]
        return [statistics.fmean(pair) for pair in zip(*(each["ratios"] for each in found))], ""

    def _exchange(self, what: str, value: Any, waits: bool) -> list[Any]:
        if self._store is None or not waits:
            if self._store is not None:
                self._store.set(f"{self._name}/{what}/{self.rank}", json.dumps(value))
            return [value]
        keys = [f"{self._name}/{what}/{rank}" for rank in range(self.count)]
        self._store.set(keys[self.rank], json.dumps(value))
        self._store.wait(keys, PATIENCE)
        return [json.loads(self._store.get(key)) for key in keys]

# SPDX-License-Identifier: Apache-2.0
"""Runs a program as it is, and writes what Paceline says of it: inside.py PROGRAM FOLDER.

It asks after every 16 steps and at the end. A program in which a model is compiled ends as soon as
there is a verdict.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

STEPS = 16


class Watch:
    """Counts the steps of a program's optimizers."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._steps = 0

    def step(self, *_: Any) -> None:
        self._steps += 1
        if self._steps % STEPS == 0 and self.write():
            sys.exit()

    def write(self) -> bool:
        """Returns whether there is a verdict on a compiled model."""
        told: dict[str, Any] = {"steps": self._steps}
        if os.environ.get("PACELINE_DISABLE") != "1":
            import paceline

            told["explained"] = paceline.explain(as_dict=True)
        self._file.write_text(json.dumps(told))
        seen = told.get("explained", {}).get("compile", {}).get("seen", [])
        return any(entry["state"] != "waiting" for entry in seen)


def main() -> None:
    program, folder = sys.argv[1:]
    watch = Watch(Path(folder, f"rank-{os.environ['RANK']}.json"))
    register_optimizer_step_post_hook(watch.step)
    sys.argv = [program]
    objects = runpy.run_path(program, run_name="__main__")
    watch.write()
    objects.clear()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH120 - pathlib would be imported into every program.
"""Loads Paceline with PyTorch below 2.5, which has no entry points. Python runs this file at
start-up because its folder is on PYTHONPATH.

It adds a finder to the import machinery, so programs that never import torch import nothing more.
It adds a hook that tells the launcher of an exception that ends the program. Then it runs the
sitecustomize that this one hides.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def _leave_note(here: str) -> None:
    import os

    if os.environ.get("PACELINE_DISABLE") == "1":
        return
    home = os.path.dirname(here)
    if home not in sys.path:
        sys.path.append(home)
    from paceline._core.imports import after_import

    after_import("torch", _imported)
    # Removed from the environment: processes that this one starts must not report for the rank.
    failure_file = os.environ.pop("PACELINE_FAILURE_FILE", "")
    if failure_file:
        from paceline._inject import failure

        failure.watch(failure_file)


def _imported(torch: ModuleType) -> None:
    from paceline._inject import pytorch

    pytorch.after_older_torch(torch)


def _run_hidden(here: str) -> None:
    import importlib.machinery
    import importlib.util
    import os

    elsewhere = [path for path in sys.path if os.path.realpath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _main() -> None:
    import os

    here = os.path.dirname(os.path.realpath(__file__))
    try:
        _leave_note(here)
    except BaseException as error:  # whatever it is, the user's program starts
        sys.stderr.write(f"paceline: tracing is off: {type(error).__name__}: {error}\n")
    # An exception of the user's own file is theirs: Python reports it as it always does.
    _run_hidden(here)


_main()

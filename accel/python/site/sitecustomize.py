# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH120 - pathlib would be imported into every program.
"""Loads Paceline with PyTorch below 2.5, which has no entry points, and with other frameworks.
Python runs this file at start-up because its folder is on PYTHONPATH.

It adds a finder to the import machinery, so programs that import no framework import nothing more.
It adds a hook that tells the launcher of an exception that ends the program, a signal by which the
launcher asks where the program is, and a note of what it imports. In a standby it waits here until
the program is to run. Then it runs the sitecustomize that this one hides.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

# By module: the function of paceline._inject.loops that marks its loops.
LOOPS = {
    "keras.src.callbacks": "mark_keras",
    "tf_keras.src.callbacks": "mark_keras",
    "keras.src.models.model": "mark_keras_model",
    "tf_keras.src.engine.training": "mark_keras_model",
    "paddle": "mark_paddle",
    "xgboost.callback": "mark_xgboost",
    "transformers.trainer_callback": "save_when_asked",
}


def _leave_note(here: str) -> None:
    import os

    if os.environ.get("PACELINE_DISABLE") == "1":
        return
    _wait_for_frameworks(here)
    _report_to_launcher({})


def _wait_for_frameworks(here: str) -> None:
    import os

    home = os.path.dirname(here)
    if home not in sys.path:
        sys.path.append(home)
    from paceline._core.imports import after_import

    after_import("torch", _imported)
    for module, function in LOOPS.items():
        after_import(module, _marked_by(function))


def _report_to_launcher(environment: dict[str, str | None]) -> None:
    import os

    # Removed from the environment: processes that this one starts must not report for the rank.
    failure_file = os.environ.pop("PACELINE_FAILURE_FILE", "")
    if failure_file:
        from paceline._inject import failure, stacks

        failure.watch(failure_file)
        stacks.install()
    standby_file = os.environ.pop("PACELINE_STANDBY_FILE", "")
    if standby_file:
        from paceline._inject import standby

        standby.watch(standby_file, environment)


def _stand_by(here: str, descriptor: str) -> None:
    """Returns when the program is to run. Whatever fails before, it must not run."""
    import os

    try:
        _wait_for_frameworks(here)
        _run_hidden(here)
        from paceline._inject import standby

        environment = standby.wait(os.environ["PACELINE_STANDBY_FILE"], int(descriptor))
        _report_to_launcher(environment)
    except BaseException as error:
        sys.stderr.write(f"paceline: a standby has failed: {type(error).__name__}: {error}\n")
        os._exit(1)


def _imported(torch: ModuleType) -> None:
    from paceline._inject import pytorch

    pytorch.after_older_torch(torch)


def _marked_by(function: str) -> Callable[[ModuleType], None]:
    def imported(module: ModuleType) -> None:
        from paceline._inject import loops

        getattr(loops, function)(module)

    return imported


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
    descriptor = os.environ.pop("PACELINE_STANDBY_SOCKET", "")
    if descriptor:
        _stand_by(here, descriptor)
        return
    try:
        _leave_note(here)
    except BaseException as error:  # whatever it is, the user's program starts
        sys.stderr.write(f"paceline: tracing is off: {type(error).__name__}: {error}\n")
    # An exception of the user's own file is theirs: Python reports it as it always does.
    _run_hidden(here)


_main()

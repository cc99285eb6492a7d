# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH118, PTH120 - pathlib would be imported into every program.
"""libpaceline.so through ctypes: found, checked, opened. The C ABI is described in
paceline/paceline.h.
"""

from __future__ import annotations

import ctypes
import functools
import os.path
from typing import Any, Callable

from paceline._core import contract
from paceline._core.environment import told

API_VERSION = 1
NO_BATCH = -2
SAMPLES_UNKNOWN = -1

DATA_WAIT, FORWARD, BACKWARD, COMM_EXPOSED, OPTIMIZER, CHECKPOINT, EVALUATION, OTHER = (
    0,
    2,
    3,
    4,
    5,
    6,
    7,
    14,
)
COMPUTE_UNDIVIDED = 10
PYTORCH, TENSORFLOW, JAX, PADDLE = 1, 2, 3, 4
CPU, CUDA = 1, 2
HOST_MARKS = 1
EORDER = -6
SCALER_SKIPS = 3
BATCH_TOKENS = 4


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("framework_id", ctypes.c_uint32),
        ("device_kind", ctypes.c_uint32),
        ("host_phases", ctypes.c_uint32),
        ("framework_version", ctypes.c_char_p),
        ("pci_address", ctypes.c_char_p),
        ("capabilities", ctypes.c_uint64),
        ("mark_cost_ns", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


def path() -> str:
    """Returns PACELINE_LIBRARY if it is set, else the library within this package (as pip installs
    it), else the one of the runtime folder that this package lies in.
    """
    if other := told(contract.LIBRARY):
        return other
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    own = os.path.join(package, "lib", "libpaceline.so")
    if os.path.exists(own):  # noqa: PTH110
        return own
    return os.path.join(os.path.dirname(os.path.dirname(package)), "lib", "libpaceline.so")


def kernels_folder() -> str:
    """Where the modules of GPU kernels lie: PACELINE_KERNELS, else kernels/ beside the library's
    folder.
    """
    return told(contract.KERNELS) or os.path.join(
        os.path.dirname(os.path.dirname(os.path.realpath(path()))), "kernels"
    )


def opened(load: Callable[[str], Any] = ctypes.CDLL) -> Any:
    """The library of this release. Functions of a CDLL give up the interpreter lock while they run,
    those of a PyDLL keep it. Raises OSError where it cannot be loaded or is of another API version.
    """
    library = load(path())
    version = library.paceline_api_version()
    if version != API_VERSION:
        raise OSError(
            f"{path()} has API version {version}, not {API_VERSION}: install both from one release"
        )
    return library


def typed(
    library: Any, name: str, *arguments: Any, result: Any = ctypes.c_int
) -> Callable[..., Any]:
    """An exported function with its types. Raises AttributeError where there is none."""
    function: Callable[..., Any] = library[name]
    function.argtypes = arguments  # type: ignore[attr-defined]
    function.restype = result  # type: ignore[attr-defined]
    return function


def why_unavailable(functions: Callable[[], object]) -> str:
    """Why these functions cannot be had; empty where they can."""
    try:
        functions()
    except (OSError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def why_no_kernels(ask: Callable[..., int], *arguments: Any) -> str:
    """The reason that a function of the library writes; empty if there are kernels. It is called
    with the arguments, the folder of the kernels, and room for the reason.
    """
    why = ctypes.create_string_buffer(512)
    try:
        status = ask(*arguments, kernels_folder().encode(), why, len(why))
    except AttributeError as error:
        return str(error)
    return "" if status == 0 else why.value.decode(errors="replace") or f"code {status}"


class Library:
    """The functions of the library, typed. Raises OSError where it cannot be loaded or is of
    another API version.
    """

    def __init__(self) -> None:
        # PyDLL: the marks take nanoseconds; giving up and taking back the interpreter lock around
        # each would cost more, and let another thread in between.
        function = functools.partial(typed, opened(ctypes.PyDLL))
        self.open = function("paceline_open", ctypes.POINTER(Options))
        # Joins the publishing thread, so the interpreter lock is given up.
        self.close: Callable[[], int] = ctypes.CDLL(path()).paceline_close
        self.ring_fd = function("paceline_ring_fd")
        self.system_error = function("paceline_system_error")
        self.step = function("paceline_step", ctypes.c_int64)
        self.phase_enter = function("paceline_phase_enter", ctypes.c_uint32)
        self.phase_leave = function("paceline_phase_leave", ctypes.c_uint32)
        self.loader_enter = function("paceline_loader_enter", ctypes.c_uint64, ctypes.c_int32)
        self.loader_leave = function("paceline_loader_leave", ctypes.c_uint64, ctypes.c_int64)
        self.backward_enter = function("paceline_backward_enter")
        self.gradients_done = function("paceline_gradients_done")
        self.backward_leave = function("paceline_backward_leave")
        self.optimizer_enter = function("paceline_optimizer_enter", ctypes.c_uint32)
        self.optimizer_leave = function("paceline_optimizer_leave", ctypes.c_uint32)
        self.count = function("paceline_count", ctypes.c_uint32, ctypes.c_uint64)
        self.device_start = function(
            "paceline_device_start", ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32
        )
        self.device_stream = function("paceline_device_stream", ctypes.c_uint64)
        self.set_tracing = function("paceline_set_tracing", ctypes.c_int32)

# SPDX-License-Identifier: Apache-2.0
# Made by scripts/contract from common/contract/contract.yaml: edit that file.
"""The environment variables that the runtime reads, with their values and defaults."""

from __future__ import annotations

POD_IP = "PACELINE_POD_IP"
NODE_NAME = "PACELINE_NODE_NAME"
ATTEMPT = "PACELINE_ATTEMPT"
TELEMETRY_SOCKET = "PACELINE_TELEMETRY_SOCKET"
FAILURE_FILE = "PACELINE_FAILURE_FILE"
STANDBY_FILE = "PACELINE_STANDBY_FILE"
STANDBY_SOCKET = "PACELINE_STANDBY_SOCKET"
EXPLAIN_FILE = "PACELINE_EXPLAIN_FILE"
EFFECTS_FILE = "PACELINE_EFFECTS_FILE"
TRACE_REQUEST = "PACELINE_TRACE_REQUEST"
SAVE_REQUEST = "PACELINE_SAVE_REQUEST"
NETWORK = "PACELINE_NETWORK"
DISABLE = "PACELINE_DISABLE"
LIBRARY = "PACELINE_LIBRARY"
KERNELS = "PACELINE_KERNELS"
LOADER_DEVICE_COPIES = "PACELINE_LOADER_DEVICE_COPIES"
TUNE_AFTER = "PACELINE_TUNE_AFTER"
LEARNED_DIR = "PACELINE_LEARNED_DIR"
COMMUNICATION_PLAN = "PACELINE_COMMUNICATION_PLAN"
SOCKET_IFNAME = "PACELINE_SOCKET_IFNAME"
KERNEL_WINDOWS = "PACELINE_KERNEL_WINDOWS"
LOG_TO = "PACELINE_LOG_TO"
NUMERICS = "PACELINE_NUMERICS"
LOADER = "PACELINE_LOADER"
OPTIMIZER = "PACELINE_OPTIMIZER"
COMMUNICATION = "PACELINE_COMMUNICATION"
COMMUNICATION_COMPRESSION = "PACELINE_COMMUNICATION_COMPRESSION"
PRECISION = "PACELINE_PRECISION"
CUDA_GRAPH = "PACELINE_CUDA_GRAPH"
LOADER_WORKERS = "PACELINE_LOADER_WORKERS"
COMPILE = "PACELINE_COMPILE"
OPERATORS = "PACELINE_OPERATORS"

# What may be written, where it is one of a few words.
VALUES: dict[str, tuple[str, ...]] = {
    DISABLE: ("1",),
    LOADER_DEVICE_COPIES: ("Auto", "Disabled"),
    KERNEL_WINDOWS: ("Auto", "Disabled"),
    NUMERICS: ("Bitwise", "Reordered", "Lossy"),
    LOADER: ("Auto", "Disabled"),
    OPTIMIZER: ("Auto", "Disabled"),
    COMMUNICATION: ("Auto", "Disabled"),
    PRECISION: ("Disabled", "TF32", "O1", "O2"),
    CUDA_GRAPH: ("Auto", "Disabled"),
    COMPILE: ("Auto", "Disabled"),
    OPERATORS: ("Auto", "Disabled"),
}
# What holds where the variable is not set, or empty.
DEFAULTS: dict[str, str] = {
    ATTEMPT: "0",
    LOADER_DEVICE_COPIES: "Disabled",
    TUNE_AFTER: "300",
    KERNEL_WINDOWS: "Disabled",
    NUMERICS: "Reordered",
    LOADER: "Disabled",
    OPTIMIZER: "Disabled",
    COMMUNICATION: "Disabled",
    COMMUNICATION_COMPRESSION: "Disabled",
    PRECISION: "Disabled",
    CUDA_GRAPH: "Auto",
    LOADER_WORKERS: "Disabled",
    COMPILE: "Disabled",
    OPERATORS: "Disabled",
}
# Ways, and of each setting: its type, the least value, the default.
COMPRESSION: dict[str, dict[str, tuple[type, float, float]]] = {
    "FP16": {"start": (int, 2, 2)},
    "BF16": {"start": (int, 2, 2)},
    "Int8": {"start": (int, 2, 2)},
    "TopK": {"ratio": (float, 1e-06, 0.01), "start": (int, 2, 2)},
    "PowerSGD": {"rank": (int, 1, 1), "start": (int, 2, 1000)},
}

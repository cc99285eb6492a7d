# SPDX-License-Identifier: Apache-2.0
"""Where each feature registers how it reports on itself. paceline.explain() asks those that are
here, so it needs to import none of them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Status:
    """One feature's answer. `switch` is "on", "off" or either with a reason in brackets. `seen` has
    an entry for each object of the program that the feature has met.
    """

    def __init__(self, switch: str, seen: list[dict[str, Any]], numerics: str = "") -> None:
        self.switch, self.seen, self.numerics = switch, seen, numerics


class Feature:
    """What explain() knows of a feature that has not been imported."""

    def __init__(self, name: str, title: str, numerics: str, switch: str) -> None:
        self.name, self.title, self.numerics, self.switch = name, title, numerics, switch

    def status(self) -> Status:
        report = _reports.get(self.name)
        return Status(self.switch, []) if report is None else report()


OPTIMIZERS = Feature(
    "fused optimizers",
    "fused optimizers in place of PyTorch's own",
    "Reordered",
    "off (PACELINE_OPTIMIZER is not set)",
)
LOADERS = Feature(
    "loader",
    "our iterator in place of PyTorch's own in loaders",
    "Bitwise",
    "off (PACELINE_LOADER is not set)",
)
WORKERS = Feature(
    "loader workers",
    "workers for loaders that have none or too few",
    "Reordered",
    "off (PACELINE_LOADER_WORKERS is not set)",
)
COMMUNICATION = Feature(
    "communication",
    "gradients of DistributedDataParallel over our communicator",
    "Reordered",
    "off (PACELINE_COMMUNICATION is not set)",
)
PRECISION = Feature(
    "mixed precision",
    "mixed precision",
    "Lossy",
    "off (PACELINE_PRECISION is not set, and the program does not call paceline.amp.decorate)",
)
OPERATORS = Feature(
    "fused operators",
    "fused operators",
    "Reordered",
    "off (PACELINE_OPERATORS is not set)",
)
GRAPHS = Feature(
    "CUDA graphs",
    "CUDA graphs",
    "Bitwise",
    "off (no paceline.graph.WholeStep has captured one)",
)
NETWORK = Feature(
    "network",
    "settings of NCCL",
    "Reordered",
    "off (NCCL has one host, or no GPU)",
)
WINDOWS = Feature(
    "kernel windows",
    "kernel windows: what the GPU does in a few steps of every 500",
    "Bitwise",
    "off (PACELINE_KERNEL_WINDOWS is not Auto, or there is no GPU)",
)
COMPILE = Feature(
    "compile",
    "compiled models, tried and kept where they gain",
    "Reordered",
    "off (PACELINE_COMPILE is not set)",
)

_reports: dict[str, Callable[[], Status]] = {}


def register(feature: Feature, report: Callable[[], Status]) -> None:
    """Has explain() call `report` for this feature."""
    _reports[feature.name] = report


def is_registered(feature: Feature) -> bool:
    return feature.name in _reports

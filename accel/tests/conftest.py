# SPDX-License-Identifier: Apache-2.0
from programs import runtime, train

__all__ = ["runtime", "train"]

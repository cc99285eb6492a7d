# SPDX-License-Identifier: Apache-2.0
# PyTorch as the type checker sees it, whichever is installed or none: a tensor is a type of its
# own, which is not None, and all else is Any.
from typing import Any

class Tensor(Any): ...

def __getattr__(name: str) -> Any: ...

# SPDX-License-Identifier: Apache-2.0
"""Puts marks around methods of a framework."""

from __future__ import annotations

import functools
from typing import Any, Callable

Mark = Callable[..., None]


def around(owner: Any, name: str, before: Mark | None = None, after: Mark | None = None) -> None:
    """Replaces a method or function by one that calls `before`, the original, and `after`, all with
    the same arguments. `after` is called after an exception, too.

    Raises:
        AttributeError: there is none of this name.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def marked(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            if after is not None:
                after(*args, **kwargs)

    setattr(owner, name, marked)


def forgetting(mark: Callable[[], None]) -> Mark:
    """A mark that takes the arguments of the method, and does not look at them."""

    def marked(*_: Any, **__: Any) -> None:
        mark()

    return marked

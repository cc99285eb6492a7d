# SPDX-License-Identifier: Apache-2.0
import gc
import multiprocessing
from collections.abc import Iterator

import pytest
from programs import fake_device, fork_server, runtime, train, train_by_fork

__all__ = ["fake_device", "fork_server", "runtime", "train", "train_by_fork"]


@pytest.fixture(scope="session", autouse=True)
def quick_forks() -> Iterator[None]:
    """Loaders fork this process hundreds of times: what is here already is no garbage, which each
    of them would look for.
    """
    gc.collect()
    gc.freeze()
    # Python 3.14 would start a server instead.
    multiprocessing.set_start_method("fork", force=True)
    yield

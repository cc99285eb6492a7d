# SPDX-License-Identifier: Apache-2.0
"""The fixtures of accel/tests: the built runtime, and programs in forks of a process that has
imported the trainers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from fork_server import ForkServer
from programs import runtime

__all__ = ["fork_server", "runtime"]


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    # Nothing is ever looked up or downloaded: every model is made from its configuration.
    os.environ.update(
        HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TORCHINDUCTOR_COMPILE_THREADS="1"
    )
    server = ForkServer(
        imports=[
            "transformers.trainer",
            "transformers.models.gpt2.modeling_gpt2",
            "lightning",
            "accelerate",
            "torch._inductor.compile_fx",
            "torch._inductor.codegen.cpp_wrapper_cpu",
        ]
    )
    try:
        yield server
    finally:
        server.close()

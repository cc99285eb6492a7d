# SPDX-License-Identifier: Apache-2.0
from programs import fork_server, runtime, train, train_by_fork

__all__ = ["fork_server", "runtime", "train", "train_by_fork"]

# SPDX-License-Identifier: Apache-2.0
"""Boosted trees with XGBoost. Each process has its part of the rows; histograms are summed."""

import hashlib
import os

import numpy as np
import paceline.xgboost
import xgboost
from xgboost import collective

ROUNDS, ROWS, FEATURES = 400, 4000, 8


class Progress(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        if collective.get_rank() == 0 and epoch % 10 == 0:
            print(f"step {epoch}: loss {evals_log['train']['rmse'][-1]:.6f}", flush=True)
        return False


with paceline.xgboost.communicator():
    rank, ranks = collective.get_rank(), collective.get_world_size()
    assert ranks == int(os.environ["WORLD_SIZE"]), "a process is missing"
    random = np.random.default_rng(rank)  # each process has rows of its own
    inputs = random.standard_normal((ROWS, FEATURES))
    targets = inputs[:, 0] * 2 + np.abs(inputs[:, 1])
    rows = xgboost.DMatrix(inputs, targets)
    model = xgboost.train(
        {"tree_method": "hist", "max_depth": 4, "eta": 0.1, "nthread": 1},
        rows,
        num_boost_round=ROUNDS,
        evals=[(rows, "train")],
        verbose_eval=False,
        callbacks=[Progress()],
    )
    digest = hashlib.sha256(model.save_raw()).digest()
    mine = np.frombuffer(digest, np.uint8).astype(np.float32)
    most = collective.allreduce(mine, collective.Op.MAX)
    assert (most == mine).all(), "processes have different trees"
    members = collective.allreduce(np.ones(1, np.float32), collective.Op.SUM)
    assert members[0] == ranks, "a process is missing"
    if rank == 0:
        print(f"trained by {ranks} processes", flush=True)

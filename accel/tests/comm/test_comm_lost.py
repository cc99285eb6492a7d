# SPDX-License-Identifier: Apache-2.0
"""If a rank is lost in the middle of a training step, every survivor names it."""

from __future__ import annotations

import pytest
from comm_programs import BEGIN, MODELS
from programs import Train

LOST = """
        hooked = wrap(True)
        {begin}
        def body(ddp, step):
            if rank == 1 and step == 2:
                # In the middle of backward, when the gradients of the last layers are in flight.
                ddp.module.first.weight.register_hook(lambda _: {end})
            ddp(torch.randn(8, 4), True).sum().backward()
        began = time.monotonic()
        try:
            steps(hooked, body=body, number=5)
        except paceline.comm.CommError as error:
            assert rank != 1 and error.rank == 1 and "rank 1" in str(error), (rank, str(error))
            print("told by", rank, flush=True)
            {then}
"""


def lost(end: str, begin: str = "pass", then: str = "pass") -> str:
    return (
        BEGIN
        + MODELS
        + LOST.replace("{begin}", begin).replace("{end}", end).replace("{then}", then)
    )


@pytest.mark.parametrize("end,code", [("os.kill(os.getpid(), signal.SIGKILL)", -9), ("1 / 0", 1)])
def test_every_survivor_names_the_rank_that_was_lost(train: Train, end: str, code: int) -> None:
    run = train(lost(end), ranks=3)
    assert run.code == code, run.output
    assert sorted(line for line in run.output.splitlines() if line.startswith("told by")) == [
        "told by 0",
        "told by 2",
    ], run.output


def test_a_stopped_rank_is_lost_after_the_silence(train: Train) -> None:
    begin = """store = dist.distributed_c10d._get_default_store()
        store.set(f"pid/{rank}", str(os.getpid()))
        hooked = DistributedDataParallel(Several(), bucket_cap_mb=0.04)
        paceline.comm.ddp_hook(hooked, heartbeat_timeout=timedelta(seconds=4))"""
    # Rank 0 kills the stopped rank when both survivors are done with the store, which it hosts.
    then = """store.add("told", 1)
            if rank == 0:
                while store.add("told", 0) < 2:
                    time.sleep(0.01)
                os.kill(int(store.get("pid/1")), signal.SIGKILL)"""
    run = train(lost("os.kill(os.getpid(), signal.SIGSTOP)", begin, then), ranks=3)
    assert run.code == -9 and run.output.count("told by") == 2, run.output

# SPDX-License-Identifier: Apache-2.0
"""One rank cannot begin, because of its environment or its program. All ranks raise at once, with that
rank's number and reason.
"""

from __future__ import annotations

import pytest
from comm_programs import MODELS, passes
from programs import Train

# All ranks call `begin(wrong)`, with True on rank 1 only. Without the refusal the others would wait
# for half an hour.
ALL_ARE_TOLD = """
        began = time.monotonic()
        try:
            begin(rank == 1)
        except (ValueError, OSError, paceline.comm.CommError) as error:
            said = str(error)
            assert os.environ["WHY"] in said, said
            assert rank == 1 or "rank 1" in said, said
            assert getattr(error, "of_peer", False) == (isinstance(error, paceline.comm.CommError)), said
        else:
            raise AssertionError("not refused")
        assert time.monotonic() - began < 60, "a rank has waited"
        dist.barrier()
        # The next communicator of all ranks must work.
        for name in ("PACELINE_SOCKET_IFNAME", "PACELINE_NUMERICS"):
            os.environ.pop(name, None)
        if os.environ["WHY"] != "/nowhere":
            with paceline.comm.Communicator(timeout=timedelta(seconds=60)) as comm:
                assert comm.all_reduce(torch.ones(3)).tolist() == [ranks] * 3
"""

IFNAME = "PACELINE_SOCKET_IFNAME: 'nosuch' names no network device"
NO_DEVICE = "if wrong: os.environ['PACELINE_SOCKET_IFNAME'] = 'nosuch'"
BITWISE = "if wrong: os.environ['PACELINE_NUMERICS'] = 'Bitwise'"
NUMERICS = "the job's PACELINE_NUMERICS is Bitwise"


@pytest.mark.parametrize(
    ("wrong", "call", "why"),
    [
        (NO_DEVICE, "paceline.comm.Communicator()", IFNAME),
        (NO_DEVICE, "paceline.comm.ddp_hook(ddp)", IFNAME),
        (
            "if wrong: os.environ['PACELINE_LIBRARY'] = '/nowhere'",
            "paceline.comm.Communicator()",
            "/nowhere",
        ),
        ("", "paceline.comm.Communicator(flows=17 if wrong else 0)", "flows: 17: use 1 to 16"),
        (BITWISE, "paceline.comm.ddp_hook(ddp, compression='Int8')", NUMERICS),
        (
            "",
            "paceline.comm.ddp_hook(ddp, compression='Int9' if wrong else 'Int8')",
            "compression is 'Int9'",
        ),
    ],
)
def test_a_rank_that_cannot_begin_is_named_on_all(
    train_by_fork: Train, wrong: str, call: str, why: str
) -> None:
    passes(
        train_by_fork,
        MODELS
        + f"""
        ddp = DistributedDataParallel(Several())
        def begin(wrong):
            {wrong or "pass"}
            {call}
        """
        + ALL_ARE_TOLD,
        ranks=3,
        WHY=why,
    )

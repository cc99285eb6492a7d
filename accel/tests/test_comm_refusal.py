# SPDX-License-Identifier: Apache-2.0
"""One rank cannot begin, for what its environment or its program says: all raise, at once, with
that rank's number and reason. And steps of the engine's parameters before their gradients are
summed.
"""

from __future__ import annotations

import pytest
from programs import Train
from test_comm import BEGIN, END, MODELS
from test_comm_engine import ENGINE

# `begin(wrong)` is called by all ranks, with True on rank 1 alone; the others would wait for the
# process group's half hour.
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
        assert time.monotonic() - began < 60, "somebody has waited"
        dist.barrier()
        # All are still of one mind where the next one meets.
        for name in ("PACELINE_SOCKET_IFNAME", "PACELINE_NUMERICS"):
            os.environ.pop(name, None)
        if os.environ["WHY"] != "/nowhere":
            with paceline.comm.Communicator(timeout=timedelta(seconds=60)) as comm:
                assert comm.allreduce(torch.ones(3)).tolist() == [ranks] * 3
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
        (NO_DEVICE, "paceline.comm.Gradients(Several())", IFNAME),
        (
            "if wrong: os.environ['PACELINE_LIBRARY'] = '/nowhere'",
            "paceline.comm.Communicator()",
            "/nowhere",
        ),
        ("", "paceline.comm.Communicator(flows=17 if wrong else 0)", "flows: 17: use 1 to 16"),
        (
            "",
            "paceline.comm.Communicator(device='cpu' if wrong else None)",
            "device is cpu: it must be a GPU",
        ),
        (BITWISE, "paceline.comm.ddp_hook(ddp, compression='Int8')", NUMERICS),
        (BITWISE, "paceline.comm.Gradients(Several(), compression='Int8')", NUMERICS),
        (
            "",
            "paceline.comm.ddp_hook(ddp, compression='Int9' if wrong else 'Int8')",
            "compression is 'Int9'",
        ),
        (
            "",
            "paceline.comm.ddp_hook(ddp, transport='ipc' if wrong else '')",
            "the parameters are on the CPU",
        ),
        ("", "paceline.comm.Gradients(Several(), bucket_mb=0 if wrong else 25)", "bucket_mb is 0"),
        (
            "",
            (
                "paceline.comm.Gradients(Several(), overlap=torch.optim.LBFGS([torch.ones(1)]) if"
                " wrong else None)"
            ),
            "LBFGS",
        ),
        (
            "comm = paceline.comm.Communicator()",
            (
                "paceline.comm.Gradients(Several(), compression='Int9' if wrong else '',"
                " communicator=comm)"
            ),
            "compression is 'Int9'",
        ),
    ],
)
def test_a_rank_that_cannot_begin_is_named_on_all(
    train_by_fork: Train, wrong: str, call: str, why: str
) -> None:
    run = train_by_fork(
        BEGIN
        + MODELS
        + f"""
        ddp = DistributedDataParallel(Several())
        def begin(wrong):
            {wrong or "pass"}
            {call}
        """
        + ALL_ARE_TOLD
        + END,
        ranks=3,
        WHY=why,
    )
    assert run.code == 0, run.output


def test_a_refusal_leaves_the_programs_communicator_as_it_was(train_by_fork: Train) -> None:
    run = train_by_fork(
        BEGIN
        + ENGINE
        + """
        Gradients = paceline.comm.Gradients
        comm = paceline.comm.Communicator(timeout=timedelta(seconds=60))
        # All ranks; one; two, each for a reason of its own; one with what it does not say beforehand.
        refused(lambda: Gradients(Several(), bucket_mb=0, communicator=comm), "bucket_mb is 0")
        refused(lambda: Gradients(Several(), bucket_mb=0 if rank == 2 else 25, communicator=comm),
                "bucket_mb is 0" if rank == 2 else "Gradients: rank 2 refuses: bucket_mb is 0: it must be")
        options = [{}, {"compression": "Int9"}, {"bucket_mb": -1}][rank]
        why = ["rank 1 refuses: ", "compression is 'Int9'", "bucket_mb is -1"][rank]
        refused(lambda: Gradients(Several(), **options, communicator=comm), why)
        refused(lambda: Gradients(None if rank == 0 else Several(), communicator=comm),
                "" if rank == 0 else "rank 0 refuses: ", TypeError if rank == 0 else ValueError)
        assert comm.allreduce(torch.ones(3)).tolist() == [ranks] * 3
        model = Several()
        gradients = Gradients(model, find_unused=True, communicator=comm)
        for step in range(3):
            model(torch.full((2, 4), float(rank))).sum().backward()
        agreed(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        gradients.close()
        comm.close()
        # One that is closed tells nobody.
        refused(lambda: Gradients(Several(), bucket_mb=0, communicator=comm), "bucket_mb is 0")
        """
        + END,
        ranks=3,
    )
    assert run.code == 0, run.output


def test_a_step_before_its_sums_is_refused(train_by_fork: Train) -> None:
    run = train_by_fork(
        BEGIN
        + ENGINE
        + """
        Gradients = paceline.comm.Gradients
        # Steps whose parameters are all others, where gradients stay and are zeros by the next pass.
        for overlap in (False, True):
            parts = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])
            optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
            gradients = Gradients(parts, overlap=optimizer if overlap else None)
            dist.barrier()
            parts[0](torch.randn(8, 4)).sum().backward()
            if overlap:
                refused(optimizer.step, "would step before the sum of its gradient, which waits for those of 1.weight, 1.bias", RuntimeError)
                continue
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            refused(lambda: parts[1](torch.randn(8, 4)).sum().backward(), "has changed since its gradient came and before its sum: pass find", RuntimeError)
        # Parts one after the other and one step for both is a pass like any other, and so is a step of what is summed already.
        for overlap in (False, True):
            parts = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])
            first, rest = (torch.optim.SGD(part.parameters(), lr=0.1) for part in (parts[1], parts[0]))
            gradients = Gradients(parts, overlap=first if overlap else None, bucket_mb=0.00001)
            for step in range(4):
                torch.manual_seed(100 * step + rank)
                for part in (parts[1], parts[0]):
                    part(torch.randn(8, 4)).pow(2).sum().backward()
                    if step > 1 and part is parts[1]:
                        first.step()
                if step < 2:
                    first.step()
                rest.step()
                for optimizer in (first, rest):
                    optimizer.zero_grad(set_to_none=step % 2 == 0)
            gradients.close()
            agreed(torch.cat([p.detach().flatten() for p in parts.parameters()]))
        """
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output

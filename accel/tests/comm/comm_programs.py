# SPDX-License-Identifier: Apache-2.0
"""Programs of several ranks that use paceline.comm, which the tests of this folder share."""

from __future__ import annotations

from programs import Run, Train

BEGIN = """
        import hashlib, signal
        import paceline.comm
        from datetime import timedelta
        from torch.nn.parallel import DistributedDataParallel
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        rank, ranks = dist.get_rank(), dist.get_world_size()
"""
END = """
        dist.destroy_process_group()
"""

# Models and training steps. A test runs the same training twice, once with the hook.
MODELS = """
        class Several(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.first, self.last = nn.Linear(4, 64), nn.Linear(64, 1)
                self.deep = nn.ModuleList([nn.Linear(64, 64) for _ in range(8)])
                self.unused = nn.Linear(64, 64)
            def forward(self, x, use=False):
                x = self.first(x)
                for layer in self.deep:
                    x = torch.relu(layer(x))
                return self.last(self.unused(x) if use else x)

        def wrap(hook, model=None, **options):
            # Seven buckets of 40 kB, so that some are in flight while others are computed.
            ddp = DistributedDataParallel(model or Several(), bucket_cap_mb=0.04, **options)
            if hook:
                paceline.comm.ddp_hook(ddp)
            return ddp

        def steps(ddp, number=3, to_none=True, use=True, body=None):
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
            seen = []
            for step in range(number):
                torch.manual_seed(100 * step + rank)
                optimizer.zero_grad(set_to_none=to_none)
                (body or (lambda ddp, step: ddp(torch.randn(8, 4), use).pow(2).mean().backward()))(ddp, step)
                seen += [p.grad.clone().flatten() for p in ddp.parameters() if p.grad is not None]
                optimizer.step()
            return torch.cat(seen)

        def agreed(what):
            mine = hashlib.sha256(what.numpy().tobytes()).hexdigest()
            all_of_them = [None] * ranks
            dist.all_gather_object(all_of_them, mine)
            assert len(set(all_of_them)) == 1, "ranks differ"
            return what
"""


def passes(train: Train, program: str, ranks: int, **environment: str) -> Run:
    """Runs a program on some ranks between BEGIN and END, and checks that it ends well."""
    run = train(BEGIN + program + END, ranks=ranks, **environment)
    assert run.code == 0, run.output
    return run

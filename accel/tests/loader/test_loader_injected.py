# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own DataLoader in unmodified programs: our iterator where the job asks for it, its time
told right, nothing left over.
"""

from __future__ import annotations

import pytest
from programs import Train


@pytest.fixture
def train(train_by_fork: Train) -> Train:
    return train_by_fork


LOOP = """
        import hashlib
        import paceline
        class Wide(Slow):
            def __getitem__(self, index):
                return super().__getitem__(index)[0].repeat(2048), torch.tensor(float(index % 2)), torch.rand(1)
        for persistent in (True, False):
            torch.manual_seed(3)
            model = nn.Linear(8192, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
            loader = DataLoader(Wide(32), batch_size=4, shuffle=True, num_workers=2, persistent_workers=persistent)
            for _ in range(3):
                for batch in loader:
                    optimizer.zero_grad()
                    (loss_of(model, batch) * batch[2].mean()).backward()
                    optimizer.step()
            print(hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest())
        print(*[line.strip() for line in paceline.explain().splitlines() if "loader" in line], sep="\\n")
"""


def test_training_is_the_same_to_the_bit(train: Train) -> None:
    theirs = train(
        LOOP + "        assert 'paceline.loader' not in sys.modules", PACELINE_LOADER="Disabled"
    )
    ours = train(
        LOOP + "        assert type(iter(loader)).__module__ == 'paceline.loader._iterator'",
        PACELINE_LOADER="Auto",
    )
    assert theirs.code == 0 == ours.code, theirs.output + ours.output
    assert theirs.output.splitlines()[:2] == ours.output.splitlines()[:2]
    assert "in loaders: on; numerics class Bitwise" in ours.output
    assert len(ours.only().steps) == len(theirs.only().steps) == 48


def test_waiting_for_data_is_told(train: Train) -> None:
    """Each sample is begun when the training is about to ask for it, and takes 50 ms."""
    run = train(
        """
        reader, writer = os.pipe()
        class Asked(Slow):
            def __getitem__(self, index):
                os.read(reader, 1)
                return super().__getitem__(index)
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batches = iter(DataLoader(Asked(8, 0.05), num_workers=1))
        for _ in range(8):
            os.write(writer, b"a")
            batch = next(batches)
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        assert type(batches).__module__ == "paceline.loader._iterator"
        import paceline
        told = paceline.explain(as_dict=True)["loader"]["seen"][0]
        assert told["batches"] == 8 and 0.02 < told["median_wait_seconds"] <= told["p95_wait_seconds"], told
        assert "; the program waited for 8 batches, median " in told["text"], told
        """,
        PACELINE_LOADER="Auto",
    )
    ring = run.only()
    assert ring.total("data_wait") > 0.2 and [record.samples for record in ring.steps] == [1] * 8


@pytest.mark.parametrize("variables", [{}, {"PACELINE_LOADER": "Auto", "PACELINE_DISABLE": "1"}])
def test_it_is_off_unless_asked_for(train: Train, variables: dict[str, str]) -> None:
    run = train("assert 'paceline.loader' not in sys.modules", **variables)
    assert run.code == 0 and not run.output, run.output


def test_a_program_that_ends_in_the_middle_ends_well(train: Train) -> None:
    run = train(
        """
        loader = DataLoader(Slow(64), batch_size=2, num_workers=2, persistent_workers=True)
        batch = next(iter(loader))
        print(*[worker.pid for worker in loader._iterator._workers])
        """,
        PACELINE_LOADER="Auto",
    )
    assert run.code == 0 and len(run.output.splitlines()) == 1, run.output


def test_without_the_library_loaders_are_torchs(train: Train) -> None:
    run = train(
        """
        for _ in range(2):
            print(len(list(DataLoader(Slow(8), batch_size=2, num_workers=1))))
        """,
        PACELINE_LOADER="Auto",
        PACELINE_LIBRARY="/nowhere/library.so",
    )
    assert run.code == 0 and run.output.count("a loader is PyTorch's own: OSError") == 1, run.output
    assert run.output.split()[-1] == "4"

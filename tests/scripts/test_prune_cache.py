# SPDX-License-Identifier: Apache-2.0
"""What nobody has used for weeks goes; what is in use, or belongs to another checkout, stays."""

from __future__ import annotations

import os
from pathlib import Path

from prune_cache import prune

DAY = 86400.0
NOW = 100 * DAY


def cached(folder: Path, name: str, age: float) -> Path:
    path = folder / name
    path.mkdir()
    (path / "file").write_text("content")
    os.utime(path, (NOW - age * DAY, NOW - age * DAY))
    return path


def test_only_old_siblings_that_match_go(tmp_path: Path) -> None:
    used = cached(tmp_path, "tool-3", 90)
    other_checkout = cached(tmp_path, "tool-2", 13)
    old = cached(tmp_path, "tool-1", 15)
    stranger = cached(tmp_path, "other-1", 90)
    assert prune(used, "tool-*", days=14, now=NOW) == [old]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [used.name, other_checkout.name, stranger.name]
    )
    assert used.stat().st_mtime == NOW, "being used is what keeps it"


def test_a_file_and_a_link_go_as_themselves(tmp_path: Path) -> None:
    target = cached(tmp_path, "kept", 0)
    old = tmp_path / "layer-1.tar"
    old.write_text("content")
    os.utime(old, (0, 0))
    link = tmp_path / "layer-2.tar"
    link.symlink_to(target)
    os.utime(link, (0, 0), follow_symlinks=False)
    assert prune(tmp_path / "layer-3.tar", "layer-*.tar", now=NOW) == [old, link]
    assert (target / "file").exists()


def test_a_cache_that_is_not_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert prune(tmp_path / "missing" / "tool-1", "tool-*", now=NOW) == []

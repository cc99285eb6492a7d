# SPDX-License-Identifier: Apache-2.0
"""What scripts/imaging/archive.py writes is a docker-archive: read here as `docker load` and `ctr
images import` read it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from imaging.archive import Image, ImageError, Layer, shared_libraries


def example_layer(folder: Path, keep_times: bool = False) -> Layer:
    """Files of each kind, with what differs between two machines: times, umask, order of creation."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "program"
    program.write_bytes(b"\x7fELF" + bytes(range(256)) * 500)
    program.chmod(0o700)
    (folder / "notes").write_text("text")
    (folder / "notes").chmod(0o600)
    (folder / "alias").unlink(missing_ok=True)
    (folder / "alias").symlink_to("notes")
    (folder / "__pycache__").mkdir(exist_ok=True)
    (folder / "__pycache__" / "stale.pyc").write_bytes(b"stale")
    layer = Layer(keep_times)
    layer.accounts()
    layer.file("usr/bin/program", program)
    layer.tree("opt/data", folder)
    layer.link("bin", "usr/bin")
    return layer


def write(folder: Path, name: str = "paceline/example:dev") -> Path:
    layer = folder / "layer.tar"
    example_layer(folder / "files").write(layer)
    Image(name, entrypoint=["/usr/bin/program"], working_dir="/opt").write(
        folder / "image.tar", [layer]
    )
    return folder / "image.tar"


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar if info.isfile()}  # type: ignore[union-attr]


def test_manifest_names_config_and_layers_by_their_contents(tmp_path: Path) -> None:
    files = members(write(tmp_path))
    (manifest,) = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == ["paceline/example:dev"]
    config_bytes = files[manifest["Config"]]
    assert manifest["Config"] == hashlib.sha256(config_bytes).hexdigest() + ".json"
    config: dict[str, Any] = json.loads(config_bytes)
    digests = [hashlib.sha256(files[name]).hexdigest() for name in manifest["Layers"]]
    assert manifest["Layers"] == [f"{digest}/layer.tar" for digest in digests]
    assert config["rootfs"] == {
        "type": "layers",
        "diff_ids": [f"sha256:{digest}" for digest in digests],
    }
    assert set(files) == {"manifest.json", manifest["Config"], *manifest["Layers"]}
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    assert config["config"]["Entrypoint"] == ["/usr/bin/program"]
    assert config["config"]["User"] == "65532:65532", "an image of ours does not run as root"


def test_layer_holds_what_was_put_in_with_its_parents_first(tmp_path: Path) -> None:
    archive = write(tmp_path)
    (manifest,) = json.loads(members(archive)["manifest.json"])
    with tarfile.open(fileobj=io.BytesIO(members(archive)[manifest["Layers"][0]])) as layer:
        entries = {info.name: info for info in layer}
        order = list(entries)
        program = layer.extractfile("usr/bin/program")
        assert program is not None
        assert program.read() == (tmp_path / "files" / "program").read_bytes()
    for name in order:
        parent = name.rpartition("/")[0]
        assert not parent or order.index(parent) < order.index(name)
    assert entries["usr/bin/program"].mode == 0o755, (
        "a program that only its owner may run runs as anybody"
    )
    assert entries["opt/data/notes"].mode == 0o644
    assert entries["tmp"].mode == 0o1777
    assert (entries["bin"].issym(), entries["bin"].linkname) == (True, "usr/bin")
    assert (entries["opt/data/alias"].issym(), entries["opt/data/alias"].linkname) == (
        True,
        "notes",
    )
    assert not any("__pycache__" in name for name in order)
    assert {(info.uid, info.gid, info.mtime) for info in entries.values()} == {(0, 0, 0)}


def test_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    first = write(tmp_path / "one")
    before = os.umask(0o077)
    try:
        second = write(tmp_path / "two")
    finally:
        os.umask(before)
    os.utime(tmp_path / "two" / "files" / "program", (1, 1))
    example_layer(tmp_path / "two" / "files").write(tmp_path / "two" / "again.tar")
    assert first.read_bytes() == second.read_bytes()
    assert (tmp_path / "two" / "again.tar").read_bytes() == (
        tmp_path / "one" / "layer.tar"
    ).read_bytes()


def test_times_are_kept_where_asked(tmp_path: Path) -> None:
    layer = example_layer(tmp_path / "files", keep_times=True)
    os.utime(tmp_path / "files" / "program", (1_000, 1_000))
    layer.file("usr/bin/program", tmp_path / "files" / "program")
    layer.write(tmp_path / "layer.tar")
    with tarfile.open(tmp_path / "layer.tar") as tar:
        assert tar.getmember("usr/bin/program").mtime == 1_000


def test_an_unchanged_image_is_not_written_again_and_a_changed_one_is(tmp_path: Path) -> None:
    archive = write(tmp_path)
    os.utime(archive, (5, 5))
    write(tmp_path)
    assert archive.stat().st_mtime == 5
    write(tmp_path, "paceline/other:dev")
    assert archive.stat().st_mtime != 5
    archive.write_bytes(archive.read_bytes()[:700])
    (manifest,) = json.loads(members(write(tmp_path))["manifest.json"])
    assert manifest["RepoTags"] == ["paceline/example:dev"]


def test_a_file_that_vanishes_leaves_no_archive(tmp_path: Path) -> None:
    layer = example_layer(tmp_path / "files")
    (tmp_path / "files" / "program").unlink()
    with pytest.raises(OSError, match="program"):
        layer.write(tmp_path / "layer.tar")
    assert list(tmp_path.glob("*.tar*")) == []


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImageError, match="pipe is neither"):
        Layer().file("pipe", tmp_path / "pipe")


def test_libraries_of_a_program_are_found() -> None:
    names = {path.name for path in shared_libraries([Path("/bin/ls")])}
    assert {"libc.so.6", "ld-linux-x86-64.so.2"} <= names

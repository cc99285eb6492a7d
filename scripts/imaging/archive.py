# SPDX-License-Identifier: Apache-2.0
"""Container images as docker-archive tars, made without Docker, for `ctr images import` and `docker
load`.

A layer is the same to the byte when its files are: owners are root, names sorted, times fixed (or
kept, where Python's compiled files compare them). Nothing is shared between threads. Failure is an
ImageError or an OSError that names the file; a half-written tar never has its final name.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

USER = 65532


class ImageError(Exception):
    """An image cannot be made; the text says which input is missing and what provides it."""


class Layer:
    """Paths of a root file system and where their bytes come from. Parent folders appear by
    themselves.
    """

    def __init__(self, keep_times: bool = False) -> None:
        self._entries: dict[str, tuple[tarfile.TarInfo, Path | bytes | None]] = {}
        self._keep_times = keep_times

    def _put(
        self, name: str, kind: bytes, mode: int, source: Path | bytes | None = None
    ) -> tarfile.TarInfo:
        name = name.strip("/")
        parent = name.rpartition("/")[0]
        if parent and parent not in self._entries:
            self._put(parent, tarfile.DIRTYPE, 0o755)
        info = tarfile.TarInfo(name)
        info.type, info.mode = kind, mode
        self._entries[name] = (info, source)
        return info

    def folder(self, name: str, mode: int = 0o755) -> None:
        self._put(name, tarfile.DIRTYPE, mode)

    def link(self, name: str, target: str) -> None:
        self._put(name, tarfile.SYMTYPE, 0o777).linkname = target

    def text(self, name: str, text: str) -> None:
        data = text.encode()
        self._put(name, tarfile.REGTYPE, 0o644, data).size = len(data)

    def file(self, name: str, source: Path) -> None:
        """Adds what `source` is: a regular file, or the link itself."""
        status = source.lstat()
        if stat.S_ISLNK(status.st_mode):
            self.link(name, str(source.readlink()))
            return
        if not stat.S_ISREG(status.st_mode):
            raise ImageError(f"{source} is neither a file nor a link")
        info = self._put(name, tarfile.REGTYPE, 0o755 if status.st_mode & 0o111 else 0o644, source)
        info.size = status.st_size
        if self._keep_times:
            info.mtime = int(status.st_mtime)

    def tree(self, name: str, source: Path) -> None:
        for path in sorted(source.rglob("*")):
            if "__pycache__" in path.parts:
                continue
            if path.is_symlink() or path.is_file():
                self.file(f"{name}/{path.relative_to(source)}", path)

    def has(self, name: str) -> bool:
        return name.strip("/") in self._entries

    def accounts(self) -> None:
        """The names programs look up, and a place for temporary files: what every image here starts
        from.
        """
        self.text(
            "etc/passwd",
            f"root:x:0:0:root:/:/sbin/nologin\npaceline:x:{USER}:{USER}:paceline:/tmp:/sbin/nologin\n",
        )
        self.text("etc/group", f"root:x:0:\npaceline:x:{USER}:\n")
        self.text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
        self.folder("tmp", 0o1777)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        try:
            with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as tar:
                for name in sorted(self._entries):
                    info, source = self._entries[name]
                    if isinstance(source, Path):
                        with source.open("rb") as data:
                            tar.addfile(info, data)
                    else:
                        tar.addfile(info, io.BytesIO(source) if source is not None else None)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


@dataclass
class Image:
    """What a container of this image starts as."""

    name: str
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    user: str = f"{USER}:{USER}"
    working_dir: str = "/"

    def write(self, path: Path, layers: list[Path]) -> None:
        """Writes the docker-archive of these layers (lowest first)."""
        digests = [_sha256(layer) for layer in layers]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "User": self.user,
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"],
                "Entrypoint": self.entrypoint or None,
                "Cmd": self.command or None,
                "WorkingDir": self.working_dir,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
        encoded = json.dumps(config, sort_keys=True).encode()
        config_name = hashlib.sha256(encoded).hexdigest() + ".json"
        names = [f"{digest}/layer.tar" for digest in digests]
        manifest = json.dumps(
            [{"Config": config_name, "RepoTags": [self.name], "Layers": names}]
        ).encode()
        if _manifest(path) == manifest:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        try:
            with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as tar:
                for name, data in (("manifest.json", manifest), (config_name, encoded)):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
                for name, layer in dict(zip(names, layers, strict=True)).items():
                    info = tarfile.TarInfo(name)
                    info.size = layer.stat().st_size
                    with layer.open("rb") as stream:
                        tar.addfile(info, stream)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def _manifest(path: Path) -> bytes | None:
    """The manifest of an archive written here; it names every content by its digest, so equal means
    nothing to do.
    """
    try:
        with tarfile.open(path) as tar:
            first = tar.next()
            data = tar.extractfile(first) if first is not None else None
            return data.read() if data is not None else None
    except (OSError, tarfile.TarError):
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def shared_libraries(programs: list[Path]) -> list[Path]:
    """What the dynamic loader maps for these programs and libraries, itself included, by the paths
    it uses.
    """
    answer = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    )
    missing = sorted(set(re.findall(r"(\S+) => not found", answer.stdout)))
    if missing:
        raise ImageError(
            f"{programs[0]} needs {', '.join(missing)}, which this machine lacks; run scripts/setup"
        )
    return [
        Path(path) for path in sorted(set(re.findall(r"(/\S+) \(0x[0-9a-f]+\)", answer.stdout)))
    ]


def add_followed(layer: Layer, path: Path) -> None:
    """Adds a file with every link on the way to it. /lib is /usr/lib in these images, as on Debian
    12 itself.
    """
    while True:
        place = path.parent.resolve() / path.name
        if layer.has(str(place)) or not place.is_file():
            return
        layer.file(str(place), place)
        if not place.is_symlink():
            return
        path = place.parent / place.readlink()


def merged_usr(layer: Layer) -> None:
    for name in ("bin", "sbin", "lib", "lib64"):
        layer.folder(f"usr/{name}")
        layer.link(name, f"usr/{name}")

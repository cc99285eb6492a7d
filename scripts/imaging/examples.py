#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the archives in build/images that the job files in examples/ need, one a line: what
`scripts/images` makes of their `image:` names.

An image my/NAME stands for one of the user's own, and is left out. Any other image that
scripts/images does not make is an error that names the job file, the image and what to do.
usage: /usr/bin/python3 scripts/imaging/examples.py [FOLDER] (Debian's interpreter, which has
python3-yaml)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
# paceline/NAME:dev is build/images/NAME.tar.
PREFIX, TAG = "paceline/", ":dev"
USERS = "my/"
MADE = ("busybox", "operator", "agent", "runtime", "pytorch")


class ExampleError(Exception):
    """An example cannot run on the cluster of scripts/cluster; the text says which and why."""


def images_in(document: Any) -> Iterator[str]:
    """Every string under a key `image`, wherever a container stands."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "image" and isinstance(value, str):
                yield value
            else:
                yield from images_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from images_in(value)


def archives(folder: Path) -> list[str]:
    """The names of the archives for all job files of a folder, sorted."""
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ExampleError(f"{folder} holds no *.yaml")
    names: set[str] = set()
    for file in files:
        try:
            documents = list(yaml.safe_load_all(file.read_text()))
        except yaml.YAMLError as error:
            raise ExampleError(f"{file} is not YAML: {error}") from error
        for image in images_in(documents):
            if image.startswith(USERS):
                continue
            name = image.removeprefix(PREFIX).removesuffix(TAG)
            if image != f"{PREFIX}{name}{TAG}" or name not in MADE:
                raise ExampleError(
                    f"{file}: image {image!r} is none that scripts/images makes ({', '.join(MADE)}"
                    f" as {PREFIX}NAME{TAG}): the cluster has no registry to pull it from"
                )
            names.add(name)
    return sorted(names)


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "examples"
    try:
        print(*archives(folder), sep="\n")
    except (ExampleError, OSError) as error:
        print(f"examples: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Installs each artifact of a release into an empty place and runs what it holds.

Each function raises CheckError with the command's output when an artifact does not work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

# The program of each image that answers --version.
PROGRAMS = {
    "operator": "usr/bin/paceline-operator",
    "agent": "usr/bin/paceline-agent",
    "runtime": "opt/paceline-image/bin/paceline-launcher",
}


# Two ranks that need neither a framework nor a cluster.
JOB = """
apiVersion: paceline.dev/v1alpha1
kind: TrainingJob
metadata: {name: check}
spec:
  framework: {type: Custom, processesPerReplica: 2}
  roles:
  - name: worker
    replicas: 1
    template:
      spec:
        containers:
        - {name: trainer, image: none, command: [sh, -c, "echo rank $RANK of $WORLD_SIZE"]}
"""


class CheckError(Exception):
    """An artifact does not work; the message names it and shows what it printed."""


def extract_all(files: tarfile.TarFile, folder: Path | str) -> None:
    """Extracts an archive of our own. Debian 12's Python knows no filters yet, and ignores this."""
    files.extraction_filter = getattr(tarfile, "tar_filter", None)
    files.extractall(folder)


def output(what: Path, *command: str | Path) -> str:
    words = [str(word) for word in command]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise CheckError(
            f"{what.name}: `{' '.join(words)}` ended with {answer.returncode}:"
            f" {answer.stdout[-500:]}{answer.stderr[-1500:]}"
        )
    return answer.stdout


def expect(what: Path, text: str, wanted: str) -> None:
    if wanted not in text:
        raise CheckError(f"{what.name}: {wanted!r} is not in: {text[-500:]}")


def unpack_image(archive: Path, folder: Path) -> list[str]:
    """Unpacks the layers of a docker-archive in their order and returns the image's names."""
    with tarfile.open(archive) as image:
        manifest = json.load(image.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=image.extractfile(layer)) as files:
                extract_all(files, folder)
    return list(manifest["RepoTags"])


def expect_kernels(what: Path, home: Path) -> None:
    if not any((home / "kernels").glob("*.cubin")):
        raise CheckError(f"{what.name} has no GPU kernels: run scripts/kernels")


def image(archive: Path, name: str, version: str) -> None:
    """Runs the image's program with the image as its root file system."""
    with tempfile.TemporaryDirectory() as folder:
        names = unpack_image(archive, Path(folder))
        if names != [f"paceline/{name}:{version}"]:
            raise CheckError(f"{archive.name} holds {names}")
        root = ["unshare", "--map-root-user", f"--root={folder}"]
        expect(archive, output(archive, *root, f"/{PROGRAMS[name]}", "--version"), version)
        if name == "runtime":
            expect_kernels(archive, Path(folder) / "opt/paceline-image")


def command_line(archive: Path, version: str) -> None:
    """Runs a job by `paceline` from the unpacked archive and loads its bash completion."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as files:
            extract_all(files, folder)
        (home,) = Path(folder).iterdir()
        expect(archive, output(archive, home / "bin/paceline", "--version"), version)
        launcher = home / "bin/paceline-launcher"
        expect(archive, output(archive, launcher, "--version"), version)
        job = Path(folder) / "job.yaml"
        job.write_text(JOB)
        expect(archive, output(archive, home / "bin/paceline", "run", "-f", job), "rank 1 of 2")
        completion = home / "share/bash-completion/completions/paceline"
        complete = "COMP_WORDS=(paceline do) COMP_CWORD=1; _paceline; echo ${COMPREPLY[0]}"
        shell = f"source {completion}; {complete}"
        expect(archive, output(archive, "bash", "-c", shell), "doctor")
        expect(archive, (home / "share/man/man1/paceline-run.1").read_text(), r"\-\-file")
        for part in ("lib/libpaceline.so", "python/paceline/__init__.py"):
            if not (home / part).is_file():
                raise CheckError(f"{archive.name} has no {part}")
        expect_kernels(archive, home)


def chart(package: Path, version: str, helm: Path) -> None:
    """Renders the packaged chart with its own values."""
    rendered = output(package, helm, "template", "paceline", package)
    for name in ("operator", "agent"):
        expect(package, rendered, f"paceline/{name}:{version}")
    expect(package, rendered, f'app.kubernetes.io/version: "{version}"')


def wheel(file: Path, version: str) -> None:
    """Installs the wheel into a fresh virtual environment and imports it."""
    with tempfile.TemporaryDirectory() as folder:
        output(file, "/usr/bin/python3", "-m", "venv", folder)
        python = Path(folder, "bin/python")
        options = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
        output(file, python, "-m", "pip", "install", *options, file)
        program = "import paceline; print(paceline.__version__, paceline.__path__[0], sep='\\n')"
        said = output(file, python, "-c", program).splitlines()
        expect(file, said[0], version)
        expect_kernels(file, Path(said[1]))


def bill(file: Path, python: str) -> None:
    """Validates the bill of materials against CycloneDX's schema."""
    program = (
        "import sys, cyclonedx.schema, cyclonedx.validation.json as v;"
        "e = v.JsonStrictValidator(cyclonedx.schema.SchemaVersion.V1_6)"
        ".validate_str(open(sys.argv[1]).read()); sys.exit(str(e) if e else 0)"
    )
    output(file, python, "-c", program, file)


def sums(file: Path) -> None:
    answer = subprocess.run(
        ["sha256sum", "--check", "--quiet", file.name],
        cwd=file.parent,
        stdout=sys.stderr,
        check=False,
    )
    if answer.returncode != 0:
        raise CheckError(f"{file.name} does not match the files beside it")

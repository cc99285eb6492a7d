# SPDX-License-Identifier: Apache-2.0
"""The software bill of materials of a release, as CycloneDX 1.6 in JSON.

It lists the Debian packages that programs of the release load or are compiled from, the C++ library
inside the runtime, and the files of the release with their digests.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from imaging.archive import ImageError as ImageError
from imaging.archive import shared_libraries

# The licences that Debian's copyright files name by their own words.
SPDX = {
    "Apache-2": "Apache-2.0",
    "BSL-1.0": "BSL-1.0",
    "Expat": "MIT",
    "BSD-3-clause": "BSD-3-Clause",
    "Zlib": "Zlib",
}


# The runtime and the agent's image carry these; libraries open them at run time.
OPENED = ("ibverbs-providers", "libibverbs1", "libjpeg62-turbo")


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loaded_packages(programs: Iterable[Path]) -> set[str]:
    """The packages whose shared libraries the dynamic loader maps for these programs."""
    found: set[str] = set()
    for library in shared_libraries(list(programs)):
        for path in (library, library.resolve()):
            # Debian 12 lists some files below /lib and finds them below /usr/lib.
            for name in (str(path), str(path).removeprefix("/usr")):
                answer = subprocess.run(
                    ["dpkg-query", "-S", name], capture_output=True, text=True, check=False
                )
                if answer.returncode == 0:
                    found.add(answer.stdout.split(": ")[0].split(",")[0])
    return found


def opened_packages() -> set[str]:
    """The packages that are opened at run time, and those that their libraries load."""
    files = [Path(name) for name in output("dpkg", "-L", *OPENED).splitlines()]
    loaded = loaded_packages(file for file in files if ".so" in file.name and file.is_file())
    return set(OPENED) | {name.split(":")[0] for name in loaded}


def compiled_packages(packages: Path) -> set[str]:
    """The development packages of scripts/packages.txt, whose headers are compiled in."""
    names = re.findall(r"^(\S+-dev)\b", packages.read_text(), re.M)
    return {name for name in names if not re.search(r"gtest|gmock|benchmark|hwloc|clang-rt", name)}


def licence_of(package: str) -> list[dict[str, Any]]:
    """The licence of the upstream sources, where Debian's copyright file names a known one."""
    file = Path("/usr/share/doc") / package.split(":")[0] / "copyright"
    text = file.read_text(errors="replace") if file.is_file() else ""
    found = re.search(r"^Files: \*\n(?:.+\n)*?License: *(\S+)", text, re.M)
    name = SPDX.get(found[1]) if found else None
    return [{"license": {"id": name}}] if name else []


def debian_component(package: str) -> dict[str, Any]:
    form = "${Package}\t${Version}\t${Architecture}"
    name, version, architecture = output("dpkg-query", "-W", "-f", form, package).split("\t")
    purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}"
    reference = f"{purl}?arch={architecture}&distro=debian-12"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
    }
    if licences := licence_of(name):
        component["licenses"] = licences
    return component


def cxx_component(find: Path) -> dict[str, Any]:
    """The C++ library that is linked into the runtime: the compiler's, whose version `find` has."""
    version = re.search(r"^version=(\S+)", find.read_text(), re.M)
    assert version is not None, f"{find} names no version of the compiler"
    purl = f"pkg:pypi/ziglang@{version[1]}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": "ziglang",
        "version": version[1],
        "purl": purl,
        "licenses": [{"expression": "Apache-2.0 WITH LLVM-exception"}],
        "description": "libc++ and libunwind inside libpaceline.so and paceline-probe",
    }


def file_component(path: Path) -> dict[str, Any]:
    with path.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{path.name}",
        "name": path.name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def bill(
    version: str, files: Iterable[Path], packages: Iterable[str], *others: dict[str, Any]
) -> str:
    """The document. It is the same for the same files and packages. `others` are components."""
    components = [file_component(path) for path in sorted(files)]
    components += [debian_component(package) for package in sorted(packages)]
    components += others
    product = {
        "type": "application",
        "bom-ref": "paceline",
        "name": "paceline",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
        "dependencies": [
            {"ref": "paceline", "dependsOn": [part["bom-ref"] for part in components]}
        ],
    }
    return json.dumps(document, indent=2) + "\n"

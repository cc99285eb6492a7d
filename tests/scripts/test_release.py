# SPDX-License-Identifier: Apache-2.0
"""The pieces of scripts/release: completions from --help, images unpacked, the bill of materials."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from imaging.archive import Image, Layer
from releasing import checks, completions, materials

ROOT = Path(__file__).resolve().parents[2]
TOP = """Trains.
Usage: tool [OPTIONS] SUBCOMMAND

Options:
  -h,--help                   Print this help
  --version                   Display the version

Subcommands:
  run                         Run a job
  doctor                      Tell what's wrong [here]
"""
RUN = """Run a job
Usage: tool run [OPTIONS]

Options:
  -h,--help                   Print this help
  -f,--file TEXT REQUIRED     job file
  --token TEXT REQUIRED Needs: --file
                              file with a token
  --json                      all of it
"""
DOCTOR = """Tell what's wrong [here]
Usage: tool doctor [OPTIONS]

Options:
  --live Excludes: --root     try: it
"""
HELP = {"": TOP, "run": RUN, "doctor": DOCTOR}


@pytest.fixture
def root() -> completions.Command:
    return completions.describe("tool", lambda words: HELP[" ".join(words)])


def test_help_is_read(root: completions.Command) -> None:
    run, doctor = root.subcommands
    assert [option.names for option in root.options] == [("-h", "--help"), ("--version",)]
    assert [(option.names[-1], option.takes_value) for option in run.options] == [
        ("--help", False),
        ("--file", True),
        ("--token", True),
        ("--json", False),
    ]
    assert run.options[2].about == "file with a token"
    assert doctor.options == [completions.Option(("--live",), False, "try: it")]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tool", "d"], ["doctor"]),
        (["tool", "--v"], ["--version"]),
        (["tool", "run", "--"], ["--help", "--file", "--token", "--json"]),
        (["tool", "doctor", "--"], ["--live"]),
        (["tool", "run", "--file", "/etc/passw"], ["/etc/passwd"]),
    ],
)
def test_bash_completes(
    root: completions.Command, tmp_path: Path, words: list[str], told: list[str]
) -> None:
    (tmp_path / "tool").write_text(completions.bash(root))
    call = f"source {tmp_path}/tool; COMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1}"
    shell = f"{call}; _tool; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    answer = subprocess.run(["bash", "-euc", shell], capture_output=True, text=True, check=True)
    found = [word for word in answer.stdout.split() if word != "/etc/passwd-"]
    assert found == told


def test_other_shells_get_quoted_descriptions(root: completions.Command) -> None:
    assert "-d 'Tell what\\'s wrong [here]'" in completions.fish(root)
    assert "--live[try\\: it]" in completions.zsh(root)
    assert "--file[job file]:value:_files" in completions.zsh(root)


def test_an_image_is_unpacked_in_the_order_of_its_layers(tmp_path: Path) -> None:
    layers = []
    for text in ("first", "second"):
        layer = Layer()
        layer.text("etc/x", text)
        layer.write(tmp_path / f"{text}.tar")
        layers.append(tmp_path / f"{text}.tar")
    Image("paceline/x:1").write(tmp_path / "image.tar", layers)
    assert checks.unpack_image(tmp_path / "image.tar", tmp_path / "root") == ["paceline/x:1"]
    assert (tmp_path / "root/etc/x").read_text() == "second"


def test_a_command_that_fails_names_the_artifact() -> None:
    with pytest.raises(checks.CheckError, match=r"x\.tgz: `false` ended with 1"):
        checks.output(Path("out/x.tgz"), "false")


def test_the_bill_names_packages_and_files(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("x")
    assert "libc6:amd64" in materials.loaded_packages([Path("/bin/ls")])
    text = materials.bill("1.2.3", [tmp_path / "x.tar"], ["libc6"])
    assert text == materials.bill("1.2.3", [tmp_path / "x.tar"], ["libc6"])
    cxx = materials.cxx_component(ROOT / "accel/cmake/zig/find")
    with_cxx = json.loads(materials.bill("1.2.3", [], [], cxx))["components"]
    assert [part["purl"] for part in with_cxx] == [cxx["purl"]]
    assert cxx["purl"].startswith("pkg:pypi/ziglang@0.")
    assert {"libibverbs1", "libjpeg62-turbo"} <= materials.opened_packages()
    file, package = json.loads(text)["components"]
    assert file["hashes"][0]["content"].startswith("2d711642b726b04401627ca9fbac32f5")
    assert package["purl"].startswith("pkg:deb/debian/libc6@2.36")

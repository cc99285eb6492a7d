# SPDX-License-Identifier: Apache-2.0
"""bench/reach/versions: stubs of missing libraries, what is read of a program, and the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matrix
import pytest
import stubs
import versions_page

# A library of two others: one gives its symbols a version, as CUDA's do, and one does not.
USER = """
int versioned(void); const char* versionedGetErrorString(int); int plain(void);
int code(void) { return versioned(); }
int code_of_plain(void) { return plain(); }
const char* text(void) { return versionedGetErrorString(1); }
"""
OTHERS = {
    "libversioned.so.7": 'int versioned(void) { return 1; } const char* versionedGetErrorString(int e) { return "real"; }',
    "libplain.so.2": "int plain(void) { return 1; }",
}
LOAD = """
import ctypes, sys
user = ctypes.CDLL(sys.argv[1])
user.text.restype = ctypes.c_char_p
print(user.code(), user.code_of_plain(), user.text().decode())
"""


def linked(folder: Path, name: str, text: str, *options: str) -> Path:
    (folder / "source.c").write_text(text)
    words = ["gcc", "-shared", "-fPIC", str(folder / "source.c"), "-o", str(folder / name)]
    subprocess.run([*words, f"-Wl,-soname,{name}", *options], check=True)
    return folder / name


def package(folder: Path, rpath: str) -> Path:
    """A library whose own libraries are not there, where a wheel would have it."""
    home = folder / "user" / "lib"
    home.mkdir(parents=True)
    script = home / "versions"
    script.write_text("VERSION_7 { versioned; versionedGetErrorString; };")
    of = {"libversioned.so.7": [f"-Wl,--version-script={script}"], "libplain.so.2": []}
    others = [linked(home, name, text, *of[name]) for name, text in OTHERS.items()]
    # All symbols are wanted at once, as PyTorch wants them.
    options = ["-Wl,-z,now", f"-Wl,-rpath,{rpath}", *map(str, others)]
    user = linked(home, "libuser.so", USER, *options)
    for other in others:
        other.unlink()
    return user


def load(library: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", LOAD, str(library)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_stubs_let_a_library_load_whose_own_are_missing(tmp_path: Path) -> None:
    user = package(tmp_path, "$ORIGIN:$ORIGIN/../../gone/lib")
    assert "libversioned.so.7" in load(user).stderr
    made = stubs.make([user])
    gone = tmp_path / "gone" / "lib"
    assert {path.resolve() for path in made} == {gone / name for name in OTHERS}
    assert set().union(*made.values()) == {
        ("versioned", "VERSION_7"),
        ("versionedGetErrorString", "VERSION_7"),
        ("plain", ""),
    }
    ran = load(user)
    assert ran.stdout == "100 100 there is no such library: this is a stub\n", ran.stderr
    assert stubs.make([user]) == {}, "nothing is missing any more"


def test_stubs_are_refused_a_place_beside_the_library(tmp_path: Path) -> None:
    user = package(tmp_path, "$ORIGIN")
    with pytest.raises(LookupError, match="nowhere but beside itself"):
        stubs.make([user])


def feature(state: str, reason: str, *seen: dict[str, Any]) -> dict[str, Any]:
    return {"state": state, "reason": reason, "seen": list(seen)}


@pytest.mark.parametrize(
    ("told", "state", "reason"),
    [
        (feature("off", "no such method"), "declines", "no such method"),
        (feature("on", ""), "declines", "it has not met it"),
        (feature("on", "", {"state": "on", "reason": "", "steps": 3}), "acts", ""),
        (
            feature("on", "", {"state": "on", "reason": "", "passes": 0}),
            "declines",
            "it has done nothing",
        ),
        (feature("on", "", {"state": "off", "reason": "fused=True"}), "declines", "fused=True"),
        (
            feature(
                "on", "", {"state": "off", "reason": "rolled back: -3 % in 6 pairs of windows"}
            ),
            "acts",
            "compiled steps were compared, and gained nothing",
        ),
        (
            feature(
                "on", "", {"state": "off", "reason": "rolled back: its first steps cost 130 s"}
            ),
            "declines",
            "rolled back: its first steps cost 130 s",
        ),
    ],
)
def test_a_cell_says_what_a_feature_did(told: dict[str, Any], state: str, reason: str) -> None:
    assert matrix.cell(told, 0) == {"state": state, "reason": reason}


CASE = matrix.Case("played", (("DDP", "communication", 0),))


def ran(code: int, output: str = "") -> matrix.Ran:
    return matrix.Ran(code, output, {}, [])


def test_a_program_that_fails_without_paceline_too_is_pytorchs_affair() -> None:
    theirs = ran(1, "Traceback\nImportError: no fully_shard\n")
    assert matrix.failed(CASE, ran(1, "worse"), theirs)["DDP"] == {
        "state": "not in PyTorch",
        "reason": "ImportError: no fully_shard",
    }
    assert matrix.failed(CASE, ran(-11, "Segmentation fault"), ran(0))["DDP"] == {
        "state": "breaks",
        "reason": "Segmentation fault",
    }


def row(release: str, **cells: tuple[str, str]) -> dict[str, Any]:
    told = {title: {"state": state, "reason": why} for title, (state, why) in cells.items()}
    facts = {"python": "3.11.2", "symbols": 400, "bytes": 1_500_000_000}
    return {"release": release, **facts, "cells": told}


RECORD = {
    "date": "2026-11-24",
    "processors": 2,
    "rows": [
        row("2.9.1", loader=("acts", ""), AdamW=("declines", "a | b")),
        row("2.11.0", loader=("not in PyTorch", "no loader"), AdamW=("declines", "a | b")),
    ],
}


def test_the_page_has_a_column_for_each_release_and_a_line_for_each_reason() -> None:
    page = versions_page.page(RECORD)
    assert "| feature | 2.9.1 | 2.11.0 |" in page
    assert "| loader | acts | not in PyTorch |" in page
    assert "| loader | 2.11.0 | no loader |" in page
    assert "| AdamW | 2.9.1, 2.11.0 | a / b |" in page
    assert "All together take 3 GB." in page


def test_the_last_line_counts_the_cells() -> None:
    told = json.loads(versions_page.last_line(RECORD))
    assert (told["of"], told["acts"], told["declines"], told["breaks"]) == (4, 1, 2, 0)
    assert told["rows"][1] == {
        "torch": "2.11.0",
        "loader": "not in PyTorch",
        "AdamW": "declines",
    }


def test_what_was_not_run_again_stays_in_the_record() -> None:
    again = {"release": "2.9.1", "cells": {"AdamW": {"state": "acts"}}}
    record = matrix.merged(RECORD, again)
    assert [one["release"] for one in record["rows"]] == ["2.9.1", "2.11.0"]
    assert list(record["rows"][0]["cells"]) == ["loader", "AdamW"]
    assert record["rows"][0]["cells"]["AdamW"] == {"state": "acts"}


def test_a_program_that_does_not_end_is_ended_and_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrix, "PATIENCE", 0.1)
    waits = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with pytest.raises(matrix.TooSlow, match="not ended within 0 s"):
        matrix.finish([waits])
    assert waits.returncode == -9

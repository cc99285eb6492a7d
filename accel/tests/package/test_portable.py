# SPDX-License-Identifier: Apache-2.0
"""What is shipped loads where users' images are old: symbol versions, and a real load, training
marks included, in a root file system with glibc 2.31.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import rings
from programs import ROOT

OLDEST = (2, 31)

# Opens the trace, makes three steps, updates a list of tensors and finds the decoder of pictures
# through the C ABI, as a program of another framework would.
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
#include "paceline/optim.h"
#include "paceline/pictures.h"
int main(void) {
  void* library = dlopen("/libpaceline.so", RTLD_NOW);
  if (!library) { fprintf(stderr, "%s\\n", dlerror()); return 1; }
  int (*open)(const void*) = (int (*)(const void*))dlsym(library, "paceline_open");
  int (*step)(long long) = (int (*)(long long))dlsym(library, "paceline_step");
  int (*finish)(void) = (int (*)(void))dlsym(library, "paceline_close");
  if (open(0) != 0) return 2;
  for (long long i = 0; i < 4; ++i) { usleep(1000); if (step(i) != 0) return 3; }
  static float p[500000], g[500000], m[500000], v[500000];
  float count = 0;
  for (int i = 0; i < 500000; ++i) g[i] = 1;
  struct paceline_optim_group group = {.size = sizeof group, .kind = PACELINE_OPTIM_ADAM, .lr = 0.5, .beta1 = 0.9, .beta2 = 0.999,
                                       .grad_multiplier = 1};
  struct paceline_optim_tensor tensor = {.param = p, .grad = g, .state1 = m, .state2 = v, .step = &count, .count = 500000,
                                         .param_dtype = PACELINE_OPTIM_F32, .grad_dtype = PACELINE_OPTIM_F32};
  int (*update)(const void*, unsigned, const void*, unsigned long, int) =
      (int (*)(const void*, unsigned, const void*, unsigned long, int))dlsym(library, "paceline_optim_step");
  if (update(&group, 1, &tensor, 1, 2) != 0 || count != 1) return 5;
  for (int i = 0; i < 500000; ++i) if (p[i] > -0.4999f || p[i] < -0.5001f) return 6;
  int (*shards_open)(const void*, unsigned, unsigned, void**, char*, unsigned long) =
      (int (*)(const void*, unsigned, unsigned, void**, char*, unsigned long))dlsym(library, "paceline_shards_open");
  int (*pictures_open)(void*, const void*, const void*, const char*, void**, char*, unsigned long) =
      (int (*)(void*, const void*, const void*, const char*, void**, char*, unsigned long))dlsym(library, "paceline_pictures_open");
  void (*pictures_close)(void*) = (void (*)(void*))dlsym(library, "paceline_pictures_close");
  struct paceline_pictures_style style = {.size = sizeof style, .width = 8, .height = 8, .threads = 1, .scale = {0.1, 1},
                                          .ratio = {0.5, 2}, .deviation = {1, 1, 1}};
  const char* extensions[] = {"jpg", 0};
  void *shards = 0, *pictures = 0;
  char why[200] = "";
  if (shards_open(0, 0, 1, &shards, why, sizeof why) != 0) return 7;
  if (pictures_open(shards, &style, extensions, 0, &pictures, why, sizeof why) != 0) { fprintf(stderr, "%s\\n", why); return 8; }
  pictures_close(pictures);
  return finish() == 0 ? 0 : 4;
}
"""


@pytest.fixture(scope="session")
def shipped() -> Path:
    done = subprocess.run(
        [ROOT / "scripts" / "runtime"], stdout=subprocess.PIPE, text=True, check=True
    )
    return ROOT / done.stdout.strip().splitlines()[-1]


def test_no_symbol_is_newer_than_the_oldest_glibc(shipped: Path) -> None:
    for name in ("libjpeg.so.62", "libpaceline_cupti.so", "libpaceline.so"):
        table = subprocess.run(
            ["objdump", "-T", shipped / "lib" / name], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        versions = {
            tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", table)
        }
        assert versions and max(versions) <= OLDEST
    defined = [
        line.split()[-1] for line in table.splitlines() if "*UND*" not in line and ".text" in line
    ]
    assert defined and all(name.startswith("paceline_") for name in defined), (
        "only the C ABI leaves the library"
    )
    needed = subprocess.run(
        ["objdump", "-p", shipped / "lib" / "libpaceline.so"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    libraries = set(re.findall(r"NEEDED\s+(\S+)", needed))
    assert not any("stdc++" in name or "c++" in name or "gcc_s" in name for name in libraries), (
        libraries
    )


def test_the_runtime_folder_is_complete(shipped: Path) -> None:
    names = {
        str(path.relative_to(shipped))
        for path in shipped.rglob("*")
        if path.is_file() and "__pycache__" not in str(path)
    }
    sources = ROOT / "accel" / "python"
    python = {f"python/{path.relative_to(sources)}" for path in sources.rglob("*.py")}
    assert (
        python <= names
        and {
            "lib/libpaceline.so",
            "lib/libpaceline_cupti.so",
            "lib/libjpeg.so.62",
            "lib/libjpeg.so.62.LICENCE",
        }
        <= names
    )
    assert any(name.endswith(".dist-info/entry_points.txt") for name in names)


@pytest.mark.skipif(os.geteuid() != 0, reason="making a root file system needs root")
def test_it_loads_and_traces_on_glibc_2_31(shipped: Path, tmp_path: Path) -> None:
    root = subprocess.run(
        [ROOT / "scripts" / "old-root"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    (tmp_path / "main.c").write_text(PROGRAM)
    compiler = ROOT / "accel" / "cmake" / "zig" / "cc"
    with rings.Receiver() as receiver:
        # The shared root stays as it is: what is ours lies in a folder of it that ends with the
        # test.
        place = Path(root) / f"test-{os.getpid()}"
        place.mkdir()
        try:
            program = (
                (tmp_path / "main.c")
                .read_text()
                .replace("/libpaceline.so", f"/{place.name}/libpaceline.so")
            )
            (tmp_path / "main.c").write_text(program)
            subprocess.run(
                [
                    compiler,
                    tmp_path / "main.c",
                    "-I",
                    ROOT / "accel/include",
                    "-o",
                    place / "main",
                    "-ldl",
                ],
                check=True,
            )
            for name in ("libjpeg.so.62", "libpaceline.so"):
                shutil.copy(shipped / "lib" / name, place)
            (place / "telemetry").touch()
            subprocess.run(["mount", "--bind", receiver.path, place / "telemetry"], check=True)
            environment = {
                "PACELINE_TELEMETRY_SOCKET": f"/{place.name}/telemetry",
                "RANK": "2",
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            }
            inside = ["chroot", root]
            version = subprocess.run(
                [*inside, "/usr/bin/ldd", "--version"],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            assert "2.31" in version.stdout.splitlines()[0]
            done = subprocess.run(
                [*inside, f"/{place.name}/main"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            subprocess.run(["umount", place / "telemetry"], check=False, stderr=subprocess.DEVNULL)
            shutil.rmtree(place)
    assert done.returncode == 0, done.stderr
    ring = receiver.only()
    assert ring.rank == 2 and [record.user_step for record in ring.steps] == [1, 2, 3]

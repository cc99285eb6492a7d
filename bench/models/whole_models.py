# SPDX-License-Identifier: Apache-2.0
"""Whole models as they are trained, with torch.compile, with Paceline, and with both, in turn
within one run: time of a step, and of its parts. Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from paceline._core import contract

HERE = Path(__file__).resolve().parent
MODELS = ("swin", "fcos3d", "yolox", "centerpoint", "encoder")
COMPILED, OURS = "--compile", "--ours"
WAYS = {
    "plain": (),
    "compiled": (COMPILED,),
    "Paceline": (OURS,),
    "Paceline, compiled": (OURS, COMPILED),
}
PARTS = ("data", "targets", "forward", "backward", "optimizer")
# What `acceleration: {}` turns on, but for the loader, of which there is none here, and the trial
# of the compiler, which stands beside it as a way of its own.
FEATURES = (contract.OPTIMIZER, contract.OPERATORS)


def trained(model: str, way: str, python_path: str, device: str) -> dict[str, Any]:
    environment = {**os.environ, contract.DISABLE: "1"}
    if OURS in WAYS[way]:
        environment |= {**dict.fromkeys(FEATURES, "Auto"), contract.DISABLE: "0"}
        environment["PYTHONPATH"] = f"{python_path}/site:{environment['PYTHONPATH']}"
    command = [sys.executable, str(HERE / "one_model.py"), model, "--device", device, *WAYS[way]]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: {model} ({way}) ended with {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measured(model: str, rounds: int, python_path: str, device: str) -> dict[str, Any]:
    """Medians over the rounds, in milliseconds, each round in a new order."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in random.sample(list(WAYS), len(WAYS)):
            runs[way].append(trained(model, way, python_path, device))
    found = {}
    for way, own in runs.items():
        steps = [each["step"] * 1e3 for each in own]
        found[way] = {
            "ms": round(statistics.median(steps), 2),
            "least": round(min(steps), 2),
            "most": round(max(steps), 2),
            "parts": {
                part: round(statistics.median(each["parts"].get(part, 0) for each in own) * 1e3, 2)
                for part in PARTS
            },
        }
    return found


def show(model: str, found: dict[str, Any]) -> None:
    plain = found["plain"]["ms"]
    for way, each in found.items():
        parts = ", ".join(f"{part} {ms}" for part, ms in each["parts"].items() if ms >= 0.1)
        print(
            f"  {model:12} {way:18} {each['ms']:9.1f} ms ({each['least']:.1f} to"
            f" {each['most']:.1f})  {plain / each['ms']:.2f} x  {parts}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--python-path", required=True, help="folder of the package paceline")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=MODELS, help="the model to measure")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    random.seed(1)
    models = {}
    for model in MODELS:
        if options.only in (None, model):
            models[model] = measured(model, options.rounds, options.python_path, options.device)
            show(model, models[model])
    # The quicker way without Paceline, over the quicker one with it, which its trial would keep.
    gains = {
        model: round(
            min(found["plain"]["ms"], found["compiled"]["ms"])
            / min(found["Paceline"]["ms"], found["Paceline, compiled"]["ms"]),
            3,
        )
        for model, found in models.items()
    }
    line = {"bench": "models", "ratio": min(gains.values()), "gains": gains, "models": models}
    print(json.dumps({**line, "load": round(os.getloadavg()[0], 2)}))


if __name__ == "__main__":
    main()

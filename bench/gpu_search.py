"""Which settings learn most of MT10 in some minutes on one GPU: candidates for preset `fast`, side by side.

`python bench/gpu_search.py MINUTES CANDIDATE...` trains those of `CANDIDATES` at the same time, each with its share of
the cores, for so long; then each is played. They share the GPU, so each makes a part of the updates that it would make
alone: compare what was trained side by side, or at equal updates. One seed a run (`--seeds N`: N of each, side by
side), so neighbours may change places by chance. `--small` goes through all of it on the CPU and measures nothing.

Each evaluation (`GOALS` goals a task, of those it is trained on) is a row of gpu_search.csv; the rows of other
calls and GPUs stay. The last one of a run is of the policy in the end. Nothing was claimed before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import figures
import torch
from gpu import ROOT, SMALL, minutes_of, named_gpu, train, training_of

from trainer.config.presets import PRESETS
from trainer.config.tasknames import MT10
from trainer.history.read import read, read_evaluations
from trainer.machine.host import read_host

GOALS, LAST_S = 10, 300
HEAD = ["gpu", "candidate", "seed", "side by side", "minutes", "step", "updates", "mean", *MT10]

#: What `fast` has but for what it learns by.
_SHARED: dict[str, Any] = {
    name: PRESETS["fast"][name]
    for name in (
        "num_envs", "replay_on", "cuda_graph", "precision", "batch_size", "buffer_size", "updates_per_step",
        "random_steps", "checkpoint_interval", "metrics_interval", "total_steps",
    )
}  # fmt: skip
CANDIDATES: dict[str, dict[str, Any]] = {
    "fast": {"preset": "fast"},
    "fast, float32": {"preset": "fast", "precision": "float32"},
    "fast, far": {"preset": "fast", "gamma": 0.99},
    "fast, warm": {"preset": "fast", "init_temperature": 1.0, "target_entropy": -4.0},
    "fast, one temperature": {"preset": "fast", "shared_temperature": True},
    "fast, wide": {"preset": "fast", "actor_hidden": (1024, 1024), "critic_hidden": (1024, 1024)},
    "fast, slow": {"preset": "fast", "learning_rate": 3e-4},
    "fast-td3": {"preset": "fast-td3"},
    "guide": {"preset": "guide", **_SHARED},
    "best": {"preset": "best", **_SHARED, "batch_size": 1_280},
}
#: Of all of them.
JUDGED = {"evaluation_interval": 650_000, "evaluation_goals": GOALS, "evaluation_unseen_goals": 0}


def values_of(name: str, seed: int, count: int, seconds: float, small: bool) -> dict[str, Any]:
    """A candidate's settings, as one of `count` at a time."""
    workers = max(1, (read_host().cores or 1) // count)
    values = {**CANDIDATES[name], **JUDGED, "seed": seed, "num_workers": workers, "max_runtime_seconds": seconds}
    return values | ({**SMALL, "buffer_size": 3_000, "evaluation_interval": 2_000} if small else {})


def tried(name: str, folder: Path, values: dict[str, Any], count: int) -> list[list[str]]:
    """Rows of one candidate: its evaluations, and what it can do in the end."""
    train(values, folder, limit_s=values["max_runtime_seconds"] + LAST_S)
    slot = folder / "slots/0"
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "evaluate", str(folder), "--goals", str(GOALS), "--json"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=LAST_S,
    )  # fmt: skip
    last = {"step": read(slot)[-1]["to"], **json.loads(done.stdout)}
    training, rows = training_of(values), []
    for found in [*read_evaluations(slot), last]:
        updates = max(0, found["step"] - training.algorithm.random_steps) * training.algorithm.updates_per_step
        row = [
            torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
            name,
            str(values["seed"]),
            str(count),
            f"{minutes_of(slot, found['step']):.1f}",
            str(found["step"]),
            f"{updates:.0f}",
        ]
        row += [f"{found['mean_success']:.3f}", *(f"{found['success'].get(task, 0):.2f}" for task in MT10)]
        rows.append(row)
    return rows


def main() -> None:
    """Train, print, write."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("minutes", type=float)
    asked.add_argument("candidates", nargs="+", choices=sorted(CANDIDATES))
    asked.add_argument("--seeds", type=int, default=1)
    asked.add_argument("--small", action="store_true", help="on the CPU: measures nothing")
    said = asked.parse_args()
    if not said.small and not torch.cuda.is_available():
        print("no NVIDIA GPU is here: nothing was measured (--small goes through all of it on the CPU)")
        return
    part, machine = ("gpu_small_search", "") if said.small else ("gpu_search", named_gpu())
    wanted = [(name, seed) for name in said.candidates for seed in range(said.seeds)]
    count, began = len(wanted), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(count) as pool:
        runs = [
            pool.submit(tried, name, Path(folder) / str(number), values, count)
            for number, (name, seed) in enumerate(wanted)
            for values in [values_of(name, seed, count, 60 * said.minutes, said.small)]
        ]
        rows = [row for run in runs for row in run.result()]
    for row in rows:
        print(", ".join(row))
    there = figures.newest(part)
    made = {tuple(row[:4]) for row in rows}
    others = [row for row in figures.read(there)[1:] if tuple(row[:4]) not in made] if there.exists() else []
    figures.save(part, HEAD, [*others, *rows], machine)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes in all")


if __name__ == "__main__":
    main()

"""What a GPU makes of the presets: rates, memory, an exact resume, and the first twenty minutes of `fast` on MT10.

`python bench/gpu.py` takes 25 minutes at most (`--minutes N`: so many), and all of the machine; `rates`, `resume` or
`curve` takes one part of it. Without an NVIDIA GPU it says so in one sentence, writes nothing, and ends with code 0.
`--small` goes through all of it on the CPU in about a minute, with small nets and few environments: what it writes
(gpu_small*.csv) measures nothing.

1. `PRESETS`, each with its updates launched one by one and as a CUDA graph, and in bfloat16: the training's own loop,
   past its random steps, for `MEASURE_S`. Steps and updates a second by the clock; `use`: the driver's per cent, the
   mean of what it says four times a second; `gpu gb`: the most that torch had allocated; hours to 2M and 20M steps at
   that rate, without evaluations and starts. `way`: what the updates really were.
2. `fast` with few environments is killed with SIGKILL behind its first checkpoint and goes on: `same` if all tensors
   and rows of its last checkpoint are those of one that was never interrupted.
3. `fast` (`--curve-of`: another preset) for what is left of the time, twenty minutes at most, judged each 1.3M steps on
   the 50 goals a task that it is trained on.

Nothing was claimed before: these are measurements, with no bar to pass, but that 2 says `same`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import figures
import numpy as np
import torch

from anchorleg.job import attempt_numbers, candidates_before
from trainer.checkpoints.checkpoint import read_manifest
from trainer.checkpoints.resume import load_exact
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.config.suites import MT10
from trainer.config.training import Training
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.history.read import read, read_evaluations
from trainer.machine import device as machine
from trainer.machine.host import read_host
from trainer.training.run import advance, drain, fresh

ROOT = Path(__file__).resolve().parents[1]
LIMIT_MINUTES, CURVE_S, WARM_UP_S, MEASURE_S, LOOK_S = 25.0, 20 * 60.0, 3.0, 10.0, 0.25
#: What a start and an end of `fast` take beside its training.
AROUND_S = 60.0
PRESETS = ("guide", "mclean", "fast", "fast-td3")
PARTS = ("rates", "resume", "curve")
#: Of the curve: no more points, for evaluations take cores from the stepping, and all of them are to fit.
JUDGED = {"evaluation_interval": 1_300_000, "evaluation_unseen_goals": 0}
WAYS: dict[str, dict[str, Any]] = {
    "kernels": {"cuda_graph": False, "precision": "float32"},
    "graph": {"cuda_graph": True, "precision": "float32"},
    "graph, bf16": {"cuda_graph": True, "precision": "bf16"},
}
#: `fast` in the test of its resume: steps, and where it is killed.
KILLED: dict[str, Any] = {
    "num_envs": 40, "total_steps": 40_000, "random_steps": 4_000, "checkpoint_interval": 10_000,
    "updates_per_step": 0.01, "evaluation_goals": 0, "metrics_interval": 10_000,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "device": "cpu", "tasks": ("reach-v3", "push-v3"), "horizon": 30, "num_envs": 8, "num_workers": 0,
    "actor_hidden": (16,), "critic_hidden": (16, 16), "batch_size": 32, "buffer_size": 5_000, "random_steps": 80,
    "metrics_interval": 400, "evaluation_unseen_goals": 0,
}  # fmt: skip
RATES = ["preset", "updates", "way", "steps/s", "updates/s", "ms an update", "use %", "gpu gb", "memory gb"]
RATES += ["hours to 2M", "hours to 20M"]


def named_gpu() -> str:
    """The GPU's name, and torch's version."""
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"


@dataclass
class Plan:
    """What is measured, and for how long."""

    small: bool
    minutes: float = LIMIT_MINUTES
    keep: Path | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def warm_up_s(self) -> float:
        """Before anything counts."""
        return 0.2 if self.small else WARM_UP_S

    @property
    def measure_s(self) -> float:
        """Of each rate."""
        return 0.5 if self.small else MEASURE_S

    @property
    def curve_s(self) -> float:
        """What is left for the curve."""
        return max(1.0, min(CURVE_S, 60 * self.minutes - AROUND_S - (time.monotonic() - self.began)))

    def others(self, part: str, preset: str) -> list[list[str]]:
        """The rows of a part that there are of other presets, on this GPU."""
        name = self.name(part)
        found = figures.written(name)
        is_same = self.gpu in figures.measured_on(found.parent).get(name, "")
        return [row for row in figures.read(found)[1:] if row[0] != preset] if found.exists() and is_same else []

    @property
    def gpu(self) -> str:
        """Its name, and torch's version."""
        return "" if self.small else named_gpu()

    def name(self, part: str) -> str:
        """Of the figures of one part."""
        return f"{'gpu_small' if self.small else 'gpu'}{part}"

    def save(self, part: str, head: list[str], rows: list[list[str]]) -> None:
        """Figures of one part."""
        figures.save(self.name(part), head, rows, self.gpu)

    def of(self, preset: str, **values: Any) -> dict[str, Any]:
        """Values of a training."""
        return {"preset": preset, **values, **(SMALL if self.small else {})}


class Use:
    """The mean use of the GPU in a while, in per cent; None where no driver tells."""

    def __init__(self, device: torch.device) -> None:
        self._said: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, args=(device,), daemon=True)

    def _poll(self, device: torch.device) -> None:
        while device.type == "cuda" and not self._stop.wait(LOOK_S):
            try:
                self._said.append(float(torch.cuda.utilization(device)))
            except Exception:  # noqa: BLE001 - no pynvml, no driver, parts of a GPU: each has errors of its own
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def percent(self) -> float | None:
        """The mean."""
        return float(np.mean(self._said)) if self._said else None


def run_for(run: Any, seconds: float, device: torch.device) -> tuple[float, int, int]:
    """(seconds, steps, updates) of the loop, to the end of the last update."""
    began, step, updates = time.perf_counter(), run.step, run.updates
    while time.perf_counter() - began < seconds:
        advance(run)
    drain(run)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began, run.step - step, run.updates - updates


def rates(plan: Plan, preset: str) -> list[list[str]]:
    """The rows of one preset; its environments are made once."""
    rows: list[list[str]] = []
    base = training_of(plan.of(preset))
    device = machine.choose_device(base.device)
    machine.set_deterministic(1)
    workers = machine.default_workers(base.num_workers, base.num_envs, read_host().cores)
    envs = VectorEnv(VectorSpec(suite_of(base), base.num_envs, 0), workers)
    try:
        for way, values in WAYS.items():
            training = training_of(plan.of(preset, **values, random_steps=2 * base.num_envs))
            made, refused = find(ALGORITHMS, training.algorithm.name).choose_launch_mode(
                training, envs.spaces, device, None
            )
            if refused:
                print(refused)
            gc.collect()  # a run refers to itself
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            run = fresh(training, device, envs, made)
            run_for(run, plan.warm_up_s, device)
            with Use(device) as use:
                seconds, steps, updates = run_for(run, plan.measure_s, device)
            update_s = one_update_s(run, device)
            gpu = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else 0.0
            rss = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e9
            said = "-" if use.percent is None else f"{use.percent:.0f}"
            rate = steps / seconds
            row = [preset, way, made, f"{rate:.0f}", f"{updates / seconds:.1f}"]
            row += [f"{1000 * update_s:.2f}", said, f"{gpu:.2f}", f"{rss:.1f}"]
            rows.append([*row, *(f"{total / rate / 3600:.2f}" for total in (2e6, 20e6))])
            print(", ".join(rows[-1]), flush=True)
            del run
    finally:
        envs.close()
    return rows


def one_update_s(run: Any, device: torch.device, count: int = 20) -> float:
    """Of one update, its batch drawn anew, without stepping beside it."""
    began = time.perf_counter()
    for _ in range(count):
        run.algorithm.update()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def training_of(values: Mapping[str, Any]) -> Training:
    """As a user's section would be."""
    return resolve(TrainingSection(**values))


# --- an exact resume -------------------------------------------------------------------------------------------------


def command(values: Mapping[str, Any], folder: Path) -> list[str]:
    """`trainer train` of these values in `folder`."""
    more = dict(values)
    words = ["--preset", more.pop("preset"), "--run-dir", str(folder)]
    for name, value in more.items():
        words += ["--set", f"{name}={json.dumps(value)}"]
    return [sys.executable, "-m", "trainer", "train", *words]


def train(values: Mapping[str, Any], folder: Path, *, killed: bool = False, limit_s: float = 600) -> None:
    """One attempt to its end, or killed as soon as it has a checkpoint. Errors: SystemExit."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command(values, folder), cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + limit_s
        while killed and process.poll() is None and not list(candidates_before(folder / "slots/0", 1)):
            if time.monotonic() > deadline:
                sys.exit(f"{folder.name}: no checkpoint within {limit_s:g} s")
            time.sleep(0.02)
        if killed:
            process.send_signal(signal.SIGKILL)
        code = process.wait(limit_s)
    finally:
        process.kill()
    if code not in ({-signal.SIGKILL} if killed else {0, 75}):
        sys.exit(f"trainer train ended with code {code}: {' '.join(command(values, folder))}")


def last(folder: Path) -> tuple[dict[str, Any], str]:
    """(every array of the last checkpoint, by name; how updates were made)."""
    slot = folder / "slots/0"
    ref = next(iter(candidates_before(slot, max(attempt_numbers(slot)) + 1)))
    contents, experience = load_exact(ref.path, slot, read_manifest(ref.path))
    found = {f"{part}.{name}": x for part, state in contents.parts.items() for name, x in state.tensors.items()}
    assert experience is not None
    return {**found, **experience.own.arrays(), "step": np.array(contents.step)}, contents.numeric["updates"]


def resumed(plan: Plan, scratch: Path) -> list[list[str]]:
    """Whether one that was killed comes to the bits of another one."""
    shorter = {"total_steps": 1_600, "checkpoint_interval": 400, "num_envs": 8, "updates_per_step": 0.05}
    values = {**plan.of("fast", **KILLED), **(shorter if plan.small else {})}
    train(values, scratch / "alone")
    train(values, scratch / "killed", killed=True)
    train(values, scratch / "killed")
    (one, made), (other, _) = last(scratch / "alone"), last(scratch / "killed")
    differ = sorted(name for name in one if name not in other or not np.array_equal(one[name], other[name]))
    attempts = len(attempt_numbers(scratch / "killed/slots/0"))
    row = [
        "fast",
        made,
        str(int(one["step"])),
        str(attempts),
        "same" if not differ else f"differ: {', '.join(differ[:3])}",
    ]
    print(", ".join(row), flush=True)
    return [row]


# --- the first minutes -----------------------------------------------------------------------------------------------


def curve(plan: Plan, preset: str, folder: Path) -> list[list[str]]:
    """Evaluations of `preset`, and when its steps were made."""
    seconds = plan.curve_s
    values = {**plan.of(preset, **JUDGED), "max_runtime_seconds": seconds}
    if plan.small:
        values |= {"total_steps": 1_600, "evaluation_interval": 800, "checkpoint_interval": 800, "evaluation_goals": 2}
        del values["max_runtime_seconds"]
    train(values, folder, limit_s=seconds + 900)
    slot = folder / "slots/0"
    rows = []
    for found in read_evaluations(slot):
        minutes = minutes_of(slot, found["step"])
        success = [f"{found['success'][task]:.2f}" if task in found["success"] else "-" for task in MT10]
        rows.append([preset, str(found["step"]), f"{minutes:.1f}", f"{found['mean_success']:.3f}", *success])
        print(", ".join(rows[-1]), flush=True)
    return rows


def minutes_of(slot: Path, step: int) -> float:
    """When that step was made, counted from the start of the first attempt; 0 without any row of metrics."""
    began = (slot / "attempts/0/claim").stat().st_mtime
    at = [(row["to"], (row["at"] - began) / 60) for row in read(slot)]
    return float(np.interp(step, *zip(*at, strict=True))) if at else 0.0


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all, where none is named")
    asked.add_argument("--small", action="store_true", help="on the CPU: measures nothing")
    asked.add_argument("--minutes", type=float, default=LIMIT_MINUTES, help="at most; the curve has what is left")
    asked.add_argument("--presets", default=",".join(PRESETS), help="whose rates; the rows of others stay")
    asked.add_argument("--curve-of", default="fast", choices=PRESETS, help="whose curve")
    asked.add_argument("--keep", type=Path, help="a new folder, in which the curve's run stays")
    said = asked.parse_args()
    if not said.small and not torch.cuda.is_available():
        print("no NVIDIA GPU is here: nothing was measured (--small goes through all of it on the CPU)")
        return
    plan, parts = Plan(said.small, said.minutes, said.keep), said.parts or PARTS
    for preset in said.presets.split(",") if "rates" in parts else ():
        plan.save("", RATES, [*plan.others("", preset), *rates(plan, preset)])
    with tempfile.TemporaryDirectory() as name:
        if "resume" in parts:
            head = ["preset", "way", "steps", "attempts", "last checkpoint"]
            plan.save("_resume", head, resumed(plan, Path(name)))
        if "curve" in parts:
            rows = curve(plan, said.curve_of, plan.keep or Path(name) / "curve")
            head = ["preset", "step", "minutes", "mean", *MT10]
            plan.save("_curve", head, [*plan.others("_curve", said.curve_of), *rows])
    minutes = (time.monotonic() - plan.began) / 60
    print(f"{torch.cuda.get_device_name() if not plan.small else 'the CPU'}: {minutes:.1f} minutes in all")


if __name__ == "__main__":
    main()

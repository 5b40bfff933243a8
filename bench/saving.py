"""What checkpoints cost with a full replay: time of a save, from the signal to the exit, from the start to an update.

`python bench/saving.py [TIMES]`: preset `guide` on MT10 with a buffer of two million rows, which are filled with noise
and saved in parts of 100,000 as a training would. Then TIMES times each (five):

- a save after as many new rows as ten minutes bring (`ROWS_A_SAVE`: 500 steps a second, more than `guide` does on any
  CPU here): what the loop waits (`capture` and the copy of the new rows), and the CPU time of the rest, which runs in
  the background; both as a share of ten minutes;
- `trainer train` from that checkpoint: seconds from its start to the row of metrics behind its first updates, less
  what a Python needs to import the same modules (torch's own and all together); and from SIGUSR2 to its exit, with its
  last checkpoint published.

Writes saving.csv.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch

from anchorleg.job import HANDED_OVER, Job
from trainer.buffers.rows import rows_of
from trainer.checkpoints.saver import Saver
from trainer.config.section import TrainingSection, resolve
from trainer.config.training import Training
from trainer.envs.step import VectorSpec
from trainer.envs.suite import spaces_of, suite_of
from trainer.envs.vector import VectorEnv
from trainer.history.read import METRICS
from trainer.training.begin import choose_numerics
from trainer.training.features.progress import TrainingDisplay
from trainer.training.run import TrainingRun, capture, fresh

CADENCE_S = 600.0
ROWS_A_SAVE, PART, CHUNK = 300_000, 100_000, 10_000
DEADLINE_S = 300.0
TRAIN_S = 20.0


def settings() -> TrainingSection:
    """`guide`, learning from the first step on."""
    return TrainingSection(
        preset="guide",
        benchmark="MT10",
        device="cpu",
        total_steps=10**9,
        random_steps=0,
        metrics_interval=20,
        evaluation_goals=0,
        checkpoint_interval=10**8,
    )


def add_noise(state: TrainingRun, rows: int) -> None:
    """`rows` transitions of noise."""
    draw = np.random.default_rng(state.step).standard_normal
    for _ in range(0, rows, CHUNK):
        obs, next_obs = ({"state": draw((CHUNK, 39)).astype(np.float32)} for _ in range(2))
        action = np.tanh(draw((CHUNK, 4))).astype(np.float32)
        chunk = rows_of(obs, action, draw(CHUNK).astype(np.float32), next_obs, np.zeros(CHUNK, np.bool_))
        state.experience.add(np.arange(CHUNK) % len(state.training.env.tasks), chunk)
    state.step += rows


def save(state: TrainingRun, saver: Saver, numeric: dict[str, Any]) -> tuple[float, float]:
    """One save: (seconds that the loop waits, CPU seconds in the background)."""
    began = time.perf_counter()
    contents = capture(state, numeric, {"wanted": []})  # as if nothing was evaluated so far
    rows = saver.unsaved(state.experience)
    waited = time.perf_counter() - began
    before = time.process_time()
    saver.start(contents, rows)
    saver.finish(print)
    return waited, time.process_time() - before


def saves(run_dir: Path, training: Training, times: int) -> list[tuple[float, float]]:
    """Fill the ring in a first attempt, and measure `times` saves."""
    device = torch.device("cpu")
    numeric = choose_numerics(training, spaces_of(training), device, {}, TrainingDisplay())
    job = Job.standalone(run_dir)
    suite = suite_of(training, run_dir / "goals")
    with VectorEnv(VectorSpec(suite, training.num_envs, training.seed)) as envs:
        state = fresh(training, device, envs, numeric["updates"])
        saver = Saver.after(job, training, None)
        for _ in range(0, training.algorithm.buffer_size, PART):
            add_noise(state, PART)
            save(state, saver, numeric)
        found = []
        for _ in range(times):
            add_noise(state, ROWS_A_SAVE)
            found.append(save(state, saver, numeric))
        saver.close()
    return found


#: What a job of `guide` has imported at its first update, where updates and steps are made in C.
IMPORTED = (
    "trainer.cli", "trainer.training.begin", "trainer.training.features.progress", "trainer.envs.group",
    "trainer.algorithms.common.native.update", "metaworld",
)  # fmt: skip


def seconds_of_imports(*modules: str) -> float:
    """A Python that imports these and ends."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], check=True, timeout=DEADLINE_S)
    return time.perf_counter() - began


def job_of(run_dir: Path, config: Path) -> tuple[float, float]:
    """One attempt: (seconds from start to a row with updates, from the signal to the exit)."""
    attempts = run_dir / "slots" / "0" / "attempts"
    number = max(int(path.name) for path in attempts.iterdir()) + 1
    began = time.perf_counter()
    command = [sys.executable, "-m", "trainer", "train", "--config", str(config), "--run-dir", str(run_dir)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        rows = attempts / str(number) / METRICS
        while not (rows.exists() and any(json.loads(line)["updates"] for line in rows.read_text().splitlines())):
            if process.poll() is not None or time.perf_counter() - began > DEADLINE_S:
                raise SystemExit(f"the training made no update (exit code {process.poll()})")
            time.sleep(0.02)
        started = time.perf_counter() - began
        time.sleep(TRAIN_S)
        asked = time.perf_counter()
        process.send_signal(signal.SIGUSR2)
        code = process.wait(DEADLINE_S)
        if code != HANDED_OVER:
            raise SystemExit(f"the training ended with {code}")
        return started, time.perf_counter() - asked
    finally:
        process.kill()
        process.wait()


def main(times: int) -> None:
    """Measure, print, write the CSV."""
    section = settings()
    training = resolve(section)
    rows = []

    def note(what: str, values: list[float], unit: str) -> None:
        rows.append([what, unit, round(statistics.median(values), 4), round(max(values), 4), len(values)])
        print(*rows[-1], sep=",", flush=True)

    with tempfile.TemporaryDirectory() as name:
        run_dir, config = Path(name) / "run", Path(name) / "training.json"
        config.write_text(json.dumps(section.model_dump(mode="json", exclude_none=True)))
        saved = saves(run_dir, training, times)
        note(f"a save of {ROWS_A_SAVE:,} new rows: the loop waits", [waited for waited, _ in saved], "s")
        note("the same: CPU in the background", [cpu for _, cpu in saved], "s")
        note("both, every ten minutes", [100 * (waited + cpu) / CADENCE_S for waited, cpu in saved], "%")
        jobs = [
            (seconds_of_imports("torch"), seconds_of_imports(*IMPORTED), *job_of(run_dir, config)) for _ in range(times)
        ]
    note("imports", [imports for _, imports, _, _ in jobs], "s")
    note("of them torch's own", [torchs for torchs, _, _, _ in jobs], "s")
    note("start to first updates, without the imports", [start - imports for _, imports, start, _ in jobs], "s")
    note("signal to exit", [leave for _, _, _, leave in jobs], "s")
    figures.save("saving", ["what", "unit", "median", "worst", "times"], rows)


if __name__ == "__main__":
    main(figures.number(1, 5))

"""What a diagnosis costs beside the updates between two of them, for the presets' own nets and batches.

`python bench/diagnosing.py [ROUNDS]`: updates and diagnoses by turns, one torch thread, CPU time. The share is of
updates alone; stepping makes it smaller. Writes diagnosing.csv.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import figures
import numpy as np
from learners import fresh, prepared

from trainer.algorithms.common.cuda_graph import NATIVE
from trainer.algorithms.common.diagnostics import INTERVAL_UPDATES
from trainer.algorithms.common.multitask import diagnose
from trainer.algorithms.common.native.library import choose_native
from trainer.algorithms.common.native.update import NativeUpdates
from trainer.buffers.replay import Replay
from trainer.buffers.rows import fields_of, rows_of
from trainer.config.section import TrainingSection, resolve
from trainer.envs.suite import spaces_of
from trainer.machine import device as machine
from trainer.machine import products

ROOT = Path(__file__).resolve().parents[1]
ROWS_A_TASK = 2_000


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of `work`."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(preset: str, rounds: int) -> list[str]:
    """The row of one preset."""
    training = resolve(TrainingSection(preset=preset))
    tasks, spaces, batch = len(training.env.tasks), spaces_of(training), training.off_policy.batch_size
    products.choose_products(training.network.widest)
    learner = fresh(training, spaces)
    replay, rng = Replay(ROWS_A_TASK * tasks, tasks, fields_of(spaces)), np.random.default_rng(0)
    for _ in range(ROWS_A_TASK):
        obs = rng.standard_normal((2, tasks, 39)).astype(np.float32)
        action, reward = rng.uniform(-1, 1, (tasks, 4)).astype(np.float32), rng.random(tasks, np.float32) * 10
        rows = rows_of({"state": obs[0]}, action, reward, {"state": obs[1]}, np.zeros(tasks, np.bool_))
        replay.add(np.arange(tasks), rows)
    is_native = choose_native(training, None)[0] == NATIVE
    native, of_updates, diagnoses = NativeUpdates(learner) if is_native else None, [], []

    def update() -> None:
        drawn = replay.pick(replay.deal(batch), rng)
        if native is None:
            learner.update_of(prepared(learner, drawn))
        else:
            native.learn(prepared(learner, drawn))

    for step in range(rounds + 1):  # the first prepares
        of_updates.append(cpu_s(lambda: [update() for _ in range(3)]) / 3)
        diagnoses.append(cpu_s(lambda step=step: diagnose(learner, replay, step)))
    one, diagnosis = (statistics.median(all_s[1:]) for all_s in (of_updates, diagnoses))
    share = diagnosis / (INTERVAL_UPDATES * one)
    return [preset, f"{1e3 * one:.2f}", f"{1e3 * diagnosis:.2f}", f"{diagnosis / one:.2f}", f"{100 * share:.2f}"]


def main() -> None:
    """Measure, print, write."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    machine.set_deterministic(1)
    lines = []
    for preset in ("debug", "tiny", "guide", "mclean", "best"):
        lines.append(measure(preset, rounds))
        print(", ".join(lines[-1]), flush=True)
    head = ["preset", "update_ms", "diagnosis_ms", "in_updates", "percent_of_updates"]
    figures.save("diagnosing", head, lines)


if __name__ == "__main__":
    main()

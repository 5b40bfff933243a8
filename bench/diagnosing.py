"""What a diagnosis costs beside the updates between two of them, for the presets' own nets and batches.

`python bench/diagnosing.py [ROUNDS]`: updates and diagnoses by turns, one torch thread, CPU time. The share is of
updates alone; stepping makes it smaller. Writes diagnosing.csv.
"""

from __future__ import annotations

import statistics
from itertools import count

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

ROWS_A_TASK = 2_000


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
    native = NativeUpdates(learner) if is_native else None

    def update() -> None:
        drawn = replay.pick(replay.deal(batch), rng)
        if native is None:
            learner.update_of(prepared(learner, drawn))
        else:
            native.learn(prepared(learner, drawn))

    steps = count()
    ways = {
        "update": lambda: figures.timed(update, 3),
        "diagnosis": lambda: figures.timed(lambda: diagnose(learner, replay, next(steps))),
    }
    one, diagnosis = (statistics.median(all_s) for all_s in figures.by_turns(ways, rounds).values())
    share = diagnosis / (INTERVAL_UPDATES * one)
    return [preset, f"{1e3 * one:.2f}", f"{1e3 * diagnosis:.2f}", f"{diagnosis / one:.2f}", f"{100 * share:.2f}"]


def main() -> None:
    """Measure, print, write."""
    machine.set_deterministic(1)
    lines = []
    for preset in ("debug", "tiny", "guide", "mclean", "best"):
        lines.append(measure(preset, figures.number(1, 7)))
        print(", ".join(lines[-1]), flush=True)
    head = ["preset", "update_ms", "diagnosis_ms", "in_updates", "percent_of_updates"]
    figures.save("diagnosing", head, lines)


if __name__ == "__main__":
    main()

"""Demonstrations as a second buffer: how much sooner SAC reaches with the arm where rewards are sparse.

`python bench/second_buffer.py [--steps N] [--seeds N] [--jobs N]`: 30 episodes of the arm's script, on goals near the
hand, are recorded; SAC learns for 3,000 steps from the state, with reward -1 until the hand is there, once from its
own rows alone and once with half of each batch from the recording (`algorithm.demos`). 50 goals that neither saw, after
each third.

Said before the first run: with demonstrations at least 0.5 succeed after 3,000 steps, on average over seeds, and at
least 0.3 more than without. Writes second_buffer.csv.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import figures
import torch

from trainer.config.section import TrainingSection, resolve
from trainer.config.training import Training
from trainer.demos import recording
from trainer.envs.pictures import ready_to_draw
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef, suite_of
from trainer.envs.vector import VectorEnv
from trainer.evaluation.protocol import evaluate
from trainer.machine import device as machine
from trainer.training.run import TrainingRun, advance, as_begun

ENV = {"name": "arm", "goals": "box", "horizon": 40, "reward": "sparse"}
EPISODES, GOALS, THIRDS = 30, 50, 3
#: Of the goals that nobody trains on, and of the recorded ones.
ASKED, SHOWN = 3_000_000, 1_000_000
NETS = {"actor_hidden": (64, 64), "critic_hidden": (64, 64)}


def training(seed: int, demos: Path | None) -> Training:
    where = {} if demos is None else {"demos": str(demos)}
    sac = {"name": "sac", "batch_size": 128, "random_steps": 200, "learning_rate": 1e-3, **where}
    return resolve(TrainingSection(env=ENV, algorithm=sac, network=NETS, num_envs=1, seed=seed, device="cpu"))


def success(run: TrainingRun, env: Training) -> float:
    """Of the policy as it is now, deterministic."""
    policy = run.algorithm.policy

    @torch.no_grad()
    def act(obs, task):
        seen = {key: torch.from_numpy(array) for key, array in obs.items()}
        outputs = policy(seen, torch.from_numpy(task).long())
        return policy.distribution.mode(outputs).numpy()

    return evaluate(act, SuiteRef(env.env, ASKED), GOALS).mean_success


def learned(job: tuple[int, Path | None, int]) -> tuple[list[float], float]:
    """Of a seed: success after each third of the steps, and the CPU seconds of the training alone."""
    seed, demos, steps = job
    machine.set_deterministic(1)
    asked = training(seed, demos)
    envs = VectorEnv(VectorSpec(suite_of(asked), 1, seed))
    found, seconds = [], 0.0
    try:
        run = as_begun(asked, torch.device("cpu"), envs)
        for part in range(1, THIRDS + 1):
            began = time.process_time()
            while run.step < steps * part // THIRDS:
                advance(run)
            seconds += time.process_time() - began
            found.append(success(run, asked))
    finally:
        envs.close()
    return found, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="Trainings at once.")
    options = parser.parse_args()
    env = training(0, None).env
    ready_to_draw(recording.filmed(env, ("front",), 16))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        demos = Path(folder) / "demos"
        teacher = recording.scripted(env, ("front",), 16, SHOWN)
        made = recording.record(teacher, None, EPISODES, SHOWN, demos, lambda *_: None, print)
        print(f"{len(made.manifest.episodes)} episodes, {made.manifest.num_frames:,} frames", flush=True)
        ways = {"own rows alone": None, "half demonstrations": demos}
        jobs = [(seed, given, options.steps) for given in ways.values() for seed in range(options.seeds)]
        with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
            results = list(pool.map(learned, jobs))
    for number, way in enumerate(ways):
        mine = results[number * options.seeds : (number + 1) * options.seeds]
        words = [
            f"{statistics.mean(part):.2f} ({min(part):.2f} to {max(part):.2f})"
            for part in zip(*(found for found, _ in mine), strict=True)
        ]
        rows.append([way, *words, f"{statistics.mean(seconds for _, seconds in mine):.0f}"])
        print(way, mine)
    thirds = [f"success after {options.steps * part // THIRDS:,} steps" for part in range(1, THIRDS + 1)]
    figures.save("second_buffer", ["batches of", *thirds, "CPU s"], rows)


if __name__ == "__main__":
    main()

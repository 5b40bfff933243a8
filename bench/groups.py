"""What a group costs one of its slots.

`python bench/groups.py [STEPS]` measures the cost: preset `tiny` (small nets: the case in which it weighs most) for
STEPS (60,000) vector steps with their updates, and the default preset for a sixtieth of them. A slot in this process
gives every seventh episode, while three others of its pace give too. A coin says for each step whether others' rows are
in its batches, so that a machine that slows down slows both down. Times of a step without them, of what they take more,
of giving and of taking in between the steps, and the CPU time of the threads beside, less what these had before there
was a group. Means with standard errors, and what a slot writes at 700 steps a second. Writes groups.csv.
Claim, from before any run: at most 3 % of the steps a second, at most 100 MB an hour.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import figures
import torch

from anchorleg.job import Job
from trainer.config.section import DEFAULT_PRESET, TrainingSection, resolve
from trainer.config.training import Training, group_identity
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.sharing.peers import Giving
from trainer.sharing.segment import Segment, encode
from trainer.training.features.giving import EpisodeGiver
from trainer.training.features.inflow.intake import Intake
from trainer.training.run import TrainingRun, advance, as_begun

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

SLOTS = 4
#: A pace that cluster nodes reach.
STEPS_PER_S = 700
ALONE, DRAWING = "a step alone", "others' rows in its batches"
GIVING, TAKING, IN_ALL, BESIDE = "giving", "taking in", "in all", "CPU of threads beside"


def others_give(others: list[Giving], episodes: Iterator[Segment]) -> None:
    """Each of the other slots gives an episode."""
    for slot, giving in enumerate(others, 1):
        one = next(episodes)
        giving.give(one.episode, encode(replace(one, slot=slot)))


def cost(steps: int) -> None:
    """Measure, print, and write the CSV."""
    torch.set_num_threads(1)
    lines = [line for preset, count in (("tiny", steps), (DEFAULT_PRESET, steps // 60)) for line in of(preset, count)]
    figures.save("groups", ["preset", "what", "us_a_step", "error", "of_alone", "mb_an_hour"], lines)


def of(preset: str, steps: int) -> list[list[str]]:
    """Measure a slot that trains by `preset`, and print."""
    from segments_of import played

    training = resolve(TrainingSection(preset=preset, contribution_max_lag=10**9, group={"rows": True}))
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job.standalone(Path(folder) / "bench", slot) for slot in range(SLOTS)]
        for job in jobs:
            job.start_from(None)
        group = group_identity(training)
        others = [Giving(job, group) for job in jobs[1:]]
        episodes = played(run_id=jobs[0].run_id, tasks=training.env.tasks, horizon=training.env.horizon, version=(0, 0))
        with VectorEnv(VectorSpec(suite_of(training), training.num_envs, 0)) as envs:
            state = as_begun(training, torch.device("cpu"), envs)
            while not state.updates:
                advance(state)
            giver = EpisodeGiver(jobs[0], training)
            giver.open(envs.spaces, is_fresh=False)
            giver.on_version(0, 0, 0)
            intake = Intake(jobs[0], training, None)
            assert intake.peers is not None
            for slot in range(1, SLOTS):
                intake.peers.know(slot, 0, 0, 0)  # no policy is published here
            intake.open()
            before = beside(lambda: [advance(state) for _ in range(steps // 10)]) / (steps // 10)
            times: dict[str, list[float]] = {ALONE: [], DRAWING: [], GIVING: [], TAKING: []}
            others_too = partial(others_give, others, episodes)
            after = beside(lambda: timed(times, state, giver, intake, others_too, steps)) / steps
            giver.end(None, "finished")
            intake.close()
        files = [path.stat().st_size for path in jobs[0].attempt_dir.glob("episodes-*/*")]
    return report(preset, times, after - before, training, statistics.mean(files) if files else 0.0)


def beside(work: Callable[[], object]) -> float:
    """CPU seconds of this process's other threads during `work`."""
    process, thread = time.process_time(), time.thread_time()
    work()
    return time.process_time() - process - (time.thread_time() - thread)


def timed(
    times: dict[str, list[float]],
    state: TrainingRun,
    giver: EpisodeGiver,
    intake: Intake,
    others: Callable[[], None],
    steps: int,
) -> None:
    """Into `times`: seconds of each vector step, without and with others' rows in its batches, and of what is between
    two steps.

    `others`: an episode more of each.
    """
    coin = random.Random(0)
    one_more = state.training.group.every * state.training.env.horizon // state.training.num_envs
    experience, rows = state.experience, None
    assert experience is not None
    for step in range(steps):
        if step % one_more == 0:
            others()
        experience.peers = rows if (is_with := coin.random() < 0.5) else None
        began = time.perf_counter()
        transition = advance(state)
        stepped = time.perf_counter()
        if transition is not None:
            giver.add(transition)
        experience.peers = rows
        given = time.perf_counter()
        intake.take(state)
        taken, rows = time.perf_counter(), experience.peers
        if rows is not None:  # from the first rows of others on
            times[DRAWING if is_with else ALONE].append(stepped - began)
            times[GIVING].append(given - stepped)
            times[TAKING].append(taken - given)


def report(
    preset: str, times: dict[str, list[float]], beside_s: float, training: Training, size: float
) -> list[list[str]]:
    """Print, and rows of the CSV."""
    means = {what: figures.with_error(seconds) for what, seconds in times.items()}
    alone, error = means[ALONE]
    means[DRAWING] = means[DRAWING][0] - alone, math.hypot(means[DRAWING][1], error)
    parts = [means[what] for what in (GIVING, TAKING, DRAWING)]
    means[IN_ALL] = sum(mean for mean, _ in parts), math.hypot(*(error for _, error in parts))
    means[BESIDE] = beside_s, 0.0
    an_hour = 3600 * STEPS_PER_S / training.env.horizon / training.group.every * size / 1e6
    lines = []
    for what in (ALONE, GIVING, TAKING, DRAWING, IN_ALL, BESIDE):
        mean, error = means[what]
        written = f"{an_hour:.0f}" if what == GIVING else ""
        share = f"{mean / alone:.4f}"
        error_us = "" if what == BESIDE else f"{1e6 * error:.1f}"
        lines.append([preset, what, f"{1e6 * mean:.1f}", error_us, share, written])
        print(f"{preset}, {what}: {1e6 * mean:.1f} +- {error_us or '?'} us a step, {share} of a step alone")
    print(f"an episode is {size / 1e3:.1f} kB: {an_hour:.0f} MB an hour at {STEPS_PER_S} steps/s")
    return lines


if __name__ == "__main__":
    cost(figures.number(1, 60_000))

"""What slots of a group bring each other, and what that costs one of them.

`python bench/groups.py [STEPS]` measures the cost: preset `tiny` (small nets: the case in which it weighs most) for
STEPS (60,000) vector steps with their updates, and the default preset for a sixtieth of them. A slot in this process
gives every seventh episode, while three others of its pace give too. A coin says for each step whether others' rows are
in its batches, so that a machine that slows down slows both down. Times of a step without them, of what they take more,
of giving and of taking in between the steps, and the CPU time of the threads beside, less what these had before there
was a group. Means with standard errors, and what a slot writes at 700 steps a second. Writes groups.csv.
Claim, from before any run: at most 3 % of the steps a second, at most 100 MB an hour.

`python bench/groups.py mix [ROUNDS]` measures what a mean of weights costs: preset `tiny`, the medians over ROUNDS (10)
of an update, and of a barrier at which the weights of three other slots are mixed in: read from memory, weighed, judged
on own rows before and after, journaled. Writes groups_mixing.csv.
Claim, from before any run: at most 1 % of the time of the 1,000 updates that lie between two of them.

`python bench/groups.py learn FOLDER [GROUPS [STEPS]]` trains: GROUPS (5) times four slots of `rows`, of `rows` and
`adopt`, and apart, on door-lock-v3 and window-close-v3, which single seeds miss now and then; and apart from one
beginning (`init_seed`), and of `mix`. Slot k of group g has the seed 200 + 4 g + k in each of the five, so the slots
that are apart are also the single ones, at equal steps and updates. It goes on where it was interrupted, and makes
no group again that is in groups_learning.csv: a row a group, for a group is one sample. groups_learning_summary.csv has
the means of each way. `steps to a half`: of the first evaluation with a mean success of 0.5; all, where there was none.
Four slots apart with the seeds 100 to 103 came to 0.76, 0.38, 0.74, 0.24 of door-lock-v3 and 0, 0.5, 0.1, 0 of
window-close-v3 after 60,000 steps: so many there are, and half of a task counts as solved.
Claims, from before any other run: with rows the share of slots that solve 0.5 of the task that fewer slots apart solve
at the end at least doubles. Mixing does no harm: the mean success of its groups is not more than 0.05 below that of
slots apart from one beginning; that it is above it is not claimed.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import figures
import safetensors.torch
import torch
from scipy import stats

from anchorleg.job import Job
from trainer.algorithms.base import Algorithm
from trainer.config.presets import DEFAULT_PRESET
from trainer.config.section import TrainingSection, resolve
from trainer.config.training import Training, group_identity
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.history.read import read_evaluations
from trainer.sharing.adoption import OtherLearner
from trainer.sharing.episodes import Giving
from trainer.sharing.journal import append
from trainer.sharing.judge import encode
from trainer.sharing.segment import Segment
from trainer.training.begin import run
from trainer.training.features.giving import EpisodeGiver
from trainer.training.features.inflow.intake import Intake
from trainer.training.features.inflow.mixing import Mixes
from trainer.training.features.progress import TrainingDisplay
from trainer.training.run import TrainingRun, advance, as_begun

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

BLOCK_UPDATES = 1_400
SLOTS, FIRST_SEED, SOLVED, CLAIMED = 4, 200, 0.5, 5
TASKS = ("door-lock-v3", "window-close-v3")
SOLVING = tuple(f"slots that solve {task}" for task in TASKS)
LEARNING = ["way", "group", "steps", "mean success", *SOLVING, "steps to a half"]
#: A pace that cluster nodes reach.
STEPS_PER_S = 700
ALONE, DRAWING = "a step alone", "others' rows in its batches"
GIVING, TAKING, IN_ALL, BESIDE = "giving", "taking in", "in all", "CPU of threads beside"
#: Fields of the training.
WAYS: dict[str, dict[str, Any]] = {
    "apart": {},
    "rows": {"group": {"rows": True}},
    "rows, adopt": {"group": {"rows": True, "adopt": True}},
    "one beginning": {"init_seed": 0},
    "mix": {"init_seed": 0, "group": {"mix": True}},
}


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
    from segments_of import played  # noqa: PLC0415 - tests/support/ is on the path only now

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
                intake.peers._versions_of(slot).know(0, 0, 0)  # noqa: SLF001 - no policy is published here
            intake.open()
            before = beside(lambda: [advance(state) for _ in range(steps // 10)]) / (steps // 10)
            times: dict[str, list[float]] = {ALONE: [], DRAWING: [], GIVING: [], TAKING: []}
            others_too = partial(others_give, others, episodes)
            after = beside(lambda: timed(times, state, giver, intake, others_too, steps)) / steps
            giver.close()
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
    means = {what: mean_and_error(seconds) for what, seconds in times.items()}
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


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and its standard error."""
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5


def mixing(rounds: int) -> None:
    """Measure a mean of weights, print, and write the CSV."""
    every = 1_000
    training = resolve(TrainingSection(preset="tiny", init_seed=0, group={"mix": True, "mix_every": every}))
    torch.set_num_threads(1)
    updates: list[float] = []
    barriers: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        job = Job.standalone(Path(folder) / "bench", 0)
        job.start_from(None)
        with VectorEnv(VectorSpec(suite_of(training), training.num_envs, 0)) as envs:
            state = as_begun(training, torch.device("cpu"), envs)
            while state.updates < BLOCK_UPDATES:
                advance(state)
        assert state.algorithm.weights()
        others = [other_learner(state.algorithm, slot, every) for slot in range(1, SLOTS)]
        for _ in range(rounds):
            mixes, state.updates = Mixes(job, training, (), lambda _: None), every - 1
            mixes.enter(state, lambda _: True)
            wall = time.perf_counter()
            for _ in range(BLOCK_UPDATES):
                state.algorithm.update()
            updates.append((time.perf_counter() - wall) / BLOCK_UPDATES)
            mixes.found, state.updates = others, every
            wall = time.perf_counter()
            if mixes.enter(state, lambda new: append(job.attempt_dir, new) is None) is None:
                mixes.tell(print)
            barriers.append(time.perf_counter() - wall)
    update_ms, barrier_ms = (1e3 * statistics.median(each) for each in (updates, barriers))
    share = barrier_ms / (every * update_ms)
    print(
        f"an update: {update_ms:.3f} ms; a mean of {len(others)}: {barrier_ms:.1f} ms, {share:.2%} of {every:,} updates"
    )
    line = [rounds, len(others[0].data), f"{update_ms:.3f}", f"{barrier_ms:.2f}", f"{share:.5f}"]
    figures.save("groups_mixing", ["rounds", "bytes_a_slot", "update_ms", "barrier_ms", "of_updates"], [line])


def other_learner(learner: Algorithm, slot: int, updates: int) -> OtherLearner:
    """One near to `learner`."""
    noise = torch.Generator().manual_seed(slot)
    weights = {
        name: tensor + 1e-3 * torch.randn(tensor.shape, generator=noise) for name, tensor in learner.weights().items()
    }
    return OtherLearner(slot, 0, 0, updates, safetensors.torch.save(weights))


def trained(folder: Path, slot: int, seed: int, fields: dict[str, Any], steps: int) -> tuple[dict[str, float], int]:
    """Train one slot to its end: (success in each task at its last evaluation, the steps at the first one whose mean
    success was a half; all, where there was none).
    """
    training = resolve(
        TrainingSection(
            preset="tiny", tasks=TASKS, seed=seed, **fields, total_steps=steps,
            evaluation_interval=steps // 10, evaluation_goals=50, evaluation_unseen_goals=0,
            averaging=0,  # the average's own evaluations would take as much again
        )
    )  # fmt: skip
    with TrainingDisplay(live=False) as display:
        run(Job.standalone(folder, slot), training, display)
    found = [(row["step"], dict(row["success"])) for row in read_evaluations(folder / "slots" / str(slot))]
    half = [step for step, success in found if statistics.mean(success.values()) >= SOLVED]
    return found[-1][1], min(half, default=steps)


def learn(folder: Path, groups: int, steps: int) -> None:
    """Train what is missing, and write a row a group."""
    file = figures.newest("groups_learning")
    kept = figures.read(file) if file.exists() else []
    lines = [row for row in kept[1:] if kept[0] == LEARNING and row[2] == str(steps)]
    for number in range(groups):
        for way, fields in WAYS.items():
            if any(row[:2] == [way, str(number)] for row in lines):
                continue
            home = folder / way.replace(", ", "-").replace(" ", "-") / str(number)
            with ProcessPoolExecutor(SLOTS) as pool:
                seeds = [FIRST_SEED + SLOTS * number + slot for slot in range(SLOTS)]
                began = [pool.submit(trained, home, slot, seed, fields, steps) for slot, seed in enumerate(seeds)]
                ends = [one.result() for one in began]
            success = {task: [end[task] for end, _ in ends] for task in TASKS}
            lines.append(
                [way, str(number), str(steps), f"{statistics.mean(map(statistics.mean, success.values())):.3f}"]
                + [f"{sum(rate >= SOLVED for rate in rates) / SLOTS:.2f}" for rates in success.values()]
                + [f"{statistics.mean(half for _, half in ends):.0f}"]
            )
            print(*lines[-1], flush=True)
            order = sorted(lines, key=lambda row: (list(WAYS).index(row[0]), int(row[1])))
            figures.save("groups_learning", LEARNING, order)
    rows = comparison(lines)
    figures.save("groups_learning_summary", ["way", "groups", *LEARNING[3:]], rows)
    for row in rows:
        print(*row, sep=", ")
    print(*claims(lines), sep="\n")


def comparison(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Way by way, over its groups: means of success, of the slots that solve each task, and of the steps to a half."""
    rows = []
    for way in WAYS:
        its = [[float(cell) for cell in row[3:]] for row in lines if row[0] == way]
        if its:
            mean, *solve, half = (statistics.mean(column) for column in zip(*its, strict=True))
            rows.append([way, str(len(its)), f"{mean:.3f}", *(f"{share:.2f}" for share in solve), f"{half:,.0f}"])
    return rows


def claims(lines: Sequence[Sequence[str]]) -> list[str]:
    """What became of what was claimed, over the groups that both ways have; from `CLAIMED` groups on."""

    def means(way: str, other: str) -> tuple[int, list[list[float]]]:
        of = {name: {row[1]: [float(cell) for cell in row[3:]] for row in lines if row[0] == name} for name in WAYS}
        both = sorted(set(of[way]) & set(of[other]))
        sides = ([of[name][group] for group in both] for name in (way, other))
        return len(both), [[statistics.mean(column) for column in zip(*side, strict=True)] for side in sides]

    said = []
    groups, (rows, apart) = means("rows", "apart")
    if groups >= CLAIMED:
        place = 1 + min(range(len(TASKS)), key=lambda task: apart[1 + task])
        at_least = "met" if rows[place] >= 2 * apart[place] > 0 else "not met"
        said.append(f"{TASKS[place - 1]}: {rows[place]:.2f} of slots with rows, {apart[place]:.2f} apart: {at_least}")
    groups, (mix, alone) = means("mix", "one beginning")
    if groups >= CLAIMED:
        harm = "met" if mix[0] >= alone[0] - 0.05 else "not met"
        said.append(f"mix {mix[0]:.3f}, slots apart from one beginning {alone[0]:.3f}: {harm}")
    of = {(row[0], row[1]): float(row[3]) for row in lines}
    for way in ("rows", "rows, adopt"):
        more = [
            score - of["apart", group] for (name, group), score in of.items() if name == way and ("apart", group) in of
        ]
        if len(more) >= CLAIMED:
            mean, half = statistics.mean(more), stats.sem(more) * stats.t.ppf(0.975, len(more) - 1)
            interval = f"{mean - half:+.2f} to {mean + half:+.2f}"
            said.append(f"{way}: {mean:+.2f} success beside apart, group by group, 95 % {interval}")
    return said or [f"nothing is judged from fewer than {CLAIMED} groups"]


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["learn"]:
        learn(Path(words[1]), int(words[2]) if len(words) > 2 else 5, int(words[3]) if len(words) > 3 else 60_000)
    elif words[:1] == ["mix"]:
        mixing(int(words[1]) if len(words) > 1 else 10)
    else:
        cost(int(words[0]) if words else 60_000)

"""What is learned in equal steps: ours beside stable-baselines3, with equal settings.

`python bench/learning.py [--trainings NAME …] [--seeds N] [--steps N] [--processes 2]`: whole trainings of `CASES`,
`sb3-…` by stable-baselines3 (`rivals/equal.py`), each in a process of its own with one torch thread and all its
environments in it. Deterministic policies are played by `trainer.evaluation.protocol` from the same starts and goals,
after the very same number of steps and updates; ours as it is published. Trainings that are in a table's CSV file (at
first: in the committed one), made with the very same settings, are not made again.

- learning.csv, `three-tasks`, 20 seeds, a row an evaluation (the rows of other sides stay): multi-task SAC beside SAC
  with a one-hot task after the observation, with the step size, discount, target entropy and first temperature that
  preset `tiny` has, and one temperature for all tasks. What is different: ours draws each batch balanced over the
  tasks. A run's final success is the mean of its last two evaluations. The claim, written down before the runs: **ours
  is not worse by more than 0.05 of success**, averaged over tasks and seeds. It is *shown* where the lower end of the
  95 % interval of the difference of the means (Welch's t over seeds) is above -0.05, *refuted* where its upper end is
  below -0.05, and *undecided* else. It is judged from 20 seeds on, once: who looks after each seed and stops where it
  pleases finds what is not there.
- algorithms_learning_runs.csv, five seeds, a row an evaluation every 5,000 steps: presets of the arm and CartPole in
  100,000 steps, on the arm at last on twice as many goals, 100. algorithms_learning.csv is made from it: inter-quartile
  means over seeds with 95 % intervals as `trainer compare` has them. `policy_kb`: ours as published, theirs as `save`
  leaves it, with the pickled VecNormalize. `parameters`: of all nets that learn (ours read the number of the task too).
- pixels.csv, three seeds, a row a training: the presets that see, to their end (rows of `sb3-`: this script of commit
  81d8be00). Success is of held-out goals, 50 of each of two seeds that no training has. The settings were
  chosen by short tries with seeds 1000 to 1002, and with seed 0 of `reach-pixels` through other cameras. Stated before
  the first whole run: each of three seeds of ours has a success of 0.5 at least, and takes 30 minutes of CPU at most.

`--steps`: shorter trainings for looking; nothing is written. `cpu_s`: of the training alone, not of its evaluations,
but in learning.csv.
"""

from __future__ import annotations

import argparse
import io
import math
import multiprocessing
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from rivals import equal  # noqa: E402 - beside this file
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402

from syncd.shared.codec import encode, rounded  # noqa: E402
from trainer.config.find import ALGORITHMS, find  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.training import Training, identity  # noqa: E402
from trainer.envs.pictures import ready_to_draw  # noqa: E402
from trainer.envs.spaces import Obs  # noqa: E402
from trainer.envs.step import VectorSpec  # noqa: E402
from trainer.envs.suite import SuiteRef, spaces_of  # noqa: E402
from trainer.envs.vector import VectorEnv  # noqa: E402
from trainer.evaluation.protocol import Act, Evaluation, evaluate, unseen_seed  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402
from trainer.sharing.policies import Policy, actor_tensors  # noqa: E402
from trainer.showing.comparison import THRESHOLDS, Contender, Seeded  # noqa: E402
from trainer.showing.learning import Evaluated  # noqa: E402
from trainer.showing.tables import scored  # noqa: E402
from trainer.training.run import advance, as_begun, crossed, drain, learn_the_rest  # noqa: E402

#: What stands before a training's name where stable-baselines3 trains by its settings.
SB3 = "sb3-"
#: Chosen by pilots with other sets of tasks (ours, seeds 1000 and 0; stable-baselines3, seed 0). window-close-v3 was
#: left out: a run solves it or never meets its reward, so that chance would decide.
TASKS = ("reach-v3", "drawer-close-v3", "door-lock-v3")
EVERY, SEEDS, MARGIN, CONFIDENCE = 6_000, 20, 0.05, 0.95
OURS, THEIRS = "ours", "stable-baselines3"
HEAD = ["side", "seed", "step", *TASKS, "mean", "cpu_s"]
RUNS = [
    *("training", "seed", "of_steps", "step", "settings", "goals", "success", "reached", "triggered", "distance_m"),
    *("return", "cpu_s", "policy_kb", "parameters"),
]
PIXELS = [
    *("training", "seed", "steps", "settings", "success on held-out goals", "cpu minutes"),
    "environment steps/s of CPU",
]
HEADS = {"learning": HEAD, "algorithms_learning_runs": RUNS, "pixels": PIXELS}
SUMMARY = [
    *("training", "seeds", "IQM at the end", "worst seed", "ever within 15 cm", "cm at the end"),
    *(f"steps to {100 * part:.0f} %" for part in THRESHOLDS),
    *("cpu minutes", "policy kb", "parameters"),
]
ALGORITHMS_STEPS = 100_000
#: The goals that policies are played from: of the trained ones, and of two seeds that no training has.
TRAINED, UNSEEN = (0,), (unseen_seed(0), unseen_seed(1))


@dataclass(frozen=True)
class Case:
    """A training that both sides can make. `every`: steps between two evaluations; 0: at its end alone."""

    table: str
    seeds: int
    every: int = 5_000
    goals: int = 50
    fields: dict[str, Any] = field(default_factory=dict)


def _algorithms(preset: str) -> Case:
    goals = 20 if preset.startswith("cartpole") else 50
    return Case("algorithms_learning_runs", 5, 5_000, goals, {"preset": preset, "total_steps": ALGORITHMS_STEPS})


CASES = {
    "three-tasks": Case("learning", SEEDS, EVERY, 50, {
        "preset": "tiny", "tasks": TASKS, "horizon": 100, "batch_size": 128, "buffer_size": 48_000,
        "actor_hidden": (256, 256), "critic_hidden": (256, 256), "random_steps": 3_000, "learning_rate": 1e-3,
        "gamma": 0.97, "init_temperature": 0.1, "target_entropy": -2.0, "updates_per_step": 1.0,
        "shared_temperature": True, "num_envs": len(TASKS), "total_steps": 48_000,
    }),
    **{name: _algorithms(name) for name in ("arm-ppo", "arm-a2c", "arm-sac", "cartpole-ppo", "cartpole-a2c")},
    "arm-pixels": Case("pixels", 3, 0, 50, {"preset": "arm-pixels"}),
    "reach-pixels": Case("pixels", 3, 0, 50, {"preset": "reach-pixels"}),
}  # fmt: skip
NAMES = (
    *("three-tasks", "sb3-three-tasks", "arm-ppo", "arm-a2c", "arm-sac", "sb3-arm-ppo", "cartpole-ppo", "cartpole-a2c"),
    *("arm-pixels", "reach-pixels"),
)
#: Too dear to be made each time.
ASKED_FOR = ("sb3-arm-a2c", "sb3-arm-sac")


@dataclass(frozen=True)
class Seen:
    """A policy at an evaluation: how it acts, and the bytes that keep it."""

    act: Act
    size: Callable[[], int]
    parameters: int


#: (training, seed, its steps)
Key = tuple[str, int, int]
#: Is shown the policy at each evaluation.
Look = Callable[[int, Seen], None]


def case_of(name: str) -> Case:
    return CASES[name.removeprefix(SB3)]


def training_of(name: str, seed: int, steps: int = 0) -> Training:
    """What a name stands for, of so many steps, or as many as are usual."""
    case = case_of(name)
    more = {"total_steps": steps} if steps else {}
    return resolve(TrainingSection(seed=seed, device="cpu", **{**case.fields, **more}))


def suite_for(case: Case, training: Training) -> SuiteRef:
    """What is trained on: of learning.csv all seeds have the same goals."""
    return SuiteRef(training.env, TRAINED[0] if case.table == "learning" else training.seed)


def ours(case: Case, training: Training, look: Look) -> None:
    """Our loop."""
    every = min(case.every, training.total_steps)
    products.choose_products(training.network.widest)
    sizes = find(ALGORITHMS, training.algorithm.name).sizes(training, spaces_of(training))
    parameters = sum(size.parameters for size in sizes)

    def shown() -> None:
        net = run.algorithm.policy
        weights = rounded(actor_tensors(net))
        look(run.step, Seen(Policy(net.spec, weights).act_deterministic, lambda: len(encode(weights)), parameters))

    with VectorEnv(VectorSpec(suite_for(case, training), training.num_envs, training.seed), 0) as envs:
        run = as_begun(training, torch.device("cpu"), envs)
        while run.step < training.total_steps:
            before = run.step
            advance(run)
            if crossed(before, run.step, every):
                drain(run)
                shown()
        if not every:
            learn_the_rest(run)
            drain(run)
            shown()


def stable_baselines3(case: Case, training: Training, look: Look) -> None:
    """SB3's `learn`, ended at the very step, with a rollout that is not yet whole."""
    every = min(case.every, training.total_steps)
    if case.table == "learning":
        products.choose_products(training.network.widest)  # how products are computed is not the question there
    else:
        products.use(products.PLAIN)
    model = equal.stable_baselines3(training, training.total_steps, suite_for(case, training))
    scale = model.get_vec_normalize_env()
    parameters = sum(
        values.numel() for name, values in model.policy.named_parameters() if not name.startswith("critic_target")
    )

    def act(obs: Obs, task: Any) -> Any:
        seen = equal.seen_by(model, obs, task)
        return model.predict(seen if scale is None else scale.normalize_obs(seen), deterministic=True)[0]

    def size() -> int:
        saved = io.BytesIO()
        model.save(saved)
        return saved.getbuffer().nbytes + (0 if scale is None else len(pickle.dumps(scale)))

    class Looks(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps % every < training.num_envs:
                look(self.num_timesteps, Seen(act, size, parameters))
            return self.num_timesteps < training.total_steps

    model.learn(training.total_steps, callback=Looks(), log_interval=None)
    model.env.close()


def trained(name: str, seed: int, steps: int) -> list[list[str]]:
    """The rows of one whole training, in a process of its own."""
    machine.set_deterministic(1)
    case, training = case_of(name), training_of(name, seed, steps)
    ready_to_draw(training.env)
    lines: list[list[str]] = []
    looked, began = 0.0, time.process_time()

    def look(step: int, seen: Seen) -> None:
        nonlocal looked
        now = time.process_time()
        lines.append(ROWS[case.table](name, training, step, seen, now - began - looked))
        print(", ".join(lines[-1]), flush=True)
        looked += (time.process_time() - now) * (case.table != "learning")

    (stable_baselines3 if name.startswith(SB3) else ours)(case, training, look)
    return lines


def of_seeds(training: Training, seen: Seen, goals: int, seeds: Sequence[int]) -> list[Evaluation]:
    """An evaluation for each seed of goals."""
    found = [evaluate(seen.act, SuiteRef(training.env, seed), goals) for seed in seeds]
    return [one for one in found if one is not None]


def row_of_tasks(name: str, training: Training, step: int, seen: Seen, cpu_s: float) -> list[str]:
    """Of learning.csv."""
    (found,) = of_seeds(training, seen, case_of(name).goals, TRAINED)
    rates = [*(found.success[task] for task in TASKS), found.mean_success]
    side = THEIRS if name.startswith(SB3) else OURS
    return [side, str(training.seed), str(step), *(f"{rate:.4f}" for rate in rates), f"{cpu_s:.0f}"]


def row_of_algorithm(name: str, training: Training, step: int, seen: Seen, cpu_s: float) -> list[str]:
    """Of algorithms_learning_runs.csv; where success is told, the last one is of a second set of goals, too."""
    tells = bool(training.env.MEASURES)
    found = of_seeds(training, seen, training.evaluation_goals, UNSEEN[: 1 + (tells and step >= training.total_steps)])
    measured = [mean(found, key) for key in ("success", "reached", "triggered", "distance")] if tells else [""] * 4
    return [
        name, str(training.seed), str(training.total_steps), str(step), identity(training)[:12],
        str(len(found) * training.evaluation_goals), *measured, mean(found, "return"), f"{cpu_s:.1f}",
        f"{seen.size() / 1000:.1f}", str(seen.parameters),
    ]  # fmt: skip


def row_of_pixels(name: str, training: Training, step: int, seen: Seen, cpu_s: float) -> list[str]:
    """Of pixels.csv."""
    success = statistics.mean(one.mean_success for one in of_seeds(training, seen, case_of(name).goals, UNSEEN))
    which = [name, str(training.seed), str(training.total_steps), identity(training)[:12]]
    return [*which, f"{success:.2f}", f"{cpu_s / 60:.1f}", f"{step / cpu_s:.0f}"]


ROWS = {"learning": row_of_tasks, "algorithms_learning_runs": row_of_algorithm, "pixels": row_of_pixels}


def mean(found: Sequence[Evaluation], key: str) -> str:
    """Over evaluations and their episodes."""
    known = {"success": [one.success for one in found], "return": [one.returns for one in found]}
    values = known[key] if key in known else [one.measures[key] for one in found]
    return f"{np.mean([list(value.values()) for value in values]):.4f}"


# --- which are there -------------------------------------------------------------------------------------------------


def key_of(table: str, row: Sequence[str]) -> Key:
    """Which training a row is of; one of learning.csv whose side is trained no more has no name."""
    if table == "learning":
        name = {OURS: "three-tasks", THEIRS: f"{SB3}three-tasks"}.get(row[0], row[0])
        return name, int(row[1]), CASES["three-tasks"].fields["total_steps"]
    return row[0], int(row[1]), int(row[2])


def known(table: str) -> tuple[dict[Key, list[list[str]]], set[Key]]:
    """(the rows that there are, by training; those trainings whose settings are today's: the others are made anew when
    asked for, stay until then, and count only where an algorithm has no others).
    """
    file = figures.newest(table)
    found: dict[Key, list[list[str]]] = {}
    todays: set[Key] = set()
    for row in figures.read(file)[1:] if file.exists() else ():
        key = key_of(table, row)
        found.setdefault(key, []).append(row)
        if table == "learning" or (
            key[0].removeprefix(SB3) in CASES
            and identity(training_of(*key))[:12] == row[HEADS[table].index("settings")]
        ):
            todays.add(key)
    return found, todays


def save(table: str, made: Mapping[Key, list[list[str]]]) -> None:
    order = sorted(made, key=lambda key: (key[0].removeprefix(SB3), key[0].startswith(SB3), key[1:]))
    figures.save(table, HEADS[table], [row for key in order for row in made[key]])


# --- learning_summary.csv --------------------------------------------------------------------------------------------


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, lower, upper): Student's interval of the mean."""
    average = float(np.mean(values))
    half = half_width(stats.sem(values), len(values) - 1)
    return average, average - half, average + half


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """(mean of `a` less mean of `b`, lower, upper): Welch's interval."""
    of_a, of_b = stats.sem(a) ** 2, stats.sem(b) ** 2
    both = of_a + of_b
    freedom = both**2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1)) if both else math.inf
    gap, half = float(np.mean(a) - np.mean(b)), half_width(math.sqrt(both), freedom)
    return gap, gap - half, gap + half


def half_width(error: float, freedom: float) -> float:
    """Half of the interval of a mean with that standard error."""
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom) * error)


def words(found: tuple[float, float, float]) -> str:
    """A mean and its interval."""
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*found) if min(found) < 0 else "{:.3f} [{:.3f}, {:.3f}]".format(*found)


def judged(lines: Sequence[Sequence[str]]) -> tuple[list[list[str]], str]:
    """(rows of the curves, their last one the final success; the verdict), over the seeds that both sides have."""
    curves: dict[str, dict[str, list[float]]] = {}
    for side, seed, _, *rates, _ in lines:
        curves.setdefault(side, {}).setdefault(seed, []).append(float(rates[-1]))
    seeds = sorted(set(curves.get(OURS, {})) & set(curves.get(THEIRS, {})))
    if len(seeds) < 2:
        return [], "no verdict and no intervals from fewer than two seeds"
    points: list[tuple[str, Callable[[list[float]], float]]] = [
        (str(EVERY * (i + 1)), lambda curve, i=i: curve[i]) for i in range(len(curves[OURS][seeds[0]]))
    ]
    points.append((f"final, {len(seeds)} seeds", lambda curve: float(np.mean(curve[-2:]))))
    rows = []
    for name, of in points:
        a, b = ([of(curves[side][seed]) for seed in seeds] for side in (OURS, THEIRS))
        gap = difference(a, b)
        rows.append([name, *map(words, (interval(a), interval(b), gap))])
    if len(seeds) < SEEDS:
        return rows, f"no verdict from fewer than {SEEDS} seeds, and there are {len(seeds)}"
    verdict = "shown" if gap[1] > -MARGIN else "refuted" if gap[2] < -MARGIN else "undecided"
    return rows, f"not worse than {MARGIN} over {len(seeds)} seeds: {verdict} ({words(gap)})"


# --- algorithms_learning.csv -----------------------------------------------------------------------------------------


def summary(name: str, lines: list[list[str]], steps: int) -> list[object]:
    """One line of the table, from the rows of a training's seeds."""
    rows = [dict(zip(RUNS, line, strict=True)) for line in lines]
    seeds = sorted({int(row["seed"]) for row in rows})
    one = Contender(name, tuple(seeded([row for row in rows if int(row["seed"]) == seed]) for seed in seeds))
    last = [row for row in rows if int(row["step"]) == steps]

    def middle(key: str, scale: float = 1.0) -> str:
        return f"{scale * statistics.median(float(row[key]) for row in last):.1f}" if last[0][key] else ""

    worst = f"{100 * one.worst:.0f} %" if one.tells_success else f"{one.worst:.4g}"
    soon = [one.steps_to(part) for part in THRESHOLDS] if one.tells_success else [""] * len(THRESHOLDS)
    triggered = [float(row["triggered"]) for row in last if row["triggered"]]
    return [
        name, len(seeds), scored(one, one.final), worst,
        f"{100 * statistics.mean(triggered):.0f} %" if triggered else "",
        middle("distance_m", 100), *("-" if value is None else value and f"{value:.0f}" for value in soon),
        middle("cpu_s", 1 / 60), middle("policy_kb"), last[0]["parameters"],
    ]  # fmt: skip


def seeded(rows: Sequence[dict[str, str]]) -> Seeded:
    """A training as `trainer compare` has it."""
    evaluations = tuple(
        Evaluated(
            int(row["step"]), {"all": float(row["success"] or 0)}, int(row["goals"]),
            None if row["success"] else float(row["return"]), earned=float(row["return"]),
        )
        for row in rows
    )  # fmt: skip
    last = rows[-1]
    return Seeded(int(last["seed"]), evaluations, int(last["step"]), float(last["cpu_s"]))


def tell(table: str, made: Mapping[Key, list[list[str]]], todays: set[Key], steps: int) -> None:
    """Print and write what is made from a table's rows; of other steps than usual, print alone."""
    rows: list[list[Any]] = []
    if table == "learning":
        rows, verdict = judged([row for each in made.values() for row in each])
        print(verdict)
        if not steps:
            figures.save("learning_summary", ["steps", "ours", "stable-baselines3", "difference"], rows)
    elif table == "algorithms_learning_runs":
        for name in (*NAMES, *ASKED_FOR):
            keys = [key for key in sorted(made) if (key[0], key[2]) == (name, steps or ALGORITHMS_STEPS)]
            lines = [line for key in [key for key in keys if key in todays] or keys for line in made[key]]
            rows += [summary(name, lines, steps or ALGORITHMS_STEPS)] if lines else []
        if not steps:
            figures.save("algorithms_learning", SUMMARY, rows)
    for row in rows:
        print(", ".join(map(str, row)))


def main() -> None:
    """Train what is missing, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainings", nargs="+", choices=[*NAMES, *ASKED_FOR], default=list(NAMES))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    for table in dict.fromkeys(case_of(name).table for name in chosen.trainings):
        names = [name for name in chosen.trainings if case_of(name).table == table]
        made, todays = ({}, set()) if chosen.steps else known(table)
        asked = [
            (name, seed, chosen.steps or training_of(name, seed).total_steps)
            for seed in range(chosen.seeds or case_of(names[0]).seeds)
            for name in names
        ]
        new: dict[Key, list[list[str]]] = {}
        with ProcessPoolExecutor(chosen.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
            under_way = {pool.submit(trained, *key): key for key in asked if key not in todays}
            for done in as_completed(under_way):
                new[under_way[done]] = done.result()
                if not chosen.steps:
                    made = {**made, **known(table)[0], **new}  # another run of this may have written meanwhile
                    save(table, made)
        tell(table, {**made, **new}, todays | set(new), chosen.steps)


if __name__ == "__main__":
    main()

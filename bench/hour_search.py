"""The search for the settings that learn most of MT10 in one hour on two CPU cores (bench/hour.py).

`python bench/hour_search.py MINUTES` spends about so many CPU minutes on it, two runs at a time, and goes on where the
last one stopped, or was killed.

Successive halving over `CANDIDATES`: nets, batch, updates a step, steps summed up, MTSAC, TD3 or PPO, temperatures,
number of environments, one thing at a time, and then some together. All train for `FIRST_S` of CPU time, the better
half of each side (ours, stable-baselines3) for twice as long, from scratch, and so on. Some begin at a later rung
(`ENTERS`). The last rung is the hour itself, by the clock and one run at a time, of all that came within `EQUAL` of the
best one, and of what was chosen by hand (`KEPT`, and of stable-baselines3 what begins there, with as many threads as
are quicker), but for those whose hours are known (`KNOWN`); where one is alone, it has won.
Better is what solves more of `TASTE` goals a task by the deterministic policy, of equals what has the higher return
(which says little: an episode ends with its first success).
Every result is appended to hour_search.csv. CPU time of all threads counts, not evaluations: a busy machine changes it
least. It is not the clock: where stepping and updates run beside each other, an hour on two cores is up to two hours of
it, and of two candidates the one gains more whose stepping takes as long as its updates. So the hour has the last word.
One seed a run, so neighbours in the table may change places by chance. `--side` searches for one side alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from rivals import sac, vectors  # noqa: E402 - beside this file

from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.suites import Metaworld  # noqa: E402
from trainer.config.tasknames import MT10  # noqa: E402
from trainer.envs.spaces import STATE, Obs  # noqa: E402
from trainer.envs.step import VectorSpec  # noqa: E402
from trainer.envs.suite import SuiteRef  # noqa: E402
from trainer.envs.vector import VectorEnv  # noqa: E402
from trainer.errors import TrainerError  # noqa: E402
from trainer.evaluation.protocol import Act, Evaluation, evaluate  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402
from trainer.training.run import advance, as_begun, drain  # noqa: E402

OURS, THEIRS = "ours", "stable-baselines3"
#: Minutes of the last rung: the hour.
MINUTES = 60.0
FIRST_S, RUNGS, TASTE = 180.0, 5, 10
#: Two goals of a hundred.
EQUAL = 0.02
LAST = RUNGS - 1
#: Below every return.
DIVERGED = -1e9
#: A rival's rounds of 1,000 steps before it has updates, and those that are timed with each number of threads, in
#: so many tries.
TIMED_ROUNDS = 6
TIMED_TRIES = 3
SEARCHED = ["side", "candidate", "rung", "minutes", "seed", "steps", "updates", "success", "return"]

#: What all of ours have beside the guide's values: `tiny`'s, which learn reach on a CPU.
_MTSAC: dict[str, Any] = {
    "algorithm": "mtsac", "actor_hidden": (256, 256), "critic_hidden": (256, 256), "batch_size": 256,
    "learning_rate": 1e-3, "gamma": 0.97, "init_temperature": 0.1, "target_entropy": -2.0, "updates_per_step": 0.1,
    "random_steps": 5_000, "num_envs": 10, "buffer_size": 1_000_000,
}  # fmt: skip
_TD3: dict[str, Any] = {
    "algorithm": "td3", "actor_hidden": (256, 256), "critic_hidden": (256, 256), "batch_size": 256,
    "learning_rate": 1e-3, "gamma": 0.97, "n_step": 3, "exploration_noise": 0.05, "exploration_noise_max": 0.4,
    "updates_per_step": 0.1, "random_steps": 5_000, "num_envs": 10, "buffer_size": 1_000_000,
}  # fmt: skip
_SMALLER: dict[str, Any] = {"actor_hidden": (128, 128), "critic_hidden": (128, 128), "batch_size": 128}
_SMALL: dict[str, Any] = {**_MTSAC, **_SMALLER}
_LARGE_BATCH: dict[str, Any] = {**_MTSAC, "batch_size": 1_024, "num_envs": 130, "updates_per_step": 4 / 130}
_CATEGORICAL: dict[str, Any] = {**_TD3, "critic_loss": "categorical", "value_limit": 350.0}
#: Discount and lambda of rainx0r/metaworld-algorithms' PPO on MT10 (examples/multi_task/ppo_mt10.py); an entropy that
#: counts a little, and nets, rollouts and epochs that a CPU bears.
_PPO: dict[str, Any] = {
    "algorithm": "ppo", "actor_hidden": (256, 256), "critic_hidden": (256, 256), "batch_size": 1_000, "epochs": 8,
    "learning_rate": 5e-4, "gamma": 0.99, "gae_lambda": 0.97, "entropy_coef": 5e-3, "rollout_steps": 500,
    "num_envs": 40,
}  # fmt: skip
_SB3: dict[str, Any] = {
    "nets": (256, 256), "batch": 256, "gradient_steps": 1, "learning_rate": 1e-3, "gamma": 0.97,
    "ent_coef": "auto_0.1", "target_entropy": -2.0,
}  # fmt: skip
#: (side, candidate) → settings. Of stable-baselines3 `gradient_steps` are the updates of a step of all environments,
#: which are ten unless there is `num_envs`.
CANDIDATES: dict[tuple[str, str], dict[str, Any]] = {
    (OURS, "mtsac"): _MTSAC,
    (OURS, "mtsac small"): _SMALL,
    (OURS, "mtsac large"): {**_MTSAC, "critic_hidden": (512, 512), "batch_size": 512},
    (OURS, "mtsac often"): {**_MTSAC, "updates_per_step": 0.4},
    (OURS, "mtsac seldom"): {**_MTSAC, "updates_per_step": 0.025, "batch_size": 1024},
    (OURS, "mtsac many"): {**_MTSAC, "num_envs": 40},
    (OURS, "mtsac far"): {**_MTSAC, "gamma": 0.99},
    (OURS, "mtsac warm"): {**_MTSAC, "init_temperature": 1.0, "target_entropy": -4.0},
    (OURS, "mtsac one temperature"): {**_MTSAC, "shared_temperature": True},
    (OURS, "mtsac slow"): {**_MTSAC, "learning_rate": 3e-4},
    (OURS, "td3"): _TD3,
    (OURS, "td3 one step"): {**_TD3, "n_step": 1},
    (OURS, "td3 eight steps"): {**_TD3, "n_step": 8},
    (OURS, "td3 often"): {**_TD3, "updates_per_step": 0.4},
    (OURS, "td3 categorical"): _CATEGORICAL,
    (OURS, "ppo"): _PPO,
    # After the first rung of those above, which changed one thing at a time: together what was better than its base.
    (OURS, "mtsac small warm"): {**_SMALL, "init_temperature": 1.0, "target_entropy": -4.0},
    (OURS, "mtsac small many"): {**_SMALL, "num_envs": 40},
    (OURS, "td3 categorical one step"): {**_CATEGORICAL, "n_step": 1},
    (OURS, "td3 categorical small"): {**_CATEGORICAL, **_SMALLER},
    (OURS, "mtsac small many warm"): {**_SMALL, "num_envs": 40, "init_temperature": 1.0, "target_entropy": -4.0},
    (OURS, "td3 categorical many"): {**_CATEGORICAL, "num_envs": 40},
    (OURS, "td3 categorical small one step"): {**_CATEGORICAL, **_SMALLER, "n_step": 1},
    (OURS, "mtsac large batch"): _LARGE_BATCH,
    (OURS, "mtsac large batch warm"): {**_LARGE_BATCH, "init_temperature": 1.0, "target_entropy": -4.0},
    (THEIRS, "sac"): _SB3,
    (THEIRS, "sac often"): {**_SB3, "gradient_steps": 4},
    (THEIRS, "sac small"): {**_SB3, "nets": (128, 128), "batch": 128},
    (THEIRS, "sac defaults"): {**_SB3, "learning_rate": 3e-4, "gamma": 0.99, "ent_coef": "auto", "target_entropy": -4},
    (THEIRS, "sac large batch warm"): {
        **_SB3, "batch": 1_024, "num_envs": 130, "gradient_steps": 4, "ent_coef": "auto", "target_entropy": -4,
    },
}  # fmt: skip


#: Candidates that begin at a later rung, after that rung's others were known. Large batches make too few updates in
#: the first minutes to be kept by those rungs, but on a GPU they learned most (bench/gpu_search.py). What they did to
#: ours was known before stable-baselines3 had them, so of that only the one that is best for ours runs, for the hour.
ENTERS = {
    (OURS, "mtsac large batch"): 2,
    (OURS, "mtsac large batch warm"): 2,
    (THEIRS, "sac large batch warm"): LAST,
}
#: They came to the last rung, and do not run there. Either had hours of other seeds, 50 goals a task, when it was the
#: best so far: `td3 categorical` one of 0.534 (hour.csv of commit 514c3f33), `sac small` two of 0.496 and 0.516 (of
#: c870cb3c), which is less than the best of its side.
KNOWN = {(OURS, "td3 categorical"), (THEIRS, "sac small")}
#: Candidates of the last rung that an earlier one left out: chosen by hand. On a GPU larger batches still (preset
#: `fast`) learned most, and for 100,000 updates, which an hour has and the rungs before it have not.
KEPT = {(OURS, "mtsac large batch warm")}


@dataclass
class Run:
    """One training in this process: `more()` trains a little on, `act` is its deterministic policy."""

    more: Callable[[], None]
    act: Act
    made: Callable[[], tuple[int, int]]
    close: Callable[[], None]


def goals_of(seed: int) -> SuiteRef:
    """What a run of this seed trains on, and is played from."""
    return SuiteRef(Metaworld(tasks=MT10), seed)


def training_of(settings: dict[str, Any], seed: int) -> Any:
    """A candidate of ours as a training."""
    return resolve(TrainingSection(seed=seed, **settings))


def ours(settings: dict[str, Any], seed: int) -> Run:
    """The trainer's own loop, in one thread."""
    training = training_of(settings, seed)
    products.choose_products(training.network.widest)
    envs = VectorEnv(VectorSpec(goals_of(seed), training.num_envs, seed), 0)
    run = as_begun(training, torch.device("cpu"), envs)
    policy = run.algorithm.policy

    def more() -> None:
        for _ in range(100):
            advance(run)
        drain(run)

    @torch.no_grad()
    def act(obs: Obs, task: Any) -> Any:
        seen = {STATE: torch.from_numpy(np.ascontiguousarray(obs[STATE]))}
        return policy.distribution.mode(policy(seen, torch.from_numpy(task.astype(np.int64)))).numpy()

    return Run(more, act, lambda: (run.step, run.updates), envs.close)


def stable_baselines3(settings: dict[str, Any], seed: int) -> Run:
    """SB3's `learn`, on our environments: on Meta-World's own vectors it is slower."""
    values = dict(settings)
    nets, batch = values.pop("nets"), values.pop("batch")
    envs = vectors.OurVector(VectorSpec(goals_of(seed), values.pop("num_envs", len(MT10)), seed), 0)
    model = sac.stable_baselines3(
        vectors.for_sb3(envs), nets, nets, batch, 1_000_000, seed, learning_starts=5_000, train_freq=1, **values
    )
    one_hot = np.eye(len(MT10), dtype=np.float32)

    def act(obs: Any, task: Any) -> Any:
        return model.predict(np.concatenate([obs[STATE], one_hot[task]], axis=1), deterministic=True)[0]

    def more() -> None:
        model.learn(1_000, reset_num_timesteps=False, log_interval=None)

    return Run(more, act, lambda: (model.num_timesteps, model._n_updates), envs.close)  # noqa: SLF001


def begin(side: str, candidate: str, seed: int) -> Run:
    """The training of a candidate."""
    machine.set_deterministic(1)
    products.use(products.PLAIN)
    return (ours if side == OURS else stable_baselines3)(CANDIDATES[side, candidate], seed)


def trained(run: Run, seconds: float, clock: Callable[[], float]) -> None:
    """For so long by `clock`."""
    began = clock()
    while clock() - began < seconds:
        run.more()


def quicker(more: Callable[[], None]) -> float:
    """Take as many threads as let `more` take less time: one, or as many as there are cores. The best of some tries in
    turn counts: whatever else the machine does for a moment decides nothing. Returns the seconds that it took.
    """
    first = time.monotonic()
    took: dict[int, list[float]] = {1: [], os.cpu_count() or 1: []}
    for _ in range(TIMED_ROUNDS):  # before there are updates
        more()
    for _ in range(TIMED_TRIES):
        for threads, tries in took.items():
            torch.set_num_threads(threads)
            began = time.monotonic()
            for _ in range(TIMED_ROUNDS // TIMED_TRIES):
                more()
            tries.append(time.monotonic() - began)
    print(", ".join(f"{threads} threads: {min(tries):.2f} s" for threads, tries in took.items()), flush=True)
    torch.set_num_threads(min(took, key=lambda threads: min(took[threads])))
    return time.monotonic() - first


def played(act: Act, goals: int, seed: int) -> Evaluation:
    """By the protocol."""
    found = evaluate(act, goals_of(seed), goals)
    assert found is not None
    return found


def survivors(rows: Sequence[Sequence[str]], side: str, rung: int) -> list[str] | None:
    """Who of `side` takes part in `rung`: the better half of the rung before (of the last one: see above), and who
    begins here. None: the one before is not complete.
    """
    field = entering(side, 0)
    for below in range(rung):
        found = {row[1]: (float(row[7]), float(row[8])) for row in rows if (row[0], row[2]) == (side, str(below))}
        if not set(field) <= found.keys():
            return None
        ranked = sorted(field, key=lambda name: found[name], reverse=True)
        kept = ranked[: max(1, len(field) // 2)]
        if below + 1 == LAST:
            kept = [name for name in ranked if found[name][0] >= found[ranked[0]][0] - EQUAL - 1e-9]
            kept += [name for its, name in CANDIDATES if its == side and (its, name) in KEPT and name not in kept]
            kept = [name for name in kept if (side, name) not in KNOWN]
        field = [*entering(side, below + 1), *kept]
    if rung == LAST and len(field) == 1 and not entering(side, LAST):
        return []
    return field


def entering(side: str, rung: int) -> list[str]:
    """Whose first run is of `rung`."""
    return [name for its, name in CANDIDATES if its == side and ENTERS.get((its, name), 0) == rung]


def due(
    rows: Sequence[Sequence[str]],
    under_way: Collection[tuple[str, str, int]] = (),
    sides: Sequence[str] = (OURS, THEIRS),
) -> tuple[str, str, int] | None:
    """(side, candidate, rung) of the next run; None: the search has ended, or waits for what is under way."""
    made = {(row[0], row[1], int(row[2])) for row in rows}
    for rung in range(RUNGS):
        for side in sides:
            for name in survivors(rows, side, rung) or ():
                if (side, name, rung) not in {*made, *under_way}:
                    return side, name, rung
    return None


def searched() -> list[list[str]]:
    """The results so far."""
    path = figures.newest("hour_search")
    return figures.read(path)[1:] if path.exists() else []


def tried(side: str, name: str, rung: int, seconds: float) -> tuple[list[str], float]:
    """(the row of one run of the search, the CPU seconds that it took with its evaluation), in a process of its own."""
    began, minutes = time.process_time(), seconds / 60
    run = begin(side, name, 0)
    try:
        clock = time.monotonic if rung == LAST else time.process_time
        if rung == LAST and side == THEIRS:
            seconds -= quicker(run.more)
        trained(run, seconds, clock)
        found = played(run.act, TASTE, 0)
        success, total = found.mean_success, float(np.mean(list(found.returns.values())))
    except (TrainerError, ValueError) as error:  # it diverged, and would again
        print(f"{side}, {name}: {error}", flush=True)
        success, total = 0.0, DIVERGED
    run.close()
    steps, updates = run.made()
    row = [side, name, rung, f"{minutes:g}", 0, steps, updates, f"{success:.3f}", f"{total:.0f}"]
    return [str(cell) for cell in row], time.process_time() - began


def search(minutes: float, first_s: float, at_once: int = 2, sides: Sequence[str] = (OURS, THEIRS)) -> None:
    """Spend about so many CPU minutes, evaluations included; a run that would not fit is not begun."""
    with ProcessPoolExecutor(at_once, mp_context=multiprocessing.get_context("spawn")) as pool:
        ended = searching(minutes, first_s, at_once, lambda *run: pool.submit(tried, *run), sides)
    if ended:
        print(f"the search has ended; the best: {best(OURS)}; {best(THEIRS)} of {THEIRS}")


def searching(
    minutes: float,
    first_s: float,
    at_once: int,
    submit: Callable[..., Future[Any]],
    sides: Sequence[str] = (OURS, THEIRS),
) -> bool:
    """Whether the search has ended, and not its budget. `submit` begins a run: (side, candidate, rung, seconds)."""
    spent, under_way = 0.0, dict[Future[Any], tuple[tuple[str, str, int], float]]()
    is_short = False
    while True:
        while not is_short and len(under_way) < at_once:
            next_one = due(searched(), [key for key, _ in under_way.values()], sides)
            if next_one is None:
                break
            side, name, rung = next_one
            if rung == LAST and under_way:
                break
            seconds = 60 * MINUTES if rung == LAST else first_s * 2**rung
            if spent + sum(each for _, each in under_way.values()) + seconds > 60 * minutes:
                print(f"the budget is spent; next: {side}, {name}, rung {rung}")
                is_short = True
            else:
                under_way[submit(side, name, rung, seconds)] = next_one, seconds
        if not under_way:
            return not is_short
        for done in wait(under_way, return_when=FIRST_COMPLETED).done:
            del under_way[done]
            row, took = done.result()
            spent += took
            print(", ".join(row), flush=True)
            figures.save("hour_search", SEARCHED, [*searched(), row])


def best(side: str) -> str:
    """The candidate that came furthest; before there is any, the first."""
    rows = [row for row in searched() if row[0] == side]
    first = next(name for its, name in CANDIDATES if its == side)
    return max(rows, key=lambda row: (int(row[2]), float(row[7]), float(row[8])), default=[side, first])[1]


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(description="settings for MT10 in an hour on two cores", allow_abbrev=False)
    parser.add_argument("minutes", type=float, help="of CPU time.")
    parser.add_argument("--first-s", type=float, default=FIRST_S)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--side", choices=[OURS, THEIRS], action="append")
    told = parser.parse_args()
    search(told.minutes, told.first_s, told.at_once, told.side or (OURS, THEIRS))


if __name__ == "__main__":
    main()

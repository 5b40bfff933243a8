"""What is learned of MT10 in one hour on two CPU cores.

`python bench/hour.py` runs the published hour: preset `laptop` and stable-baselines3 by the settings that the search
found best for it (bench/hour_search.py of commit f5d2dfab), `SEEDS` seeds each, one after another, on a machine that
does nothing else (about seven hours; `--minutes 5 --seeds 1` tries it, and writes hour_try.csv). Runs that are complete
in hour.csv are not made again; one that was interrupted is thrown away, and begins anew. `python bench/hour.py --again
100` makes the hour of ours with that seed once more, in a folder of its own, and writes it beside the published one
(hour_again.csv).

Ours is trained by `orchestrator start --for 1:00:00` with the local executor and jobs of 12 minutes, so the hour has
starts, saves, hand-overs and evaluations in it. stable-baselines3 has an hour of its own training alone: its
evaluations stop its clock, and it has as many threads as are quicker. It is trained as it is installed: torch computes
its products by MKL. `trainer` lets oneDNN do it where that is clearly faster (`trainer.machine.products`; on a Zen 5
2.2 times). Both are played from the same 50 goals a task of Meta-World by the same protocol. No seed of the hour is one
of the search's. A processor twice as fast learns more in an hour: for the claims a seed counts whose two runs are from
one kind of machine.

The claims, written down before any run of the hour:

1. `laptop` solves most of MT10 in the hour: success, averaged over tasks and seeds, is at least 0.5.
2. It solves more than stable-baselines3 by its best settings of the search in the same hour: the lower end of the 95 %
   interval of the difference (Welch's t over seeds) is above 0.
3. At as many steps as stable-baselines3 makes in its hour it is not worse by more than 0.05 (the same interval).
   Of ours the last evaluation before counts; where there is none, nothing is told.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from learning import difference, words  # noqa: E402 - beside this file
from rivals import equal, vectors  # noqa: E402

from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.suites import MT10, Metaworld  # noqa: E402
from trainer.envs.step import VectorSpec  # noqa: E402
from trainer.envs.suite import SuiteRef  # noqa: E402
from trainer.evaluation.protocol import evaluate  # noqa: E402
from trainer.history.read import read, read_evaluations  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402

OURS, THEIRS = "ours", "stable-baselines3"
#: The hour.
MINUTES = 60.0
GOALS, SEEDS = 50, 3
#: Five of them in the hour.
JOB_LIMIT = "0:12:00"
#: Of the preset: what a run learns by. Runs of other values do not count.
LEARNED = ("algorithm", "network", "num_envs", "averaging")
POINTS = 6
#: The search has seed 0.
FIRST_SEED = 100
HEAD = ["side", "seed", "machine", "settings", "minutes", "step", *MT10, "mean"]
#: Of stable-baselines3; `gradient_steps` are the updates of a step of all environments.
SB3: dict[str, Any] = {
    "nets": (256, 256), "batch": 1_024, "num_envs": 130, "gradient_steps": 4, "learning_rate": 1e-3, "gamma": 0.97,
    "ent_coef": "auto", "target_entropy": -4,
}  # fmt: skip
#: A rival's rounds of 1,000 steps before it has updates, and those that are timed with each number of threads, in
#: so many tries.
TIMED_ROUNDS, TIMED_TRIES = 6, 3
AGAIN = ["seed", "machine", "at", "its steps", "published", "steps", "again", "difference"]


def by_relay(seed: int, minutes: float, name: str) -> list[list[str]]:
    """The curve of preset `laptop`, trained by the relay; its plot goes to bench/out/<name>-<seed>/."""
    folder = figures.OWN / f"{name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    run_dir = folder / "run"
    config = {
        "run_name": f"hour-{seed}", "run_dir": str(run_dir), "executor": "local", "lead_seconds": 30,
        "slurm": {"time_limit": JOB_LIMIT, "cpus_per_task": 2},
        "training": {"preset": "laptop", "seed": seed, "total_steps": 1_000_000_000},
    }  # fmt: skip
    (folder / "cluster_config.json").write_text(json.dumps(config))
    env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT)}

    def call(*command: str, more_s: float = 900) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=folder, env=env, check=False, text=True,
            stdout=subprocess.PIPE, timeout=60 * minutes + more_s,
        )  # fmt: skip
        if done.returncode not in {0, 75}:
            sys.exit(f"{' '.join(command)} ended with code {done.returncode}: {done.stdout}")
        return done.stdout

    if run_dir.exists():  # of a call that was interrupted; its job may train on
        call("orchestrator", "stop")
        shutil.rmtree(run_dir)
    whole = int(60 * minutes)
    call("orchestrator", "start", "--for", f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}")
    slot = run_dir / "slots" / "0"
    rows = read(slot)
    if not rows:
        sys.exit(f"no row of metrics within {minutes:g} minutes: give it more (--minutes), or another machine")
    began = min(path.stat().st_mtime for path in (slot / "attempts").glob("*/claim"))
    at = np.array([[row["to"], (row["at"] - began) / 60] for row in rows])
    last = json.loads(call("trainer", "evaluate", str(run_dir), "--goals", str(GOALS), "--json"))
    points = [*read_evaluations(slot), {"step": int(at[-1, 0]), **last}]
    curve = {point["step"]: point for point in points}
    call("trainer", "plot", str(run_dir))
    return [line(OURS, seed, float(np.interp(step, *at.T)), step, curve[step]["success"]) for step in sorted(curve)]


def stable_baselines3(seed: int) -> tuple[Any, Callable[[], None]]:
    """Its model on our environments (on Meta-World's own vectors it is slower), and what ends these."""
    machine.set_deterministic(1)
    products.use(products.PLAIN)
    values = dict(SB3)
    nets, batch = values.pop("nets"), values.pop("batch")
    envs = vectors.OurVector(VectorSpec(goals_of(seed), values.pop("num_envs"), seed), 0)
    return equal.sac_of(
        vectors.for_sb3(envs), nets, nets, batch, 1_000_000, seed, learning_starts=5_000, train_freq=1, **values
    ), envs.close


def goals_of(seed: int) -> SuiteRef:
    """What a run of this seed trains on, and is played from."""
    return SuiteRef(Metaworld(tasks=MT10), seed)


def more(model: Any) -> None:
    """Train a little on."""
    model.learn(1_000, reset_num_timesteps=False, log_interval=None)


def played(model: Any, seed: int) -> Any:
    """The success of its deterministic policy, by task."""

    def act(obs: Any, task: Any) -> Any:
        return model.predict(equal.seen_by(model, obs, task), deterministic=True)[0]

    found = evaluate(act, goals_of(seed), GOALS)
    assert found is not None
    return found.success


def quicker(model: Any) -> None:
    """Take as many threads as let it take less time: one, or as many as there are cores. The best of some tries in
    turn counts: whatever else the machine does for a moment decides nothing.
    """
    took: dict[int, list[float]] = {1: [], os.cpu_count() or 1: []}
    for _ in range(TIMED_ROUNDS):  # before there are updates
        more(model)
    for _ in range(TIMED_TRIES):
        for threads, tries in took.items():
            torch.set_num_threads(threads)
            began = time.monotonic()
            for _ in range(TIMED_ROUNDS // TIMED_TRIES):
                more(model)
            tries.append(time.monotonic() - began)
    print(", ".join(f"{threads} threads: {min(tries):.2f} s" for threads, tries in took.items()), flush=True)
    torch.set_num_threads(min(took, key=lambda threads: min(took[threads])))


def by_sb3(seed: int, minutes: float) -> list[list[str]]:
    """The curve of stable-baselines3."""
    (model, close), lines, spent = stable_baselines3(seed), [], 0.0
    for point in range(POINTS):
        began = time.monotonic()
        if not point:
            quicker(model)
        while spent + time.monotonic() - began < 60 * minutes * (point + 1) / POINTS:
            more(model)
        spent += time.monotonic() - began
        lines.append(line(THEIRS, seed, spent / 60, model.num_timesteps, played(model, seed)))
        print(", ".join(lines[-1]), flush=True)
    close()
    return lines


def line(side: str, seed: int, minutes: float, step: int, success: Any) -> list[str]:
    """A point of a curve."""
    rates = [float(success[task]) for task in MT10]
    found = (f"{x:.3f}" for x in [*rates, float(np.mean(rates))])
    return [side, str(seed), figures.this_machine(), settings_of(side), f"{minutes:.1f}", str(step), *found]


def settings_of(side: str) -> str:
    """Eight hexadecimal digits of what a side is trained with; the library that computes products is not in them."""
    laptop = resolve(TrainingSection(preset="laptop")).model_dump(mode="json", include={*LEARNED})
    values = laptop if side == OURS else SB3
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def current(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Those of hour.csv whose settings are today's; the others stay in it until their run is made anew."""
    return [row for row in rows if row[3] == settings_of(row[0])]


def summary(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """The claims: the first over all seeds of ours, the others over those that both sides have from one kind of
    machine. "open": there are fewer than were to be made; the interval of two may be seen before.
    """
    curves: dict[tuple[str, tuple[str, str]], list[tuple[float, float]]] = {}
    for side, seed, where, _, _, step, *rates in lines:
        curves.setdefault((side, (seed, where)), []).append((float(step), float(rates[-1])))
    seeds = sorted({key for _, key in curves if {(OURS, key), (THEIRS, key)} <= curves.keys()})
    alone = [curve[-1][1] for (side, _), curve in curves.items() if side == OURS]
    first = "open" if not alone else "shown" if np.mean(alone) >= 0.5 else "refuted"
    hour = steps = None
    one, other = ([curves[side, seed][-1][1] for seed in seeds] for side in (OURS, THEIRS))
    equal = [before(curves[OURS, seed], curves[THEIRS, seed][-1][0]) for seed in seeds]
    known = [point for point in equal if point is not None]
    made = [[point[0] for point in known], [curves[THEIRS, seed][-1][0] for seed in seeds]]
    if len(seeds) > 1:
        hour = difference(one, other)
        steps = difference([success for _, success in known], other) if len(known) == len(seeds) else None
    means = [f"{np.mean(ends):.3f}" if ends else "" for ends in (one, other)]
    counts = [f"{np.mean(some):,.0f}" if some else "" for some in made]
    return [
        ["seeds of both", str(len(seeds)), str(len(seeds)), ""],
        ["their success after the hour", *means, ""],
        ["1: at least 0.5 (all of ours)", first, "", ""],
        ["2: more in the same hour", _verdict(seeds, hour, 0.0), "", words(hour) if hour else ""],
        ["3: not worse by 0.05 at equal steps", _verdict(seeds, steps, -0.05), "", words(steps) if steps else ""],
        ["steps compared in claim 3", *counts, ""],
    ]


def _verdict(seeds: Sequence[tuple[str, str]], found: tuple[float, float, float] | None, least: float) -> str:
    """Whether the lower end of the interval of the difference `found` is above `least`."""
    if len(seeds) < SEEDS:
        return "open"
    return "not told" if found is None else "shown" if found[1] > least else "not shown"


def by_task(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Each task's success at the end of the hour, mean of a side's runs, of which the first row has the number."""
    ends = {(row[0], row[1]): [float(cell) for cell in row[6:]] for row in lines}
    sides = [[rates for (its, _), rates in ends.items() if its == side] for side in (OURS, THEIRS)]
    means = [np.mean(side, axis=0) if side else np.full(len(MT10) + 1, np.nan) for side in sides]
    rows = [[task, *(f"{mean[n]:.3f}" for mean in means)] for n, task in enumerate([*MT10, "mean"])]
    return [["runs", *(str(len(side)) for side in sides)], *rows]


def before(curve: Sequence[tuple[float, float]], step: float) -> tuple[float, float] | None:
    """The last point up to `step`, and its success; None: there is none."""
    return max((point for point in curve if point[0] <= step), default=None)


def again(seed: int, minutes: float) -> None:
    """The hour of ours once more, beside the published one. Nothing of hour.csv is changed."""
    name = "hour_again" if minutes == MINUTES else "hour_again_try"
    rows = current(figures.read(figures.committed("hour"))[1:])
    published = [(row[5], row[-1]) for row in rows if row[:2] == [OURS, str(seed)]]
    lines = by_relay(seed, minutes, name.replace("_", "-"))
    found = compared(published, [(line[5], line[-1]) for line in lines])
    path = figures.newest(name)
    before = [row for row in figures.read(path)[1:] if row[0] != str(seed)] if path.exists() else []
    figures.save(name, AGAIN, [*before, *([str(seed), lines[0][2], *row] for row in found)])


def compared(published: Sequence[tuple[str, str]], again: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Rows of two curves of (steps, success): where both were evaluated after the same steps, and at their ends."""
    known = dict(published)
    both = [["evaluation", step, known[step], step, success] for step, success in again[:-1] if step in known]
    ends = [["end", *(published[-1] if published else ("", "")), *again[-1]]]
    rows = [*both, *ends]
    return [[*row, f"{float(row[4]) - float(row[2]):+.3f}" if row[2] else ""] for row in rows]


def hour(seeds: int, minutes: float) -> None:
    """Make what is missing of both sides, print, write."""
    name = "hour" if minutes == MINUTES else "hour_try"
    path = figures.newest(name)
    every = figures.read(path)[1:] if path.exists() else []
    lines, folder = current(every), name.replace("_", "-")
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for side in (OURS, THEIRS):
            key = (side, str(seed))
            if not any((row[0], row[1]) == key for row in lines):
                found = by_relay(seed, minutes, folder) if side == OURS else by_sb3(seed, minutes)
                lines += found
                every = [row for row in every if (row[0], row[1]) != key] + found
                figures.save(name, HEAD, every)
    figures.save(f"{name}_tasks", ["task", OURS, THEIRS], by_task(lines))
    rows = summary(lines)
    figures.save(f"{name}_summary", ["claim", "ours", "stable-baselines3", "difference"], rows)
    for row in rows:
        print(", ".join(row))


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(description="MT10 in an hour on two cores", allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="0: the tables alone, of the runs that there are.")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--again", type=int, metavar="SEED", help="The hour of ours with this seed, once more.")
    told = parser.parse_args()
    if told.again is not None:
        again(told.again, told.minutes)
    else:
        hour(told.seeds, told.minutes)


if __name__ == "__main__":
    main()

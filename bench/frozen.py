"""An encoder that learns, and the same one frozen: what an update, a step and a row of the replay cost.

`python bench/frozen.py [ROUNDS]`: SAC on the arm through one camera, clips of 8 frames of 64 x 64, batch 32, one
thread. `learns`: frames are kept, and each update reads them; `frozen`: features are made once, while acting, and kept.
CPU time, the median over rounds. Weights are random: their numbers cost the same as published ones. Writes frozen.csv.
"""

from __future__ import annotations

import statistics
from functools import partial

import figures
import torch
from learners import learn

from trainer.config.section import TrainingSection, resolve
from trainer.envs.pictures import ready_to_draw
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.machine import device as machine
from trainer.training.memory import row_bytes
from trainer.training.run import TrainingRun, advance, as_begun

ARCHES, BATCH, ENVS, FILL = ("simple3dcnn", "simple2dcnn", "r3d18"), 32, 2, 40
HEAD = ["encoder", "way", "ms an update", "updates/s", "ms a step that acts", "bytes a row"]


def made(arch: str, *, frozen: bool) -> tuple[TrainingRun, int]:
    """A run that can make updates, and the bytes of a row of its replay."""
    training = resolve(
        TrainingSection(
            env={"name": "arm", "observation": "clips", "cameras": ["front"]},
            algorithm={
                "name": "sac", "batch_size": BATCH, "buffer_size": 1_000, "random_steps": FILL * ENVS,
                "updates_per_step": 0.001,
            },
            network={"encoder": {"arch": arch, "freeze": frozen}},
            num_envs=ENVS,
        )
    )  # fmt: skip
    run = as_begun(training, torch.device("cpu"), VectorEnv(VectorSpec(suite_of(training), ENVS, 0), 0))
    for _ in range(FILL):
        advance(run)
    return run, row_bytes(training)


def turn(run: TrainingRun, updates: int) -> tuple[float, float]:
    """CPU seconds of an update, and of a step of one environment."""
    batch = run.experience.sample(BATCH) if run.experience else None
    of_update = figures.timed(lambda: learn(run.algorithm, batch), updates)
    return of_update, figures.timed(lambda: advance(run), 3) / ENVS


def main() -> None:
    """Measure, print, write."""
    machine.set_deterministic(1)
    ready_to_draw(resolve(TrainingSection(env={"name": "arm", "observation": "cameras"}, algorithm="sac")).env)
    rows = []
    for arch in ARCHES:
        runs = {way: made(arch, frozen=way == "frozen") for way in ("learns", "frozen")}
        ways = {
            way: partial(turn, run, 1 if (arch, way) == ("r3d18", "learns") else 10) for way, (run, _) in runs.items()
        }
        found = figures.by_turns(ways, figures.number(1, 2), warm=0)
        for way, (run, size) in runs.items():
            update, step = (1000 * statistics.median(times) for times in zip(*found[way], strict=True))
            rows.append([arch, way, f"{update:.1f}", f"{1000 / update:.2f}", f"{step:.1f}", size])
            print(", ".join(map(str, rows[-1])), flush=True)
            run.collector.envs.close()
    figures.save("frozen", HEAD, rows)


if __name__ == "__main__":
    main()

"""What an update costs that can be cut into shards and shared by ranks: with one shard, with 2 and with 4.

`python bench/shards.py [ROUNDS]`: multi-task SAC, MT10's shapes, one thread, one process, its batch drawn by each
update itself. `straight`: the same gradients and steps called one after the other, without samples, generators and
groups. All by turns; a round is so many updates of one as take about half a second. CPU time an update: medians over
rounds. `times straight`: the mean of the ratios within a round, and its standard error. What several ranks save, and
what their exchange costs, only several GPUs can say. Writes shards.csv.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

import figures
import numpy as np
import torch
from learners import learn, prepared
from update import ROUND_S, ROWS, SPACES, rows, timed

from trainer.algorithms.base import Context
from trainer.algorithms.mtsac import MTSAC
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.config.tasknames import MT10
from trainer.machine import device as machine
from trainer.nets.mlp import with_task

#: Name → widths of all nets, batch.
SHAPES = {"256x2, batch 256": ((256, 256), 256), "400x3, batch 1280": ((400, 400, 400), 1280)}
STRAIGHT, SHARDS = "straight", (1, 2, 4)
HEAD = ["nets", "way", "ms an update", "times straight", "standard error"]


@torch.no_grad()
def straight(learner: MTSAC, batch: Batch) -> torch.Tensor:
    """One update of plain critics, as one would write it for one process."""
    inputs = prepared(learner, batch)
    task = inputs.task
    x, next_x = (with_task(seen, task, learner.num_tasks) for seen in (inputs.obs, inputs.next_obs))
    temperature = learner.log_temperature.detach().exp()[task]
    target = learner.td_target(inputs.reward, inputs.terminated, next_x, temperature, inputs.next_noise)
    _, critic_loss, q = learner.critic_gradient(x, inputs.action, target)
    learner.optimizers["critics"].step()
    _, actor_loss, log_prob = learner.actor_gradient(x, temperature, inputs.current_noise)
    learner.optimizers["actor"].step()
    (learner.log_temperature.grad,), temperature_loss = learner.temperature_gradient(task, log_prob)
    learner.optimizers["temperature"].step()
    measured = critic_loss, actor_loss, temperature_loss, q, -log_prob.mean()
    return learner.move_targets(dict(zip(learner.METRICS, measured, strict=True)))


def made(widths: tuple[int, ...], batch: int, shards: int) -> tuple[object, Callable[[], Batch]]:
    """The algorithm, and what draws its batches."""
    settings = {"name": "mtsac", "batch_size": batch, "buffer_size": ROWS, "shards": shards}
    network = {"actor_hidden": widths, "critic_hidden": widths}
    training = resolve(TrainingSection(algorithm=settings, network=network))
    experience = Experience(training, SPACES)
    experience.add(np.arange(ROWS) % len(MT10), rows(np.random.default_rng(0), ROWS))
    context = Context(training, SPACES, 1, torch.device("cpu"), experience)
    return find(ALGORITHMS, "mtsac")(context), lambda: experience.sample(batch)


def main() -> None:
    """Measure, print, write."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    machine.set_deterministic(1)
    found = []
    for name, (widths, batch) in SHAPES.items():
        ways: dict[str, Callable[[], object]] = {}
        plain, draw = made(widths, batch, 1)
        ways[STRAIGHT] = lambda plain=plain, draw=draw: straight(plain, draw())
        for shards in SHARDS:
            one, of_one = made(widths, batch, shards)
            ways[f"{shards} shard{'s' * (shards > 1)}"] = lambda one=one, of_one=of_one: learn(one, of_one())
        count = max(1, int(ROUND_S / timed(ways[STRAIGHT], 5)))
        took = {way: [] for way in ways}
        for number in range(rounds):
            for way in list(ways)[:: 1 if number % 2 else -1]:
                took[way].append(timed(ways[way], count))
        for way, seconds in took.items():
            ratios = [mine / base for mine, base in zip(seconds, took[STRAIGHT], strict=True)]
            error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
            line = [
                name,
                way,
                f"{1e3 * statistics.median(seconds):.2f}",
                f"{statistics.mean(ratios):.3f}",
                f"{error:.3f}",
            ]
            found.append(line)
            print(", ".join(line), flush=True)
    figures.save("shards", HEAD, found)


if __name__ == "__main__":
    main()

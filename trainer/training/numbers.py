"""What the bits of a training depend on beside its seed: the device, the threads, how products are added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trainer.algorithms.base import Algorithm
from trainer.config.find import ALGORITHMS, find
from trainer.config.training import Training
from trainer.envs.spaces import Spaces
from trainer.machine import device as machine
from trainer.machine import products
from trainer.machine.processor import processor
from trainer.training.progress import Reporter


def choose_numerics(
    training: Training, spaces: Spaces, chosen: torch.device, recorded: Mapping[str, Any], show: Reporter
) -> dict[str, Any]:
    """Decide all that bit equality depends on beside the seed, as it was `recorded` where that is possible here."""
    machine.set_deterministic(training.threads)
    numeric = {"device": machine.device_name(chosen), "threads": training.threads, "processor": processor()}
    for name, now in numeric.items():
        then = recorded.get(name, now)
        if then != now:
            show.say(f"{name} was {then}, is {now}: the training goes on, bit equality is not promised")
    if chosen.type == "cpu":
        numeric["products"], sentence = products.choose_products(training.network.widest, recorded.get("products"))
        if sentence is not None:
            show.say(sentence)
    algorithm: type[Algorithm] = find(ALGORITHMS, training.algorithm.name)
    numeric["updates"], sentence = algorithm.choose_kernels(training, spaces, chosen)
    if sentence is not None:
        show.say(sentence)
    return numeric

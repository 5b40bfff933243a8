"""What the bits of a training depend on beside its seed: the device, the threads, how products are added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trainer.algorithms import recorded as updates
from trainer.config import Training
from trainer.machine import device as machine
from trainer.machine import products as matmul
from trainer.machine.processor import processor
from trainer.training.progress import Show


def settle_numbers(training: Training, chosen: torch.device, recorded: Mapping[str, Any], show: Show) -> dict[str, Any]:
    """Decide all that bit equality depends on beside the seed, as it was `recorded` where that is possible here."""
    machine.settle(training.threads)
    numeric = {"device": machine.name(chosen), "threads": training.threads, "processor": processor()}
    for name, now in numeric.items():
        then = recorded.get(name, now)
        if then != now:
            show.say(f"{name} was {then}, is {now}: the training goes on, bit equality is not promised")
    if chosen.type == "cpu":
        widest = max(*training.actor_hidden, *training.critic_hidden)
        numeric["products"], sentence = matmul.settle(widest, recorded.get("products"))
        if sentence is not None:
            show.say(sentence)
    numeric["updates"], sentence = updates.choose(training, chosen)
    if sentence is not None:
        show.say(sentence)
    return numeric

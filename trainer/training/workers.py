"""How many workers step a training's environments."""

from __future__ import annotations

from trainer.config.training import Training
from trainer.envs.quick import is_quick
from trainer.envs.suite import SuiteRef
from trainer.machine import device as machine
from trainer.machine.host import read_host
from trainer.machine.launching import cores_of_rank


def choose_workers(training: Training, suite: SuiteRef, ranks: int = 1) -> int:
    """What was asked for, else as many as pay on this machine, which `ranks` share: none where a step of all is a
    matter of moments.

    Errors: EnvError where an environment that is timed hangs.
    """
    if training.num_workers is None and is_quick(suite, training.num_envs):
        return 0
    return machine.default_workers(training.num_workers, training.num_envs, cores_of_rank(read_host().cores, ranks))

"""PPO on a real Slurm, killed and handed over between the updates of a rollout: it comes to the bits of one alone."""

from __future__ import annotations

import random

import pytest
from hurt_on_slurm import hurt_jobs, slot_of
from ppo_runs import PPO, UPDATES, train
from relay import NewRelay
from slurm_cluster import SlurmCluster

pytest.importorskip("torch")

from slot_digest import slot_digest

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]


@pytest.mark.parametrize("seed", range(2))
def test_killed_in_mid_epoch_it_comes_to_the_bits_of_one_alone(
    new_relay: NewRelay, slurm: SlurmCluster, seed: int
) -> None:
    moments = random.Random(seed)
    signals = [{str(moments.randrange(1, UPDATES // 6)): name} for name in ("SIGKILL", "SIGUSR2", "SIGKILL") * 2]

    relay = hurt_jobs(new_relay, slurm, "ppo", PPO, signals)

    alone = relay.folder / "alone"
    train(alone)
    assert slot_digest(slot_of(relay)) == slot_digest(alone / "run/slots/0")

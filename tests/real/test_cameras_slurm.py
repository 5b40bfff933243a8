"""Trainings that see, on a real Slurm: killed and handed over in mid-episode, they come to the bits of one alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hurt_on_slurm import hurt_jobs, slot_of
from ppo_runs import train
from relay import NewRelay
from slurm_cluster import SlurmCluster

pytest.importorskip("torch")

from needs import is_missing
from slot_digest import gaps, slot_digest

from trainer.machine import drawing

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]
OSMESA = {"MUJOCO_GL": "osmesa"}
ARM = {"name": "arm", "goals": "box", "horizon": 12, "cameras": ["front"], "image_size": 32, "frame_stack": 2}
SMALL: dict[str, Any] = {
    "preset": "debug",
    "num_envs": 4,
    "metrics_interval": 50,
    "evaluation_goals": 1,
    "evaluation_unseen_goals": 0,
}
NETS = {"actor_hidden": [16], "critic_hidden": [16]}
#: By name: a training, and how many updates it makes. Checkpoints lie in mid-rollout, and in mid-episode.
SEEN: dict[str, tuple[dict[str, Any], int]] = {
    "ppo": (
        {
            **SMALL,
            "env": {**ARM, "observation": "both", "critic_sees": "state"},
            "network": {**NETS, "encoder": {"arch": "impala", "features": 16}},
            "algorithm": {"name": "ppo", "rollout_steps": 32, "batch_size": 32, "epochs": 3},
            "total_steps": 768,
            "checkpoint_interval": 92,
            "num_workers": 0,
        },
        72,
    ),
    "sac": (
        {
            **SMALL,
            "env": {**ARM, "observation": "cameras", "randomize_view": True},
            "network": {**NETS, "encoder": {"arch": "drq"}, "trunk": 16},
            "algorithm": {"name": "sac", "batch_size": 16, "updates_per_step": 0.25, "buffer_size": 300},
            "random_steps": 100,
            "total_steps": 400,
            "checkpoint_interval": 60,
            "num_workers": 2,
        },
        74,
    ),
}


@pytest.mark.parametrize(("name", "seed"), [("ppo", 0), ("sac", 1)])
def test_killed_and_handed_over_with_cameras_on_it_comes_to_the_bits_of_one_alone(
    new_relay: NewRelay, slurm: SlurmCluster, name: str, seed: int
) -> None:
    if drawing.driver_of("osmesa") is None:
        is_missing("OSMesa is not there: run tests/real/install.sh")
    training, updates = SEEN[name]
    moments = random.Random(seed)
    names = moments.sample(("SIGKILL", "SIGKILL", "SIGKILL", "SIGUSR2"), 4)
    signals = [{str(moments.randrange(1, updates // len(names))): one} for one in names]
    setup = [f"export {key}={value}" for key, value in OSMESA.items()]

    relay = hurt_jobs(new_relay, slurm, "seen", training, signals, setup=setup)

    alone = relay.folder / "alone"
    train(alone, training={**training, "num_workers": 1 - min(1, training["num_workers"])}, env=OSMESA)
    found, wanted = slot_digest(slot_of(relay)), slot_digest(alone / "run/slots/0")
    for digest in (found, wanted):
        del digest["parts"]["run"][1]["numeric"]["workers"]
    assert found == wanted
    assert found["parts"]["run"][1]["updates"] == updates
    assert gaps(found["metrics"]) == []

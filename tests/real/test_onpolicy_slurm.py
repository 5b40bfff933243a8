"""PPO on a real Slurm, killed and handed over between the updates of a rollout: it comes to the bits of one alone."""

from __future__ import annotations

import json
import random
import sys

import pytest
from ppo_runs import PPO, PROGRAM, UPDATES, train
from relay import PATIENT, NewRelay
from slurm_cluster import SlurmCluster
from slurm_relay import on_slurm

pytest.importorskip("torch")

from slot_digest import slot_digest

from anchorleg.job import attempt_numbers

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]


@pytest.mark.parametrize("seed", range(2))
def test_killed_in_mid_epoch_it_comes_to_the_bits_of_one_alone(
    new_relay: NewRelay, slurm: SlurmCluster, seed: int
) -> None:
    moments = random.Random(seed)
    signals = [{str(moments.randrange(1, UPDATES // 6)): name} for name in ("SIGKILL", "SIGUSR2", "SIGKILL") * 2]
    relay = on_slurm(
        new_relay,
        slurm,
        "ppo",
        command=[sys.executable, str(PROGRAM), json.dumps(signals), "train"],
        params=PPO,
        slurm={"mem": "2G"},
        relay=PATIENT,
    )

    controller = relay.spawn("start")

    assert relay.ended(controller) == 0, relay.output()
    slot = relay.run_dir / "slots/0"
    assert attempt_numbers(slot) == list(range(len(signals) + 1))
    codes = [relay.read("exit.json", number)["code"] for number in range(len(signals))]
    assert codes == [-9 if "SIGKILL" in each.values() else 75 for each in signals]
    alone = relay.folder / "alone"
    train(alone)
    assert slot_digest(slot) == slot_digest(alone / "run/slots/0")

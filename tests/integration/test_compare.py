"""`trainer compare` as a user has it: experiments of one run, trained by the relay on this machine, in one table."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from daemons import PATIENCE_S, WORK_S
from relay import NewRelay, Relay

pytest.importorskip("torch")

pytestmark = pytest.mark.trainer
TRAINING = {
    "preset": "arm-ppo",
    "network": {"actor_hidden": [8], "critic_hidden": [8]},
    "horizon": 20,
    "num_envs": 4,
    "total_steps": 400,
    "checkpoint_interval": 200,
    "evaluation_interval": 200,
    "evaluation_goals": 2,
    "metrics_interval": 200,
    "num_workers": 0,
}


def compared(relay: Relay, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainer", "compare", str(relay.run_dir), *words],
        cwd=relay.folder, env=relay.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_experiments_of_a_run_are_contenders_by_algorithm_and_by_what_differs(new_relay: NewRelay) -> None:
    ppo = [{"algorithm": {"name": "ppo", "gamma": gamma}, "seed": seed} for gamma in (0.9, 0.95) for seed in (0, 1)]
    relay = new_relay(
        command=None,
        training=TRAINING,
        experiments=[*ppo, {"algorithm": "a2c", "seed": 3, "name": "plain", "priority": 2}],
        slurm={"max_jobs": 2, "time_limit": "1:00:00"},
    )
    done = relay.run("start", timeout_s=WORK_S)
    assert done.code == 0, done.words

    told = compared(relay, "--json")

    assert told.returncode == 0, told.stderr
    found = {one["algorithm"]: one for one in json.loads(told.stdout)["contenders"]}
    assert {name: one["seeds"] for name, one in found.items()} == {
        "ppo gamma=0.9": [0, 1],
        "ppo gamma=0.95": [0, 1],
        "a2c": [3],
    }
    assert {rows[-1]["step"] for one in found.values() for rows in one["evaluations"]} == {400}
    shown = compared(relay)
    for word in ("algorithm\tseeds", "ppo gamma=0.9\t2", "is better", "the picture: compare.png"):
        assert word in shown.stdout
    assert (relay.folder / "compare.png").stat().st_size > 10_000

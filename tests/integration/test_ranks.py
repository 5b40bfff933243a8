"""Several processes train one slot to the bits that one comes to, whatever is killed and however many go on."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from daemons import WORK_S

pytest.importorskip("torch")

import torch
from demos import SIZE, recorded
from ppo_runs import LOST, ROOT, SHARDED, SHARDED_UPDATES, SHARED, SHARED_UPDATES, attempt
from safetensors.torch import save_file
from slot_digest import gaps, slot_digest

from anchorleg.job import HANDED_OVER
from trainer.config.section import TrainingSection, resolve
from trainer.envs.suite import spaces_of
from trainer.nets.encoders.base import encoder_for

pytestmark = pytest.mark.trainer
PROGRAM = Path(__file__).parents[1] / "support" / "train_ranks.py"
KILLED = -9


def attempts(
    folder: Path, *asked: tuple[str, int, dict[Any, str]], training: dict[str, Any] = SHARDED
) -> list[list[int]]:
    """The exit codes of the ranks of each attempt of `training`: (run, ranks, signals)."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), json.dumps(asked), json.dumps(training)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{PROGRAM.parent}"},
        capture_output=True, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    print(done.stdout)
    found: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


def slot_of(folder: Path, run: str = "run") -> dict[str, Any]:
    return slot_digest(folder / run / "slots/0")


def test_two_ranks_that_hand_over_lose_one_and_go_on_as_one_change_nothing(tmp_path: Path) -> None:
    codes = attempts(
        tmp_path,
        ("one", 1, {}),
        ("several", 2, {20: "SIGUSR2"}),
        ("several", 4, {7: "2 SIGKILL"}),
        ("several", 2, {11: "0 SIGKILL"}),
        ("several", 1, {}),
    )
    assert codes == [[0], [HANDED_OVER, 0], [LOST, LOST, KILLED, LOST], [KILLED, LOST], [0]]
    by_one = slot_of(tmp_path, "one")
    assert by_one["parts"]["run"][1]["updates"] == SHARDED_UPDATES
    assert gaps(by_one["metrics"]) == []
    assert slot_of(tmp_path, "several") == by_one


def test_off_policy_too_and_a_rank_that_only_assists_may_die(tmp_path: Path) -> None:
    codes = attempts(
        tmp_path,
        ("one", 1, {}),
        ("several", 2, {9: "1 SIGKILL"}),
        ("several", 1, {5: "SIGUSR2"}),
        ("several", 2, {}),
        training=SHARED["sac"],
    )
    assert codes == [[0], [LOST, KILLED], [HANDED_OVER], [0, 0]]
    by_one = slot_of(tmp_path, "one")
    assert by_one["parts"]["run"][1]["updates"] == SHARED_UPDATES
    assert gaps(by_one["metrics"]) == []
    assert slot_of(tmp_path, "several") == by_one


def test_ranks_of_other_processors_are_refused_before_they_train(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert attempts(tmp_path, ("run", 2, {"other processor": "1"})) == [[LOST, LOST]]
    words = "of rank 1 differs from those of rank 0, and so would their results: ask for nodes of one type"
    assert words in capfd.readouterr().out
    assert not list((tmp_path / "run/slots/0").rglob("step-*"))


@pytest.mark.parametrize("algorithm", [{"name": "sac", "random_steps": 4}, {"name": "ppo", "rollout_steps": 4}])
def test_a_file_of_weights_that_only_the_node_of_rank_0_has_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: dict[str, Any]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    asked: dict[str, Any] = {
        "env": {"name": "spots:Spots", "observation": "cameras", "image_size": 16},
        "algorithm": {**algorithm, "batch_size": 4, "shards": 2},
        "network": {"actor_hidden": [8], "critic_hidden": [8], "encoder": {"arch": "spots:Eye"}},
        "num_envs": 2, "num_workers": 0, "total_steps": 16, "checkpoint_interval": 8, "evaluation_goals": 0,
    }  # fmt: skip
    training = resolve(TrainingSection(**asked))
    eye = encoder_for("image", spaces_of(training).obs["image"], training.network, torch.Generator().manual_seed(1))
    save_file(eye.state_dict(), tmp_path / "eye.safetensors")
    asked["network"]["encoder"]["weights"] = "~/eye.safetensors"
    assert attempts(tmp_path, ("run", 2, {"away": "1"}), training=asked) == [[0, 0]]
    assert slot_of(tmp_path)["parts"]["run"][1]["updates"] > 0


def test_demonstrations_that_only_the_node_of_rank_0_has_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    recorded(tmp_path / "demos", episodes=2)
    asked: dict[str, Any] = {
        "env": {"name": "spots:Spots", "observation": "both", "image_size": SIZE},
        "algorithm": {"name": "sac", "random_steps": 4, "batch_size": 4, "shards": 2, "demos": "~/demos"},
        "network": {"actor_hidden": [8], "critic_hidden": [8], "encoder": {"arch": "spots:Eye"}},
        "num_envs": 2, "num_workers": 0, "total_steps": 16, "checkpoint_interval": 8, "evaluation_goals": 0,
    }  # fmt: skip
    assert attempts(tmp_path, ("run", 2, {"away": "1"}), training=asked) == [[0, 0]]
    assert slot_of(tmp_path)["parts"]["run"][1]["updates"] > 0


@pytest.fixture(scope="module")
def by_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Four shards in one process, by the command."""
    folder = tmp_path_factory.mktemp("one")
    code, words = attempt(folder, {}, SHARDED)
    assert code == 0, words
    return slot_of(folder)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_kills_of_random_ranks_and_other_numbers_of_ranks_change_nothing(
    tmp_path: Path, by_one: dict[str, Any], seed: int
) -> None:
    moments = random.Random(seed)
    for _ in range(3):
        ranks = moments.choice((2, 4))
        who = moments.randrange(ranks)
        code, words = attempt(tmp_path, {moments.randrange(1, 20): f"{who} SIGKILL"}, SHARDED, ranks=ranks)
        assert code == LOST, words
        assert f"rank {who} was killed by SIGKILL" in words
        assert "Traceback" not in words
    code, words = attempt(tmp_path, {1: "SIGUSR2"}, SHARDED, ranks=2)
    assert code == HANDED_OVER, words
    code, words = attempt(tmp_path, {}, SHARDED, ranks=2)
    assert code == 0, words
    assert slot_of(tmp_path) == by_one


@pytest.mark.long
@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("seed", range(2))
def test_off_policy_kills_of_random_ranks_and_other_numbers_of_ranks_change_nothing(
    tmp_path: Path, name: str, seed: int
) -> None:
    moments, training = random.Random(seed), SHARED[name]
    asked: list[tuple[str, int, dict[Any, str]]] = [(str(ranks), ranks, {}) for ranks in (1, 2, 4)]
    for _ in range(3):
        ranks = moments.choice((2, 4))
        asked.append(("hurt", ranks, {moments.randrange(1, 7): f"{moments.randrange(ranks)} SIGKILL"}))
    asked += [("hurt", 4, {1: "SIGUSR2"}), ("hurt", 2, {})]
    codes = attempts(tmp_path, *asked, training=training)
    assert codes[:3] == [[0], [0] * 2, [0] * 4]
    for of_ranks in codes[3:6]:
        assert sorted(of_ranks) == [KILLED, *[LOST] * (len(of_ranks) - 1)]
    assert codes[6:] == [[HANDED_OVER, 0, 0, 0], [0, 0]]
    by_one = slot_of(tmp_path, "1")
    assert by_one["parts"]["run"][1]["updates"] == SHARED_UPDATES
    assert [slot_of(tmp_path, run) for run in ("2", "4", "hurt")] == [by_one] * 3


@pytest.mark.long
def test_started_by_torchrun_all_say_what_to_use_and_write_nothing(tmp_path: Path) -> None:
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "trainer", "train"]
    done = subprocess.run(
        [sys.executable, *words, "--preset", "arm-sac", "--run-dir", str(tmp_path / "run")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1, "torchrun makes 1 of whatever it is"
    assert "[ranks.by-torchrun]" in done.stderr
    assert "--ranks 2" in done.stderr
    assert not (tmp_path / "run").exists()

"""A training on environments of Gymnasium's interface: handed over, evaluated, watched, plotted, played elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from needs import is_missing
from slot_digest import gaps
from typed_trainings import HANDING_OVER, bits_of, run
from typed_trainings import train as typed

from anchorleg.job import HANDED_OVER
from trainer.algorithms.common.native.library import threads_for
from trainer.config.section import TrainingSection, resolve
from trainer.history.read import read_evaluations

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).resolve().parents[2]
TRAINING = {
    "preset": "debug",
    "algorithm": {"name": "anchorleg_toys.drift:Drift", "step_size": 0.05},
    "network": {"actor_hidden": [16]},
    "num_envs": 3,
    "total_steps": 600,
    "checkpoint_interval": 150,
    "metrics_interval": 60,
    "evaluation_goals": 2,
    "num_workers": 0,
}
MTSAC = {
    "algorithm": "mtsac",
    "network": {"actor_hidden": [16], "critic_hidden": [16]},
    "batch_size": 32,
    "buffer_size": 2000,
    "random_steps": 60,
    "total_steps": 300,
}


def train(folder: Path, env: dict[str, object], *command: str, expected: int = 0, **fields: object) -> str:
    section = {**TRAINING, "env": {"name": "gymnasium", **env}, **fields}
    return typed(folder, section, *command, expected=expected)


@pytest.mark.long
@pytest.mark.parametrize(
    ("env", "fields"),
    [
        ({"id": "Pendulum-v1", "horizon": 90}, {}),
        pytest.param({"id": "Hopper-v5"}, {}, marks=pytest.mark.long),
        pytest.param({"id": "odd_envs:Keeper"}, {}, marks=pytest.mark.long),
        pytest.param({"id": "Pendulum-v1", "horizon": 90}, MTSAC, marks=pytest.mark.long),
    ],
    ids=["replay", "mujoco", "own", "mtsac"],
)
def test_hand_overs_in_mid_episode_change_no_bit(
    env: dict[str, object], fields: dict[str, object], tmp_path: Path
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(whole, env, num_workers=2, **fields)
    for vector_steps in ("33", "29"):
        train(broken, env, HANDING_OVER, vector_steps, expected=HANDED_OVER, **fields)
    assert "continuing at step 186 of attempt 1" in train(broken, env, **fields)
    expected = bits_of(whole)
    assert bits_of(broken) == expected
    assert gaps(expected["metrics"]) == []
    (evaluation,) = read_evaluations(broken / "run/slots/0")
    assert evaluation["score"] == "return"


@pytest.mark.long
def test_a_job_with_one_core_goes_on_with_the_bits_of_one_with_two(tmp_path: Path) -> None:
    """Where a second core is, MTSAC's updates of such nets are made by two threads."""
    env, whole, broken = {"id": "Pendulum-v1", "horizon": 90}, tmp_path / "whole", tmp_path / "broken"
    network = {"actor_hidden": [256], "critic_hidden": [256, 256]}
    fields = {**MTSAC, "network": network, "batch_size": 256, "total_steps": 210, "num_workers": 1}
    training = resolve(TrainingSection.model_validate({**TRAINING, "env": {"name": "gymnasium", **env}, **fields}))
    assert [threads_for(training, cores) for cores in (1, 2)] == [1, 2]
    everything = os.sched_getaffinity(0)
    if len(everything) < 2:
        is_missing("a second core")
    train(broken, env, HANDING_OVER, "40", expected=HANDED_OVER, **fields)
    try:
        os.sched_setaffinity(0, {min(everything)})
        train(whole, env, **fields)
        train(broken, env, **fields)
    finally:
        os.sched_setaffinity(0, everything)
    assert bits_of(broken) == bits_of(whole)


@pytest.mark.long
def test_one_that_cannot_be_repeated_says_so_at_its_first_checkpoint_and_goes_on(tmp_path: Path) -> None:
    env = {"id": "odd_envs:Clock"}
    said = train(tmp_path, env, HANDING_OVER, "60", expected=HANDED_OVER)
    assert said.count("Clock: it cannot be restored in mid-episode") == 1
    said = train(tmp_path, env)
    assert said.count("restarts an episode") == 3
    assert "complete: 600 steps" in said


@pytest.mark.long
def test_what_is_trained_is_evaluated_watched_plotted_and_played(tmp_path: Path) -> None:
    said = train(tmp_path, {"id": "odd_envs:Teller"})
    assert "evaluated step 600: success 100.0 %" in said
    assert "success 100.0 %" in run(tmp_path, "-m", "trainer", "evaluate", "run", "--goals", "3", "--best")
    said = run(tmp_path, "-m", "trainer", "play", "run", "--episodes", "2")
    assert "episode 1: return" in said
    assert ", solved" in said
    assert (tmp_path / "Teller.mp4").stat().st_size > 1000
    assert "the pictures: curves.png" in run(tmp_path, "-m", "trainer", "plot", "run")
    actors = ("-m", "trainer", "actors", "--shared-dir", "run/shared", "--num-envs", "2", "--steps", "200")
    assert "foreign modules are not imported here" in run(tmp_path, *actors, "--for", "20")


@pytest.mark.long
def test_a_laptop_plays_what_is_registered_by_name(tmp_path: Path) -> None:
    train(tmp_path, {"id": "InvertedPendulum-v5"})
    actors = ("-m", "trainer", "actors", "--shared-dir", "run/shared", "--num-envs", "2", "--steps", "60")
    assert "done: 60 steps" in run(tmp_path, *actors)


@pytest.mark.long
def test_what_an_environment_starts_can_be_ended_in_the_trainer_and_in_an_evaluation(tmp_path: Path) -> None:
    train(tmp_path, {"id": "odd_envs:Parent"}, total_steps=300)
    assert read_evaluations(tmp_path / "run/slots/0")

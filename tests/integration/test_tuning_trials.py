"""Tuning a training by running it: its own nets, loop and environments, for a moment."""

from __future__ import annotations

import pytest

pytest.importorskip("metaworld")

import torch
from anchorleg_toys.drift import Drift
from refused import refused

from trainer.commands.autotune import _show_training, autotune
from trainer.config.section import TrainingSection, resolve
from trainer.errors import ConfigError, OutOfMemoryError
from trainer.machine import device as machine
from trainer.machine import products
from trainer.machine.host import Host
from trainer.tuning import trials
from trainer.tuning.training import Setting, advise

pytestmark = pytest.mark.trainer


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    for name, value in {"WARM_UP_S": 0.05, "MEASURE_S": 0.2, "ALONE_S": 0.1}.items():
        monkeypatch.setattr(trials, name, value)
    yield
    machine.set_deterministic(1)
    products.use(products.PLAIN)


@pytest.mark.long
def test_settings_are_tried_with_the_trainings_own_loop(tmp_path):
    training = resolve(TrainingSection(preset="tiny", device="cpu", num_workers=0))
    said = []
    tried = trials.try_settings(training, 800.0, said.append, tmp_path)  # time enough for all of them
    own = Setting(1, 0, 1)
    assert tried.trials[0].setting == tried.own == own
    assert {trial.setting.num_envs for trial in tried.trials} == {1, 2, 4}
    assert all(trial.steps_per_s > 0 for trial in tried.trials)
    assert len(said) >= len(tried.trials)
    assert said[0].startswith("num_envs 1, num_workers 0, threads 1: ")
    assert tried.collected_per_s > 0
    assert tried.update_s > 0
    assert 100e6 < tried.memory.measured < 8e9  # torch and the simulator at least
    assert tried.memory.replay == 20_000 * tried.memory.row
    assert (tried.products, tried.gpu_bytes) == ("plain", None)
    assert advise(tried.own, tried.trials, tried.memory).setting.threads == 1


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["sac", "ppo"])
def test_of_clips_the_loop_is_tried_and_the_memory_counted_with_each_frame_once(tmp_path, algorithm):
    shown = {"observation": "clips", "frame_stack": 4, "frame_stride": 2, "image_size": 16}
    training = resolve(
        TrainingSection(
            env={"name": "anchorleg_toys.points:Points", **shown},
            algorithm=algorithm,
            network={"actor_hidden": [8], "critic_hidden": [8], "encoder": {"arch": "anchorleg_toys.glance:Glance"}},
            num_envs=2,
            total_steps=5_000,
            device="cpu",
            num_workers=0,
        )
    )
    tried = trials.try_settings(training, 20.0, lambda line: None, tmp_path)
    assert all(trial.steps_per_s > 0 for trial in tried.trials)
    assert tried.update_s > 0
    row = 3 * 16 * 16 + 4 + 4 + 4 + 1 + 1 + 4 + 4  # a frame, the state, the step, what it points to
    if algorithm == "sac":
        assert (tried.memory.row, tried.memory.replay) == (row, 5_000 * row)
    else:
        assert tried.memory.replay == 0


def test_time_is_left_to_try_the_old_settings_once_more(tmp_path, monkeypatch):
    now = 0.0

    def ten_seconds(training, setting, *_, is_first):
        nonlocal now
        now += 10.0
        return 100.0 + now, trials._Alone("native", 0.01, 1.0, 1000.0, 2**30) if is_first else None

    monkeypatch.setattr(trials, "_rate", ten_seconds)
    monkeypatch.setattr(trials.time, "monotonic", lambda: now)
    said = []
    trials.try_settings(resolve(TrainingSection(preset="tiny", num_workers=0)), 45.0, said.append, tmp_path)
    assert [line.partition(":")[0] for line in said] == [
        f"num_envs {envs}, num_workers 0, threads 1" for envs in (1, 2, 4, 1)
    ]


def test_nets_that_the_memory_has_no_room_for_are_refused_before_they_are_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "read_host", lambda: Host("small", 2, 2**30, 2**30))
    wide = resolve(TrainingSection(preset="tiny", device="cpu", num_workers=0, critic_hidden=(8000, 8000)))
    with pytest.raises(ConfigError, match=r"this job or machine has 1\.07 GB: most is for the critics"):
        trials.try_settings(wide, 60.0, print, tmp_path)


def test_a_gpu_that_is_full_is_one_sentence(monkeypatch):
    monkeypatch.setattr(trials, "try_settings", lambda *_: (_ for _ in ()).throw(RuntimeError("CUDA out of memory.")))
    with pytest.raises(OutOfMemoryError, match="CUDA out of memory"):
        autotune(preset="tiny")


def test_without_time_the_settings_as_they_are_are_measured_and_nothing_else(tmp_path):
    tried = trials.try_settings(resolve(TrainingSection(preset="tiny", num_workers=0)), 0.0, print, tmp_path)
    assert len(tried.trials) == 1
    assert torch.get_num_threads() == 1


def test_an_algorithm_that_learns_from_nothing_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(Drift, "must_learn", property(lambda _: False))
    section = TrainingSection(env="anchorleg_toys.points:Points", algorithm="anchorleg_toys.drift:Drift", device="cpu")
    with refused("autotune.too-short"):
        trials.try_settings(resolve(section), 1.0, print, tmp_path)


@pytest.mark.long
def test_an_algorithm_with_rollouts_of_its_own_is_tried(tmp_path):
    section = TrainingSection(env="anchorleg_toys.points:Points", algorithm="anchorleg_toys.drift:Drift", device="cpu")
    tried = trials.try_settings(resolve(section).changed(num_workers=0), 60.0, print, tmp_path)
    assert tried.update_s > 0


@pytest.mark.long
@pytest.mark.parametrize(("preset", "env"), [("arm-ppo", {}), ("cartpole-a2c", {"horizon": 20}), ("arm-sac", {})])
def test_whatever_learns_is_tried_over_whole_rollouts_with_its_own_actions(preset, env, tmp_path, capsys):
    """What PPO and A2C learn from at a time is not changed: it is part of what they learn."""
    small = {"rollout_steps": 16, "batch_size": 32} if preset == "arm-ppo" else {}
    training = resolve(TrainingSection(preset=preset, device="cpu", num_workers=0, env=env, **small))
    tried = trials.try_settings(training, 800.0, lambda _: None, tmp_path)
    if preset != "arm-sac":
        assert {trial.setting.num_envs for trial in tried.trials} == {training.num_envs}
        updates = 4 * 10 if preset == "arm-ppo" else 1
        assert tried.updates_per_step == pytest.approx(updates / training.rollout)
    assert min(tried.update_s, tried.updates_per_step, tried.collected_per_s) > 0
    show = advise(tried.own, tried.trials, tried.memory)
    _show_training(training, tried, show)
    said = capsys.readouterr().out
    assert "learning alone" in said
    assert ("the replay's 100,000 rows" in said) == (preset == "arm-sac")

"""Tuning a training by running it: its own nets, loop and environments, for a moment."""

from __future__ import annotations

import pytest

pytest.importorskip("metaworld")

from anchorleg_toys.drift import Drift
from refused import refused

from trainer.commands.autotune import autotune
from trainer.config.section import TrainingSection, resolve
from trainer.errors import ConfigError, OutOfMemoryError
from trainer.machine import device as machine
from trainer.machine import products
from trainer.machine.host import Host
from trainer.tuning import training as tuning
from trainer.tuning.training import Setting, try_settings

pytestmark = pytest.mark.trainer
POINTS = "anchorleg_toys.points:Points"


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    for name, value in {"WARM_UP_S": 0.05, "MEASURE_S": 0.2}.items():
        monkeypatch.setattr(tuning, name, value)
    yield
    machine.set_deterministic(1)
    products.use(products.PLAIN)


@pytest.mark.long
def test_settings_are_tried_with_the_trainings_own_loop(tmp_path):
    training = resolve(TrainingSection(preset="tiny", device="cpu", num_workers=0))
    said = []
    tried = try_settings(training, 800.0, said.append, tmp_path)  # time enough for all of them
    assert next(iter(tried.rates)) == tried.own == Setting(1, 0)
    assert {setting.num_envs for setting in tried.rates} == {1, 2, 4}
    assert all(rate > 0 for rate in tried.rates.values())
    assert said[0].startswith("num_envs 1, num_workers 0: ")


@pytest.mark.long
@pytest.mark.parametrize(
    "section",
    [
        {"preset": "arm-ppo", "rollout_steps": 16, "batch_size": 32},
        {"preset": "cartpole-a2c", "env": {"horizon": 20}},
        {"env": POINTS, "algorithm": "anchorleg_toys.drift:Drift"},
        {
            "env": {"name": POINTS, "observation": "clips", "frame_stack": 4, "frame_stride": 2, "image_size": 16},
            "algorithm": "sac",
            "network": {"actor_hidden": [8], "critic_hidden": [8], "encoder": {"arch": "anchorleg_toys.glance:Glance"}},
        },
    ],
)
def test_whatever_learns_is_tried_and_what_learns_from_rollouts_keeps_its_environments(section, tmp_path):
    training = resolve(TrainingSection(**section, device="cpu")).changed(num_workers=0)
    tried = try_settings(training, 20.0, lambda _: None, tmp_path)
    assert all(rate > 0 for rate in tried.rates.values())
    if not training.uses_experience:
        assert {setting.num_envs for setting in tried.rates} == {training.num_envs}


def test_what_there_is_no_memory_for_is_one_sentence(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "read_host", lambda: Host("small", 2, 2**30, 2**30))
        wide = resolve(TrainingSection(preset="tiny", device="cpu", num_workers=0, critic_hidden=(8000, 8000)))
        with pytest.raises(ConfigError, match=r"this job or machine has 1\.07 GB: most is for the critics"):
            try_settings(wide, 60.0, print, tmp_path)
    monkeypatch.setattr(tuning, "try_settings", lambda *_: (_ for _ in ()).throw(RuntimeError("CUDA out of memory.")))
    with pytest.raises(OutOfMemoryError, match="CUDA out of memory"):
        autotune(preset="tiny")


def test_an_algorithm_that_learns_from_nothing_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(Drift, "must_learn", property(lambda _: False))
    section = TrainingSection(env=POINTS, algorithm="anchorleg_toys.drift:Drift", device="cpu")
    with refused("autotune.too-short"):
        try_settings(resolve(section), 1.0, print, tmp_path)

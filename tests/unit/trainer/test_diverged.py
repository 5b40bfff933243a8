from __future__ import annotations

import errno
import json
import os

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from point_run import PointRun

from anchorleg.job import Job
from trainer.config.section import TrainingSection, resolve
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.errors import NotFiniteError
from trainer.training import crash_report as diverged
from trainer.training.crash_report import FILE, write_crash_report
from trainer.training.run import fresh

pytestmark = pytest.mark.trainer


def diverges(run, checkpoint_step=None):
    """Train on until it is noticed; the error as the loop raises it."""
    with pytest.raises(NotFiniteError) as caught:
        run.steps(20)
    return write_crash_report(run.job, run.state, caught.value, checkpoint_step)


@pytest.fixture
def poisoned(tmp_path):
    run = PointRun(tmp_path, updates_per_step=1.0).steps(30)
    replay, k = run.state.experience.own, 1
    replay.arrays()["reward"][k * replay.capacity : k * replay.capacity + int(replay.sizes[k])] = np.nan
    return run


def test_the_file_says_what_became_nan_and_where_it_came_from(poisoned):
    before = poisoned.state.updates
    rows = poisoned.state.experience.own.sizes.tolist()
    error = diverges(poisoned, 100)
    path = poisoned.job.attempt_dir / FILE
    assert (error.id, error.fields["why"].id) == ("learning.diverged", "learning.loss-not-finite")
    assert error.fields["told"] == f"{path} tells more"
    assert error.fields["gentler"] == "a smaller learning_rate or grad_clip 1.0"
    told = json.loads(path.read_text())
    assert (told["what"], told["update"], told["checkpoint_step"]) == (
        ["critic_loss", "actor_loss"], before + 1, 100,
    )  # fmt: skip
    assert told["losses"][-1]["update"] == before + 1
    assert told["losses"][-1]["critic_loss"] == "nan"
    assert told["losses"][-2]["critic_loss"] > 0
    assert [task["not_finite_rows"] for task in told["tasks"].values()] == [0, rows[1], 0]
    assert told["tensors"]["critics.0.layers.0.weight"] > 0
    assert told["training"]["algorithm"]["batch_size"] == 16


def test_it_is_noticed_at_the_next_step_and_no_environment_gets_such_an_action(poisoned):
    asked = []
    step = poisoned.state.collector.envs.step
    poisoned.state.collector.envs.step = lambda actions: asked.append(actions) or step(actions)
    diverges(poisoned)
    assert len(asked) == 1
    assert np.isfinite(asked[0]).all()


def test_the_file_is_small_however_large_the_buffer(tmp_path):
    run = PointRun(tmp_path, buffer_size=300_000).steps(30)
    error = NotFiniteError("actor.x is not finite at step 120", what=["actor.x"])
    assert write_crash_report(run.job, run.state, error, None).id == "learning.diverged-unsaved"
    assert (run.job.attempt_dir / FILE).stat().st_size < 32_000


def test_where_the_file_cannot_be_written_the_sentence_says_so(poisoned, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(diverged, "write_json", full)
    error = diverges(poisoned)
    assert error.exit_code == 93
    assert error.fields["told"].endswith("diverged.json could not be written (No space left on device)")


def test_no_setting_is_advised_that_the_algorithm_does_not_have(tmp_path):
    section = TrainingSection(env="anchorleg_toys.points:Points", algorithm="anchorleg_toys.drift:Drift")
    training = resolve(section)
    envs = VectorEnv(VectorSpec(suite_of(training), training.num_envs, training.seed))
    job = Job.standalone(tmp_path)
    error = NotFiniteError("no loss is finite", what=["loss"])
    told = write_crash_report(job, fresh(training, torch.device("cpu"), envs), error, None)
    assert told.fields["gentler"] == "smaller steps"

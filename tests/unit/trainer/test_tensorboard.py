"""What TensorBoard itself reads of a slot that several jobs trained."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from point_mass import PointMasses
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from train_point_mass import judge, section

from anchorleg.job import Job, checkpoints_of
from trainer.history.read import read, read_evaluations
from trainer.training.begin import run

pytestmark = pytest.mark.trainer


class Silent:
    def say(self, sentence):
        pass

    def progress(self, progress):
        pass


def train(run_dir, steps):
    job = Job.standalone(run_dir)
    training = section(total_steps=steps, metrics_interval=40, checkpoint_interval=120, evaluation_interval=120)
    assert run(job, training, Silent(), make_envs=lambda spec, _: PointMasses(spec), evaluator=judge) == 0
    return job


def test_a_slot_is_one_run_in_which_no_step_is_doubled(tmp_path):
    """The first job's last checkpoint is lost, so the second one trains its last steps again."""
    first = train(tmp_path, 360)
    newest = max(checkpoints_of(first.slot_dir, first.attempt), key=lambda ref: ref.step)
    shutil.rmtree(newest.path)
    slot = train(tmp_path, 600).slot_dir
    seen = EventAccumulator(str(slot / "tb")).Reload()
    rows = read(slot)
    assert [row["to"] for row in rows] == [*range(40, 601, 40)]
    for name in ("q", "critic_loss"):
        learned = [(row["to"], row[name]) for row in rows if row["updates"]]
        found = [(event.step, event.value) for event in seen.Scalars(f"train/{name}")]
        assert [step for step, _ in found] == [step for step, _ in learned]
        assert [value for _, value in found] == pytest.approx([value for _, value in learned], rel=1e-6)
    task = next(iter(rows[0]["tasks"]))
    judged = read_evaluations(slot)
    for name, evaluated in (
        ("success", {row["step"]: row["mean_success"] for row in judged}),
        (f"success/{task}", {row["step"]: row["success"][task] for row in judged}),
        (f"return/{task}", {row["step"]: row["returns"][task] for row in judged}),
    ):
        found = seen.Scalars(f"evaluation/{name}")
        assert [event.step for event in found] == list(evaluated)
        assert {event.step: event.value for event in found} == pytest.approx(evaluated)
    assert len(seen.Scalars(f"temperature/{task}")) == len(rows)
    groups = {name.partition("/")[0] for name in seen.Tags()["scalars"]}
    assert {"train", "evaluation", "success", "return", "temperature"} <= groups
    assert [path.name for path in slot.glob("attempts/*/tb")] == []

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from listener import Listener
from point_mass import PointMasses
from refused import refused
from slot_digest import slot_digest
from train_point_mass import TASKS, Judged, judge, section

from anchorleg.job import HANDED_OVER, Job, checkpoints_of
from anchorleg.rollback import Rollback, roll_back
from trainer.algorithms import mtsac
from trainer.checkpoints import checkpoint
from trainer.checkpoints.checkpoint import read_manifest
from trainer.checkpoints.resume import find_policy
from trainer.config.section import TrainingSection, resolve
from trainer.errors import NotFiniteError
from trainer.history.read import read, read_evaluations
from trainer.training import begin
from trainer.training.begin import run
from trainer.training.features import progress as reports
from trainer.training.features.base import Feature

pytestmark = pytest.mark.trainer


class HandsOver(PointMasses):
    """Asks for a hand-over at a vector step."""

    def __init__(self, spec, job, at):
        super().__init__(spec)
        self.job, self.at, self.steps = job, at, 0

    def step(self, actions):
        self.steps += 1
        if self.steps == self.at:
            self.job.deadline = 0
        return super().step(actions)


def train(run_dir, *, at=None, evaluator=judge, poison=None, **fields):
    """One attempt in this process: (exit code, what it said, its job)."""
    job, listener = Job.standalone(run_dir), Listener()

    def make(spec, workers):
        envs = HandsOver(spec, job, at)
        if poison is not None:
            envs.goals = np.full(len(envs.goals), poison)
        return envs

    settings = {"total_steps": 600, **fields}
    return run(job, section(**settings), listener, make_envs=make, evaluator=evaluator), listener, job


def progress(job):
    return json.loads((job.attempt_dir / "progress.json").read_text())


def test_a_hand_over_saves_reports_and_asks_for_another_job(tmp_path):
    code, listener, job = train(tmp_path, at=30)
    assert code == HANDED_OVER
    assert progress(job)["checkpoint_step"] == progress(job)["step"] == 120
    assert listener.said[-1] == "handed over at step 120 (deadline)"


class Beside(PointMasses):
    """Notes in `log` how many `updates` were made by the begin and by the end of each vector step."""

    def __init__(self, spec, updates, log):
        super().__init__(spec)
        self.updates, self.log = updates, log

    def step_async(self, actions, **more):
        super().step_async(actions, **more)
        self.log.append(len(self.updates))

    def step_wait(self):
        self.log.append(len(self.updates))
        return super().step_wait()


def test_the_updates_of_a_vector_step_are_made_while_the_next_one_is_under_way(tmp_path, monkeypatch):
    updates, log, learn = [], [], mtsac.MTSAC.learn
    monkeypatch.setattr(mtsac.MTSAC, "learn", lambda *args: (updates.append(None), learn(*args))[1])
    training = section(total_steps=24, random_steps=8, updates_per_step=0.5, evaluation_goals=0)
    run(Job.standalone(tmp_path), training, Listener(), make_envs=lambda spec, _: Beside(spec, updates, log))
    # Four environments: nothing is earned by the two random vector steps, then two updates by each.
    assert log == [0, 0, 0, 0, 0, 0, 0, 2, 2, 4, 4, 6]


def numeric_of(job):
    (ref, *_) = checkpoints_of(job.slot_dir, job.attempt)
    return json.loads((ref.path / "state.json").read_text())["parts"]["run"]["numeric"]


def test_what_numbers_depend_on_is_recorded_and_a_change_is_told(tmp_path, monkeypatch):
    _, listener, job = train(tmp_path, at=30)
    assert not [line for line in listener.said if "bit equality" in line]
    assert numeric_of(job)["products"] == "plain"
    assert set(numeric_of(job)["stepping"].values()) == {"python"}
    monkeypatch.setattr(begin, "processor", lambda: "another one")
    monkeypatch.setattr(begin.machine, "device_name", lambda device: "another GPU")
    monkeypatch.setattr(begin, "variables", lambda: "OPENBLAS_CORETYPE=X")
    _, listener, job = train(tmp_path, at=1)
    assert [line for line in listener.said if "another one: bits may differ" in line]
    assert "device was cpu, is another GPU: bits may differ from here on" in listener.said
    assert [line for line in listener.said if line.startswith("variables was ") and "is OPENBLAS_CORETYPE=X" in line]


def test_updates_are_made_as_the_checkpoint_says(tmp_path, monkeypatch):
    asked, choose = [], mtsac.choose_native

    def choose_native(training, recorded):
        asked.append(recorded)
        return ("kernels", "no compiler") if recorded is None else choose(training, recorded)

    monkeypatch.setattr(mtsac, "choose_native", choose_native)
    _, listener, job = train(tmp_path, at=30)
    assert "no compiler" in listener.said
    assert numeric_of(job)["updates"] == "kernels"
    _, _, job = train(tmp_path, at=1)
    assert asked == [None, "kernels"]
    assert numeric_of(job)["updates"] == "kernels"
    monkeypatch.setattr(begin.machine, "device_name", lambda _: "another GPU")
    train(tmp_path, at=1)
    assert asked == [None, "kernels", None]  # bits are others there, so that way may be chosen anew


def test_the_best_checkpoint_keeps_its_nets_to_the_end(tmp_path):
    def best_early(request):
        success = 1.0 if int(request.checkpoint.name) == 200 else 0.1
        return Judged(replace(judge(request).result, mean_success=success))

    _, _, job = train(tmp_path, evaluator=best_early, evaluation_interval=100, keep_milestones=0, total_steps=900)
    kinds = {ref.step: read_manifest(ref.path).kind for ref in checkpoints_of(job.slot_dir, 0)}
    assert kinds == {900: "exact", 800: "exact", 700: "exact", 200: "policy"}
    assert find_policy(tmp_path)[0].step == 900
    for folder in (tmp_path, job.slot_dir):
        assert find_policy(folder, best=True)[0].step == 200
    with refused("checkpoint.never-evaluated"):
        find_policy(job.attempt_dir, best=True)


@pytest.mark.long
def test_what_the_slot_goes_back_from_is_not_its_best(tmp_path):
    def best_late(request):
        success = {200: 0.5, 800: 0.9}.get(int(request.checkpoint.name), 0.1)
        return Judged(replace(judge(request).result, mean_success=success))

    _, _, job = train(tmp_path, evaluator=best_late, evaluation_interval=100, total_steps=900)
    assert find_policy(tmp_path, best=True)[0].step == 800
    roll_back(job.slot_dir, Rollback(0, 700, 0.0))
    assert find_policy(tmp_path, best=True)[0].step == 200
    (job.slot_dir / "attempts" / "1").mkdir()  # the next job begins, and has not chosen yet
    assert find_policy(tmp_path, best=True)[0].step == 200


def test_a_long_lesson_at_the_end_is_no_silence(tmp_path, monkeypatch):
    """All steps are made, updates go on: the relay takes who reports nothing for stalled."""
    seen = []
    look = reports.ProgressReports.look

    def watched(self, run):
        seen.append((run.state.step, run.state.updates))
        look(self, run)

    monkeypatch.setattr(reports.ProgressReports, "look", watched)
    ppo = {"name": "ppo", "rollout_steps": 50, "batch_size": 40, "epochs": 3}
    shape = {"tasks": TASKS, "num_envs": 4, "total_steps": 400, "actor_hidden": (16,), "critic_hidden": (16,)}
    training = resolve(TrainingSection(algorithm=ppo, evaluation_goals=0, num_workers=0, **shape))
    job = Job.standalone(tmp_path)
    assert run(job, training, Listener(), make_envs=lambda spec, _: PointMasses(spec), evaluator=judge) == 0
    at_the_end = [updates for step, updates in seen if step == 400]
    assert sorted(set(at_the_end)) == list(range(at_the_end[0], 31))
    assert len(set(at_the_end)) == 15


class Noted(Feature):
    """What the loop asks of it."""

    def __init__(self):
        self.calls, self.rows, self.evaluations = [], [], []

    def begin(self, _):
        self.calls.append("begin")

    def on_row(self, _, row):
        self.rows.append(row["to"])

    def on_evaluation(self, _, row):
        self.evaluations.append(row["step"])

    def tell(self, say):
        if self.calls[-1:] == ["end"]:
            say("the last word")

    def end(self, *_):
        self.calls.append("end")


@pytest.mark.parametrize("poison", [None, np.inf], ids=["complete", "failed"])
def test_a_feature_is_told_each_row_once_and_ended_whatever_happens(tmp_path, monkeypatch, poison):
    noted, said = Noted(), Listener()
    monkeypatch.setattr(begin, "curves_of", lambda *_: [noted])
    monkeypatch.setattr(Listener, "say", lambda _, sentence: said.said.append(sentence))
    with pytest.raises(NotFiniteError) if poison is not None else contextlib.nullcontext():
        train(tmp_path, poison=poison)
    slot = tmp_path / "slots" / "0"
    assert noted.calls == ["begin", "end"]
    assert said.said.count("the last word") == 1
    assert noted.rows == [row["to"] for row in read(slot)]
    assert noted.evaluations == [row["step"] for row in read_evaluations(slot)]
    assert noted.rows


def full_disk(*args, **more):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_an_interval_is_told_and_the_next_interval_saves(tmp_path, monkeypatch):
    reference, _, job = train(tmp_path / "reference")
    real, calls = checkpoint._write, []

    def full_for_a_while(path, data):
        calls.append(path)
        if len(calls) in {6, 7}:  # the first file of the second checkpoint, which is not to be evaluated; twice
            full_disk()
        real(path, data)

    monkeypatch.setattr(checkpoint, "_write", full_for_a_while)
    code, listener, other = train(tmp_path / "full")
    assert code == reference == 0
    assert [line for line in listener.said if "the disk is full" in line]
    assert slot_digest(other.slot_dir) == slot_digest(job.slot_dir)


def test_a_full_disk_at_the_hand_over_is_told_and_is_no_success(tmp_path, monkeypatch):
    train(tmp_path, at=30)
    monkeypatch.setattr(checkpoint, "_write", full_disk)
    with refused("checkpoint.unwritten", step=152) as caught:
        train(tmp_path, at=8)
    assert caught.value.exit_code == 5
    monkeypatch.undo()
    assert train(tmp_path)[0] == 0


def test_an_attempt_that_is_superseded_ends_and_asks_for_no_failure(tmp_path):
    job, listener = Job.standalone(tmp_path), Listener()
    code = run(
        job, section(total_steps=600), listener, make_envs=lambda spec, _: overtaken(spec, tmp_path), evaluator=judge
    )
    assert code == HANDED_OVER
    assert "attempt 1 of this slot has taken over" in listener.said[-1]
    assert checkpoints_of(job.slot_dir, 0) == []


def overtaken(spec, run_dir):
    Job.standalone(run_dir)
    return PointMasses(spec)

"""Evaluations beside the training: whole attempts on point masses, and evaluations that last as long as told."""

from __future__ import annotations

import errno
import json
import os

import pytest

pytest.importorskip("torch")

from point_mass import PointMasses
from slot_digest import slot_digest
from train_point_mass import Judged, judge, section

from anchorleg.job import HANDED_OVER, Job, checkpoints_of
from trainer.checkpoints.checkpoint import read_manifest
from trainer.evaluation.process import EVALUATING, EvaluatorError, read_past
from trainer.history.read import read_evaluations
from trainer.training.begin import run
from trainer.training.features import evaluation as queue
from trainer.training.features.evaluation import MAX_JOBS, MAX_PENDING, NICE

pytestmark = pytest.mark.trainer


class Attempt:
    """One attempt: what it said, and when what began and ended, in training steps.

    An evaluation takes `ticks` of the loop's looks at it, or as many as `takes` says for its step; None: for ever. With
    `stop_at` the attempt is asked to hand over at that training step, with `stop_in` while that step is evaluated.
    `fails` has the steps of evaluations that come to nothing, each as often as it is in it.
    """

    def __init__(self, run_dir, *, ticks=1, takes=None, fails=(), stop_at=None, stop_in=None, **fields):
        self.job = Job.standalone(run_dir)
        self.ticks, self.takes, self.fails = ticks, takes or {}, list(fails)
        self.stop_at, self.stop_in = stop_at, stop_in
        self.said, self.begun, self.ended, self.stopped, self.waits = [], [], [], [], []
        self.step, self.nice, self.averaged = 0, [], []
        training = section(**{"total_steps": 600, **fields})
        self.code = run(self.job, training, self, make_envs=lambda spec, _: Told(spec, self), evaluator=self.begin)

    @property
    def evaluated(self):
        return [row["step"] for row in read_evaluations(self.job.slot_dir)]

    @property
    def last_progress(self):
        return json.loads((self.job.attempt_dir / "progress.json").read_text())

    def say(self, sentence):
        self.said.append(sentence)

    def progress(self, progress):
        pass

    def told(self, *words):
        return [line for line in self.said if all(word in line for word in words)]

    def begin(self, request):
        return Slow(self, request)


class Told(PointMasses):
    """Keeps an `Attempt` informed of the training's step."""

    def __init__(self, spec, attempt):
        super().__init__(spec)
        self.attempt = attempt

    def restore(self, state):
        (ref, *_) = self.attempt.job.candidates()
        self.attempt.step = ref.step
        return super().restore(state)

    def step(self, actions):
        self.attempt.step += self.num_envs
        if self.attempt.step == self.attempt.stop_at:
            self.attempt.job.deadline = 0
        return super().step(actions)


class Slow(Judged):
    def __init__(self, attempt, request):
        self.attempt, self.step = attempt, int(request.checkpoint.name)
        self.left = attempt.takes.get(self.step, attempt.ticks)
        attempt.begun.append((self.step, attempt.step))
        attempt.nice.append(request.nice)
        if request.averaged:
            attempt.averaged.append(self.step)
        if self.step == attempt.stop_in:
            attempt.job.deadline = 0
        super().__init__(judge(request).result)

    def poll(self):
        if self.step in self.attempt.fails:
            self.attempt.fails.remove(self.step)
            raise EvaluatorError("evaluator.ended", how="was killed by SIGKILL")
        if self.left is None:
            return None
        self.left -= 1
        if self.left > 0:
            return None
        self.attempt.ended.append((self.step, self.attempt.step))
        return self.result

    def wait(self, seconds):
        self.attempt.waits.append(self.attempt.step)

    def end(self):
        self.attempt.stopped.append(self.step)


def test_the_training_goes_on_while_an_evaluation_is_made(tmp_path):
    attempt = Attempt(tmp_path, ticks=40)
    assert attempt.code == 0
    (first, began_at), _ = attempt.begun
    (same, ended_at), _ = attempt.ended
    assert first == same == 300
    assert ended_at - began_at >= 4 * 30
    assert attempt.evaluated == [300, 600]
    assert attempt.waits[0] == 600  # the first one was waited for at no other place than the end
    assert attempt.nice == [NICE, 0]  # nothing runs beside the last one


def test_every_second_evaluation_and_the_last_play_the_average_too_in_whatever_jobs(tmp_path):
    fields, played = {"evaluation_interval": 100, "total_steps": 500}, [200, 400, 500]
    whole = Attempt(tmp_path / "whole", **fields)
    assert whole.averaged == played
    parts = [Attempt(tmp_path / "parts", **fields, stop_at=at) for at in (120, 330, None)]
    assert [step for part in parts for step in part.averaged] == played


def test_where_evaluations_are_slower_than_the_training_it_waits_and_none_is_skipped(tmp_path):
    attempt = Attempt(tmp_path, ticks=90, evaluation_interval=100, total_steps=900)
    assert attempt.evaluated == list(range(100, 1000, 100))
    for step, began_at in attempt.begun:
        assert began_at - step <= 100 * MAX_PENDING
    waited_at = {step for step in attempt.waits if step < 900}
    assert waited_at
    assert waited_at <= set(range(300, 900, 100))


def test_a_hand_over_in_the_midst_of_an_evaluation_leaves_it_to_the_next_job_which_makes_it_once(tmp_path):
    first = Attempt(tmp_path, ticks=None, stop_at=400)
    assert (first.code, first.stopped, first.evaluated) == (HANDED_OVER, [300], [])
    second = Attempt(tmp_path)
    assert (second.code, second.evaluated) == (0, [300, 600])
    assert [step for step, _ in second.begun] == [300, 600]
    undisturbed = Attempt(tmp_path.with_name("undisturbed"))
    assert slot_digest(second.job.slot_dir) == slot_digest(undisturbed.job.slot_dir)


def test_an_evaluation_that_fits_into_no_job_is_left_out_and_the_run_ends(tmp_path):
    for _ in range(MAX_JOBS):
        assert Attempt(tmp_path, stop_in=600, takes={600: None}).code == HANDED_OVER
    last = Attempt(tmp_path)
    assert (last.code, last.begun, last.evaluated) == (0, [], [300])
    assert last.told("the evaluation of step 600 is skipped", "jobs began it, and none finished it")
    assert Attempt(tmp_path).told("nothing to do")


def test_what_a_branch_that_no_longer_counts_began_and_gave_up_says_nothing_of_the_one_that_does(tmp_path):
    for attempt, elder in enumerate((None, 0, 0)):
        folder = tmp_path / "attempts" / str(attempt)
        folder.mkdir(parents=True)
        rows = [{"step": 10, "begun": True}, {"step": 30, "begun": True}, {"step": 40, "left_out": "it failed"}]
        (folder / EVALUATING).write_text("".join(f"{json.dumps(row)}\n" for row in rows if attempt < 2))
        (folder / "parent.json").write_text(json.dumps({"attempt": elder, "step": 20, "checkpoint": "20"}))
    past = read_past(tmp_path)
    assert (past.unfinished, past.left_out) == ({10: 2}, frozenset())
    assert past.pending([10, 30, 40]) == (10, 30, 40)


def unreadable(monkeypatch, *errors):
    """Where evaluations look for their checkpoints they meet these."""
    left = list(errors)

    def candidates(*args, real=queue.candidates_before):
        if left:
            raise left.pop(0)
        return real(*args)

    monkeypatch.setattr(queue, "candidates_before", candidates)


STALE = OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_folder_that_stays_unreadable_ends_no_training_and_the_next_job_evaluates(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        unreadable(patch, *[STALE] * 9999)
        first = Attempt(tmp_path)
        assert (first.code, first.evaluated, first.last_progress["step"]) == (HANDED_OVER, [], 600)
        assert len(first.told("the evaluation of step 300 waits (Stale file handle)")) == 1
    assert Attempt(tmp_path).evaluated == [300, 600]


def test_one_that_dies_twice_is_left_out_for_good_and_never_ends_the_training(tmp_path):
    attempt = Attempt(tmp_path, fails=[300, 300], stop_at=400)
    assert attempt.told("step 300 is skipped: it failed 2 times (its process was killed by SIGKILL)")
    second = Attempt(tmp_path)
    assert (second.code, second.evaluated) == (0, [600])
    assert [step for step, _ in second.begun] == [600]


def test_the_checkpoint_of_an_evaluation_that_waits_keeps_its_nets(tmp_path):
    fields = {"evaluation_interval": 200, "keep_checkpoints": 1, "keep_milestones": 0}
    first = Attempt(tmp_path, ticks=None, stop_at=560, **fields)
    kinds = {ref.step: read_manifest(ref.path).kind for ref in checkpoints_of(first.job.slot_dir, 0)}
    assert kinds == {200: "policy", 400: "policy", 560: "exact"}
    assert Attempt(tmp_path, **fields).evaluated == [200, 400, 600]


def test_how_long_evaluations_take_changes_nothing_of_the_run(tmp_path):
    quick, slow = (Attempt(tmp_path / str(ticks), ticks=ticks, evaluation_interval=100) for ticks in (1, 90))
    assert slot_digest(quick.job.slot_dir) == slot_digest(slow.job.slot_dir)
    assert slow.evaluated == [100, 200, 300, 400, 500, 600]

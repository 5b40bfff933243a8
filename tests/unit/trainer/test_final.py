"""`final.safetensors`: every complete training has one, whatever happened on the way, and no other has."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest

pytest.importorskip("torch")

from listener import Listener
from point_mass import PointMasses
from slot_digest import slot_digest
from suites import state_of
from train_point_mass import in_a_process_of_its_own, judge, section

from anchorleg.job import HANDED_OVER, Job
from anchorleg.rollback import Rollback, roll_back, rollbacks
from trainer.evaluation.playable import find_playable
from trainer.exporting import export as exporting
from trainer.exporting.card import NAME, Card
from trainer.training.begin import run
from trainer.training.features import final
from trainer.training.features import progress as reports

pytestmark = pytest.mark.trainer


def train(run_dir, *, deadline=None, **fields):
    """One attempt: (exit code, what it said)."""
    job, listener = Job.standalone(run_dir), Listener()
    job.deadline = deadline
    training = section(**{"total_steps": 300, **fields})
    code = run(job, training, listener, make_envs=lambda spec, _: PointMasses(spec), evaluator=judge)
    return code, listener.said


def finals(run_dir):
    """Attempt → step of each final policy."""
    from safetensors import safe_open

    found = {}
    for path in sorted(run_dir.glob("slots/0/attempts/*/*.safetensors")):
        with safe_open(path, "np") as file:
            found[int(path.parent.name)] = Card.model_validate_json(file.metadata()[NAME]).source.step
    return found


def test_a_complete_training_leaves_the_policy_of_its_last_checkpoint(tmp_path):
    code, said = train(tmp_path)
    assert (code, finals(tmp_path)) == (0, {0: 300})
    path = tmp_path / "slots/0/attempts/0/final.safetensors"
    assert f"the final policy: {path}" in said
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        card = Card.model_validate_json(file.metadata()[NAME])
    assert card.source.score is not None  # it waited for the last evaluation
    policy = find_playable(str(tmp_path), None, "cpu")
    observation, task = np.array(card.golden.observation, np.float32), np.array(card.golden.task, np.int32)
    assert np.array_equal(policy.act(state_of(observation), task), np.array(card.golden.action, np.float32))


def test_a_training_that_was_told_to_go_back_is_not_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "REPORT_S", 0.0)

    class Decider(Listener):
        def progress(self, report):
            if report["checkpoint_step"] >= 200 and not rollbacks(tmp_path / "slots/0"):
                roll_back(tmp_path / "slots/0", Rollback(0, 100, 0.0))

    job, listener = Job.standalone(tmp_path), Decider()
    training = section(total_steps=300)
    code = run(job, training, listener, make_envs=lambda spec, _: PointMasses(spec), evaluator=judge)
    assert (code, finals(tmp_path)) == (HANDED_OVER, {})
    assert "not complete: the next job goes back to an older checkpoint, as requested" in listener.said
    code, said = train(tmp_path)
    assert (code, finals(tmp_path)) == (0, {1: 300})
    assert any("step 100" in words for words in said)


@pytest.mark.parametrize("moment", ["before", "beside", "after"])
def test_kill_9_around_the_export_loses_neither_it_nor_a_bit(tmp_path, monkeypatch, moment):
    assert in_a_process_of_its_own(lambda: train(tmp_path / "undisturbed")[0]) == 0
    write = exporting.write_bytes

    def killed(path, data, *, check):
        if moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, data, check=check if moment == "after" else lambda _: os.kill(os.getpid(), signal.SIGKILL))
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "write_bytes", killed)
        patch.setattr(reports, "REPORT_S", float("inf"))  # what a report says depends on when it is due
        code = in_a_process_of_its_own(lambda: train(tmp_path / "killed")[0])
    assert code == -signal.SIGKILL
    progress = json.loads((tmp_path / "killed/slots/0/attempts/0/progress.json").read_text())
    assert progress["checkpoint_step"] < 300  # so that the orchestrator gives it another job
    assert finals(tmp_path / "killed") == ({0: 300} if moment == "after" else {})
    assert train(tmp_path / "killed")[0] == 0
    assert finals(tmp_path / "killed") == {1: 300}
    assert slot_digest(tmp_path / "killed/slots/0") == slot_digest(tmp_path / "undisturbed/slots/0")


def test_an_attempt_that_was_taken_over_from_writes_and_removes_nothing(tmp_path):
    train(tmp_path)
    ghost = Job(tmp_path, 0, 0)
    newer = Job.standalone(tmp_path)
    (newer.attempt_dir / final.FINAL).write_bytes(b"newer")
    (ghost.attempt_dir / final.FINAL).unlink()
    final.leave_final(ghost, pytest.fail)
    assert not (ghost.attempt_dir / final.FINAL).exists()
    assert (newer.attempt_dir / final.FINAL).read_bytes() == b"newer"

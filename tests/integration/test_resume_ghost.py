"""A ghost: an attempt on a node that was given up goes on writing, publishing and deleting while its successor runs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from point_run import PointRun
from slot_digest import digest_of, gaps, parts_of

from trainer.history.read import Journal, read
from trainer.training.run import row

pytestmark = pytest.mark.trainer


def content(run):
    """All that an attempt started from."""
    assert run.start is not None
    return (
        run.start.ref,
        parts_of(run.start.contents),
        digest_of(run.start.experience.own.arrays()),
        run.start.notes,
    )


def journal_of(run):
    return Journal(run.job.attempt_dir / "metrics.jsonl")


def train(run, checkpoints):
    for _ in range(checkpoints):
        run.steps()
        journal_of(run).add(row(run.state))
        run.publish()


def test_nothing_changes_for_the_successors_successor_whatever_a_ghost_does(tmp_path):
    ghost = PointRun(tmp_path)
    train(ghost, 4)
    successor = PointRun(tmp_path)
    wanted = content(successor)
    successor.steps()
    journal_of(successor).add(row(successor.state))  # and it dies here, before its first checkpoint

    ghost.job.superseded_by = lambda: None  # it looked just before the claim, or sees an old copy of the folder
    train(ghost, 2)
    ghost.job.report(step=600, total=1200, checkpoint_step=600)

    third = PointRun(tmp_path)
    assert content(third) == wanted
    assert third.start.ref.step == 400
    train(third, 1)
    assert gaps(read(third.job.slot_dir)) == []
    assert [line["to"] for line in read(third.job.slot_dir)] == [100, 200, 300, 400, 500]

    train(ghost, 1)
    fourth = PointRun(tmp_path)
    assert (fourth.start.ref.attempt, fourth.start.ref.step) == (third.job.attempt, 500)
    assert digest_of(fourth.start.experience.own.arrays()) == digest_of(third.state.experience.own.arrays())

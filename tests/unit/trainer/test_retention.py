from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from point_run import PointRun

from anchorleg.job import CheckpointRef, Job
from anchorleg.rollback import Rollback, roll_back
from trainer.checkpoints import retention, saver
from trainer.checkpoints.checkpoint import AVERAGED_NETS, NETS, CheckpointManifest, read_manifest
from trainer.checkpoints.retention import Kept, decide, thin, tidy
from trainer.errors import DamagedCheckpointError, SupersededError

pytestmark = pytest.mark.trainer


def a_checkpoint(step, kind="exact", *, in_line=True, damaged=False, is_passed_over=False):
    manifest = CheckpointManifest(
        format=2, kind=kind, step=step, identity="", training={}, versions={}, files={}, segments=()
    ).sealed()
    return Kept(CheckpointRef(0, step, Path(f"/{step}")), None if damaged else manifest, in_line, is_passed_over)


def unreadable(monkeypatch, step, number):
    """Retention cannot read the manifest of `step` from now on; what reads it."""
    read = retention.read_manifest

    def reading(folder):
        if int(folder.name) == step:
            raise DamagedCheckpointError(f"manifest.json: {os.strerror(number)}") from OSError(number, "")
        return read(folder)

    monkeypatch.setattr(retention, "read_manifest", reading)
    return read


def steps(kept):
    return [k.ref.step for k in kept]


def test_the_newest_stay_whole_older_ones_keep_their_nets_the_needed_ones_always_do():
    found = [a_checkpoint(step, "policy" if step < 6 else "exact") for step in range(1, 10)]
    decision = decide(found, keep_exact=3, keep_milestones=2, needed={4})
    assert steps(decision.exact) == [9, 8, 7]
    assert steps(decision.policies) == [6, 4, 1]
    assert steps(decision.deleted) == [2, 3, 5]


def test_what_is_passed_over_stays_beside_the_line():
    passed = {"in_line": False, "is_passed_over": True}
    found = [*map(a_checkpoint, (1, 2, 3)), a_checkpoint(4, "policy", **passed)]
    found += [a_checkpoint(step, **passed) for step in (5, 6, 7)]
    decision = decide(found, keep_exact=2, keep_milestones=0, needed=set())
    assert steps(decision.exact) == [3, 2, 7, 6]
    assert steps(decision.policies) == [4]
    assert steps(decision.deleted) == [1, 5]
    assert steps(decide(found, keep_exact=2, keep_milestones=0, needed={5, 7}).policies) == [5, 4]


def test_going_back_deletes_nothing_until_the_next_job_saves(tmp_path):
    run = PointRun(tmp_path)
    folders = run.checkpoints(3)
    roll_back(run.job.slot_dir, Rollback(0, 100, 0.0))
    folders += run.checkpoints(2)
    assert [folder.exists() for folder in folders] == [True, False, True, True, True]  # as many as there would be
    assert read_manifest(folders[0]).kind == "exact"
    assert [ref.step for ref in run.job.candidates()] == []
    successor = PointRun(tmp_path)
    assert successor.start.ref.step == 100
    successor.steps().publish()
    assert [folder.exists() for folder in folders] == [True, False, False, False, False]


def test_the_parent_of_a_job_that_began_unseen_by_who_went_back_stays_until_the_job_after_it(tmp_path):
    folders = PointRun(tmp_path).checkpoints(3)
    unseen = PointRun(tmp_path)
    roll_back(unseen.job.slot_dir, Rollback(0, 100, 0.0))
    folders += unseen.checkpoints(1)
    assert [folder.exists() for folder in folders] == [True] * 4
    assert PointRun(tmp_path).start.ref.step == 100


def test_damaged_ones_stay_until_there_are_enough_good_ones():
    found = [a_checkpoint(1), a_checkpoint(2), a_checkpoint(3, damaged=True)]
    assert steps(decide(found, keep_exact=3, keep_milestones=2, needed=set()).deleted) == []
    assert steps(decide([*found, a_checkpoint(4)], keep_exact=3, keep_milestones=2, needed=set()).deleted) == [3]


def test_a_checkpoint_that_cannot_be_read_for_a_moment_stays_with_its_rows(tmp_path, monkeypatch):
    run = PointRun(tmp_path)
    run.checkpoints(3)
    said = []
    read = unreadable(monkeypatch, 400, errno.ESTALE)
    run.steps()
    run.saver.start(*run.captured())
    run.saver.finish(said.append)
    assert len(said) == 1
    assert "cannot be read now, and stays: manifest.json: Stale file handle" in said[0]
    monkeypatch.setattr(retention, "read_manifest", read)
    run.checkpoints(3)
    assert PointRun(tmp_path).start.ref.step == 700


@given(st.sets(st.integers(0, 10_000), max_size=40), st.integers(0, 10))
def test_thinning_keeps_at_most_so_many_of_them_and_both_ends(found, keep):
    left = thin(sorted(found), keep)
    assert len(left) == min(len(found), keep)
    assert set(left) <= found
    assert left == sorted(left)
    if keep >= 2 and found:
        assert {left[0], left[-1]} == {min(found), max(found)}


def test_a_slot_is_tidied_to_three_whole_checkpoints_and_their_rows(tmp_path):
    run = PointRun(tmp_path, keep_milestones=2)
    run.checkpoints(7)
    folders = sorted((run.job.attempt_dir / "checkpoints").iterdir())
    kinds = [read_manifest(folder).kind for folder in folders]
    assert [int(folder.name) for folder in folders] == [100, 400, 500, 600, 700]
    assert kinds == ["policy", "policy", "exact", "exact", "exact"]
    assert sorted(os.listdir(folders[0])) == [AVERAGED_NETS, "manifest.json", NETS]
    listed = {s.path for folder in folders for s in read_manifest(folder).segments}
    rows = {f"attempts/0/rows/{name}" for name in os.listdir(run.job.attempt_dir / "rows")}
    assert rows == listed


def test_an_attempt_that_is_superseded_publishes_and_deletes_nothing(tmp_path):
    run = PointRun(tmp_path)
    run.checkpoints(3)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    Job.standalone(tmp_path)
    run.steps()
    with pytest.raises(SupersededError):
        run.publish()
    assert tidy(run.job, keep_exact=1, keep_milestones=0, needed=set()) == []
    after = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert [path for path in after if path not in before] == [tmp_path / "slots/0/attempts/1/claim"]
    assert [path for path in before if path not in after] == []


def test_a_claim_in_the_middle_of_a_publication_stops_it_before_the_rename(tmp_path, monkeypatch):
    run = PointRun(tmp_path)
    run.checkpoints(1)

    def write_and_be_overtaken(*args, real=saver.write_rows_file):
        Job.standalone(tmp_path)
        return real(*args)

    monkeypatch.setattr(saver, "write_rows_file", write_and_be_overtaken)
    run.steps()
    with pytest.raises(SupersededError):
        run.publish()
    assert os.listdir(run.job.attempt_dir / "checkpoints") == [f"{100:012d}"]


def full_while(monkeypatch, is_full):
    """No checkpoint can be written as long as `is_full()`; how often one was tried."""
    real, tries = saver.publish, []

    def publish(*args, **more):
        tries.append(is_full())
        if tries[-1]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **more)

    monkeypatch.setattr(saver, "publish", publish)
    return tries


def test_what_a_killed_job_left_makes_room_for_the_checkpoint_that_finds_the_disk_full(tmp_path, monkeypatch):
    run = PointRun(tmp_path)
    run.checkpoints(1)
    unfinished = run.job.attempt_dir / "checkpoints" / ".000000000200.4711.tmp"
    unfinished.mkdir()
    (unfinished / "learner.safetensors").write_text("half of it")
    rows = run.job.attempt_dir / "rows" / "000000000200.safetensors"
    rows.write_text("of no checkpoint")
    successor = PointRun(tmp_path)
    tries = full_while(monkeypatch, lambda: unfinished.exists() or rows.exists())
    assert successor.steps().publish().exists()
    assert tries == [True, False]
    assert PointRun(tmp_path).start.ref.step == 200

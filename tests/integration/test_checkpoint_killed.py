"""kill -9 at every write of a publication: there is always a good checkpoint, the one before or the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from guillotine import ORDERLY, in_a_fork, killed_at_every_write
from point_mass import PointMasses
from slot_digest import digest_of, parts_of
from suites import points
from train_point_mass import attempt, in_a_process_of_its_own, section

from anchorleg.job import Job
from trainer.checkpoints.resume import find_start
from trainer.checkpoints.saver import Saver
from trainer.machine.device import set_deterministic
from trainer.training.run import advance, capture, resumed

pytestmark = pytest.mark.trainer
FIELDS: dict[str, Any] = {"total_steps": 400, "evaluation_interval": 0, "keep_milestones": 1, "evaluation_goals": 0}


def prepare(folder: Path) -> None:
    """A slot is trained to its fourth checkpoint, so that the fifth publication also clears away an old one."""
    for steps in (200, 400):
        fields = {**FIELDS, "total_steps": steps}
        assert in_a_process_of_its_own(lambda fields=fields: attempt(folder, {}, fields)) == 0  # type: ignore[misc]


def program(run_dir: Path, fall: Callable[[], None] = lambda: None) -> None:
    """The next attempt: 100 steps more, and one publication."""
    set_deterministic(1)  # as a job does; else each fork would import torch's compiler
    training = section(**FIELDS)
    job = Job.standalone(run_dir)
    start = find_start(job, training)
    assert start is not None
    job.start_from(start.ref)
    envs = PointMasses(points(training))
    state = resumed(training, torch.device("cpu"), envs, start.contents, start.experience)
    for _ in range(25):
        advance(state)
    contents = capture(state, {})
    saver = Saver.after(job, training, start)
    rows = saver.unsaved(state.experience)
    fall()
    saver._save(contents, rows, frozenset)  # in this very thread, so that the count is the same every time


def seen(run_dir: Path) -> dict[str, Any]:
    """What an attempt would start from."""
    start = find_start(Job.standalone(run_dir), section(**FIELDS))
    assert start is not None
    return {
        "step": start.ref.step,
        "parts": parts_of(start.contents),
        "replay": digest_of(start.experience.own.arrays()),
        "notes": list(start.notes),
    }


def look(run_dir: Path) -> dict[str, Any]:
    """What the loader finds, before and after a successor has published."""
    slot = run_dir / "slots/0"
    return {
        "after": seen(run_dir),
        "successor": in_a_fork(lambda: program(run_dir)),
        "finally": seen(run_dir),
        "unfinished": [str(path) for path in slot.rglob(".*")],
        "whole": sum(1 for path in slot.glob("attempts/*/checkpoints/*/state.json")),
        "nets": sum(1 for path in slot.glob("attempts/*/checkpoints/*/nets.safetensors")),
    }


def test_after_a_kill_at_any_write_there_is_a_good_checkpoint_and_the_successor_tidies_up(tmp_path):
    """One test, so that the deaths are died once, not once a pytest worker."""
    records = killed_at_every_write(__file__, tmp_path)
    assert len(records) > 30  # rows, five files, the rename, and the clearing away
    before, new = records[0]["after"], records[-1]["after"]  # the first one died before it touched anything
    assert (before["step"], new["step"]) == (400, 500)
    is_new = [record["after"] == new for record in records]
    assert all(there or record["after"] == before for there, record in zip(is_new, records, strict=True))
    assert is_new == sorted(is_new)
    assert sum(is_new) > 5  # the clearing away comes after the rename
    for record in records:
        assert record["successor"] == ORDERLY
        assert record["finally"]["step"] == record["after"]["step"] + 100
        assert record["finally"]["notes"] == []
        assert record["unfinished"] == []
        assert (record["whole"], record["nets"]) == (3, 4)

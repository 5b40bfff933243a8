"""What a program said in progress.json: the newest that can be used, and a sentence for what cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.decisions.models import Attempt
from orchestrator.run.rundir import RunDir
from orchestrator.screens.reported import UNUSABLE, newest_progress, unusable_progress


def write(run_dir: RunDir, attempt: int, text: str) -> None:
    folder = run_dir.attempt(0, attempt)
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"step": 5, "total": 40, "score": 1.0}',
        '{"step": 5, "total": 40.5, "checkpoint_step": 0}',
        '{"step": 5, "total": 40, "checkpoint',
        "[]",
        "",
    ],
)
def test_what_cannot_be_used_is_said_and_an_older_one_is_shown(tmp_path: Path, text: str) -> None:
    run_dir = RunDir(tmp_path)
    write(run_dir, 0, json.dumps({"step": 3, "total": 40, "checkpoint_step": 3}))
    write(run_dir, 1, text)

    assert unusable_progress(run_dir, 0, Attempt(number=1)) == UNUSABLE
    found = newest_progress(run_dir, 0, Attempt(number=1))
    assert (found["step"], found["attempt"]) == (3, 0)


def test_nothing_is_said_of_a_good_one_or_of_none(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    write(run_dir, 1, json.dumps({"step": 3, "total": 40, "checkpoint_step": 3, "score": 0.5}))

    assert unusable_progress(run_dir, 0, None) == ""
    assert unusable_progress(run_dir, 0, Attempt(number=0)) == ""
    assert unusable_progress(run_dir, 0, Attempt(number=1)) == ""
    assert newest_progress(run_dir, 0, Attempt(number=1))["score"] == 0.5
    assert newest_progress(run_dir, 0, Attempt(number=0)) == {}

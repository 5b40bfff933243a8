"""What was saved and is gone must not be trained again in silence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from refused import refused

from anchorleg.job import Job
from trainer.checkpoints.resume import find_start
from trainer.config.section import TrainingSection, resolve

TRAINING = resolve(TrainingSection(preset="debug"))


def an_attempt(run_dir: Path, number: int, *, saved: int, from_scratch: bool) -> None:
    folder = run_dir / "slots/0/attempts" / str(number)
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text(json.dumps({"step": saved, "total": 9, "checkpoint_step": saved}))
    if from_scratch:
        (folder / "parent.json").write_text(json.dumps({"attempt": None, "step": 0, "checkpoint": None}))


def test_a_checkpoint_that_was_removed_is_asked_for(tmp_path: Path) -> None:
    an_attempt(tmp_path, 0, saved=500, from_scratch=True)
    with refused("checkpoint.lost", step=500):
        find_start(Job(tmp_path, 0, 1), TRAINING)


@pytest.mark.parametrize("text", ['{"attempt": ', "{}", "null", '{"attempt": 1, "step": 0, "checkpoint": "0"}'])
def test_a_damaged_word_on_where_an_attempt_began_is_named_and_nothing_is_guessed(tmp_path: Path, text: str) -> None:
    for number in range(3):
        an_attempt(tmp_path, number, saved=0, from_scratch=True)
    path = tmp_path / "slots/0/attempts/1/parent.json"
    path.write_text(text)
    with refused("checkpoint.parents-unreadable", why=re.compile(re.escape(str(path)))):
        find_start(Job(tmp_path, 0, 3), TRAINING)


def test_a_line_that_never_saved_starts_from_scratch(tmp_path: Path) -> None:
    an_attempt(tmp_path, 0, saved=0, from_scratch=True)
    assert find_start(Job(tmp_path, 0, 1), TRAINING) is None


def test_what_a_ghost_saved_after_the_line_began_anew_is_not_missed(tmp_path: Path) -> None:
    an_attempt(tmp_path, 0, saved=500, from_scratch=True)
    an_attempt(tmp_path, 1, saved=0, from_scratch=True)
    assert find_start(Job(tmp_path, 0, 2), TRAINING) is None

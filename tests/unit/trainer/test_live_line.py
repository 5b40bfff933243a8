from __future__ import annotations

import re

from trainer.training.features.progress import TrainingDisplay, TrainingProgress


def test_a_narrow_terminal_shows_all_of_where_the_training_stands(monkeypatch, capsys):
    for name, value in {"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    doing = "evaluating step 1,200,000"
    progress = TrainingProgress(1_234_567, 2_000_000, 1_200_000, 188.0, 11.7, 97.0, 0.5, doing=doing)
    with TrainingDisplay(live=True) as display:
        display.progress(progress)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
    assert all(len(line) <= 80 for line in shown.replace("\r", "\n").splitlines())
    assert " ".join(shown.split()).count("1,234,567/2,000,000") >= 1
    assert shown.split()[-len(progress.words().split()) :] == progress.words().split()

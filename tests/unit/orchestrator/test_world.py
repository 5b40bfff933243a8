"""What the controller makes of what happens to a run, step by step: a table."""

from __future__ import annotations

from pathlib import Path

import pytest
from slot_text import rows_of
from world_text import play

ROWS = rows_of("world.txt")


@pytest.mark.parametrize(("config", "steps"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_run_step_by_step(tmp_path: Path, config: str, steps: str) -> None:
    play(tmp_path, config, steps)

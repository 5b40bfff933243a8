"""kill -9 at every write of a recording: who goes on comes to the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S

pytest.importorskip("torch")
pytest.importorskip("imageio_ffmpeg")

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
SUPPORT = REPOSITORY / "tests" / "support"
ORDERLY, KILLED = 7, -9


@pytest.mark.long
def test_a_kill_at_any_write_leaves_what_the_next_one_goes_on_from_to_the_bit(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "kill_demos.py"), str(tmp_path)],
        env={"PYTHONPATH": f"{REPOSITORY}:{SUPPORT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=WORK_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    deaths = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(deaths) > 20
    assert {death["died"] for death in deaths[:-1]} == {KILLED}
    assert deaths[-1]["died"] == ORDERLY
    assert {death["then"] for death in deaths} == {ORDERLY}
    assert {death["left"] for death in deaths} == {deaths[-1]["left"]}  # the last one was not interrupted

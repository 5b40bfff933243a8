"""kill -9 at every write of a round of the judge: what a contributor gave is counted once, or by chance not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S

pytest.importorskip("metaworld")

pytestmark = [pytest.mark.trainer, pytest.mark.long]
REPOSITORY = Path(__file__).parents[2]
PROGRAM = REPOSITORY / "tests" / "support" / "kill_counts.py"
HORIZON = 10


def test_after_a_kill_at_any_write_nothing_is_counted_twice(tmp_path):
    environment = {"PYTHONPATH": f"{REPOSITORY}:{PROGRAM.parent}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        capture_output=True, text=True, timeout=WORK_S, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(records) > 30
    assert {record["died"] for record in records[:-1]} == {-9}
    for record in records:
        assert record["accepted"] * HORIZON == record["rows"] == record["of_today"]
        assert record["there"] == 3  # every segment is accepted in the end, whoever counted it
        assert 0 <= record["there"] - record["accepted"] <= 3
    assert records[-1]["accepted"] == 3

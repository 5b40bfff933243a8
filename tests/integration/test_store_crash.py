"""kill -9 at every write of a policy's publication: readers see the old one or the new one, whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from daemons import WORK_S

REPOSITORY = Path(__file__).parents[2]
PROGRAM = REPOSITORY / "tests" / "support" / "kill_store.py"
ORDERLY = 7


def deaths(folder):
    environment = {"PYTHONPATH": f"{REPOSITORY}:{PROGRAM.parent}", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, str(PROGRAM), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WORK_S, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_after_a_kill_at_any_write_a_policy_is_whole_and_nothing_is_left_behind(tmp_path):
    records = deaths(tmp_path)
    assert len(records) > 15  # blob, manifest, hint: write, fsync, rename, fsync each; then the clearing away
    assert {record["died"] for record in records[:-1]} == {-9}
    assert records[-1]["died"] == ORDERLY
    seen = [record["after"] for record in records]
    assert set(seen) == {"0-1", "0-2"}
    assert seen == sorted(seen)  # once it is there it stays there
    for record in records:
        assert (record["finally"], record["kept"], record["troubles"]) == ("1-0", "1-0", [])
        assert [name.split("/")[0] for name in record["files"]] == ["LATEST.json", *["blobs"] * 2, *["manifests"] * 2]
        assert record["files"] == records[-1]["files"]

"""A training that diverges, through the command line, on Meta-World itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from anchorleg.job import Job, checkpoints_of
from syncd import store
from trainer.checkpoints.resume import find_start
from trainer.config.read import read_section
from trainer.history.read import read

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
#: A step so long that the nets overflow with the first update.
SETTINGS = {
    "learning_rate": "1e30",
    "random_steps": 200,
    "total_steps": 1000,
    "checkpoint_interval": 100,
    "metrics_interval": 50,
    "publish_interval": 1,
    "actor_hidden": "[16]",
    "critic_hidden": "[16]",
    "evaluation_goals": 0,
}


@pytest.mark.long
def test_it_ends_with_93_and_nothing_of_it_is_published(tmp_path):
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    command = [sys.executable, "-m", "trainer", "train", "--preset", "tiny", "--run-dir", "run"]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WORK_S, check=False
    )
    assert done.returncode == 93, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("trainer: a loss is not finite at update ")
    assert "(step 200)" in last
    assert last.endswith("[learning.diverged]")
    update = int(re.search(r"at update (\d+)", last)[1])
    assert read(tmp_path / "run/slots/0")[-1]["to"] == 200
    job = Job(tmp_path / "run", 0, 0)
    assert [ref.step for ref in checkpoints_of(job.slot_dir, 0)] == [200, 100]
    assert store.newest(store.Shared(job.shared_dir).slot(job.run_id, 0)).updates < update
    start = find_start(Job(tmp_path / "run", 0, 1), read_section(None, "tiny", settings).training)
    assert start is not None
    assert (start.ref.step, start.notes) == (200, ())

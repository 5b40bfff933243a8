"""A trainer that dies while it publishes: readers never see a torn policy, and its successors' versions go up."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from daemons import PATIENCE_S, WORK_S

pytest.importorskip("torch")

from anchorleg.places import begin_id, run_id_of
from syncd import store
from trainer.sharing import policies as policy

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
SUPPORT = REPOSITORY / "tests" / "support"


class Reader(threading.Thread):
    """Takes the newest policy again and again, as a laptop does, and checks all that can be checked."""

    def __init__(self, run_dir):
        super().__init__()
        begin_id(run_dir)
        self.place = store.Shared(run_dir / "shared").slot(run_id_of(run_dir), 0)
        self.seen, self.trouble = [], None
        self.stop = threading.Event()

    def run(self):
        try:
            while not self.stop.is_set():
                manifest = store.newest(self.place)
                if manifest is not None and (not self.seen or manifest.version != self.seen[-1].version):
                    policy.load(self.place, manifest)
                    self.seen.append(manifest)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            self.trouble = error


@pytest.mark.long
def test_kills_in_the_middle_of_publications_tear_nothing_and_turn_nothing_back(tmp_path):
    moments = random.Random(0)
    plans = [{moments.randrange(26, 48): "SIGKILL"} for _ in range(4)]
    reader = Reader(tmp_path)
    reader.start()
    fields = {"publish_interval": 1, "updates_per_step": 1.0, "total_steps": 800, "evaluation_goals": 0}
    command = [sys.executable, str(SUPPORT / "train_point_mass.py"), str(tmp_path)]
    command += [json.dumps([*plans, {}]), json.dumps(fields)]
    environment = {"PYTHONPATH": f"{REPOSITORY}:{SUPPORT}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WORK_S, env=environment, check=False)
    finally:
        reader.stop.set()
        reader.join(PATIENCE_S)

    assert json.loads(done.stdout.splitlines()[-1]) == [-9, -9, -9, -9, 0], done.stdout + done.stderr
    assert reader.trouble is None
    versions = [manifest.version for manifest in reader.seen]
    assert versions == sorted(set(versions))
    assert len({version.attempt for version in versions}) > 1  # it read while they were published
    last = store.newest(reader.place)
    assert (last.attempt, last.step, last.lineage.checkpoint) == (4, 800, store.Origin(attempt=4, step=800))
    assert "can be published" not in done.stdout

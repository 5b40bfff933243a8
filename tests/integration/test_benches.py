"""Every script of bench/ still runs, at its smallest: its figures are worth nothing, and go to a copy of the folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S

ROOT = Path(__file__).resolve().parents[2]
#: Script → its words. One that has none takes no longer without.
SMALLEST = {
    "controller_cpu": "2",
    "diagnosing": "1",
    "encoders": "1",
    "faults": "preemption",
    "first_hour": "--small",
    "frames": "1",
    "goodput": "1",
    "gpu": "--small --minutes 0.1 rates",
    "groups": "3000",
    "handover": "1",
    "hour": "--seeds 0",
    "learning": "--seeds 1 --steps 512 --processes 1 --trainings three-tasks sb3-three-tasks cartpole-ppo sb3-arm-ppo",
    "many_contributors": "30 20",
    "mutants": "--only files-write-no-fsync",
    "rendering": "--rounds 1",
    "report": "",
    "saving": "1",
    "sharing": "1",
    "simulator": "1 --days 1",
    "slurm_handover": "2",
    "spotchecks": "1",
    "status_cpu": "1",
    "stepping": "--rounds 1 --least",
    "tick": "125",
    "training": "--rounds 1 --only arm",
    "update": "--rounds 1 --shape 256x2,",
    "viewer": "0.05",
    "wandb_live": "1",
    "weight_class": "1 1 1",
    "weight_latency": "1",
}
#: Those that have no size of a few minutes, and why.
TOO_LARGE = {
    "figures": "no benchmark: the others import it",
    "learners": "no benchmark: others import it",
}


def test_every_script_is_run_or_it_is_said_why_not():
    scripts = {path.stem for path in (ROOT / "bench").glob("*.py")}
    assert scripts == {*SMALLEST, *TOO_LARGE}
    assert not set(SMALLEST) & set(TOO_LARGE)


@pytest.mark.long
@pytest.mark.trainer
@pytest.mark.parametrize("script", SMALLEST)
def test_a_benchmark_runs_at_its_smallest(script, tmp_path):
    for path in ROOT.iterdir():
        if path.name != "bench":
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(ROOT / "bench", tmp_path / "bench", ignore=shutil.ignore_patterns("out"))
    done = subprocess.run(
        [sys.executable, f"bench/{script}.py", *SMALLEST[script].split()],
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout

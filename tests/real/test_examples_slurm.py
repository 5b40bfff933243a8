"""The ready configs of `examples/`, and what `init` writes, before a real Slurm: it would take each of their jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from slurm_cluster import SlurmCluster

from orchestrator.run.starting import python_facts

pytestmark = pytest.mark.slurm

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.json"))


def orchestrator(slurm: SlurmCluster, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=folder, env={**slurm.env(), "XDG_STATE_HOME": str(folder / "state")}, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("example", [path for path in EXAMPLES if path.name != "demo.json"], ids=lambda path: path.stem)
def test_slurm_would_take_the_jobs_of_a_ready_config(slurm: SlurmCluster, tmp_path: Path, example: Path) -> None:
    shutil.copy(example, tmp_path / "cluster_config.json")
    script = tmp_path / "job.sh"
    script.write_text(orchestrator(slurm, tmp_path, "render").stdout)

    judged = slurm.run("sbatch", "--test-only", f"--chdir={tmp_path}", str(script))

    assert judged.returncode == 0, judged.stderr
    assert "in partition gpu" in judged.stderr  # the cluster's default: the config names none
    assert "using 8 processors" in judged.stderr
    rehearsed = orchestrator(slurm, tmp_path, "start", "--dry-run", "--set", "slurm.gpus=0")  # our torch may have none
    assert rehearsed.returncode == 0, rehearsed.stderr
    assert "would submit a job for slot 0 (attempt 0)" in rehearsed.stdout
    assert not (tmp_path / "runs").exists()
    assert slurm.squeue() == []


@pytest.mark.long
def test_init_writes_a_config_of_what_sinfo_says_and_slurm_would_take_its_jobs(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    written = orchestrator(slurm, tmp_path, "init")

    assert written.returncode == 0, written.stderr
    config = json.loads((tmp_path / "cluster_config.json").read_text())
    assert (config["slurm"]["partition"], config["slurm"]["time_limit"]) == ("gpu", "4:00:00")
    gpus = 0 if python_facts(sys.executable, os.environ).torch == "CPU" else 1
    assert (config["slurm"]["gpus"], config["slots"], config["slurm"]["max_jobs"]) == (gpus, 4, 4)
    if gpus == 0:  # as with a config from elsewhere
        vain = orchestrator(slurm, tmp_path, "start", "--set", "slurm.gpus=1")
        assert (vain.returncode, "[python.no-cuda]" in vain.stderr) == (2, True), vain.stderr
        assert "has no CUDA" in orchestrator(slurm, tmp_path, "doctor", "--set", "slurm.gpus=1").stdout
        assert not (tmp_path / "runs").exists()
    (tmp_path / "job.sh").write_text(orchestrator(slurm, tmp_path, "render").stdout)
    assert slurm.run("sbatch", "--test-only", f"--chdir={tmp_path}", str(tmp_path / "job.sh")).returncode == 0
    before = (tmp_path / "cluster_config.json").read_bytes()
    for words, name in (
        ([], "[init.file-is-there]"),
        (["other.json", "--partition", "gpus"], "[init.no-partition]"),
        (["other.json", "--partition", "short"], "[config.walltime-too-short]"),
    ):
        refused = orchestrator(slurm, tmp_path, "init", *words)
        assert (refused.returncode, name in refused.stderr) == (2, True), refused.stderr
    assert (tmp_path / "cluster_config.json").read_bytes() == before
    assert not (tmp_path / "other.json").exists()


def test_init_on_a_machine_without_slurm_writes_a_config_that_needs_none(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "init"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "cluster_config.json").read_text())["executor"] == "local"

"""The ready configs of `examples/`, as they stand, before a real Slurm: it would take each of their jobs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import PrivateSlurm, SlurmCluster

pytestmark = pytest.mark.slurm

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.json"))


def orchestrator(slurm: SlurmCluster, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=folder, env={**slurm.env(), "XDG_STATE_HOME": str(folder / "state")}, capture_output=True, text=True,
        timeout=120, check=False,
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
    rehearsed = orchestrator(slurm, tmp_path, "start", "--dry-run")
    assert rehearsed.returncode == 0, rehearsed.stderr
    assert "would submit a job for slot 0 (attempt 0)" in rehearsed.stdout
    assert not (tmp_path / "runs").exists()
    assert slurm.squeue() == []


def test_where_there_is_no_default_partition_start_ends_with_slurms_words(
    private_slurm: PrivateSlurm, tmp_path: Path
) -> None:
    cluster = private_slurm(nodes=1)
    cluster.ask("scontrol", "update", "PartitionName=gpu", "Default=NO")
    shutil.copy(EXAMPLES[-1], tmp_path / "cluster_config.json")

    refused = orchestrator(cluster, tmp_path, "start")

    assert refused.returncode == 6, refused.stderr
    assert "No partition specified" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1

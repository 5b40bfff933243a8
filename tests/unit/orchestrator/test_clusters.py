"""`slurm.clusters`: which cluster each of Slurm's commands is for. What they answer there: `test_clusters_slurm`."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.executors.base import JobRequest, Submitted
from orchestrator.executors.slurm import SlurmExecutor
from orchestrator.executors.slurm_text import MARK

#: Each says what it was asked; `squeue` and `sacct` know a job with the same number on both clusters.
SCRIPT = """#!/bin/sh
echo "$(basename "$0") $*" >> {asked}
case "$(basename "$0")" in
    sbatch) echo "17;west" ;;
    squeue) echo "{header}"; case "$*" in *east*) echo "{east}" ;; *west*) echo "{west}" ;; esac ;;
esac
"""
TOKENS = {"east": "s0-a0-0123abcd", "west": "s1-a0-0123abcd"}


def row(*fields: str) -> str:
    return "".join(f"{field}{MARK}" for field in fields)


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    rows = {
        cluster: row("17", "RUNNING", "None", "p", "n1", "1", "2", "3", f"{tmp_path}/jobs/{token}")
        for cluster, token in TOKENS.items()
    }
    rows["header"] = row("JOBID", *["COLUMN"] * 8)
    for name in ("sbatch", "squeue", "scancel"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(SCRIPT.format(asked=tmp_path / "asked", **rows))
        path.chmod(0o755)
    return tmp_path / "asked"


def executor(folder: Path, *clusters: str) -> SlurmExecutor:
    return SlurmExecutor(folder / "jobs", {"PATH": f"{folder}/bin:/usr/bin:/bin"}, clusters=clusters)


def test_each_cluster_is_asked_and_its_name_is_part_of_the_id(tmp_path: Path, asked: Path) -> None:
    poll = executor(tmp_path, "east", "west").poll()
    assert poll.error is None
    assert {row.job_id: Path(row.work_dir).name for row in poll.rows} == {
        f"17;{cluster}": token for cluster, token in TOKENS.items()
    }
    assert [line.split()[:3] for line in asked.read_text().splitlines()] == [["squeue", "-M", name] for name in TOKENS]


def test_a_cancel_goes_to_the_cluster_of_the_job_alone(tmp_path: Path, asked: Path) -> None:
    assert executor(tmp_path, "east", "west").cancel(["17;west", "18;west", "4;east"]) is None
    assert [line.split() for line in asked.read_text().splitlines()] == [
        ["scancel", "-M", "west", "17", "18"],
        ["scancel", "-M", "east", "4"],
    ]


@pytest.mark.parametrize(
    ("clusters", "after", "wanted", "job_id"),
    [
        (("east", "west"), "", ["-M", "east,west"], "17;west"),
        (("east", "west"), "9;east", ["-M", "east"], "17;west"),
        ((), "", ["--parsable"], "17"),
    ],
    ids=["any", "behind another", "one cluster"],
)
def test_a_job_may_go_to_any_but_behind_another_to_its_cluster(
    tmp_path: Path, asked: Path, clusters: tuple[str, ...], after: str, wanted: list[str], job_id: str
) -> None:
    request = JobRequest(script="job.sh", job_dir=str(tmp_path / "jobs" / TOKENS["west"]), after=after or None)
    found = executor(tmp_path, *clusters).submit(request)
    assert isinstance(found, Submitted)
    assert found.job_id == job_id
    words = asked.read_text().split()
    assert words[1 : 1 + len(wanted)] == wanted
    assert ("--dependency=afterany:9" in words) == bool(after)

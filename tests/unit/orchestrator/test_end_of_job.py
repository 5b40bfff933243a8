"""When a job's walltime ends, as its own first process sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import NOW

from orchestrator.shim import LATEST_START_S, end_of_job

HOURS_4 = 4 * 3600


def told(start: float, end: float) -> dict[str, str]:
    return {"SLURM_JOB_START_TIME": f"{start:.0f}", "SLURM_JOB_END_TIME": f"{end:.0f}"}


@pytest.mark.parametrize("setup_s", [0, 20, LATEST_START_S])
def test_the_schedulers_word_counts(setup_s: float) -> None:
    assert end_of_job(told(NOW, NOW + HOURS_4), NOW + setup_s, 99) == NOW + HOURS_4


@pytest.mark.parametrize("ahead_s", [-86400, -1800, 1800, 86400])
def test_on_a_node_with_a_wrong_clock_the_jobs_length_counts(ahead_s: float) -> None:
    started_at = NOW + 5 + ahead_s
    assert end_of_job(told(NOW, NOW + HOURS_4), started_at, 99) == started_at + HOURS_4


def test_an_older_slurm_is_asked(tmp_path: Path) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text(f'#!/bin/sh\n[ "$SLURM_TIME_FORMAT $3" = "%s 7" ] || exit 1\necho {NOW:.0f} {NOW + 600:.0f}\n')
    squeue.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    assert end_of_job(environ, NOW + 5, 99) == NOW + 600
    assert end_of_job(environ, NOW + 5000, 99) == NOW + 5600


@pytest.mark.parametrize("answer", ["echo N/A N/A", "exit 1", "echo slurm_load_jobs error"])
def test_where_nobody_says_it_is_the_start_and_the_limit(tmp_path: Path, answer: str) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "squeue").chmod(0o755)
    assert end_of_job({"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}, NOW, 99) == NOW + 99
    assert end_of_job({}, NOW, 99) == NOW + 99

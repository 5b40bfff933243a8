"""The kernel's own count of what it killed for memory, in both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.jobside import oom_kills


def a_machine(tmp_path: Path, groups: str, name: str, content: str) -> tuple[Path, Path]:
    """(/proc/self/cgroup, /sys/fs/cgroup) of a machine that keeps its count in `name`."""
    (tmp_path / "self").write_text(groups)
    (tmp_path / "mount" / name).parent.mkdir(parents=True)
    (tmp_path / "mount" / name).write_text(content)
    return tmp_path / "self", tmp_path / "mount"


JOB = "system.slice/slurmstepd.scope/job_7/step_batch/user/task_0"


@pytest.mark.parametrize(
    ("groups", "name", "content"),
    [
        (f"0::/{JOB}\n", f"{JOB}/memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\n"),
        (f"0::/{JOB}\n", "system.slice/slurmstepd.scope/job_7/memory.events", "oom_kill 2\n"),
        (
            f"9:cpu:/x\n4:cpuset,memory:/slurm_n1/{JOB}\n0::/init.scope\n", f"memory/slurm_n1/{JOB}/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        ),
    ],
    ids=["version 2", "version 2, a step of the job", "version 1"],
)  # fmt: skip
def test_the_count_is_that_of_this_process_group(tmp_path: Path, groups: str, name: str, content: str) -> None:
    assert oom_kills(*a_machine(tmp_path, groups, name, content)) == 2


@pytest.mark.parametrize("content", ["", "oom_kill\n", "oom_kill many\n", "something else 3\n"])
def test_a_file_that_nobody_understands_counts_nothing(tmp_path: Path, content: str) -> None:
    assert oom_kills(*a_machine(tmp_path, "0::/a\n", "a/memory.events", content)) == 0

"""What the doctor gathers: texts, tries on a folder, a probe. What it makes of them: `tests/unit/test_checks.py`."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from anchorleg.disks import filesystem_of, parse_quota
from orchestrator.config import RunConfig, parse_config
from orchestrator.doctor.gather import (
    gather,
    slurm_facts,
    subject_of,
    try_folder,
)
from orchestrator.doctor.probe import Probe
from orchestrator.doctor.probing import ProbeResult, Pursuit, probe_config
from orchestrator.doctor.slurmchecks import SlurmFacts, walltime_allowed_s
from orchestrator.executors.base import JobRequest, JobRow, JobState, Poll, Submitted
from orchestrator.executors.site import SiteLimits, parse_limits
from orchestrator.executors.slurm_text import Partition
from orchestrator.run.begin import prepare_folder
from orchestrator.run.rundir import RunDir


def config(**more: Any) -> RunConfig:
    return parse_config({"run_name": "toy", "slots": 2, "slurm": {"partition": "gpu"}} | more, "here")


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({"notify": ["./tell.sh"]}, "notify"),
        ({"notify": ["tell-nobody"]}, "notify"),
        ({"command": ["programs/mine", "--fast"]}, "command"),
        ({"container": {"image": "gone.sif", "runtime": "apptainer"}, "command": ["mine"]}, "container.image"),
        ({"notify": ["./there.sh"], "command": ["sh", "-c", "true"]}, ""),
    ],
)
def test_what_the_config_names_and_is_not_there(fields: dict[str, Any], missing: str, tmp_path: Path) -> None:
    (tmp_path / "there.sh").touch(mode=0o755)
    env = {"PATH": os.environ["PATH"]}
    named = gather(subject_of(config(executor="local", **fields), tmp_path / "cluster_config.json", env))
    assert [field for field, _ in named.missing] == [missing] * bool(missing)


def test_start_and_doctor_go_by_the_links_and_not_by_what_a_mount_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remembered(path: Any, **more: Any) -> os.stat_result:
        found = real(path, **more)
        return os.stat_result([*found[:3], 1, *found[4:]]) if stat.S_ISREG(found.st_mode) else found

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    real = os.stat
    monkeypatch.setattr(os, "stat", remembered)
    prepare_folder(RunDir(tmp_path / "run"))
    assert [step.error for step in try_folder(tmp_path).steps] == [""] * 5
    monkeypatch.setattr(os, "link", shutil.copy)
    with refused("run-dir.no-hard-links", why="a link is a copy there"):
        prepare_folder(RunDir(tmp_path / "run"))
    for link in (shutil.copy, refuse):
        monkeypatch.setattr(os, "link", link)
        assert [step.name for step in try_folder(tmp_path).steps if step.error] == ["link"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_slurm_conf_that_is_not_there_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\n')
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    subject = subject_of(config(executor="slurm"), tmp_path / "cluster_config.json", env)
    assert slurm_facts(subject).conf_missing == str(tmp_path / "slurm.conf")
    assert not (tmp_path / "asked").exists()  # Slurm's commands would look for that file, each for seconds


# --- the probe's job ------------------------------------------------------------------------------------------------


@given(limit=st.integers(60, 10**6), longest=st.none() | st.integers(60, 10**6))
def test_a_probe_asks_for_three_minutes_at_most_and_can_be_signalled(limit: int, longest: int | None) -> None:
    asked = config(slurm={"time_limit": f"0:0:{limit}", "partition": "gpu"})
    small = probe_config(asked, "slurm", longest)
    limit_s, lead_s = small.slurm.time_limit, small.lead_seconds
    assert limit_s <= 180
    assert limit_s <= max(60, asked.slurm.time_limit)
    assert longest is None or limit_s <= max(60, longest)
    assert 0 < lead_s < limit_s


def test_the_probe_is_a_small_job_in_the_same_place() -> None:
    big = config(slurm={"partition": "gpu", "qos": "long", "mem": "64G", "cpus_per_task": 16, "gpu_type": "a100"})
    small = probe_config(big, "slurm", None).slurm
    assert (small.partition, small.qos, small.gpu_type, small.gpus) == ("gpu", "long", "a100", 1)
    assert (small.mem, small.cpus_per_task, small.time_limit) == ("4096M", 2, 180)
    assert probe_config(config(slurm={"mem": "2G"}), "slurm", None).slurm.mem == "2G"
    assert probe_config(config(slurm={"cpus_per_task": 16}), "slurm", None).slurm.cpus_per_task == 16


class GoneAtOnce:
    """An executor whose job ends where we do not see its files."""

    def submit(self, _request: JobRequest) -> Submitted:
        return Submitted(job_id="7")

    def poll(self) -> Poll:
        row = JobRow(job_id="7", state=JobState.ENDED, raw_state="FAILED", work_dir="/nowhere/probe")
        return Poll(at=0.0, rows=(row,))


def test_a_folder_that_the_nodes_do_not_see_is_asked_about() -> None:
    result = ProbeResult(limit_s=180, lead_s=120)
    pursuit = Pursuit(GoneAtOnce(), Path("/nowhere/probe"), result, 60, lambda _: None, 0.1)  # type: ignore[arg-type]
    error = pursuit.follow(JobRequest(job_dir="/nowhere/probe", script="/nowhere/probe/job.sh"))
    assert "check that the nodes see /nowhere/probe" in error


# --- texts ----------------------------------------------------------------------------------------------------------


# As 22.05.8 prints them; the columns on a real one are test_doctor_slurm's.
ASSOC = "dev||normal||2|4|\nroot||normal||2||1-00:00:00\n"
QOS = "normal||3|\nlong|1||04:00:00\n"
SEVERAL = "old||||1|2|01:00:00\nnew||||||\n"
OF_PARTITIONS = "a|p||||8|\na|q||||9|\n"


@pytest.mark.parametrize(
    ("assoc", "qos", "account", "partition", "wanted", "limits"),
    [
        (ASSOC, QOS, "dev", "gpu", None, (2, 3, None)),
        (ASSOC, QOS, "root", "gpu", None, (2, 3, 86400)),
        (ASSOC, QOS, "root", "gpu", "long", (1, None, 4 * 3600)),
        (ASSOC, QOS, None, "gpu", None, (2, 3, None)),
        ("dev||long|long|4|8|04:00:00\n", "long|20|50|2-00:00:00\n", "dev", None, "long", (20, 50, 2 * 86400)),
        (SEVERAL, "", None, None, None, (None, None, None)),  # which account is charged is not known
        (SEVERAL, "", "old", None, None, (1, 2, 3600)),
        (OF_PARTITIONS, "", "a", "p,q", None, (None, 8, None)),
        (OF_PARTITIONS, "", "a", "q", None, (None, 9, None)),
        ("", "", None, None, None, None),
        (ASSOC, QOS, "other", None, None, None),
        ("Permission denied\n", "", None, None, None, None),
    ],
)
def test_of_each_limit_the_qos_counts_before_the_account(
    assoc: str, qos: str, account: str | None, partition: str | None, wanted: str | None, limits: tuple[Any, ...] | None
) -> None:
    found = parse_limits(assoc, qos, account, partition, wanted)
    assert ((found.running, found.submitted, found.wall_s) if found.told else None) == limits


def test_quota_lines_are_read_also_where_one_is_over() -> None:
    text = (
        "Disk quotas for user me (uid 1000): \n"
        "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
        "nas:/home 102400*  90000  100000   6days    500    1000    2000        \n"
        "/dev/sda1   10       0       0            7       0       0        \n"
    )
    home, disk = parse_quota(text)
    assert (home.used_bytes, home.limit_bytes, home.limit_files) == (102400 * 1024, 100000 * 1024, 2000)
    assert (disk.limit_bytes, disk.limit_files) == (None, None)


def test_the_filesystem_of_a_path_is_the_deepest_mount() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nnas:/x /my\\040home nfs4 rw 0 0\nnone /my\\040home/tmp tmpfs rw 0 0\n"
    assert filesystem_of(Path("/my home/runs"), mounts) == "nfs4"
    assert filesystem_of(Path("/my home/tmp/x"), mounts) == "tmpfs"
    assert filesystem_of(Path("/etc"), mounts) == "ext4"


@pytest.mark.parametrize(
    ("limits_s", "up", "wall_s", "allowed_s"),
    [
        ((3600, 7200), (True, True), None, 7200),
        ((3600, 7200), (True, True), 60, 60),
        ((3600, 7200), (True, False), None, 3600),
        ((None, 7200), (True, True), None, None),
    ],
)
def test_of_several_partitions_the_longest_is_what_a_job_may_ask_for(
    limits_s: tuple[int | None, int], up: tuple[bool, bool], wall_s: int | None, allowed_s: int | None
) -> None:
    same: dict[str, Any] = {"is_default": True, "nodes": 4, "cpus_per_node": 8, "memory_mb": 1, "gpus": {"a100": 1}}
    both = zip("ab", limits_s, up, strict=True)
    rows = tuple(Partition(name=name, time_limit_s=limit, is_up=is_up, **same) for name, limit, is_up in both)
    told = SlurmFacts(partitions=rows, limits=SiteLimits(told=True, wall_s=wall_s))
    assert walltime_allowed_s(config(slurm={"partition": "a,b"}), told) == allowed_s


@pytest.mark.parametrize(("own", "seen"), [(True, "/code:/modules"), (False, "/code")])
def test_the_probe_asks_a_programs_python_with_what_the_setup_put_on_its_path(
    tmp_path: Path, own: bool, seen: str
) -> None:
    spec = {"limit_s": 60, "lead_s": 30, "container": None, "code_dir": "/code", "own_program": own}
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "/code", "ANCHORLEG_SETUP_PYTHONPATH": "/modules"}
    told = Probe(tmp_path, spec, environ).inside(["sh", "-c", 'echo "$PYTHONPATH"'])
    assert told["out"] == f"{seen}\n"

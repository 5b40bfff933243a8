"""What the doctor gathers: texts, tries on a folder, a probe. What it makes of them: `tests/unit/test_checks.py`."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from anchorleg.disks import filesystem_of, parse_quota
from orchestrator.config import RunConfig, parse_config
from orchestrator.doctor import probing
from orchestrator.doctor.facts import SlurmFacts
from orchestrator.doctor.gather import (
    gather,
    kills_user_processes,
    python_facts,
    slurm_facts,
    subject_of,
    try_folder,
)
from orchestrator.doctor.probe import Probe, memory_limit
from orchestrator.doctor.probing import Pursuit, probe_config, probe_script, tasks_tried, times_of
from orchestrator.doctor.slurmchecks import walltime_allowed_s
from orchestrator.executors.base import JobRequest, JobRow, JobState, Poll, Submitted
from orchestrator.executors.site_text import (
    SiteLimits,
    parse_limits,
    parse_settings,
    parse_version,
    ping_says,
    with_readable_times,
)
from orchestrator.executors.slurm_text import Partition, UnreadableError, job_state
from orchestrator.run.begin import prepare_folder
from orchestrator.run.rundir import RunDir

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"


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
    assert [one.field for one in named.missing] == [missing] * bool(missing)


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
    assert [step.error for step in try_folder(tmp_path).steps] == [""] * 7
    monkeypatch.setattr(os, "link", shutil.copy)
    with refused("run-dir.no-hard-links", why="a link is a copy there"):
        prepare_folder(RunDir(tmp_path / "run"))
    for link in (shutil.copy, refuse):
        monkeypatch.setattr(os, "link", link)
        assert [step.name for step in try_folder(tmp_path).steps if step.error] == ["link"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_server_whose_clock_is_ahead_is_measured(tmp_path: Path) -> None:
    def clock() -> float:
        dated = next(tmp_path.glob(".doctor-*/dated"), None)
        return (dated.stat().st_mtime if dated else time.time()) - 60

    assert try_folder(tmp_path, clock=clock).skew_s == 60


def test_the_driver_is_asked_for_each_gpu_and_its_cuda(tmp_path: Path) -> None:
    fake = tmp_path / "nvidia-smi"
    rows = "NVIDIA A40, 46068, 535.183.01\\nNVIDIA A40, 46068, 535.183.01\\n"
    banner = "| NVIDIA-SMI 535.183.01   Driver Version: 535.183.01   CUDA Version: 12.2     |"
    fake.write_text(f"#!/bin/sh\ncase $1 in --query*) printf '{rows}' ;; *) echo '{banner}' ;; esac\n")
    fake.chmod(0o755)
    probe = Probe(tmp_path, {"limit_s": 60, "lead_s": 30}, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    row = {"name": "NVIDIA A40", "memory_mib": "46068", "driver": "535.183.01"}
    assert probe.gpu() == {"devices": [row, row], "cuda": "12.2", "words": ""}

    fake.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert probe.gpu() == {"devices": [], "cuda": "", "words": "nvidia-smi: No devices were found"}
    fake.unlink()
    assert probe.gpu()["words"] == "there is no nvidia-smi"


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
    limit_s, lead_s = times_of(asked, "slurm", longest)
    assert limit_s <= 180
    assert limit_s <= max(60, asked.slurm.time_limit)
    assert longest is None or limit_s <= max(60, longest)
    assert 0 < lead_s < limit_s


def test_the_probe_is_a_small_job_in_the_same_place() -> None:
    big = config(slurm={"partition": "gpu", "qos": "long", "mem": "64G", "cpus_per_task": 16, "gpu_type": "a100"})
    small = probe_config(big, 180, 120).slurm
    assert (small.partition, small.qos, small.gpu_type, small.gpus) == ("gpu", "long", "a100", 1)
    assert (small.mem, small.cpus_per_task, small.time_limit) == ("4096M", 2, 180)
    assert probe_config(config(slurm={"mem": "2G"}), 180, 120).slurm.mem == "2G"
    assert probe_config(config(slurm={"cpus_per_task": 16}), 180, 120).slurm.cpus_per_task == 16


def test_the_probe_tries_the_tasks_of_meta_world_alone() -> None:
    assert tasks_tried(config(training={"tasks": ["reach-v3"]})) == ("reach-v3",)
    points, drift = "anchorleg_toys.points:Points", "anchorleg_toys.drift:Drift"
    assert tasks_tried(config(training={"env": points, "algorithm": drift})) == ()


def test_the_probes_script_is_a_jobs_but_for_the_program() -> None:
    text = probe_script(
        probe_config(config(), 180, 120), executor="slurm", job_dir=Path("/j"), code_dir=Path("/c"), python="python3"
    )
    assert text.rstrip().endswith("exec python3 -X utf8 -P -S -m orchestrator.doctor.probe")
    assert "#SBATCH --signal=B:USR2@120" in text
    assert "shim" not in text.splitlines()[-1]


class GoneAtOnce:
    """An executor whose job ends where we do not see its files."""

    def submit(self, _request: JobRequest) -> Submitted:
        return Submitted(job_id="7")

    def poll(self) -> Poll:
        row = JobRow(job_id="7", state=JobState.ENDED, raw_state="FAILED", work_dir="/nowhere/probe")
        return Poll(at=0.0, rows=(row,))


class SkippedTime:
    """A clock on which who waits is at once seconds later."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _seconds: float) -> None:
        self.now += 5.0


class BootingNode:
    """An executor whose job begins on a node that is started first, and fails there. For so long it is `state`."""

    def __init__(self, clock: SkippedTime, state: str, seconds: float) -> None:
        self.clock, self.state, self.seconds = clock, state, seconds

    def submit(self, _request: JobRequest) -> Submitted:
        return Submitted(job_id="7")

    def poll(self) -> Poll:
        raw = self.state if self.clock.now < self.seconds else "FAILED"
        return Poll(
            at=0.0,
            rows=(JobRow(job_id="7", state=job_state(raw), raw_state=raw, work_dir="/nowhere/probe", node="n7"),),
        )


@pytest.mark.parametrize(
    ("state", "seconds", "words", "error"),
    [
        ("PENDING", 3600.0, "waits in the queue", "it waited for 0:10:0"),
        ("CONFIGURING", 3600.0, "job 7: its node n7 is being started", "the job ended (FAILED)"),
        ("CONFIGURING", math.inf, "job 7: its node n7 is being started", "it waited for 1:10:0"),
    ],
)
def test_a_node_that_is_being_started_is_no_wait_in_the_queue_for_an_hour(
    monkeypatch: pytest.MonkeyPatch, state: str, seconds: float, words: str, error: str
) -> None:
    clock, said = SkippedTime(), []
    monkeypatch.setattr(probing, "time", clock)
    executor = BootingNode(clock, state, seconds)
    pursuit = Pursuit(executor, Path("/nowhere/probe"), 180, 120, 600, lambda *told: said.append(told[0]), 0.1)  # type: ignore[arg-type]
    done = pursuit.follow(JobRequest(job_dir="/nowhere/probe", script="/nowhere/probe/job.sh"))
    assert error in done.error
    assert [one for one in said if words in one]


def test_a_folder_that_the_nodes_do_not_see_is_asked_about() -> None:
    pursuit = Pursuit(GoneAtOnce(), Path("/nowhere/probe"), 180, 120, 60, lambda *_: None, 0.1)  # type: ignore[arg-type]
    done = pursuit.follow(JobRequest(job_dir="/nowhere/probe", script="/nowhere/probe/job.sh"))
    assert done.error == "the job ended (FAILED) and no file of it is seen here: do the nodes see /nowhere/probe?"


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/job", {"job/memory.max": "4096", "memory.max": "max"}, 4096),
        ("0::/job/step", {"job/memory.max": "100", "job/step/memory.max": "max"}, 100),
        ("3:cpu:/x\n4:memory:/job\n0::/", {"memory/job/memory.limit_in_bytes": "777"}, 777),
        ("4:memory:/job", {"memory/job/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("0::/", {}, None),
    ],
)
def test_the_strictest_memory_limit_counts(tmp_path: Path, own: str, files: dict[str, str], limit: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_limit(tmp_path, own) == limit


# --- texts ----------------------------------------------------------------------------------------------------------


def test_slurms_own_settings_are_read_from_a_recording() -> None:
    recorded = json.loads((FIXTURES / "scontrol-22.05.8.json").read_text())["defaults"]["stdout"]
    settings = parse_settings(recorded)
    assert settings.as_of == 1795214601
    assert settings.seconds("MinJobAge") == 300
    assert settings.text("PreemptMode") == "OFF"
    assert settings.text("Prolog") == ""
    assert settings.seconds("SuspendTime") is None
    with pytest.raises(UnreadableError):
        parse_settings("slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)")


@pytest.mark.parametrize(
    ("text", "version"),
    [("slurm-wlm 22.05.8", "22.05.8"), ("slurm 24.11.0-1", "24.11.0"), ("slurm 20.11.9", "20.11.9"), ("hm", "")],
)
def test_a_version_is_read(text: str, version: str) -> None:
    assert parse_version(text) == version


def test_a_ping_is_up_where_any_controller_is() -> None:
    assert ping_says(0, "Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n") == "up"
    assert ping_says(1, "Slurmctld(primary) at vm is DOWN\n") == "down"


# As 22.05.8 prints them; the columns on a real one are test_doctor_slurm's.
ASSOC = "dev||normal||2|4|\nroot||normal||2||1-00:00:00\n"
QOS = "normal||3|\nlong|1||04:00:00\n"


@pytest.mark.parametrize(
    ("account", "qos", "running", "submitted"),
    [("dev", None, 2, 3), ("root", None, 2, 3), ("root", "long", 1, None), (None, None, 2, 3)],
)
def test_of_each_limit_the_qos_counts_before_the_account(
    account: str | None, qos: str | None, running: int | None, submitted: int | None
) -> None:
    limits = parse_limits(ASSOC, QOS, account, "gpu", qos)
    assert (limits.told, limits.running, limits.submitted) == (True, running, submitted)
    assert parse_limits(ASSOC, QOS, "dev", None, None).wall_s is None
    assert parse_limits(ASSOC, QOS, "root", None, None).wall_s == 86400
    assert parse_limits(ASSOC, QOS, "root", None, "long").wall_s == 4 * 3600


def test_a_qos_that_allows_more_than_the_account_counts() -> None:
    limits = parse_limits("dev||long|long|4|8|04:00:00\n", "long|20|50|2-00:00:00\n", "dev", None, "long")
    assert (limits.running, limits.submitted, limits.wall_s) == (20, 50, 2 * 86400)


def test_limits_that_are_not_told_are_not_invented() -> None:
    assert not parse_limits("", "", None, None, None).told
    assert not parse_limits(ASSOC, QOS, "other", None, None).told
    assert not parse_limits("Permission denied\n", "", None, None, None).told


def test_a_time_among_words_is_made_readable_and_a_job_id_is_not() -> None:
    words = with_readable_times("Job 67043328 to start at 1795264792 using 1 processors")
    assert words.startswith("Job 67043328 to start at 20")
    assert "1795264792" not in words


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


def test_the_last_word_of_logind_counts() -> None:
    assert not kills_user_processes(["#KillUserProcesses=yes\n"])
    assert kills_user_processes(["#KillUserProcesses=no\n", "[Login]\nKillUserProcesses=yes\n"])
    assert not kills_user_processes(["KillUserProcesses=yes\n", "KillUserProcesses=no\n"])


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
    told = SlurmFacts(commands=(), partitions=rows, limits=SiteLimits(told=True, wall_s=wall_s))
    assert walltime_allowed_s(config(slurm={"partition": "a,b"}), told) == allowed_s


def test_where_the_account_is_not_known_the_strictest_one_is_not_taken_for_it() -> None:
    rows = "old||||1|2|01:00:00\nnew||||||\n"
    assert parse_limits(rows, "", None, None, None) == SiteLimits(told=True)
    assert parse_limits(rows, "", "old", None, None).wall_s == 3600
    assert parse_limits("a|p||||8|\na|q||||9|\n", "", "a", "p,q", None).submitted == 8
    assert parse_limits("a|p||||8|\na|q||||9|\n", "", "a", "q", None).submitted == 9


def test_a_python_that_is_too_old_says_how_old_it_is(tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\n[ $1 = -c ] || { echo 'unknown option -P' >&2; exit 2; }\necho 3.9.18\nexit 1\n")
    fake.chmod(0o755)
    env = {"PATH": os.environ["PATH"]}
    subject = subject_of(config(executor="local", python=str(fake)), tmp_path / "cluster_config.json", env)
    found = python_facts(subject)
    assert (found.version, found.shim_ok) == ("3.9.18", False)


@pytest.mark.parametrize(("own", "works"), [(True, True), (False, False)])
def test_an_image_without_python_is_entered_where_the_program_needs_none(
    tmp_path: Path, own: bool, works: bool
) -> None:
    fake = tmp_path / "apptainer"
    fake.write_text("#!/bin/sh\nfor word; do last=$word; done\n[ $last = true ] || exit 127\n")
    fake.chmod(0o755)
    container = {"image": "x.sif", "runtime": "apptainer", "python": "python3", "binds": [], "gpus": 0}
    spec = {"limit_s": 60, "lead_s": 30, "container": container, "code_dir": "/code", "program_python": "python3"}
    probe = Probe(tmp_path, {**spec, "own_program": own}, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    found = probe.container()
    assert found is not None
    assert found["works"] is works


@pytest.mark.parametrize(("own", "seen"), [(True, "/code:/modules"), (False, "/code")])
def test_the_probe_asks_a_programs_python_with_what_the_setup_put_on_its_path(
    tmp_path: Path, own: bool, seen: str
) -> None:
    spec = {"limit_s": 60, "lead_s": 30, "container": None, "code_dir": "/code", "own_program": own}
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "/code", "ANCHORLEG_SETUP_PYTHONPATH": "/modules"}
    told = Probe(tmp_path, spec, environ).inside(["sh", "-c", 'echo "$PYTHONPATH"'])
    assert told["out"] == f"{seen}\n"

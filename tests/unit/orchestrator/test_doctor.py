"""The doctor's judgements on facts, its reading of texts, its tries on a folder, and its advice."""

from __future__ import annotations

import errno
import io
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
from rich.console import Console
from rich.text import Text

from anchorleg.findings import Finding, Level, findings_lines, findings_table, total
from orchestrator.config import RunConfig, parse_config
from orchestrator.doctor import probing
from orchestrator.doctor.advice import advise
from orchestrator.doctor.checks import examine, host_findings, quota_finding, worst
from orchestrator.doctor.facts import (
    FolderFacts,
    HostFacts,
    LoginFacts,
    ProbeResult,
    ProbeStep,
    PythonFacts,
    RunFacts,
    SlurmFacts,
)
from orchestrator.doctor.folder import filesystem_of, parse_quota, try_folder
from orchestrator.doctor.gather import gather, kills_user_processes, python_facts, slurm_facts, subject_of
from orchestrator.doctor.probe import Probe, memory_limit
from orchestrator.doctor.probechecks import probe_findings
from orchestrator.doctor.probing import Pursuit, probe_config, probe_script, tasks_tried, times_of
from orchestrator.doctor.slurmchecks import walltime_allowed_s
from orchestrator.executors.base import JobRequest, JobRow, JobState, Poll, SubmitRefused, Submitted, Uncertain
from orchestrator.executors.site import COMMANDS, Answered, Command, SubmitCheck
from orchestrator.executors.site_text import (
    SiteLimits,
    SiteSettings,
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
GPU = Partition(
    name="gpu", is_default=True, is_up=True, time_limit_s=4 * 3600, nodes=4, cpus_per_node=8,
    memory_mb=16_000, gpus={"a100": 1},
)  # fmt: skip
QUIET = {
    "MinJobAge": "300 sec",
    "KillWait": "30 sec",
    "JobRequeue": "1",
    "PreemptMode": "OFF",
    "SLURM_VERSION": "24.11",
}


A100 = {"name": "NVIDIA A100-SXM4-40GB", "memory_mib": "40960", "driver": "550.54.15"}
UNSEEN = {"available": False, "built_for": "12.8"}
LAPTOP = {"slurm": None, "gpu": {"devices": [], "words": "there is no nvidia-smi"}}


def config(**more: Any) -> RunConfig:
    return parse_config({"run_name": "toy", "slots": 2, "slurm": {"partition": "gpu"}} | more, "here")


def slurm(**more: Any) -> SlurmFacts:
    told: dict[str, Any] = {
        "commands": tuple(Command(name=name, path=f"/usr/bin/{name}", version="24.11.0") for name in COMMANDS),
        "answered": Answered(up=True, seconds=0.01, words="is UP"),
        "settings": SiteSettings(values=QUIET),
        "skew_s": 0.2,
        "accounting": "ok",
        "partitions": (GPU,),
        "limits": SiteLimits(told=True, submitted=8),
        "trial": SubmitCheck(outcome=None, words=""),
        "live_jobs": 0,
    }
    return SlurmFacts.model_validate(told | more)


def facts(**more: Any) -> LoginFacts:
    told: dict[str, Any] = {
        "config": config(),
        "config_known": True,
        "executor": "slurm",
        "folder": FolderFacts(path="/runs", kind="nfs4", free_bytes=2**40, skew_s=0.0),
        "slurm": slurm(),
        "python": PythonFacts(command="python3", version="3.11.7", shim_ok=True),
    }
    return LoginFacts.model_validate(told | more)


def report(**more: Any) -> dict[str, Any]:
    """A node on which everything is well; the signal came 100 s before the end, where 90 were asked for."""
    return {
        "started_at": 1000.0, "host": "n1", "done": True, "errors": {}, "heard": {"SIGUSR2": 1080.0},
        "end": {"at": 1180.0, "how": "SLURM_JOB_END_TIME"},
        "environment": {"shown": {"MUJOCO_GL": "egl"}, "leaks": []},
        "limits": {"cpus": 2, "memory_bytes": 2**32},
        "scratch": {"path": "/tmp", "free_bytes": 2**36, "kind": "xfs"},
        "slurm": {"answers": {"squeue": {"code": 0, "err": ""}, "sbatch": {"code": 0, "err": ""}}},
        "gpu": {"devices": [A100], "cuda": "12.4", "words": ""},
        "program": {"python": "3.11.7", "packages": dict.fromkeys(
            ("torch", "numpy", "metaworld", "mujoco", "gymnasium", "safetensors"), "1.0")},
        "cuda": {
            "available": True, "built_for": "12.4", "devices": [{"name": "A100", "memory_bytes": 40 << 30}],
            "sum": 262144.0, "seconds": 4.0,
        },
        "drawing": {"egl": {"works": True}},
        "tasks": {
            "way": "egl", "metaworld": "3.1.1", "benchmark": "MT10", "loaded": 10, "drawn": "reach-v3",
            "pixels": 128, "colours": 1925, "seconds": 5.2,
        },
    } | more  # fmt: skip


def result(**more: Any) -> ProbeResult:
    told = {"job_id": "7", "pending_s": 3.0, "limit_s": 180, "lead_s": 90, "visible_s": (0.2, 0.3), "skew_s": 0.0}
    return ProbeResult.model_validate(told | {"report": report()} | more)


def of(findings: tuple[Finding, ...], check: str) -> Finding:
    """The one finding of a check."""
    found = [finding for finding in findings if finding.check == check]
    assert len(found) == 1, findings
    return found[0]


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({"notify": ["./tell.sh"]}, "notify"),
        ({"notify": ["tell-nobody"]}, "notify"),
        ({"command": ["programs/mine", "--fast"]}, "command"),
        ({"container": {"image": "gone.sif", "runtime": "apptainer"}, "command": ["mine"]}, "container.image"),
    ],
)
def test_what_the_config_names_and_is_not_there(fields: dict[str, Any], missing: str, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    named = gather(subject_of(config(executor="local", **fields), tmp_path / "cluster_config.json", env))
    assert [one.field for one in named.missing] == [missing]
    finding = of(examine(facts(missing=named.missing)), missing)
    assert finding.level is not Level.OK
    assert named.missing[0].path in finding.found


def test_what_the_config_names_and_is_there(tmp_path: Path) -> None:
    (tmp_path / "tell.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tell.sh").chmod(0o755)
    subject = subject_of(
        config(executor="local", notify=["./tell.sh"], command=["sh", "-c", "true"]),
        tmp_path / "cluster_config.json",
        {"PATH": os.environ["PATH"]},
    )
    assert gather(subject).missing == ()


def test_a_good_place_is_all_ok() -> None:
    assert worst(examine(facts())) is Level.OK
    assert worst(probe_findings(config(), "slurm", result())) is Level.OK
    assert advise(facts(), None)[0] == {"slurm": {"max_jobs": 8}}


@pytest.mark.parametrize(
    ("changed", "check", "level", "words"),
    [
        ({"commands": (Command(name="sbatch", path=""),)}, "commands", Level.PROBLEM, "sbatch"),
        ({"answered": Answered(up=False, seconds=0.1, words="is DOWN")}, "slurmctld", Level.PROBLEM, "is DOWN"),
        ({"answered": Answered(up=True, seconds=5, words="")}, "slurmctld", Level.WARNING, "5000 ms"),
        ({"accounting": "disabled"}, "accounting", Level.OK, "none here"),
        ({"accounting": "blind", "accounting_words": "refused"}, "accounting", Level.WARNING, "refused"),
        ({"queue_error": "the answer is something else"}, "queue", Level.PROBLEM, "something else"),
        ({"partitions": ()}, "partition", Level.PROBLEM, '"gpu" is not there'),
        ({"partitions": (GPU.model_copy(update={"is_up": False}),)}, "partition", Level.PROBLEM, "down"),
        ({"partitions": (GPU.model_copy(update={"time_limit_s": 60}),)}, "partition", Level.PROBLEM, "0:01:00"),
        ({"partitions": (GPU.model_copy(update={"gpus": {}}),)}, "partition", Level.PROBLEM, "has 0 GPUs"),
        ({"partitions": "no answer"}, "partition", Level.WARNING, "no answer"),
        (
            {"trial": SubmitCheck(outcome=SubmitRefused(kind="permanent", words="w"), words="Invalid account")},
            "job script", Level.PROBLEM, "Invalid account",
        ),
        (
            {"trial": SubmitCheck(outcome=SubmitRefused(kind="quota", words="w"), words="AssocMaxSubmitJobLimit")},
            "job script", Level.WARNING, "not now",
        ),
        (
            {"trial": SubmitCheck(outcome=Uncertain(why="w"), words="timed out")},
            "job script", Level.WARNING, "timed out",
        ),
        ({"limits": SiteLimits(told=False, why="forbidden")}, "job limits", Level.OK, "forbidden"),
        ({"limits": SiteLimits(told=True, submitted=1)}, "job limits", Level.WARNING, "1 jobs submitted"),
        ({"limits": SiteLimits(told=True, submitted=2)}, "job limits", Level.WARNING, "2 jobs submitted"),
        ({"limits": SiteLimits(told=True, wall_s=60)}, "walltime allowed", Level.PROBLEM, "0:01:00 a job"),
        ({"limits": SiteLimits(told=True, running=1)}, "job limits", Level.WARNING, "1 running"),
        ({"settings": SiteSettings(values=QUIET | {"MinJobAge": "2 sec"})}, "MinJobAge", Level.WARNING, "after 2 s"),
        ({"settings": "no answer"}, "settings", Level.WARNING, "no answer"),
        ({"skew_s": 300.0}, "Slurm's clock", Level.WARNING, "300 s ahead"),
    ],
)  # fmt: skip
def test_what_slurm_says_is_judged(changed: dict[str, Any], check: str, level: Level, words: str) -> None:
    finding = of(examine(facts(slurm=slurm(**changed))), check)
    assert finding.level is level
    assert words in finding.found
    assert finding.advice or level is Level.OK


def test_with_as_many_jobs_as_slots_failover_ticks_alone_settle_one_lower() -> None:
    said = slurm(limits=SiteLimits(told=True, submitted=2))
    assert "settles at 1 of 2 jobs" in of(examine(facts(slurm=said)), "job limits").advice
    without = config(relay={"failover_tick": False})
    assert of(examine(facts(slurm=said, config=without)), "job limits").level is Level.OK


def test_of_many_experiments_those_count_that_run_at_once() -> None:
    many: dict[str, Any] = {"experiments": {"seed": list(range(200))}}
    four = parse_config({"run_name": "toy", "slurm": {"partition": "gpu", "max_jobs": 4}} | many, "here")
    said = slurm(limits=SiteLimits(told=True, running=4, submitted=8))
    assert of(examine(facts(slurm=said, config=four)), "job limits").level is Level.OK
    nine = parse_config({"run_name": "toy", "slurm": {"partition": "gpu", "max_jobs": 9}} | many, "here")
    finding = of(examine(facts(slurm=said, config=nine)), "job limits")
    assert finding.level is Level.WARNING
    assert finding.advice == "set slurm.max_jobs to 8, or live with 1 job refused"


def test_queueing_ahead_wants_two_jobs_a_slot() -> None:
    ahead = config(relay={"queue_ahead": True})
    said = slurm(limits=SiteLimits(told=True, submitted=3))
    assert "wants 4" in of(examine(facts(slurm=said, config=ahead)), "job limits").advice
    assert advise(facts(slurm=said, config=ahead), None)[0]["relay"] == {"queue_ahead": False}


def test_after_a_ping_that_fails_nothing_else_is_judged() -> None:
    said = slurm(answered=Answered(up=False, seconds=0.1, words="is DOWN"))
    checks = {finding.check for finding in examine(facts(slurm=said))}
    assert "partition" not in checks
    assert "folder" in checks


def test_a_walltime_that_leaves_nothing_is_a_problem() -> None:
    finding = of(examine(facts(config=config(slurm={"time_limit": "0:03:00"}))), "walltime")
    assert finding.level is Level.PROBLEM
    assert "too short to train in" in finding.found


@pytest.mark.parametrize(
    ("changed", "check", "level"),
    [
        ({"steps": (ProbeStep(name="link", error="Operation not supported"),)}, "folder", Level.PROBLEM),
        ({"steps": (ProbeStep(name="unlink while open", error="gone"),)}, "folder", Level.WARNING),
        ({"steps": (ProbeStep(name="mkdir", seconds=4.0),)}, "folder", Level.WARNING),
        ({"kind": "tmpfs"}, "folder kind", Level.WARNING),
        ({"free_bytes": 2**20}, "space", Level.PROBLEM),
        ({"free_bytes": 2**31}, "space", Level.WARNING),
        ({"free_files": 10}, "space", Level.WARNING),
        ({"skew_s": -40.0}, "folder clock", Level.WARNING),
    ],
)
def test_the_shared_folder_is_judged(changed: dict[str, Any], check: str, level: Level) -> None:
    folder = FolderFacts.model_validate({"path": "/runs", "free_bytes": 2**40} | changed)
    assert of(examine(facts(folder=folder)), check).level is level


def test_every_try_works_on_an_ordinary_folder_and_nothing_stays(tmp_path: Path) -> None:
    found = try_folder(tmp_path / "not" / "yet" / "there")
    assert found.path == str(tmp_path)
    assert [step.error for step in found.steps] == [""] * 7
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_linked_in_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refuse)
    found = try_folder(tmp_path)
    assert [step.name for step in found.steps if step.error] == ["link"]
    assert worst(examine(facts(folder=found))) is Level.PROBLEM
    assert list(tmp_path.iterdir()) == []


def test_start_and_doctor_go_by_the_links_and_not_by_what_a_mount_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remembered(path: Any, **more: Any) -> os.stat_result:
        found = real(path, **more)
        return os.stat_result([*found[:3], 1, *found[4:]]) if stat.S_ISREG(found.st_mode) else found

    real = os.stat
    monkeypatch.setattr(os, "stat", remembered)
    prepare_folder(RunDir(tmp_path / "run"))
    assert [step.error for step in try_folder(tmp_path).steps] == [""] * 7
    monkeypatch.setattr(os, "link", shutil.copy)
    with refused("run-dir.no-hard-links", why="a link is a copy there"):
        prepare_folder(RunDir(tmp_path / "run"))
    assert [step.name for step in try_folder(tmp_path).steps if step.error] == ["link"]


def test_a_server_whose_clock_is_ahead_is_measured(tmp_path: Path) -> None:
    def clock() -> float:
        dated = next(tmp_path.glob(".doctor-*/dated"), None)
        return (dated.stat().st_mtime if dated else time.time()) - 60

    assert try_folder(tmp_path, clock=clock).skew_s == 60


@pytest.mark.parametrize(
    ("changed", "check", "level", "words"),
    [
        ({"heard": {}}, "signal", Level.WARNING, "never came"),
        ({"heard": {"SIGUSR2": 1120.0}}, "signal", Level.WARNING, "60 s before it"),
        ({"heard": {"SIGUSR2": 1005.0}}, "signal", Level.WARNING, "175 s before it"),
        ({"environment": {"leaks": ["PYTHONPATH"]}}, "environment", Level.WARNING, "PYTHONPATH"),
        ({"scratch": {"path": "/tmp", "kind": "tmpfs", "free_bytes": 2**36}}, "scratch", Level.WARNING, "tmpfs"),
        (
            {"slurm": {"answers": {"squeue": {"code": 0}, "sbatch": {"code": 127, "err": "sbatch: No such file"}}}},
            "failover", Level.WARNING, "sbatch does not work",
        ),
        (
            {"slurm": {"answers": {"squeue": {"code": 0}, "sbatch": {"code": 1, "err": "AssocMaxSubmitJobLimit"}}}},
            "failover", Level.OK, "can run a failover tick",
        ),
        ({"container": {"works": False, "words": "no image"}}, "container", Level.PROBLEM, "no image"),
        ({"program": {"python": "3.11", "packages": {}}}, "program", Level.PROBLEM, "Python 3.11"),
        ({}, "driver", Level.OK, "NVIDIA A100-SXM4-40GB (40960 MiB); driver 550.54.15, which runs CUDA 12.4 and older"),
        ({}, "GPU", Level.OK, "torch (CUDA 12.4) sees A100 (40 GiB), and multiplies on it; loaded in 4 s"),
        ({}, "tasks", Level.OK, "Meta-World 3.1.1, MT10 tasks: 10, loaded and stepped in 5 s"),
        ({}, "rendered task", Level.OK, "reach-v3 drawn by egl, 128x128 pixels, 1925 colours"),
        ({"gpu": {"devices": [], "words": "nvidia-smi: no device"}}, "driver", Level.WARNING, "shows none: nvidia-smi"),
        ({"cuda": UNSEEN, "gpu": {}}, "GPU", Level.PROBLEM, "built for CUDA 12.8; the driver shows none"),
        ({"cuda": UNSEEN}, "GPU", Level.PROBLEM, "torch sees none: it is built for CUDA 12.8; the driver shows a GPU"),
        ({"cuda": {"available": False, "built_for": None}}, "GPU", Level.PROBLEM, "it is built without CUDA"),
        ({"cuda": {"available": True, "devices": [], "sum": 7.0}}, "GPU", Level.PROBLEM, "computes wrongly"),
        ({"tasks": {"words": "KeyError: 'reach-v3'"}}, "tasks", Level.PROBLEM, "KeyError: 'reach-v3'"),
        (
            {"tasks": {"loaded": 3, "metaworld": "3.1.1", "benchmark": "", "seconds": 1.0}},
            "tasks", Level.OK, "Meta-World 3.1.1, tasks: 3,",
        ),
        ({"tasks": {"loaded": 1, "drawn": "reach-v3", "colours": 1}}, "rendered task", Level.WARNING, "1 colours"),
        ({"drawing": {"egl": {"words": "a"}, "osmesa": {"words": "b"}}}, "drawing", Level.WARNING, "neither EGL (a)"),
        (
            {"drawing": {"egl": {"works": False, "words": "no display"}, "osmesa": {"works": True}}},
            "drawing", Level.OK, "OSMesa",
        ),
        ({"errors": {"scratch": "Permission denied"}}, "node: scratch", Level.WARNING, "Permission denied"),
    ],
)  # fmt: skip
def test_what_the_node_says_is_judged(changed: dict[str, Any], check: str, level: Level, words: str) -> None:
    finding = of(probe_findings(config(), "slurm", result(report=report(**changed))), check)
    assert finding.level is level
    assert words in finding.found


@pytest.mark.parametrize(
    ("section", "cuda", "built", "advice"),
    [
        (None, "12.4", "12.8", "CUDA_VISIBLE_DEVICES"),
        (None, "11.8", "12.8", "this driver runs CUDA 11.8 at most"),
        ({"image": "a.sif"}, "12.4", "12.8", "`apptainer exec --nv IMAGE nvidia-smi`"),
        ({"image": "a.sif", "runtime": "singularity"}, "12.4", "12.8", "`singularity exec --nv"),
        ({"image": "a", "runtime": "ch-run"}, "12.4", "12.8", "ch-fromhost --nvidia IMAGE"),
        ({"image": "a.sif"}, "12.4", None, "build the image with CUDA"),
    ],
)
def test_a_gpu_that_torch_does_not_see_has_its_remedy(
    section: dict[str, Any] | None, cuda: str, built: str | None, advice: str
) -> None:
    told = report(
        gpu={"devices": [A100], "cuda": cuda}, cuda={"available": False, "built_for": built},
        container={"works": True, "seconds": 0.1} if section else None,
    )  # fmt: skip
    finding = of(probe_findings(config(container=section), "slurm", result(report=told)), "GPU")
    assert finding.level is Level.PROBLEM
    assert ("in the container" in finding.found) == bool(section)
    assert advice in finding.advice


def test_a_laptop_without_a_gpu_is_a_good_place_too() -> None:
    told = report(**LAPTOP, cuda={"available": False, "built_for": None})
    findings = probe_findings(config(executor="local"), "local", result(report=told))
    assert worst(findings) is Level.OK
    assert of(findings, "GPU").found == "torch computes on the CPU"
    assert of(findings, "driver").found == "no GPU: there is no nvidia-smi"


def test_another_meta_world_is_a_problem_of_our_trainer_only() -> None:
    told = report(tasks={"words": "AttributeError"})
    own = config(command=["python3", "mine.py"])
    assert of(probe_findings(own, "slurm", result(report=told)), "tasks").level is Level.WARNING


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


def test_a_probe_that_did_not_come_back_is_a_problem_with_its_last_words() -> None:
    failed = ProbeResult(error="the job ended (FAILED) early", output="loading\nno such module\n\n")
    findings = probe_findings(config(), "slurm", failed)
    assert [finding.level for finding in findings] == [Level.PROBLEM]
    assert "no such module" in findings[0].found


@given(st.dictionaries(st.sampled_from(sorted(report())), st.none() | st.integers() | st.text() | st.just({})))
def test_a_report_with_holes_is_still_judged(changed: dict[str, Any]) -> None:
    numbers = {name: value for name, value in changed.items() if name != "started_at"}
    odd = result(report=report(**numbers))
    probe_findings(config(), "slurm", odd)
    advise(facts(), odd)


@pytest.mark.parametrize(
    ("changed", "more", "dotted", "value"),
    [
        ({"heard": {"SIGUSR2": 1120.0}}, {}, "lead_seconds", 150),
        ({"heard": {}}, {"skew_s": -40.0}, "lead_seconds", 161),
        ({"slurm": {"answers": {"sbatch": {"code": 127, "err": "No such file"}}}}, {}, "relay.failover_tick", False),
        ({}, {"pending_s": 400.0}, "relay.queue_ahead", True),
        (
            {"environment": {}, "drawing": {"egl": {}, "osmesa": {"works": True}}}, {},
            "slurm.setup", ["module load x", "export MUJOCO_GL=osmesa"],
        ),
    ],
)  # fmt: skip
def test_what_was_measured_becomes_config_with_a_reason(
    changed: dict[str, Any], more: dict[str, Any], dotted: str, value: object
) -> None:
    base = config(slurm={"partition": "gpu", "setup": ["module load x"], "max_jobs": 8})
    values, reasons = advise(facts(config=base), result(report=report(**changed), **more))
    at: Any = values
    for name in dotted.split("."):
        at = at[name]
    assert at == value
    assert any(reason.startswith(f"{dotted}:") for reason in reasons)
    merged = json.loads(base.model_dump_json(exclude_unset=True))
    for name, new in values.items():
        merged[name] = {**merged.get(name, {}), **new} if isinstance(new, dict) else new
    parse_config(merged, "pasted")


def test_every_fault_of_a_partition_is_said_and_the_lead_fits_what_is_left() -> None:
    short = GPU.model_copy(update={"time_limit_s": 180, "is_up": False, "gpus": {}})
    base = facts(slurm=slurm(partitions=(short,)))
    assert [finding.check for finding in examine(base) if finding.level is Level.PROBLEM] == ["partition"] * 3
    assert advise(base, None)[0] == {"slurm": {"time_limit": "0:03:00", "max_jobs": 8}, "lead_seconds": 50}
    shorter = facts(slurm=slurm(partitions=(short.model_copy(update={"time_limit_s": 60}),)))
    assert advise(shorter, None)[0] == {"slurm": {"max_jobs": 8}}
    assert any("leave no time to train" in reason for reason in advise(shorter, None)[1])


def test_a_lead_that_holds_is_left_alone_and_says_why() -> None:
    values, reasons = advise(facts(config=config(slurm={"partition": "gpu", "max_jobs": 8})), result())
    assert values == {}
    assert any("10 s earlier than asked for" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("run", "level", "words"),
    [
        (RunFacts(), Level.OK, "not begun"),
        (RunFacts(begun=True, controller="process 7 on a", wish="run"), Level.OK, "process 7"),
        (RunFacts(begun=True, wish="run"), Level.WARNING, "no controller lives"),
        (RunFacts(begun=True, wish="stop"), Level.OK, "stopped on request"),
    ],
)
def test_a_run_without_a_controller_is_noticed(run: RunFacts, level: Level, words: str) -> None:
    finding = of(examine(facts(run=run)), "run")
    assert finding.level is level
    assert words in finding.found


def test_a_slurm_conf_that_is_not_there_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\n')
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    subject = subject_of(config(executor="slurm"), tmp_path / "cluster_config.json", env)
    found = of(examine(facts(slurm=slurm_facts(subject))), "slurm.conf")
    assert found.level is Level.PROBLEM
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
    assert quota_finding(home).level is Level.PROBLEM
    assert (disk.limit_bytes, disk.limit_files) == (None, None)
    assert quota_finding(disk).level is Level.OK


def test_the_filesystem_of_a_path_is_the_deepest_mount() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nnas:/x /my\\040home nfs4 rw 0 0\nnone /my\\040home/tmp tmpfs rw 0 0\n"
    assert filesystem_of(Path("/my home/runs"), mounts) == "nfs4"
    assert filesystem_of(Path("/my home/tmp/x"), mounts) == "tmpfs"
    assert filesystem_of(Path("/etc"), mounts) == "ext4"


def test_the_last_word_of_logind_counts() -> None:
    assert not kills_user_processes(["#KillUserProcesses=yes\n"])
    assert kills_user_processes(["#KillUserProcesses=no\n", "[Login]\nKillUserProcesses=yes\n"])
    assert not kills_user_processes(["KillUserProcesses=yes\n", "KillUserProcesses=no\n"])
    killing = HostFacts(systemd=True, lingers=False, kills_user_processes=True)
    assert worst(tuple(host_findings(killing))) is Level.WARNING
    assert worst(tuple(host_findings(killing.model_copy(update={"lingers": True})))) is Level.OK


# --- screens --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_its_screen_and_loses_no_word(width: int) -> None:
    said = slurm(limits=SiteLimits(told=True, submitted=2), partitions=())
    findings = examine(facts(slurm=said))
    page = io.StringIO()
    Console(file=page, width=width, force_terminal=True, color_system=None).print(
        Text.assemble(*findings_table(findings, width))
    )
    assert all(len(line.rstrip()) <= width for line in page.getvalue().splitlines())
    shown = page.getvalue().split()
    for finding in findings:
        for word in [*finding.found.split(), *finding.advice.split()[1:]]:  # the advice begins a sentence
            assert word in shown


def test_a_pipe_gets_one_line_a_check_that_begins_with_the_level() -> None:
    findings = examine(facts(slurm=slurm(partitions=())))
    lines = findings_lines(findings)
    assert len(lines) == len(findings)
    assert any(line.startswith('problem: partition: "gpu" is not there. Set slurm.partition') for line in lines)
    assert total(findings).endswith("1 problem")


def test_fewer_gpus_than_asked_for_is_a_warning() -> None:
    wants_two = config(slurm={"gpus": 2})
    told = report(gpu={"devices": [A100], "driver": "550.54.15", "cuda": "12.4"})
    finding = of(probe_findings(wants_two, "slurm", result(report=told)), "driver")
    assert finding.level is Level.WARNING
    assert finding.found.startswith("slurm.gpus asks for 2, and the driver shows 1: ")
    both = of(probe_findings(wants_two, "slurm", result(report=report(gpu={"devices": [A100] * 2}))), "driver")
    assert both.level is Level.OK


@pytest.mark.parametrize(
    ("partition", "offered", "told"),
    [
        ("gpu,long", {"gpu": {}, "long": {"time_limit_s": None}}, [Level.OK, Level.OK]),
        ("gpu,cpu", {"gpu": {}, "cpu": {"gpus": {}}}, [Level.OK]),  # a job waits for the one that fits
        ("gpu,cpu", {"gpu": {"is_up": False}, "cpu": {"gpus": {}}}, [Level.PROBLEM, Level.PROBLEM]),
        ("gpu,lang", {"gpu": {}, "long": {}}, [Level.PROBLEM, Level.OK]),
        (None, {"gpu": {"is_default": False}}, [Level.WARNING]),  # a site may choose by itself
    ],
)
def test_of_several_partitions_one_must_fit_and_all_must_be_there(
    partition: str | None, offered: dict[str, Any], told: list[Level]
) -> None:
    rows = tuple(GPU.model_copy(update={"name": name} | more) for name, more in offered.items())
    asked = facts(config=config(slurm={"partition": partition}), slurm=slurm(partitions=rows))
    assert [finding.level for finding in examine(asked) if finding.check == "partition"] == told


def test_of_several_partitions_the_longest_is_what_a_job_may_ask_for() -> None:
    rows = [GPU.model_copy(update={"name": name, "time_limit_s": limit}) for name, limit in (("a", 3600), ("b", 7200))]
    asked = config(slurm={"partition": "a,b"})
    assert walltime_allowed_s(asked, slurm(partitions=tuple(rows))) == 7200
    assert walltime_allowed_s(asked, slurm(partitions=tuple(rows), limits=SiteLimits(told=True, wall_s=60))) == 60
    down = rows[1].model_copy(update={"is_up": False})
    assert walltime_allowed_s(asked, slurm(partitions=(rows[0], down))) == 3600
    endless = rows[0].model_copy(update={"time_limit_s": None})
    assert walltime_allowed_s(asked, slurm(partitions=(endless, rows[1]))) is None


def test_where_the_account_is_not_known_the_strictest_one_is_not_taken_for_it() -> None:
    rows = "old||||1|2|01:00:00\nnew||||||\n"
    assert parse_limits(rows, "", None, None, None) == SiteLimits(told=True)
    assert parse_limits(rows, "", "old", None, None).wall_s == 3600
    assert parse_limits("a|p||||8|\na|q||||9|\n", "", "a", "p,q", None).submitted == 8
    assert parse_limits("a|p||||8|\na|q||||9|\n", "", "a", "q", None).submitted == 9


def test_a_run_whose_files_are_damaged_is_no_living_controller() -> None:
    finding = of(examine(facts(run=RunFacts(begun=True, damage="control/7.json is damaged: move it away."))), "run")
    assert (finding.level, finding.found) == (Level.PROBLEM, "control/7.json is damaged: move it away")


def test_a_python_that_is_too_old_says_how_old_it_is(tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\n[ $1 = -c ] || { echo 'unknown option -P' >&2; exit 2; }\necho 3.9.18\nexit 1\n")
    fake.chmod(0o755)
    env = {"PATH": os.environ["PATH"]}
    subject = subject_of(config(executor="local", python=str(fake)), tmp_path / "cluster_config.json", env)
    finding = of(examine(facts(python=python_facts(subject))), "python")
    assert finding.level is Level.PROBLEM
    assert "is Python 3.9.18; jobs need" in finding.found


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


def test_the_torch_of_a_python_that_a_program_does_not_use_is_no_problem_of_its() -> None:
    asked = {"partition": "gpu", "gpus": 1}
    told = result(report=report(cuda={"available": False, "built_for": None}))
    ours, own = config(slurm=asked), config(slurm=asked, command=["mine"])
    assert of(probe_findings(ours, "slurm", told), "GPU").level is Level.PROBLEM
    assert of(probe_findings(own, "slurm", told), "GPU").level is Level.WARNING

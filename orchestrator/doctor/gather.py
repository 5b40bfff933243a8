"""Gathers the facts for `doctor` on the login node. All that it asks has a time limit; nothing that it makes stays."""

from __future__ import annotations

import os
import resource
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anchorleg.disks import filesystem_of, free_room, nearest_folder, parse_quota, printed
from anchorleg.files import write_bytes
from anchorleg.places import user_path
from orchestrator.config import RunConfig
from orchestrator.doctor.checks import FolderFacts, LoginFacts, Try
from orchestrator.doctor.slurmchecks import SlurmFacts
from orchestrator.errors import AnchorlegError
from orchestrator.executors.local import visible_gpus
from orchestrator.executors.site import QUESTION_TIMEOUT_S, Site, SubmitCheck
from orchestrator.executors.slurm import SlurmExecutor
from orchestrator.run.begin import compute_python, kept_environment, pick_executor, rendered, run_dir_of, why_no_links
from orchestrator.run.rundir import RunDir, load_run
from orchestrator.run.sharing import troubles
from orchestrator.run.starting import commands_of, missing_script, python_facts

#: `orchestrator` uses these; sacct may be missing (a site without history is a supported one).
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")


@dataclass(frozen=True)
class Subject:
    """What is examined: a config, where it came from, the run folder that it means, and the jobs' environment."""

    config: RunConfig
    config_path: Path
    run_dir: RunDir
    env: Mapping[str, str]
    executor: str
    python: str


def subject_of(config: RunConfig, config_path: Path, environ: Mapping[str, str]) -> Subject:
    """A config that has no run yet."""
    # Where Slurm is asked for and not here, that is one of the findings.
    executor = "slurm" if config.executor == "slurm" else pick_executor(config, environ)
    run_dir, env = run_dir_of(config, config_path), kept_environment(environ, executor)
    return Subject(config, config_path, run_dir, env, executor, compute_python(config, config_path))


def subject_of_run(run_dir: RunDir) -> Subject:
    """A run that was begun, with what it recorded. Errors: UnknownRun, RunFolderError."""
    run = load_run(run_dir)
    return Subject(run.config, Path(run.config_path), run_dir, run.env, run.executor, run.python)


def gather(subject: Subject) -> LoginFacts:
    """Everything but the probe. Raises nothing for what does not work."""
    on_slurm = subject.executor == "slurm"
    cpu_s, _ = resource.getrlimit(resource.RLIMIT_CPU)
    return LoginFacts(
        config=subject.config,
        executor=subject.executor,
        folder=try_folder(subject.run_dir.path),
        quotas=tuple(parse_quota(printed("quota", "-w", env=subject.env))),
        slurm=slurm_facts(subject) if on_slurm else None,
        python=python_facts(subject.python, subject.env),
        missing=tuple(dict.fromkeys(_missing(subject))),  # what several slots lack is said once
        sharing=tuple(troubles(subject.run_dir)),
        gpus=() if on_slurm else visible_gpus(subject.env),
        ends_at_logout=_ends_at_logout(subject.env),
        cpu_limit_s=None if cpu_s == resource.RLIM_INFINITY else cpu_s,
        in_job=os.environ.get("SLURM_JOB_ID", ""),
    )


def _missing(subject: Subject) -> Iterator[tuple[str, str]]:
    config, folder = subject.config, subject.config_path.parent
    if config.container is not None and config.container.is_file:
        image = folder / user_path(config.container.image)
        if not image.exists():
            yield "container.image", str(image)
    programs = [("command", words) for words in commands_of(config)] if config.container is None else []
    for field, words in [*programs, *([("notify", config.notify)] if config.notify else [])]:
        program = str(folder / user_path(words[0])) if "/" in words[0] else words[0]
        if shutil.which(program, path=subject.env.get("PATH")) is None:
            yield field, program
        elif field == "command" and (script := missing_script(config, words, folder)) is not None:
            yield field, str(script)


def slurm_facts(subject: Subject) -> SlurmFacts:
    """Slurm's answers. After a `scontrol ping` that says DOWN nothing else is asked: each question would block."""
    conf = subject.env.get("SLURM_CONF", "")
    if conf and not Path(conf).exists():
        return SlurmFacts(conf_missing=conf)  # every command would look for it for a minute
    if absent := tuple(name for name in COMMANDS if shutil.which(name, path=subject.env.get("PATH")) is None):
        return SlurmFacts(commands_missing=absent)
    wanted = subject.config.slurm
    site = Site(subject.env, wanted.clusters)
    is_up, words = site.ping()
    if not is_up:
        return SlurmFacts(down=words or "no message")
    executor = SlurmExecutor(
        subject.run_dir.jobs, subject.env, clusters=wanted.clusters, command_timeout_s=QUESTION_TIMEOUT_S
    )
    offered = executor.partitions()
    return SlurmFacts(
        partitions=offered.error if offered.error is not None else offered.rows,
        limits=site.limits(wanted.account, wanted.partition, wanted.qos),
        trial=_submit_check(site, subject),
        queue_error=executor.poll().error or "",
    )


def _submit_check(site: Site, subject: Subject) -> SubmitCheck | None:
    """Of the very script of slot 0; None where it cannot be rendered (another check says why)."""
    parent = nearest_folder(subject.run_dir.path)
    try:
        text = rendered(subject.config, subject.config_path, 0, dict(subject.env))
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=parent, ignore_cleanup_errors=True) as place:
            script = Path(place, "job.sh")
            script.write_text(text)
            return site.would_take(script)
    except (AnchorlegError, OSError):
        return None


def _ends_at_logout(env: Mapping[str, str]) -> bool:
    """Whether systemd ends a user's processes then, by its own word: `b true` (busctl(1))."""
    logind = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
    kills = printed("busctl", "get-property", *logind, "KillUserProcesses", env=env).strip() == "b true"
    asked = ("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
    return kills and printed(*asked, env=env).strip() != "yes"


def try_folder(path: Path) -> FolderFacts:
    """Try in a new folder below `path` (or the nearest that is there) what a run does with files: each of these is
    missing on some network folder. Removes it again. Never raises: what does not work is a `Try` with its error.
    """
    parent = nearest_folder(path)
    trial = parent / f".doctor-{secrets.token_hex(4)}"
    steps: list[Try] = []
    tries: tuple[tuple[str, Callable[[], str | None]], ...] = (
        ("mkdir", trial.mkdir),
        ("write and fsync", lambda: write_bytes(trial / "file", b"one")),
        ("rename over a file", lambda: write_bytes(trial / "file", b"two")),
        ("link", lambda: why_no_links(trial)),
        ("rename of a folder", lambda: _rename_folder(trial)),
    )
    for name, act in tries:
        began, error = time.monotonic(), ""
        try:
            error = act() or ""
        except OSError as raised:
            error = raised.strerror or str(raised)
        steps.append(Try(name=name, seconds=time.monotonic() - began, error=error))
        if steps[0].error:
            break
    shutil.rmtree(trial, ignore_errors=True)
    free_bytes, free_files = free_room(parent)
    return FolderFacts(
        path=str(parent), kind=filesystem_of(parent), steps=tuple(steps), free_bytes=free_bytes, free_files=free_files
    )


def _rename_folder(trial: Path) -> str | None:
    (trial / "new").mkdir()
    write_bytes(trial / "new" / "inside", b"x")
    os.rename(trial / "new", trial / "final")
    return None if (trial / "final" / "inside").exists() else "it did not exist afterwards"

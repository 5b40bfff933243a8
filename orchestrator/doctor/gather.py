"""Collects the facts for `doctor` on the login node. Everything it asks has a time limit; nothing it makes stays."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anchorleg.places import user_path
from orchestrator.config import RunConfig, check_walltime
from orchestrator.doctor.facts import (
    DiskQuota,
    HostFacts,
    LoginFacts,
    Missing,
    PythonFacts,
    RunFacts,
    SlurmFacts,
)
from orchestrator.doctor.folder import nearest_existing, parse_quota, try_folder
from orchestrator.errors import AnchorlegError, ConfigError
from orchestrator.executors.base import JobState
from orchestrator.executors.gpus import visible_gpus
from orchestrator.executors.site import Site, SubmitCheck
from orchestrator.executors.slurm import NoAnswer, SlurmExecutor, run_command
from orchestrator.run.begin import compute_python, kept_environment, pick_executor, rendered, run_dir_of
from orchestrator.run.ledger import read_control
from orchestrator.run.program import commands_of, gpus_in_vain, missing_script
from orchestrator.run.rundir import RunDir, load_run
from orchestrator.run.sharing import troubles
from orchestrator.screens.reading import keeper

#: A person waits; a cold interpreter on a network folder takes some ten seconds.
QUESTION_TIMEOUT_S = 20.0
#: logind reads its own file, then the fragments of these folders, by name (logind.conf(5)).
LOGIND_FILES = ("/etc/systemd/logind.conf",)
LOGIND_FOLDERS = ("/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/etc/systemd/logind.conf.d")

_KILLS = re.compile(r"^\s*KillUserProcesses\s*=\s*(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Subject:
    """What is examined: a config, where it came from, the run folder that it means, and the jobs' environment.

    `known` False: there is no config here; the defaults stand in for one.
    """

    config: RunConfig
    config_path: Path
    run_dir: RunDir
    env: Mapping[str, str]
    executor: str
    python: str
    known: bool = True


def subject_of(config: RunConfig, config_path: Path, environ: Mapping[str, str], *, known: bool = True) -> Subject:
    """A config that has no run yet."""
    try:
        executor = pick_executor(config, environ)
    except ConfigError:
        executor = "slurm"  # asked for, and not here: one of the findings
    return Subject(
        config=config,
        config_path=config_path,
        run_dir=run_dir_of(config, config_path),
        env=kept_environment(environ, executor),
        executor=executor,
        python=compute_python(config, config_path),
        known=known,
    )


def subject_of_run(run_dir: RunDir) -> Subject:
    """A run that was begun, with what it recorded. Errors: UnknownRun, RunFolderError."""
    run = load_run(run_dir)
    return Subject(
        config=run.config,
        config_path=Path(run.config_path),
        run_dir=run_dir,
        env=run.env,
        executor=run.executor,
        python=run.python,
    )


def gather(subject: Subject, *, say: Callable[[str], None] = lambda _: None) -> LoginFacts:
    """Everything but the probe. `say`: told what is being looked at. Raises nothing for what does not work."""
    say("the shared folder")
    folder = try_folder(subject.run_dir.path)
    slurm = None
    if subject.executor == "slurm":
        say("Slurm")
        slurm = slurm_facts(subject)
    say("this machine")
    return LoginFacts(
        config=subject.config,
        config_known=subject.known,
        executor=subject.executor,
        folder=folder,
        quotas=quotas(subject.env),
        slurm=slurm,
        python=python_facts(subject),
        missing=tuple(_missing(subject)),
        sharing=_sharing(subject),
        gpus=visible_gpus(subject.env) if subject.executor == "local" else (),
        gpus_in_vain=gpus_in_vain(subject.config, subject.python) if subject.executor == "slurm" else "",
        host=host_facts(subject.env),
        run=run_facts(subject.run_dir),
    )


def _sharing(subject: Subject) -> tuple[str, ...]:
    try:
        return tuple(troubles(subject.config, subject.config_path.parent, subject.run_dir))
    except (AnchorlegError, OSError) as error:
        return (str(error),)


def _missing(subject: Subject) -> Iterator[Missing]:
    config, folder = subject.config, subject.config_path.parent
    if config.container is not None:
        image = folder / user_path(config.container.image)
        if not image.exists():
            yield Missing(field="container.image", path=str(image))
    programs = [("command", words) for words in commands_of(config)] if config.container is None else []
    found: list[Missing] = []
    for field, words in [*programs, *([("notify", config.notify)] if config.notify else [])]:
        program = str(folder / user_path(words[0])) if "/" in words[0] else words[0]
        if shutil.which(program, path=subject.env.get("PATH")) is None:
            found.append(Missing(field=field, path=program))
        elif field == "command" and (script := missing_script(config, words, folder)) is not None:
            found.append(Missing(field="command", path=str(script)))
    yield from dict.fromkeys(found)  # what several slots lack is said once


def slurm_facts(subject: Subject) -> SlurmFacts:
    """Slurm's answers. After a `scontrol ping` that says DOWN nothing else is asked: each question would block."""
    conf = subject.env.get("SLURM_CONF", "")
    if conf and not Path(conf).exists():
        # Every command, `--version` too, would look for it for a minute.
        return SlurmFacts(commands=(), conf_missing=conf)
    site = Site(subject.env)
    commands = site.commands()
    if not next(one.path for one in commands if one.name == "scontrol"):
        return SlurmFacts(commands=commands)
    answered = site.ping()
    if not answered.up:
        return SlurmFacts(commands=commands, answered=answered)
    before = time.time()
    settings = site.settings()
    told_at = time.time()
    as_of = None if isinstance(settings, str) else settings.as_of
    cluster = "" if isinstance(settings, str) else settings.text("ClusterName")
    wanted = subject.config.slurm
    executor = SlurmExecutor(subject.run_dir.jobs, subject.env, command_timeout_s=QUESTION_TIMEOUT_S)
    history = executor.accounting(time.time())
    offered = executor.partitions()
    queue = executor.poll()
    return SlurmFacts(
        commands=commands,
        answered=answered,
        settings=settings,
        # Slurm tells whole seconds; the middle of that second is the best guess.
        skew_s=None if as_of is None else as_of + 0.5 - (before + told_at) / 2,
        accounting=history.status,
        accounting_words=history.error or "",
        partitions=offered.error if offered.error is not None else offered.rows,
        limits=site.limits(cluster, wanted.account, wanted.partition, wanted.qos),
        trial=trial(site, subject),
        queue_error=queue.error or "",
        live_jobs=None if queue.error else queue.others + sum(row.state is not JobState.ENDED for row in queue.rows),
    )


def trial(site: Site, subject: Subject) -> SubmitCheck | None:
    """The very script of slot 0, before Slurm's own eyes. None where it cannot be rendered (another check says why)."""
    place = nearest_existing(subject.run_dir.path) / f".doctor-{secrets.token_hex(4)}"
    try:
        check_walltime(subject.config, "slurm")
        text = rendered(subject.config, subject.config_path, 0, dict(subject.env))
        place.mkdir()
    except (AnchorlegError, OSError):
        return None
    try:
        (place / "job.sh").write_text(text)
        return site.would_take(place / "job.sh")
    except OSError:
        return None
    finally:
        shutil.rmtree(place, ignore_errors=True)


def python_facts(subject: Subject) -> PythonFacts:
    """The compute side's interpreter, tried here with the shim that every job begins with."""
    code = str(Path(__file__).resolve().parents[2])
    program = "import sys; print('.'.join(map(str, sys.version_info[:3]))); import orchestrator.shim; print('shim')"
    # Not -P, which Python 3.10 refuses: then it could not say how old it is.
    env = {**subject.env, "PYTHONPATH": code, "PYTHONSAFEPATH": "1"}
    answer = run_command([subject.python, "-c", program], env, QUESTION_TIMEOUT_S)
    if isinstance(answer, NoAnswer):
        return PythonFacts(command=subject.python, words=answer.why)
    lines = answer.stdout.split()
    last = next((line for line in reversed(answer.stderr.splitlines()) if line.strip()), "")
    return PythonFacts(
        command=subject.python,
        version=lines[0] if lines else "",
        shim_ok=answer.returncode == 0 and lines[-1:] == ["shim"],
        words=last,
    )


def quotas(env: Mapping[str, str]) -> tuple[DiskQuota, ...]:
    """What `quota` tells, where there is one."""
    if shutil.which("quota", path=env.get("PATH")) is None:
        return ()
    answer = run_command(["quota", "-w"], env, QUESTION_TIMEOUT_S)
    # It ends with 1 where one is over.
    return () if isinstance(answer, NoAnswer) else parse_quota(answer.stdout)


def host_facts(env: Mapping[str, str]) -> HostFacts:
    """What this machine does to processes that stay after a logout, and for how long."""
    cpu_s, _ = resource.getrlimit(resource.RLIMIT_CPU)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    systemd = Path("/run/systemd/system").exists()
    lingers = None
    if systemd:
        command = ["loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value"]
        answer = run_command(command, env, QUESTION_TIMEOUT_S)
        if not isinstance(answer, NoAnswer) and answer.stdout.strip() in {"yes", "no"}:
            lingers = answer.stdout.strip() == "yes"
    texts = []
    for path in logind_files():
        with contextlib.suppress(OSError):
            texts.append(path.read_text(errors="replace"))
    return HostFacts(
        systemd=systemd,
        lingers=lingers,
        kills_user_processes=kills_user_processes(texts) if systemd else None,
        cpu_limit_s=None if cpu_s == resource.RLIM_INFINITY else cpu_s,
        open_files=None if files == resource.RLIM_INFINITY else files,
        in_job=os.environ.get("SLURM_JOB_ID", ""),
    )


def logind_files() -> list[Path]:
    """Logind's configuration, in the order in which later ones win."""
    fragments = [path for folder in LOGIND_FOLDERS for path in sorted(Path(folder).glob("*.conf"))]
    return [*(Path(name) for name in LOGIND_FILES), *fragments]


def kills_user_processes(texts: list[str]) -> bool:
    """Whether logind ends a user's processes at logout (its default as shipped is no; logind.conf(5))."""
    stated = [match for text in texts for match in _KILLS.findall(text)]
    return bool(stated) and stated[-1].lower() in {"yes", "true", "on", "1"}


def run_facts(run_dir: RunDir) -> RunFacts:
    """Whether the run was begun, and who controls it."""
    if not run_dir.run_file.exists():
        return RunFacts()
    try:
        by = keeper(run_dir, time.time())
        return RunFacts(begun=True, controller=by.words if by is not None else "", wish=read_control(run_dir).wish)
    except (AnchorlegError, OSError) as error:
        return RunFacts(begun=True, damage=str(error))

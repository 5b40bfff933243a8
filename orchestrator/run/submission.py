"""The folder of one submission: `job.sh`, what the scheduler runs, and `job.json`, what the shim reads."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from anchorleg.files import to_json
from orchestrator.config import RunConfig
from orchestrator.decisions.escalation import raised_slurm
from orchestrator.decisions.models import Ledger, Raised, Submit, parse_token
from orchestrator.decisions.sightings import RECORD_WAIT_S
from orchestrator.disk import read_json_or_none
from orchestrator.errors import ConfigError
from orchestrator.executors.base import JobRequest
from orchestrator.notation import filled, format_duration
from orchestrator.run.code import FOR_PROGRAMS, code_hash, fix_code
from orchestrator.run.evidence import output_files, read_evidence
from orchestrator.run.rundir import LOGS, Run, RunDir, program_folder, shared_dir, theirs
from orchestrator.sections import SlurmSection
from trainer.config.wandb import wandb_environment

#: Before the user's lines of shell: a batch script has `module` from an environment that is not passed on.
MODULES = """\
# `module`, where this shell does not know it yet: from the first of these files that has it.
for init in "${MODULESHOME:+$MODULESHOME/init/bash}" "${LMOD_PKG:+$LMOD_PKG/init/bash}" /etc/profile.d/lmod.sh \\
    /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash
do
    ! type module >/dev/null 2>&1 || break
    [ ! -r "$init" ] || . "$init"
done
"""


@lru_cache
def _template() -> str:
    """It comes with the package: beside it in a wheel, in `templates/` of the tree otherwise."""
    name, package = "train.sbatch", Path(__file__).parents[1]
    for folder in (package / "templates", package.parent / "templates"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise FileNotFoundError(f"the installation lacks its template {name}; reinstall Anchorleg from its checkout")


def _options(slurm: SlurmSection) -> dict[str, str]:
    """Sbatch's long options for the config's own fields; empty fields give none."""
    gpus = f"{slurm.gpu_type}:{slurm.gpus}" if slurm.gpu_type else str(slurm.gpus)
    options = {
        "ntasks-per-node": str(slurm.ranks // slurm.nodes) if slurm.ranks > 1 else None,
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "time-min": format_duration(slurm.time_min) if slurm.time_min is not None else None,
        "cpus-per-task": str(slurm.cpus_per_task),
        "gres": f"gpu:{gpus}" if slurm.gpus else None,
        "mem": slurm.mem,
        "constraint": slurm.constraint,
        "exclude": slurm.exclude,
    }
    return {name: value for name, value in options.items() if value}


def places_of(slurm: SlurmSection, raised: Raised | None = None) -> tuple[tuple[str, ...], ...]:
    """For each place where a job may start, the options of sbatch by which it differs from the script; none where there
    is one. Partitions alone are one place: sbatch takes a list of them.
    """
    own, *others = (raised_slurm(place, raised) for place in slurm.places)
    first = {**_options(own), "time": format_duration(own.time_limit)}
    told = [{**_options(place), "time": format_duration(place.time_limit)} for place in others]
    differ = [{name: value for name, value in place.items() if first.get(name) != value} for place in told]
    if own.partition and all(place.keys() == {"partition"} for place in differ):
        lists = ",".join([own.partition, *(place["partition"] for place in differ)])
        return ((f"--partition={lists}",),) if differ else ()
    return ((), *(tuple(f"--{name}={value}" for name, value in place.items()) for place in differ))


def _setup_lines(slurm: SlurmSection) -> str:
    """The job's whole id where there are several clusters, and the user's lines, behind what makes `module` known."""
    named = 'export ANCHORLEG_JOB_ID="$SLURM_JOB_ID;$SLURM_CLUSTER_NAME"\n' if slurm.clusters else ""
    return named + (MODULES + "\n".join(slurm.setup) if slurm.setup else "")


def job_script(
    config: RunConfig, *, executor: str, run_name: str, slot: int, job_dir: Path, code_dir: Path, python: str
) -> str:
    """The script of one job. Both executors run the same; to bash the `#SBATCH` lines are comments."""
    slurm = config.slurm
    options = [f"--{name}={value}" for name, value in _options(slurm).items()]
    lines = {
        "job_name": f"{run_name}-{slot}",
        "nodes": str(slurm.nodes),
        "ranks": str(slurm.ranks),
        "sbatch_lines": "\n".join(f"#SBATCH {option}" for option in (*options, *slurm.extra)),
        "time_limit": format_duration(slurm.time_limit),
        "lead_seconds": str(config.lead_seconds),
        "setup_lines": _setup_lines(slurm) if executor == "slurm" else "",
    }
    words = {
        "code_dir": str(code_dir),
        "job_dir": str(job_dir),
        "logs_dir": str(job_dir.parent.parent / LOGS),
        "token": job_dir.name,
        "python": python,
    }
    values = lines | {name: shlex.quote(word) for name, word in words.items()}
    return filled(_template(), values.__getitem__)


#: Job folders of a slot that stay for `logs`: a program that is preempted each half hour leaves 4,000 a season.
JOBS_KEPT = 100
#: The simulator steps one environment of a core while another waits for its action.
ENVS_A_CORE = 2


def command_of(run: Run, slot: int) -> list[str]:
    """The slot's command line: the user's own program, or the trainer's, or its actors'."""
    config = run.config
    if (own := config.command_of(slot)) is not None:
        return own
    python = config.container.python if config.container else run.python
    # -P: the config's folder may hold a checkout of this project; the run's fixed code must win.
    trainer = [python, "-P", "-m", "trainer"]
    if config.actors is None:
        ranks = config.slurm.ranks
        return [*trainer, "train", *(["--ranks", str(ranks)] if ranks > 1 else [])]
    envs = config.actors.num_envs or ENVS_A_CORE * config.slurm.cpus_per_task
    options = {
        "shared-dir": theirs(config.actors, run.folder),
        "policy": config.actors.run or "needed",
        "num-envs": envs,
        "device": "cpu",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [*trainer, "actors", "--contribute", "--direct", *words]


def job_spec(run: Run, run_dir: RunDir, action: Submit) -> dict[str, Any]:
    """The content of `job.json`."""
    config = run.config
    return {
        "token": action.token,
        "run_dir": str(run_dir.path),
        "slot": action.slot,
        "slots": config.slots,
        "attempt": action.attempt,
        "ahead": action.after is not None,
        "behind": action.behind,
        "command": command_of(run, action.slot),
        "folder": str(program_folder(run, run_dir)),
        "python_path": str(run_dir.code / run.code / FOR_PROGRAMS) if config.command is not None else None,
        "config_file": str(run_dir.settings(action.slot)),
        "container": config.container.for_job(Path(run.folder), config.slurm) if config.container else None,
        # Where a place gives less, Slurm's signal comes first.
        "limit_s": max(place.time_limit for place in config.slurm.places),
        "lead_s": config.lead_seconds,
        "max_runtime_s": config.max_runtime_s(action.slot),
        "run_id": run.run_id,
        "run_name": config.run_name,
        "shared_dir": str(shared_dir(config, run.folder, run_dir)),
        "accepts_contributions": config.collaboration.enabled,
        "terms": config.collaboration.model_dump(include={"rows_per_day", "oldest_client"}, exclude_none=True),
        "keep_checkpoints": config.relay.keep_checkpoints,
        "environment": wandb_environment(config.wandb, run.env),
        "failover": run.controller_python if run.executor == "slurm" and config.relay.failover_tick else None,
    }


def make_job_folder(run: Run, run_dir: RunDir, action: Submit) -> JobRequest:
    """Write the folder, durably. Errors: OSError; ConfigError where what the slot trains is not installed here."""
    folder = run_dir.job(action.token)
    disk = run_dir.disk
    request, slurm = request_of(run, run_dir, action), raised_slurm(run.config.slurm, action.raised)
    config = run.config.model_copy(update={"slurm": slurm})
    run = run.model_copy(update={"config": config})
    script = job_script(
        config,
        executor=run.executor,
        run_name=config.run_name,
        slot=action.slot,
        job_dir=folder,
        code_dir=run_dir.code / run.code,
        python=run.python,
    )
    disk.make_folder(folder)
    try:
        _write_settings(run, run_dir, action.slot)
        disk.write(folder / "job.json", to_json(job_spec(run, run_dir, action)))
        disk.write(folder / "job.sh", os.fsencode(script))
        disk.sync_folder(folder.parent)
    except (ConfigError, OSError):
        disk.remove_tree(folder)
        raise
    return request


def request_of(run: Run, run_dir: RunDir, action: Submit) -> JobRequest:
    """What the executor is asked for, once the folder is there."""
    folder = run_dir.job(action.token)
    # The command line wins over the script's own lines, so it must name the config's nodes, too.
    exclude = (*run.config.slurm.excluded, *action.exclude) if action.exclude else ()
    return JobRequest(
        job_dir=str(folder),
        script=str(folder / "job.sh"),
        after=action.after,
        exclude=exclude,
        places=places_of(run.config.slurm, action.raised),
        slot=action.slot,
        gpus=run.config.slurm.gpus,
    )


def make_job_folders(run: Run, run_dir: RunDir, submits: Iterable[Submit]) -> dict[str, JobRequest]:
    """Token → the request: a folder for each, or none at all. Errors: as `make_job_folder`."""
    made: dict[str, JobRequest] = {}
    submits = list(submits)
    if submits and not run_dir.disk.exists(run_dir.code / run.code):
        if code_hash() != run.code:
            raise ConfigError("run.code-gone", path=run_dir.code / run.code, name=run.config.run_name)
        fix_code(run_dir.code)
    try:
        for action in submits:
            made[action.token] = make_job_folder(run, run_dir, action)
    except (ConfigError, OSError):
        for token in made:
            with suppress(OSError):
                run_dir.disk.remove_tree(run_dir.job(token))
        raise
    return made


def made_again(
    run: Run, run_dir: RunDir, ledger: Ledger, now: float, check: Callable[[], None]
) -> list[dict[str, Any]]:
    """Make again what was removed under live jobs: folders, and their slots' settings. An event for each. `check` is
    called before: a run that is gone, or another owner's, is left alone. Errors: OSError.
    """
    found: list[dict[str, Any]] = []
    names, slots = set(run_dir.disk.names(run_dir.jobs)), set(run_dir.disk.names(run_dir.path / "slots"))
    for slot in ledger.slots:
        for attempt in slot.attempts if slot.occupied else ():
            # What another machine wrote may not show yet.
            live = [s for s in attempt.live if now - s.intent_at > RECORD_WAIT_S]
            if live and str(slot.index) not in slots:
                check()
                _write_settings(run, run_dir, slot.index)
                found.append({"kind": "made again", "slot": slot.index, "what": f"slots/{slot.index}"})
            for one in live:
                if one.token not in names:
                    behind = [a.number for a in slot.attempts for s in a.submissions if s.job_id == one.after]
                    where = (slot.index, attempt.number, one.token, one.after)
                    action = Submit(*where, max(behind, default=None), raised=slot.raised)
                    check()
                    with suppress(FileExistsError, ConfigError):
                        make_job_folder(run, run_dir, action)
                        found.append({"kind": "made again", "slot": slot.index, "what": f"jobs/{one.token}"})
    return found


def _write_settings(run: Run, run_dir: RunDir, slot: int) -> None:
    path, settings = run_dir.settings(slot), run.config.settings_of(slot)
    if read_json_or_none(run_dir.disk, path) != settings:
        run_dir.disk.make_folder(path.parent, exist_ok=True)
        run_dir.disk.write(path, to_json(settings))


def drop_old_job_folders(run_dir: RunDir, ledger: Ledger, slots: Collection[int]) -> None:
    """Keep what the ledger speaks of, and of each of these slots the newest `JOBS_KEPT` folders where a job was."""
    spoken = {s.token for slot in ledger.slots for attempt in slot.attempts for s in attempt.submissions}
    by_slot: dict[int, list[tuple[int, str]]] = {}
    for token in run_dir.disk.names(run_dir.jobs):
        parsed = parse_token(token)
        if parsed is None or parsed[0] not in slots:
            continue
        if token in spoken or _had_a_job(run_dir, token, *parsed):
            by_slot.setdefault(parsed[0], []).append((parsed[1], token))
        else:
            drop_job_folder(run_dir, token)
    for tokens in by_slot.values():
        for _, token in sorted(tokens, reverse=True)[JOBS_KEPT:]:
            if token not in spoken:
                drop_job_folder(run_dir, token)


def _had_a_job(run_dir: RunDir, token: str, slot: int, number: int) -> bool:
    if output_files(run_dir, token):
        return True
    claim = read_evidence(run_dir, slot, number, with_log=False).claim
    return claim is not None and claim.token == token


def drop_job_folder(run_dir: RunDir, token: str) -> None:
    """A job folder, and before it the links to its files: a link never leads nowhere, whenever we die."""
    for name in run_dir.disk.names(run_dir.job(token)):
        link = run_dir.logs / f"slurm-{name.removeprefix('job-')}"
        if name.startswith("job-") and run_dir.disk.link_target(link) == f"../jobs/{token}/{name}":
            run_dir.disk.remove(link)
    run_dir.disk.remove_tree(run_dir.job(token))

"""The folder of one submission: `job.sh`, what the scheduler runs, and `job.json`, what the shim reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from anchorleg.files import to_json
from anchorleg.places import user_path
from orchestrator.decisions.actions import Submit
from orchestrator.decisions.models import Gone, Ledger, Verdict, parse_token
from orchestrator.decisions.sightings import RECORD_WAIT_S
from orchestrator.decisions.verdicts import judge
from orchestrator.disk import read_json_or_none
from orchestrator.errors import ConfigError
from orchestrator.executors.base import JobRequest
from orchestrator.run.code import FOR_PROGRAMS, code_hash, fix_code
from orchestrator.run.evidence import output_files, read_evidence
from orchestrator.run.rundir import Run, RunDir, shared_dir, theirs
from orchestrator.run.script import job_script
from trainer.config.wandb import wandb_environment

#: Job folders of a slot that stay for `logs`, however they ended.
JOBS_KEPT = 20
#: Beside them, the newest of those that did not end well: a program that is preempted, or cut at its walltime, every
#: half hour leaves 4,000 a season.
FAILURES_KEPT = 100
#: After an end, so many folders beyond the kept ones are judged: the rest was before, and how it ended does not change.
JUDGED = 20


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
    container = None
    if config.container is not None:
        image = str(Path(run.folder) / user_path(config.container.image))
        container = config.container.model_dump() | {"image": image, "gpus": config.slurm.gpus}
    return {
        "token": action.token,
        "run_dir": str(run_dir.path),
        "slot": action.slot,
        "slots": config.slots,
        "attempt": action.attempt,
        "ahead": action.after is not None,
        "behind": action.behind,
        "command": command_of(run, action.slot),
        "folder": run.folder,
        "python_path": str(run_dir.code / run.code / FOR_PROGRAMS) if config.command is not None else None,
        "config_file": str(run_dir.settings(action.slot)),
        "container": container,
        "limit_s": config.slurm.time_limit,
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


def script_of(run: Run, run_dir: RunDir, slot: int, token: str) -> str:
    """The job script of one submission."""
    return job_script(
        run.config,
        executor=run.executor,
        run_name=run.config.run_name,
        slot=slot,
        job_dir=run_dir.job(token),
        code_dir=run_dir.code / run.code,
        python=run.python,
    )


def make_job_folder(run: Run, run_dir: RunDir, action: Submit) -> JobRequest:
    """Write the folder; everything is durable before the scheduler hears of it. Errors: OSError; ConfigError where
    what the slot trains is not installed here.
    """
    folder = run_dir.job(action.token)
    disk = run_dir.disk
    disk.make_folder(folder)
    try:
        _write_settings(run, run_dir, action.slot)
        disk.write(folder / "job.json", to_json(job_spec(run, run_dir, action)))
        disk.write(folder / "job.sh", os.fsencode(script_of(run, run_dir, action.slot, action.token)))
        disk.sync_folder(folder.parent)
    except (ConfigError, OSError):
        disk.remove_tree(folder)
        raise
    # The command line wins over the script's own lines, so it must name the config's nodes, too.
    configured = run.config.slurm.excluded if action.exclude else ()
    exclude = (*configured, *action.exclude)
    return JobRequest(
        job_dir=str(folder),
        script=str(folder / "job.sh"),
        after=action.after,
        exclude=exclude,
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
    """What somebody removed under live jobs and they still need, made again: their folders, and their slots' settings.
    An event for each. `check` is called before: a run that is gone, or another owner's, is left alone. Errors: OSError.
    """
    found: list[dict[str, Any]] = []
    names, slots = run_dir.disk.names(run_dir.jobs), run_dir.disk.names(run_dir.path / "slots")
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
                    action = Submit(slot.index, attempt.number, one.token, one.after, max(behind, default=None))
                    check()
                    with suppress(FileExistsError, ConfigError):
                        make_job_folder(run, run_dir, action)
                        found.append({"kind": "made again", "slot": slot.index, "what": f"jobs/{one.token}"})
    return found


def _write_settings(run: Run, run_dir: RunDir, slot: int) -> None:
    """What the slot's program reads from ANCHORLEG_CONFIG, where it is otherwise there, or not at all."""
    path, settings = run_dir.settings(slot), run.config.settings_of(slot)
    if read_json_or_none(run_dir.disk, path) != settings:
        run_dir.disk.make_folder(path.parent, exist_ok=True)
        run_dir.disk.write(path, to_json(settings))


def drop_old_job_folders(run_dir: RunDir, ledger: Ledger, slots: Collection[int]) -> None:
    """Keep all that the ledger still speaks of; where a job was, the newest `JOBS_KEPT` folders of each of these slots,
    too, and of the others the newest `FAILURES_KEPT` that did not end well. To be called after every end in a slot, and
    where a submission proved to have never been accepted.
    """
    spoken = {s.token for slot in ledger.slots for attempt in slot.attempts for s in attempt.submissions}
    by_slot: dict[int, list[tuple[int, str]]] = {}
    for token in run_dir.disk.names(run_dir.jobs):
        parsed = parse_token(token)
        if parsed is None or parsed[0] not in slots:
            continue
        if token in spoken or _had_a_job(run_dir, token, *parsed):
            by_slot.setdefault(parsed[0], []).append((parsed[1], token))
        else:
            _drop(run_dir, token)
    for slot, tokens in by_slot.items():
        failures = 0
        for place, (number, token) in enumerate(sorted(tokens, reverse=True)[JOBS_KEPT:]):
            if token in spoken:
                continue
            if failures < FAILURES_KEPT and (place >= JUDGED or not _ended_well(run_dir, slot, number)):
                failures += 1
            else:
                _drop(run_dir, token)


def _had_a_job(run_dir: RunDir, token: str, slot: int, number: int) -> bool:
    """Whether a job began in a folder: its output is there, or its claim."""
    if output_files(run_dir, token):
        return True
    claim = read_evidence(run_dir, slot, number, with_log=False).claim
    return claim is not None and claim.token == token


def _drop(run_dir: RunDir, token: str) -> None:
    """A job folder, and before it the links to its files: a link never leads nowhere, whenever we die."""
    for name in run_dir.disk.names(run_dir.job(token)):
        link = run_dir.logs / f"slurm-{name.removeprefix('job-')}"
        if name.startswith("job-") and run_dir.disk.link_target(link) == f"../jobs/{token}/{name}":
            run_dir.disk.remove(link)
    run_dir.disk.remove_tree(run_dir.job(token))


def _ended_well(run_dir: RunDir, slot: int, number: int) -> bool:
    verdict, _ = judge(read_evidence(run_dir, slot, number, with_log=False), Gone(proof="", at=0.0))
    return verdict in {Verdict.FINISHED, Verdict.HANDED_OVER}

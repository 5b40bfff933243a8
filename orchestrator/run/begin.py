"""From a config to a run folder: making a run, revising its config, refusing another training in its place."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from anchorleg.files import is_full, link_count, make_folder, read_json_or_none
from anchorleg.places import user_path
from orchestrator.config import RunConfig, check_start, check_walltime, parse_config, training_identity
from orchestrator.decisions.models import make_token
from orchestrator.decisions.verdicts import NO_INODES
from orchestrator.disk import PRIVATE_FOLDER, is_out_of_inodes
from orchestrator.errors import ConfigError, IdentityMismatch, RunFolderError, StorageError
from orchestrator.experiments import merged
from orchestrator.run import snapshot
from orchestrator.run.code import code_hash, fix_code
from orchestrator.run.ledger import load_ledger
from orchestrator.run.rundir import (
    LOGS,
    Run,
    RunDir,
    find_run,
    load_run,
    make_executor,
    newest_request,
    register,
    save_run,
    shared_dir,
)
from orchestrator.run.sharing import check_theirs, share_with
from orchestrator.run.submission import job_script
from trainer.config.section import resolve
from trainer.config.training import differences

#: What a submission may see of the environment in which `start` was typed. Everything else belongs into
#: `slurm.setup`: run.json lies in a shared folder, and environments hold secrets.
KEPT_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH",
    "SLURM_CONF", "MODULEPATH", "MODULESHOME", "LMOD_CMD", "LMOD_PKG", "MUJOCO_GL",
    "WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_BASE_URL",
)  # fmt: skip
#: Beside them, for jobs on this machine: which of its GPUs are ours. On Slurm each job has its own.
KEPT_HERE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
#: In place of the part of a submission's name that is drawn by chance.
UNDRAWN = "x" * 8
#: What a run folder has beside single files and `shared/`.
OWN_FOLDERS = ("lease", "jobs", "control", "requests", "code", "slots", LOGS)
NAMED = 4


def kept_environment(environ: Mapping[str, str], executor: str) -> dict[str, str]:
    """What submissions and jobs see of the environment in which a command was typed."""
    names = (*KEPT_VARIABLES, *(KEPT_HERE if executor == "local" else ()))
    return {name: environ[name] for name in names if name in environ}


def pick_executor(config: RunConfig, environ: Mapping[str, str]) -> str:
    """`auto` means slurm where there is an `sbatch`, else local. Errors: ConfigError."""
    has_sbatch = shutil.which("sbatch", path=environ.get("PATH")) is not None
    if config.executor == "auto":
        return "slurm" if has_sbatch else "local"
    if config.executor == "slurm" and not has_sbatch:
        raise ConfigError("executor.no-sbatch")
    return config.executor


def executor_for(config: RunConfig, run_dir: RunDir, environ: Mapping[str, str]) -> str:
    """As `pick_executor`, but `auto` is what a run has had from its first submission on: a shell without Slurm's
    commands must not move its jobs to this machine. Errors: ConfigError, RunFolderError, OSError.
    """
    picked = pick_executor(config, environ)
    if config.executor != "auto" or not run_dir.run_file.exists() or not run_dir.disk.names(run_dir.jobs):
        return picked
    begun = load_run(run_dir).executor
    if begun != picked:
        raise ConfigError("executor.another-before", begun=begun, here=picked)
    return begun


def compute_python(config: RunConfig, config_path: Path) -> str:
    """The compute side's interpreter: as configured (a path is relative to the config file), else this one."""
    if config.python is None:
        return sys.executable
    return str(config_path.parent / user_path(config.python)) if "/" in config.python else config.python


def run_dir_of(config: RunConfig, config_path: Path) -> RunDir:
    """The run folder: relative to the config file, `runs/<run_name>` by default. Errors: ConfigError."""
    folder = (config_path.parent / user_path(config.run_dir or f"runs/{config.run_name}")).resolve()
    if os.pathsep in str(folder):
        raise ConfigError("run-dir.separator", path=folder, separator=os.pathsep)
    ends = ":" if config.container is None or config.container.runtime == "ch-run" else ":,"
    if config.container is not None and (odd := set(ends) & set(f"{folder}{config_path.absolute().parent}")):
        raise ConfigError("container.separator", separator=min(odd))
    if "\\" in str(folder) and config.executor != "local":
        raise ConfigError("run-dir.backslash", path=folder)
    return RunDir(folder)


def begin(
    config: RunConfig,
    config_path: Path,
    run_dir: RunDir,
    environ: Mapping[str, str],
    now: float,
    *,
    forked: str = "",
    renew_code: bool = False,
    fix: Callable[[Path], str] = fix_code,
) -> Run:
    """Make the run in `run_dir`, or revise the one that is there; the caller holds the lease. `fix`: makes our code's
    copy; `renew_code`: take the user's anew, too. Errors: ConfigError, IdentityMismatch, RunFolderError, StorageError.
    """
    executor = executor_for(config, run_dir, environ)
    check_start(config, executor)
    config, _ = with_known_experiments(config, run_dir)
    wanted = {
        "executor": executor,
        "config": config,
        "config_path": str(config_path),
        "folder": str(config_path.parent),
        "python": compute_python(config, config_path),
        "identity": training_identity(config),
        "controller_python": sys.executable,
        "env": kept_environment(environ, executor),
        "after": _folder_before(config, run_dir, environ),
    }
    try:
        wanted["code"] = fix(run_dir.code)
        before = load_run(run_dir) if run_dir.run_file.exists() else None
        wanted["snapshot"] = snapshot.of_run(config, config_path.parent, run_dir, before, renew=renew_code)
        if before is not None:
            load_ledger(run_dir, before.run_id)
            if has_begun(run_dir):  # a run that never got a job may still be made right
                check_identity(before.identity, training_identity(config), config, run_dir)
            gone = (before.identity or ())[config.slots :]  # a slot that comes back must be the one that went
            after = before.model_copy(update=wanted)
            after = after.model_copy(update={"identity": (*after.identity, *gone) if after.identity else None})
            if after != before:
                after = after.model_copy(update={"revision": before.revision + 1})
        else:
            run_id = f"{config.run_name}-{secrets.token_hex(4)}"
            after = Run(run_id=run_id, revision=0, created_at=now, forked_from=forked or None, **wanted)
        shared = shared_dir(config, str(config_path.parent), run_dir)
        if config.actors is not None:
            check_theirs(shared)
        else:
            _make_shared(shared)
        if config.collaboration.group is not None:
            share_with(shared, config.collaboration.group)
        save_run(run_dir, after)
    except OSError as error:
        raise unwritable(run_dir, error) from None
    return load_run(run_dir)


def _folder_before(config: RunConfig, run_dir: RunDir, environ: Mapping[str, str]) -> str:
    """Errors: UnknownRun; ConfigError where it is this run."""
    if config.after is None:
        return ""
    found = find_run(config.after, environ).path
    if found == run_dir.path:
        raise ConfigError("after.itself", name=config.after)
    return str(found)


def with_known_experiments(config: RunConfig, run_dir: RunDir) -> tuple[RunConfig, tuple[str, ...]]:
    """`config` with the experiments that the run in `run_dir` has beside those of the file, and a sentence on those.
    Each keeps its slot. Errors: ConfigError where slots and experiments would be mixed; UnknownRun, RunFolderError.
    """
    if not run_dir.run_file.exists() or not _has_given_places(run_dir):
        return config, ()
    before = load_run(run_dir).config
    if before.experiments is None:
        if config.experiments is not None:
            raise ConfigError("run.has-slots", path=run_dir.path, name=config.run_name)
        return config, ()
    if config.experiments is None:
        raise ConfigError("run.has-experiments", path=run_dir.path, name=config.run_name)
    named = {row["name"] for row in config.experiments}
    kept = [row["name"] for row in before.experiments if row["name"] not in named]
    value = config.model_dump(mode="json", exclude_unset=True)
    rows = merged(before.experiments, config.experiments)
    config = parse_config({**value, "experiments": rows, "slots": len(rows)}, "the experiments")
    if not kept:
        return config, ()
    which = ", ".join(kept[:NAMED]) + (f" and {len(kept) - NAMED} more" if len(kept) > NAMED else "")
    return config, (f"the config no longer names {which}: they continue; to end them, use `orchestrator drop`.",)


def _make_shared(folder: Path) -> None:
    """Laptops find it before the first policy. A job that cannot publish there says so and trains."""
    try:
        if not folder.is_dir():
            make_folder(folder, PRIVATE_FOLDER)
    except OSError as error:
        raise StorageError("shared-dir.unwritable", path=folder, why=error.strerror or error) from None


def _has_given_places(run_dir: RunDir) -> bool:
    """Whether a job was asked for, or anything of a slot: by the number of one."""
    if has_begun(run_dir) or newest_request(run_dir.disk, run_dir.requests):
        return True
    ledger = load_ledger(run_dir, load_run(run_dir).run_id)
    return ledger is not None and any(slot.attempts for slot in ledger.slots)


def has_begun(run_dir: RunDir) -> bool:
    """Whether any attempt was ever claimed."""
    return any(run_dir.path.glob("slots/*/attempts/*/claim"))


def check_identity(
    before: tuple[str, ...] | None, after: tuple[str, ...] | None, config: RunConfig, run_dir: RunDir
) -> None:
    """Slots may come and go; what a kept slot trains may not change. Errors: IdentityMismatch."""
    same = (before is None) == (after is None)
    if same and all(a == b for a, b in zip(before or (), after or (), strict=False)):
        return
    changed: list[str] = []
    for slot in range(config.slots if after is not None else 0):
        saved = read_json_or_none(run_dir.settings(slot))
        if saved is not None:
            changed += differences(saved, resolve(config.training_of(slot)))
    what = ", ".join(dict.fromkeys(changed)) or "what it trains"
    raise IdentityMismatch("run.other-training", path=run_dir.path, changed=what, name=config.run_name)


def _check_jobs_are_here(run_dir: RunDir) -> None:
    """Errors: RunFolderError where a job looks for its run elsewhere: it was moved or copied; OSError."""
    if not run_dir.run_file.exists():
        return
    run = load_run(run_dir)
    ledger = load_ledger(run_dir, run.run_id)
    live = [s.token for slot in ledger.slots for a in slot.attempts for s in a.live] if ledger is not None else None
    tokens = run_dir.disk.names(run_dir.jobs) if live is None else live
    specs = (read_json_or_none(run_dir.job(token) / "job.json") for token in tokens)
    if all(spec is None or spec["run_dir"] == str(run_dir.path) for spec in specs):
        return
    poll = make_executor(run, run_dir).poll()
    if poll.error is not None:
        raise RunFolderError("run.moved-unseen", path=run_dir.path, why=poll.error)
    for row in poll.elsewhere:
        there, name = Path(row.work_dir).parent.parent, run.config.run_name
        if row.job_id not in {one.job_id for one in poll.rows}:
            raise RunFolderError("run.copied", path=run_dir.path, there=there, job=row.job_id)
        register(run, run_dir, time.time())  # so that `stop` finds it
        raise RunFolderError("run.moved", name=name, path=run_dir.path, there=there, job=row.job_id)


def prepare_folder(run_dir: RunDir) -> None:
    """Make the run folder, close it to others, prove that it can be written. Errors: StorageError, RunFolderError."""
    _check_jobs_are_here(run_dir)
    try:
        make_folder(run_dir.path)
        _close(run_dir.path, stat.S_IWGRP | stat.S_IWOTH)
        for name in OWN_FOLDERS:
            make_folder(run_dir.path / name, PRIVATE_FOLDER)
            _close(run_dir.path / name, stat.S_IRWXG | stat.S_IRWXO)
        if not os.access(run_dir.path, os.W_OK | os.X_OK):
            raise PermissionError(13, os.strerror(13))
        if why := why_no_links(run_dir.lease):
            raise StorageError("run-dir.no-hard-links", path=run_dir.path, why=why)
    except OSError as error:
        raise unwritable(run_dir, error) from None


def unwritable(run_dir: RunDir, error: OSError) -> StorageError:
    """What is wrong with the run's folder, and what to do. A run that exists has no other folder."""
    why = NO_INODES if is_full(error) and is_out_of_inodes(run_dir.path) else error.strerror or error
    advice = "make room there" if is_full(error) else "let this account write there"
    advice += "" if run_dir.run_file.exists() else ", or choose another folder"
    return StorageError("run-dir.unwritable", path=run_dir.path, why=why, advice=advice)


def _close(folder: Path, to: int) -> None:
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    if mode & to:
        os.chmod(folder, mode & ~to)


def why_no_links(folder: Path) -> str:
    """Why `folder` has no hard links, on which leases and claims rest; empty where it has. Errors: OSError."""
    trial = folder / f".link-{secrets.token_hex(4)}"
    other = trial.with_name(f"{trial.name}-2")
    trial.touch()
    try:
        os.link(trial, other)
        return "" if link_count(trial) == 2 else "a link is a copy there"
    except OSError as error:
        return error.strerror or str(error)
    finally:
        trial.unlink(missing_ok=True)
        other.unlink(missing_ok=True)


def rendered(config: RunConfig, config_path: Path, slot: int, environ: Mapping[str, str]) -> str:
    """The job script that `start` would submit, with `UNDRAWN` in its token. Errors: ConfigError, OSError."""
    if slot >= config.slots:
        raise ConfigError("slot.unknown", name=config.run_name, slot=slot, last=config.slots - 1)
    executor = pick_executor(config, environ) if config.executor != "slurm" else "slurm"
    check_walltime(config, executor)
    run_dir = run_dir_of(config, config_path)
    return job_script(
        config,
        executor=executor,
        run_name=config.run_name,
        slot=slot,
        job_dir=run_dir.job(make_token(slot, 0, UNDRAWN)),
        code_dir=run_dir.code / code_hash(),
        python=compute_python(config, config_path),
    )

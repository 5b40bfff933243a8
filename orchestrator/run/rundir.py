"""The run folder: where everything is, and `run.json`, from which every host of the controller reads all it needs.

::

    <run_dir>/run.json  lease/  ledger-<epoch>.json  events-<epoch>.jsonl  control/  requests/  code/  …
    <run_dir>/shared/                what other machines may see, unless collaboration.shared_dir names another place
    <run_dir>/jobs/<token>/          job.sh  job.json  job-<id>.out  .err  (local.json, hand-over)
    <run_dir>/logs/                  slurm-<id>.out  .err: links to those, which each job makes as its first act
    <run_dir>/slots/<k>/             config.json
    <run_dir>/slots/<k>/attempts/<a>/  claim  parent.json  heartbeat.json  progress.json  exit.json  …
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from anchorleg.files import to_json
from anchorleg.job import SHARED
from anchorleg.places import user_path
from orchestrator.config import LOCAL_POLL_S, SLURM_POLL_S, RunConfig, training_identity
from orchestrator.disk import LOCAL_DISK, Disk, read_json
from orchestrator.errors import RunFolderError, UnknownRun
from orchestrator.executors.base import Frozen
from orchestrator.experiments import MOST_SLOTS
from orchestrator.run.requests import requests_after
from orchestrator.run.script import LOGS
from orchestrator.sections import ActorsSection
from trainer.config.section import BEGUN


@dataclass(frozen=True)
class RunDir:
    """Paths below one run folder (absolute), and the disk that they are on."""

    path: Path
    disk: Disk = field(default=LOCAL_DISK, compare=False, repr=False)

    @property
    def run_file(self) -> Path:
        """`run.json`."""
        return self.path / "run.json"

    @property
    def jobs(self) -> Path:
        """One folder per submission."""
        return self.path / "jobs"

    @property
    def logs(self) -> Path:
        """Links to the jobs' output files."""
        return self.path / LOGS

    @property
    def lease(self) -> Path:
        """The owners' epochs."""
        return self.path / "lease"

    @property
    def control(self) -> Path:
        """Numbered wishes of `start` and `stop`."""
        return self.path / "control"

    @property
    def requests(self) -> Path:
        """Numbered wishes for single slots, of `add`, `drop`, `pause`, `resume` and `priority`."""
        return self.path / "requests"

    @property
    def code(self) -> Path:
        """The fixed copies of the packages."""
        return self.path / "code"

    @property
    def log(self) -> Path:
        """What a controller in the background prints, and failover ticks say."""
        return self.path / "controller.log"

    def job(self, token: str) -> Path:
        """The folder of one submission."""
        return self.jobs / token

    def slot(self, index: int) -> Path:
        """The folder of one slot."""
        return self.path / "slots" / str(index)

    def settings(self, index: int) -> Path:
        """What the program of one slot reads from ANCHORLEG_CONFIG."""
        return self.slot(index) / "config.json"

    def attempt(self, index: int, number: int) -> Path:
        """The folder of one attempt."""
        return self.slot(index) / "attempts" / str(number)

    def ledger(self, epoch: int) -> Path:
        """The ledger of one epoch."""
        return self.path / f"ledger-{epoch}.json"

    def events(self, epoch: int) -> Path:
        """The history of one epoch."""
        return self.path / f"events-{epoch}.jsonl"


class Run(Frozen):
    """`run.json`: one training and how its jobs are to be made. Every path in it is absolute.

    `revision` counts config changes; `identity` (None for a foreign command) is the slots' training identity, which
    must never change; `code`: hash of the fixed code; `env`: what submissions and jobs see of the environment;
    `controller_python`: the interpreter in which `start` was typed, for failover ticks.
    """

    version: int = 1
    run_id: str
    revision: int
    created_at: float
    executor: str
    config: RunConfig
    config_path: str
    folder: str
    python: str
    code: str
    identity: tuple[str, ...] | None
    env: dict[str, str]
    controller_python: str = ""
    forked_from: str | None = None

    @property
    def poll_s(self) -> float:
        """Seconds between two looks at the queue."""
        return self.config.poll_seconds or (SLURM_POLL_S if self.executor == "slurm" else LOCAL_POLL_S)


def shared_dir(config: RunConfig, folder: str, run_dir: RunDir) -> Path:
    """The shared folder of the run (absolute): `collaboration.shared_dir` relative to the config file's `folder`, else
    `shared/` in the run folder; of actors, the one for which they play.
    """
    if config.actors is not None:
        return theirs(config.actors, folder)
    named = config.collaboration.shared_dir
    return run_dir.path / SHARED if named is None else (Path(folder) / user_path(named)).resolve()


def theirs(actors: ActorsSection, folder: str) -> Path:
    """The shared folder (absolute) for which `actors` play; `folder`: of the config file."""
    return (Path(folder) / user_path(actors.shared_dir)).resolve()


def load_run(run_dir: RunDir) -> Run:
    """The run's record, with the experiments that were added since. What it trains need not be installed here. Errors:
    UnknownRun where there is none, RunFolderError where it is damaged, OSError where it cannot be read now.
    """
    try:
        value: dict[str, Any] = read_json(run_dir.disk, run_dir.run_file)
    except FileNotFoundError:
        raise UnknownRun("run.not-begun", path=run_dir.path) from None
    except ValueError as error:
        raise RunFolderError("run.record-unreadable", path=run_dir.run_file, why=error) from None
    try:
        return _with_added(Run.model_validate(value, context=BEGUN), run_dir)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RunFolderError("run.record-damaged", path=run_dir.run_file, field=where, why=first["msg"]) from None


def _with_added(run: Run, run_dir: RunDir) -> Run:
    known = {row["name"] for row in run.config.experiments or ()}
    rows: dict[str, Any] = {}
    for request in requests_after(run_dir.disk, run_dir.requests, 0):
        # Two commands at once may have added one name twice, or both the last place: the first one counts.
        for row in request.experiments:
            if row["name"] not in known and len(known) + len(rows) < MOST_SLOTS:
                rows.setdefault(row["name"], row)
    if not rows:
        return run
    config, identity = run.config.with_experiments(list(rows.values()), begun=True), run.identity
    if identity is not None:
        first, added = run.config.slots, None
        with suppress(ValidationError):  # they are compared by `start` alone, which must resolve them itself
            added = training_identity(config, first)
        identity = (*identity[:first], *(added or ()))
    return run.model_copy(update={"config": config, "identity": identity})


def save_run(run_dir: RunDir, run: Run) -> None:
    """Write `run.json`, for its owner alone: it has commands, paths and the environment. Errors: OSError."""
    value = run.model_dump(mode="json")
    value["config"] = run.config.model_dump(mode="json", exclude_unset=True)
    run_dir.disk.write(run_dir.run_file, to_json(value))

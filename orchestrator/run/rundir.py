"""The run folder: where everything is (docs/architecture.md, "Run folder"), and `run.json`, from which a controller
reads all it needs, wherever it lives.

Requests for single slots (`requests/<n>.json`) are written by commands and taken up in their order by every tick. They
stay: the experiments that were added are in no other place (`load_run` adds them to the config). This account's runs
have a small file each in `$XDG_STATE_HOME/anchorleg/runs/`, so that commands find them: losing it costs nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from anchorleg.files import to_json, write_json
from anchorleg.job import SHARED
from anchorleg.places import runs_folder, user_path
from anchorleg.words import did_you_mean
from orchestrator.config import LOCAL_POLL_S, SLURM_POLL_S, RunConfig, training_identity
from orchestrator.decisions.requests import Kind, Request
from orchestrator.disk import LOCAL_DISK, Disk, numbers_in, read_json, read_json_or_none, read_record
from orchestrator.errors import RunFolderError, UnknownRun
from orchestrator.executors.base import Executor, Frozen
from orchestrator.experiments import MOST_SLOTS
from orchestrator.sections import ActorsSection
from trainer.config.section import BEGUN


def newest_request(disk: Disk, folder: Path) -> int:
    """The number of the newest one, 0 where there is none."""
    return max(numbers_in(disk, folder, ".json"), default=0)


def requests_after(disk: Disk, folder: Path, number: int) -> list[Request]:
    """Those with a higher number, in their order. Errors: RunFolderError where one is damaged."""
    found = []
    for path in (folder / f"{n}.json" for n in numbers_in(disk, folder, ".json") if n > number):
        try:
            found.append(Request.model_validate(read_json(disk, path)))
        except ValueError:
            raise RunFolderError("request.damaged", path=path) from None
    return found


def ask(disk: Disk, folder: Path, kind: Kind, *, now: float, after: int = 0, **what: Any) -> Request:
    """Add a request under the next free number. `after`: the newest taken up, perhaps moved away. Errors: OSError."""
    disk.make_folder(folder, exist_ok=True)
    number = max(after, newest_request(disk, folder))
    while True:
        number += 1
        request = Request(number=number, at=now, kind=kind, **what)
        data = to_json(request.model_dump(mode="json", exclude_defaults=True))
        if disk.create(folder / f"{number}.json", data):  # it may have settings
            return request


#: Links to the jobs' output files.
LOGS = "logs"


class _Below:
    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run_dir: RunDir, _owner: object = None) -> Path:
        return run_dir.path / self._name


@dataclass(frozen=True)
class RunDir:
    """Paths below one run folder (absolute), and the disk that they are on."""

    path: Path
    disk: Disk = field(default=LOCAL_DISK, compare=False, repr=False)

    run_file = _Below("run.json")
    jobs = _Below("jobs")
    logs = _Below(LOGS)
    lease = _Below("lease")
    control = _Below("control")
    requests = _Below("requests")
    code = _Below("code")
    #: What a controller in the background prints, and failover ticks say.
    log = _Below("controller.log")

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


class ProgramCopy(Frozen):
    """The copy of the user's program (`orchestrator.run.snapshot`): a folder in `code/`, of which `start` is the one in
    which jobs start. `setting`: of the config. `commit`: git's, with `is_changed` where files differed from it.
    """

    setting: bool | str
    program: str
    start: str
    taken_at: float
    commit: str = ""
    is_changed: bool = False

    @property
    def words(self) -> str:
        """What it is a copy of, for people."""
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.taken_at))
        commit = f" (commit {self.commit[:12]}{' with changes' if self.is_changed else ''})" if self.commit else ""
        return f"the copy of your code of {when}{commit}"


class Run(Frozen):
    """`run.json`: one training and how its jobs are to be made, with absolute paths. `revision` counts config changes;
    `identity` (None for a foreign command) is the slots' training identity; `code`: hash of the fixed code; `env`: what
    submissions and jobs see of the environment; `controller_python`: the interpreter in which `start` was typed, for
    failover ticks; `after`: the folder of the run that must finish first.
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
    snapshot: ProgramCopy | None = None
    after: str = ""

    @property
    def poll_s(self) -> float:
        """Seconds between two looks at the queue."""
        return self.config.poll_seconds or (SLURM_POLL_S if self.executor == "slurm" else LOCAL_POLL_S)


def program_folder(run: Run, run_dir: RunDir) -> Path:
    """Where jobs start a program of one's own: in the config's folder, or in the run's copy of it."""
    return Path(run.folder) if run.snapshot is None else run_dir.code / run.snapshot.program / run.snapshot.start


def shared_dir(config: RunConfig, folder: str, run_dir: RunDir) -> Path:
    """The run's shared folder (absolute), by default `shared/` in the run folder; of actors, the one they play for."""
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


def make_executor(run: Run, run_dir: RunDir) -> Executor:
    """The executor that `run.json` names, with the environment that it recorded."""
    if run.executor == "slurm":
        from orchestrator.executors.packed import PACK, PackedExecutor
        from orchestrator.executors.slurm import SlurmExecutor

        places = run.config.slurm.slots_per_job
        slurm = SlurmExecutor(run_dir.jobs, run.env, clusters=run.config.slurm.clusters)
        if places == 1 and not any(name.startswith(PACK) for name in run_dir.disk.names(run_dir.jobs)):
            return slurm
        return PackedExecutor(slurm, run_dir.jobs, places, run.config.slurm.time_limit)
    from orchestrator.executors.local import LocalExecutor

    return LocalExecutor(run_dir.jobs, run.env)


class Entry(Frozen):
    """One run that was started here."""

    run_id: str
    run_name: str
    run_dir: str
    registered_at: float


def register(run: Run, run_dir: RunDir, now: float, environ: Mapping[str, str] = os.environ) -> None:
    """Remember a run. A home folder that cannot be written costs the comfort, not the run."""
    folder = runs_folder(environ)
    entry = Entry(run_id=run.run_id, run_name=run.config.run_name, run_dir=str(run_dir.path), registered_at=now)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{run.run_id}.json", entry.model_dump())


def entries(environ: Mapping[str, str] = os.environ) -> list[Entry]:
    """All runs that still have their folder, newest first."""
    found: list[Entry] = []
    for entry in (read_record(Entry, path) for path in sorted(runs_folder(environ).glob("*.json"))):
        # Folders are wiped and used again.
        there = read_json_or_none(LOCAL_DISK, RunDir(Path(entry.run_dir)).run_file) if entry is not None else None
        if isinstance(there, dict) and there.get("run_id") == entry.run_id:
            found.append(entry)
    return sorted(found, key=lambda entry: -entry.registered_at)


def find_run(name: str, environ: Mapping[str, str] = os.environ) -> RunDir:
    """The newest run of that name or id, or the one in that folder. Errors: UnknownRun."""
    known = entries(environ)
    for entry in known:
        if name in {entry.run_name, entry.run_id}:
            return RunDir(Path(entry.run_dir))
    if (run_dir := RunDir(user_path(name).resolve())).run_file.exists():
        return run_dir
    hint = did_you_mean(name, {entry.run_name for entry in known}, "see the known ones with `orchestrator runs`.")
    raise UnknownRun("run.unknown", name=name, near=hint)

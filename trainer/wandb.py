"""A slot on Weights & Biases: which run there is its own, its rows as lines of that run's history, and all of them as
one offline run, which `wandb sync` sends.

W&B drops a line whose `_step` is not above the one before it, and an evaluation is ready long after rows of later
steps were sent. So every row and every evaluation is a line of its own, `_step` only counts them upward, and the axis
of all curves is `global_step`: the environment step that the values are of. Sent live or afterwards, a history has the
same lines; so `wandb sync`, which puts line i where line i was, makes one whole of which lines are missing. That is why
an offline run is the whole history, written anew each time, and not a folder a job (tried with wandb 0.31).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from heapq import merge
from pathlib import Path
from typing import Any

from anchorleg.files import publish_folder, read_json_or_none, write_json
from anchorleg.job import Job, attempt_numbers, lineage
from anchorleg.rollback import rollbacks
from trainer.errors import ConfigError, SaveError
from trainer.history.read import evaluation_scalars, scalars
from trainer.history.slots import History

#: The project's name on W&B where nobody gives one.
PROJECT = "anchorleg"
#: In the folder of each attempt of which W&B was asked for something.
FILE = "wandb.json"
#: The axis of all curves.
STEP = "global_step"
#: Beside it, in each row and in each evaluation: their last values tell what a run on W&B has.
ROW_STEP, EVALUATION_STEP = "train/step", "evaluation/step"

#: Where W&B is and how it is reached, who sends, and where its library keeps its own. All else a shell may be set up
#: with for other trainings (a resumed run's history is appended to, not replaced; a sweep gives its runs ids of its
#: own), or have wrong.
_HEEDED = (
    *("API_KEY", "BASE_URL", "IDENTITY_TOKEN", "CREDENTIALS", "CONFIG_DIR", "CACHE_DIR", "DATA_DIR", "ERROR_"),
    *("HTTP", "INSECURE_", "X_EXTRA"),
)

#: Of a history on W&B, whose own name for the time (unix seconds) is `_timestamp`.
Line = dict[str, float]
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Destination:
    """A place on W&B. `entity` None: whose the key is. `group` None: the run's id. `returns`: how often the slot had
    gone back to an older checkpoint on purpose: what it learns from then on is another curve.
    """

    project: str = PROJECT
    entity: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    returns: int = 0

    def of_slot(self, run_id: str, slot: int) -> dict[str, Any]:
        """What `wandb.init` is told of a slot's run here: one id for all its jobs until it goes back."""
        name = f"{run_id}-{slot}" + (f"-back{self.returns}" if self.returns else "")
        return {
            "id": name,
            "name": name,
            "group": self.group or run_id,
            "project": self.project,
            "entity": self.entity,
            "tags": self.tags or None,
        }

    @classmethod
    def of_job(cls, job: Job, environ: Mapping[str, str]) -> Destination:
        """As `WANDB_PROJECT`, `WANDB_ENTITY`, `WANDB_RUN_GROUP` and `WANDB_TAGS` say; an empty one says nothing. It is
        written down in the attempt's folder, for `recorded`. Errors: OSError; ValueError for a damaged rollback.
        """
        there = cls(
            project=environ.get("WANDB_PROJECT") or PROJECT,
            entity=environ.get("WANDB_ENTITY") or None,
            group=environ.get("WANDB_RUN_GROUP") or None,
            tags=tuple(tag.strip() for tag in environ.get("WANDB_TAGS", "").split(",") if tag.strip()),
            returns=_returns(job.slot_dir, job.attempt),
        )
        write_json(job.attempt_dir / FILE, asdict(there))
        return there

    @classmethod
    def recorded(cls, slot_dir: Path) -> Destination:
        """Where the curves of the slot's newest line of attempts go, as the newest attempt of which W&B was asked for
        something was told. Errors: OSError; ValueError for a damaged file.
        """
        line = lineage(slot_dir)
        there = cls(returns=_returns(slot_dir, line[-1].attempt) if line else 0)
        for number in reversed(attempt_numbers(slot_dir)):
            told: dict[str, Any] | None = read_json_or_none(slot_dir / "attempts" / str(number) / FILE)
            if told is not None:
                return replace(there, **{**told, "tags": tuple(told["tags"]), "returns": there.returns})
        return there


def _returns(slot_dir: Path, attempt: int) -> int:
    """How often the slot had gone back when this attempt began: later decisions are its successors'."""
    return sum(decision.attempt < attempt for decision in rollbacks(slot_dir))


def of_row(row: Mapping[str, Any]) -> Line:
    """A row of metrics. Errors: KeyError, TypeError, AttributeError for what is no training's row."""
    return {STEP: row["to"], ROW_STEP: row["to"], **scalars(row), "_timestamp": row["at"]}


def of_evaluation(row: Mapping[str, Any]) -> Line:
    """An evaluation. Errors: as `of_row`."""
    return {STEP: row["step"], EVALUATION_STEP: row["step"], **evaluation_scalars(row), "_timestamp": row["at"]}


def lines_of(rows: Rows, evaluations: Rows) -> Iterator[Line]:
    """A whole history by steps, one line at a time: it need not fit into memory. At one step the row comes first.

    `rows` and `evaluations` are in order. Errors: those of `of_row`.
    """
    both = map(of_row, rows), map(of_evaluation, evaluations)
    return merge(*both, key=lambda line: (line[STEP], EVALUATION_STEP in line))


def send(run: Any, lines: Iterable[Line]) -> Iterator[Line]:
    """Give a run of W&B those `lines` that it lacks, as they come; each is yielded before. Errors: wandb's."""
    for name in (STEP, ROW_STEP, EVALUATION_STEP):
        run.define_metric(name, hidden=True)
    run.define_metric("*", step_metric=STEP)
    newest = {name: run.summary.get(name, -1) for name in (ROW_STEP, EVALUATION_STEP)}
    free = run.starting_step
    for line in lines:
        kind = EVALUATION_STEP if EVALUATION_STEP in line else ROW_STEP
        if line[kind] > newest[kind]:
            yield line
            number = max(int(line[STEP]), free)  # its environment step where that is free
            run.log(line, step=number, commit=True)
            newest[kind], free = line[kind], number + 1


@dataclass(frozen=True)
class Written:
    """One offline run on the disk, of `lines` up to `last_step`."""

    folder: Path
    lines: int
    last_step: int


def library() -> Any:
    """The module `wandb`, which from here on has only those variables that are heeded. Errors: ConfigError where it is
    not installed.
    """
    # Not its reports to its makers: a login node may have no way out, and a library that waits for one delays us.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    heeded = tuple(f"WANDB_{name}" for name in _HEEDED)
    for variable in list(os.environ) if "wandb" not in sys.modules else ():
        if variable.startswith("WANDB_") and not variable.startswith(heeded):
            del os.environ[variable]
    try:
        import wandb
    except ImportError as error:
        if error.name != "wandb":
            raise ConfigError("wandb.not-loaded", why=error) from None
        raise ConfigError("wandb.not-installed") from None
    if not hasattr(wandb, "init"):  # a folder of that name, such as the one that `write` makes, is an empty package
        raise ConfigError("wandb.not-installed")
    return wandb


def quiet(wandb: Any, **more: Any) -> Any:
    """Settings of a run that tells nothing of this process and its machine; `more`."""
    return wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        save_code=False,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        **more,
    )


def write(history: History, out: Path, there: Destination) -> Written:
    """Make the folder `out/offline-run-<time>-<id>` hold this history, in place of an older one of this run.

    Its rows are read one at a time. Errors: SaveError; ConfigError without `wandb`; those of `lines_of`.
    """
    place = there.of_slot(history.run_id, history.slot)
    ours = re.compile(rf"offline-run-\d{{8}}_\d{{6}}-{re.escape(place['id'])}")  # W&B puts a time before its id
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".new-", ignore_cleanup_errors=True) as scratch:
            made = _record(history, Path(scratch), place)
            for older in [path for path in out.glob("offline-run-*") if ours.fullmatch(path.name)]:
                shutil.rmtree(older)
            final = out / made.folder.name
            publish_folder(made.folder, final)
    except OSError as error:
        raise SaveError("output.unwritable-file", path=out.absolute(), why=error.strerror or error) from None
    return replace(made, folder=final)


def _record(history: History, scratch: Path, place: Mapping[str, Any]) -> Written:
    """Let `wandb` write the run below `scratch`. Errors: SaveError, ConfigError, OSError."""
    wandb = library()
    lines = last_step = 0
    try:
        run = wandb.init(mode="offline", dir=scratch, config=dict(history.training), settings=quiet(wandb), **place)
        for line in send(run, lines_of(history.rows, history.evaluations)):
            lines, last_step = lines + 1, int(line[STEP])
        run.finish(exit_code=0)
        wandb.teardown()  # its process closes the log after `finish`, and ends here
    except (wandb.errors.UsageError, ValueError) as error:
        words = " ".join(str(error).split())  # of a wrong variable it tells in four lines
        raise ConfigError("wandb.refused", id=place["id"], why=words) from None
    except wandb.Error as error:
        raise SaveError("wandb.not-written", id=place["id"], why=error) from None
    [made] = (scratch / "wandb").glob("offline-run-*")
    return Written(made, lines, last_step)

"""A slot's history as one offline run of Weights & Biases, which `wandb sync` sends.

The journals are the truth, and this writes them down anew, whole, each time: `wandb sync` puts line i of a run's
history where line i was, so sending a longer run again appends what is new and changes nothing else. One that was
sent while it trained (`trainer.wandb`) has as many lines, so what it lacks is filled in. A folder a job, which W&B's
own offline mode would leave, does not come together that way (tried with wandb 0.31): without `resume` each folder is
written over the one before it, and with it the rows that a job repeats come twice, the second time at steps that
never were.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from anchorleg.files import publish_folder, read_json_or_none, write_json
from trainer.errors import ConfigError, SaveError
from trainer.history.slots import History, Rows
from trainer.wandb.destination import Destination, name_of_slot
from trainer.wandb.points import START, Point, define_axes, merged, numbered
from trainer.wandb.runfile import has_ended

#: Beside the run's own files: what it was made from, so that a history without news is not written and sent again.
MADE_FROM = "anchorleg.json"
_NOT_INSTALLED = "wandb is not installed here: in Anchorleg's checkout, run pip install '.[wandb]'"
#: Where W&B is and how it is reached, who sends, and where its library keeps its own. All else a shell may be set up
#: with for other trainings (a resumed run's history is appended to, not replaced; a sweep gives its runs ids of its
#: own), or have wrong.
_HEEDED = (
    *("API_KEY", "BASE_URL", "IDENTITY_TOKEN", "CREDENTIALS", "CONFIG_DIR", "CACHE_DIR", "DATA_DIR", "ERROR_"),
    *("HTTP", "INSECURE_", "X_EXTRA"),
)


@dataclass(frozen=True)
class Written:
    """One offline run on the disk, of `steps` lines. `is_new`: it was written now; False: its history has no news."""

    run: str
    folder: Path
    steps: int
    last_step: int
    is_new: bool


def library() -> Any:
    """The module `wandb`, which from here on has only those variables that are heeded. Errors: ConfigError where it is
    not installed.
    """
    # Not its reports to its makers: a login node may have no way out, and a library that waits for one delays us.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    heeded = tuple(f"WANDB_{name}" for name in _HEEDED)
    for variable in os.environ if "wandb" not in sys.modules else ():
        if variable.startswith("WANDB_") and not variable.startswith(heeded):
            del os.environ[variable]
    try:
        import wandb  # noqa: PLC0415 - optional
    except ImportError as error:
        if error.name != "wandb":
            raise ConfigError(f"wandb cannot be loaded ({error}): pip install --force-reinstall wandb") from None
        raise ConfigError(_NOT_INSTALLED) from None
    if not hasattr(wandb, "init"):  # a folder of that name, such as the one that `write` makes, is an empty package
        raise ConfigError(_NOT_INSTALLED)
    return wandb


def quiet(wandb: Any, **more: Any) -> Any:
    """Settings of a run that tells nothing of this process and its machine, which are not the learner's; `more`."""
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


def name_of(history: History, there: Destination) -> str:
    """The id of its run on W&B."""
    return name_of_slot(history.run_id, history.slot, there.returns)


def gaps(rows: Rows) -> list[tuple[int, int]]:
    """The stretches of steps that no row tells of: a line was damaged. Pure."""
    return [(before["to"], after["from"]) for before, after in pairwise(rows) if after["from"] != before["to"]]


def write(history: History, out: Path, there: Destination) -> Written:
    """Make the folder `out/offline-run-<time>-<id>` hold this history; one that holds it already is left as it is.

    Whatever was there of this run is replaced when the new one is complete. Its lines are made twice, one at a time: to
    know them again, and to write them. Errors: SaveError; ConfigError without `wandb`; those of `points`.
    """
    name = name_of(history, there)
    sha256, steps, last_step = summed_up(history, there)
    made_from = {"sha256": sha256}
    for folder in _folders(out, name):
        if read_json_or_none(folder / MADE_FROM) == made_from:
            return Written(name, folder, steps, last_step, is_new=False)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".new-", ignore_cleanup_errors=True) as scratch:
            made = _record(history, Path(scratch), there)
            _fsync_all(made)
            write_json(made / MADE_FROM, made_from)
            final, older = out / made.name, _folders(out, name)
            if final in older:
                os.rename(final, Path(scratch) / "before")
            publish_folder(made, final)
            for folder in set(older) - {final}:
                shutil.rmtree(folder)
    except OSError as error:
        raise SaveError(
            f"{out.absolute()} cannot be written: {error.strerror or error}; choose another --out"
        ) from None
    return Written(name, final, steps, last_step, is_new=True)


def _record(history: History, scratch: Path, there: Destination) -> Path:
    """Let `wandb` write the run below `scratch`; returns its folder. Errors: SaveError, ConfigError, OSError."""
    wandb = library()
    try:
        run = wandb.init(
            mode="offline",
            dir=scratch,
            config=dict(history.training),
            settings=quiet(wandb),
            **there.of_slot(history.run_id, history.slot),
        )
        define_axes(run)
        for number, values in numbered(_lines(history)):
            run.log(values, step=number)
        run.finish(exit_code=0)
        wandb.teardown()  # its process closes the log after `finish`, and ends here
    except (wandb.errors.UsageError, ValueError) as error:
        words = " ".join(str(error).split())  # of a wrong variable it tells in four lines
        raise ConfigError(f"wandb refuses to write {name_of(history, there)}: {words}") from None
    except wandb.Error as error:
        raise SaveError(f"wandb did not write {name_of(history, there)}: {error}") from None
    [made] = (scratch / "wandb").glob("offline-run-*")
    if not all(has_ended(log) for log in made.glob("*.wandb")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the likeliest cause; wandb keeps it to itself
    return made


def summed_up(history: History, there: Destination) -> tuple[str, int, int]:
    """(sha256 of all that its run is made of, how many lines it has, the highest of their steps). Errors: those of
    `points`.
    """
    steps, last_step = 0, 0
    digest = hashlib.sha256(json.dumps([asdict(there), dict(history.training)], sort_keys=True).encode())
    for line in _lines(history):
        digest.update(json.dumps(line, sort_keys=True).encode())
        steps, last_step = steps + 1, max(last_step, line.step)
    return digest.hexdigest(), steps, last_step


def _lines(history: History) -> Iterable[Point]:
    return merged(history.rows, history.evaluations, START)


def _folders(out: Path, name: str) -> list[Path]:
    """The offline runs of this id; W&B puts a time before it."""
    ours = re.compile(rf"offline-run-\d{{8}}_\d{{6}}-{re.escape(name)}")
    return sorted(path for path in out.glob("offline-run-*") if ours.fullmatch(path.name))


def _fsync_all(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

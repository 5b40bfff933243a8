"""A slot's history as one offline run of Weights & Biases, which `wandb sync` sends.

The journals are the truth, and this writes them down anew, whole, each time: `wandb sync` puts line i of a run's
history where line i was, so sending a longer run again appends what is new and changes nothing else. What a history
that was sent live lacks is filled in. A folder a job, which W&B's own offline mode would leave, does not come together
that way (tried with wandb 0.31): without `resume` each folder is written over the one before it, and with it the rows
that a job repeats come twice, the second time at steps that never were.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from anchorleg.files import publish_folder, read_json_or_none, write_bytes, write_json
from trainer.errors import ConfigError, SaveError
from trainer.history.slots import History
from trainer.wandb.lines import Destination, lines_of, send

#: Beside the run's own files: what it was made from, so that a history without news is not written and sent again.
MADE_FROM = "anchorleg.json"
#: Still free where wandb has written, or some of it may be missing: its process keeps a full disk to itself.
_ROOM_BYTES = 2**20
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
    """One offline run on the disk, of `lines` up to `last_step`. `is_new`: it was written now; False: its history has
    no news. `gaps`: the stretches of steps that no row tells of, because a line of a journal is damaged.
    """

    run: str
    folder: Path
    lines: int
    last_step: int
    gaps: list[tuple[int, int]]
    is_new: bool


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
    """Make the folder `out/offline-run-<time>-<id>` hold this history; one that holds it already is left as it is.

    Whatever was there of this run is replaced when the new one is complete. Its rows are read twice, one at a time: to
    know them again, and to write them. Errors: SaveError; ConfigError without `wandb`; those of `lines_of`.
    """
    name = there.of_slot(history.run_id, history.slot)["id"]
    newest: Mapping[str, Any] = {}
    lines, gaps = 0, []
    for row in history.rows:
        if newest and row["from"] != newest["to"]:
            gaps.append((newest["to"], row["from"]))
        newest, lines = row, lines + 1
    ends = [newest, *history.evaluations[-1:]]
    facts = [lines, len(history.evaluations), [end["at"] for end in ends], asdict(there), dict(history.training)]
    made_from = json.dumps(facts)
    last_step = max(end["to"] if "to" in end else end["step"] for end in ends)
    written = Written(name, out, lines + len(history.evaluations), last_step, gaps, is_new=False)
    ours = re.compile(rf"offline-run-\d{{8}}_\d{{6}}-{re.escape(name)}")  # W&B puts a time before its id
    older = sorted(path for path in out.glob("offline-run-*") if ours.fullmatch(path.name))
    for folder in older:
        if read_json_or_none(folder / MADE_FROM) == made_from:
            return replace(written, folder=folder)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".new-", ignore_cleanup_errors=True) as scratch:
            made = _record(history, Path(scratch), there)
            write_json(made / MADE_FROM, made_from)
            final = out / made.name
            if final in older:
                os.rename(final, Path(scratch) / "before")
            publish_folder(made, final)
            for folder in set(older) - {final}:
                shutil.rmtree(folder)
    except OSError as error:
        raise SaveError("output.unwritable-file", path=out.absolute(), why=error.strerror or error) from None
    return replace(written, folder=final, is_new=True)


def _record(history: History, scratch: Path, there: Destination) -> Path:
    """Let `wandb` write the run below `scratch`; returns its folder. Errors: SaveError, ConfigError, OSError."""
    wandb = library()
    place = there.of_slot(history.run_id, history.slot)
    try:
        run = wandb.init(mode="offline", dir=scratch, config=dict(history.training), settings=quiet(wandb), **place)
        for _ in send(run, lines_of(history.rows, history.evaluations)):
            pass
        run.finish(exit_code=0)
        wandb.teardown()  # its process closes the log after `finish`, and ends here
    except (wandb.errors.UsageError, ValueError) as error:
        words = " ".join(str(error).split())  # of a wrong variable it tells in four lines
        raise ConfigError("wandb.refused", id=place["id"], why=words) from None
    except wandb.Error as error:
        raise SaveError("wandb.not-written", id=place["id"], why=error) from None
    [made] = (scratch / "wandb").glob("offline-run-*")
    write_bytes(scratch / "room", bytes(_ROOM_BYTES))
    return made

"""A slot's whole history, wherever it lies: its rows of metrics and evaluations, over all its jobs, every step once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorleg.files import read_json, read_json_or_none
from anchorleg.places import run_id_of, user_path
from syncd import store
from trainer.errors import ConfigError
from trainer.history.read import EVALUATIONS, METRICS, read_evaluations, rows_of

#: Rows, to be gone through as often as one likes.
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class RowsOnDisk:
    """Rows that are read, one at a time, whenever somebody goes through them: all those of a long training on fifty
    tasks would fill 3 GB. Errors: those of `read`.
    """

    read: Callable[[], Iterator[Mapping[str, Any]]]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self.read()


@dataclass(frozen=True)
class History:
    """One slot of one run. Rows as `trainer.history.read` writes them, oldest first; to go through `rows` is to read
    them (`told_where`).

    `folder`: its run's, or its run's in a mirror. `training`: the resolved training section, empty where it is not at
    hand (a mirror, a run without orchestrator).
    """

    folder: Path
    run_id: str
    slot: int
    rows: Rows
    evaluations: Sequence[Mapping[str, Any]]
    training: Mapping[str, Any]


def find_histories(path: Path) -> list[History]:
    """The slots of a run folder, a mirror or `$SHARED`, or one slot's folder there; those without any row are left out.

    Errors: ConfigError where there is nothing of the kind, no row yet, or something that cannot be read.
    """
    path = user_path(path).resolve()
    with told_where(path):
        found = [history for history in _below(path) if any(True for _ in history.rows)]
    if not found:
        raise ConfigError("run.no-metrics", path=path)
    return found


@contextlib.contextmanager
def told_where(path: Path) -> Iterator[None]:
    """Rows that are no training's, and files that cannot be read, as one sentence. Errors: ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError("history.unreadable", path=error.filename or path, why=error.strerror) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        words = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError("history.foreign", path=path, why=words) from None


def _below(path: Path) -> list[History]:
    if (path / "attempts").is_dir():
        return [_of_slot(path)]
    if (path / "slots").is_dir():
        numbered = sorted((p for p in (path / "slots").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        return [_of_slot(folder) for folder in numbered]
    if (path / "v1" / "runs").is_dir():
        return [_of_place(place) for place in store.Shared(path).slots()]
    if (path / "manifests").is_dir() and path.name.isdigit():
        return [_of_place(store.SlotPlace(path, path.parent.name, int(path.name)))]
    raise ConfigError("run.mirror-empty" if (path / "state").is_dir() else "run.none-there", path=path)


def _of_slot(folder: Path) -> History:
    home = folder.parent.parent
    return History(
        folder=home,
        run_id=_run_id(home),
        slot=int(folder.name) if folder.name.isdigit() else 0,
        rows=RowsOnDisk(lambda: rows_of(folder)),
        evaluations=read_evaluations(folder),
        training=read_json_or_none(folder / "config.json") or {},
    )


def _of_place(place: store.SlotPlace) -> History:
    metrics, evaluations = (name.removesuffix(".jsonl") for name in (METRICS, EVALUATIONS))
    rows = RowsOnDisk(lambda: store.rows_of_curve(place, metrics))
    return History(place.path.parent, place.run_id, place.slot, rows, store.read_metrics(place, evaluations), {})


def _run_id(run_dir: Path) -> str:
    """What the run is called on other machines (`Job.run_id`): the orchestrator's word where it keeps the run."""
    try:
        return str(read_json(run_dir / "run.json")["run_id"])
    except FileNotFoundError:
        return run_id_of(run_dir)

"""A LeRobotDataset v3.0, decoded once into our frames: `lerobot/metaworld_mt50` and its like.

Frame i of an episode lies `from_timestamp + i / fps` seconds into a film that it shares with other episodes; its row is
`dataset_from_index + i`. Films are read from front to back, and from an episode's first frame where an import goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from anchorleg.printable import printable
from anchorleg.words import counted, did_you_mean, sized
from trainer.demos import lerobot, manifest
from trainer.demos.films import Film, Frame
from trainer.demos.importing import Progress, asked, licence_in, side_by_side
from trainer.demos.manifest import MAX_EPISODE_BYTES, DemoEpisode, DemosManifest, DemoSource, spaces_with
from trainer.demos.store import Arrays, Demos, DemosWriter
from trainer.envs.pictures import COLOURS
from trainer.envs.spaces import IMAGE, Box, Discrete
from trainer.errors import ConfigError

#: More rows of a table than any data set of theirs has, and more bytes of one file.
_MOST_EPISODES, _MOST_FILE_BYTES = 1_000_000, 2**31
_TOLD = {lerobot.REWARD: manifest.REWARD, lerobot.SUCCESS: manifest.SUCCESS}
_KINDS = {manifest.REWARD: np.float32, manifest.SUCCESS: np.bool_}
_WORDS = 200
#: Names of tasks in a sentence.
_NAMES = 10


@dataclass(frozen=True)
class EpisodeRow:
    """One row of `meta/episodes`. `films`: camera → (chunk, file, second of its first frame). `success`: None where it
    does not say.
    """

    index: int
    length: int
    task: str
    data: tuple[int, int]
    first_row: int
    films: Mapping[str, tuple[int, int, float]]
    success: bool | None


def import_lerobot(
    folder: Path, out: Path, size: int, cameras: Sequence[str], progress: Progress, task: str | None = None
) -> Demos:
    """Each episode of `task` (None: of all), by `cameras` (none: all), `size` pixels a side. What `out` has stays.

    Errors: ConfigError; FilmError; SaveError; ModuleNotFoundError without pyarrow.
    """
    info = lerobot.LerobotInfo.read(folder)
    chosen = info.chosen(list(cameras))
    rows = _of_task(_episodes(folder, chosen), task)
    tasks = tuple(dict.fromkeys(row.task for row in rows))
    frame = (COLOURS * len(chosen), size, size)
    for row in rows:  # before hours of them are decoded
        if row.length * prod(frame) > MAX_EPISODE_BYTES:
            raise ConfigError(
                f"episode {row.index} has {row.length:,} frames, by {counted(len(chosen), 'camera')} "
                f"{sized(row.length * prod(frame))}; an episode has at most {sized(MAX_EPISODE_BYTES)}: lower --size, "
                "or choose with --camera"
            )
    longest = max(row.length for row in rows)
    data = _Data(folder, info)
    action = Discrete(data.choices(rows)) if info.action == Discrete(0) else info.action
    spaces = None if action is None else spaces_with(frame, info.rows, action, tasks, longest)
    table = [[row.index, row.length, row.task, *row.data, row.first_row] for row in rows]
    plan = DemosManifest(
        source=DemoSource(
            kind="lerobot", name=folder.name, asked=asked(rows=table, size=size), licence=licence_in(folder)
        ),
        cameras=tuple(camera.removeprefix(lerobot.IMAGES) for camera in chosen),
        frame=frame,
        tasks=tasks,
        spaces=None if spaces is None else spaces.as_json(),
        told=() if spaces is None else tuple(_TOLD[name] for name in info.told),
    )
    writer = DemosWriter(out, plan)
    with ExitStack() as stack:
        strips = [stack.enter_context(_Strip(folder, info, camera, size)) for camera in chosen]
        for number in range(writer.done, len(rows)):
            row = rows[number]
            progress(number, len(rows))
            arrays: dict[str, npt.NDArray[Any]] = {IMAGE: side_by_side([strip.frames(row) for strip in strips])}
            if spaces is not None:
                arrays |= data.of(row)
            steps = arrays.get(manifest.SUCCESS)
            found = row.success if row.success is not None or steps is None else bool(steps.any())
            episode = DemoEpisode(
                name=f"episode {row.index}",
                frames=row.length,
                actions=0 if spaces is None else row.length,
                fps=info.fps,
                task=tasks.index(row.task),
                success=found,
            )
            writer.add(episode, arrays)
    progress(len(rows), len(rows))
    return writer.finish()


def _of_task(rows: list[EpisodeRow], task: str | None) -> list[EpisodeRow]:
    """Those that show `task`, by its name as the data set has it; None: all. Errors: ConfigError."""
    if task is None:
        return rows
    found = [row for row in rows if row.task == printable(task, _WORDS)]
    if not found:
        names = sorted({row.task for row in rows})
        shown = f"it has {', '.join(map(repr, names[:_NAMES]))}{', …' if names[_NAMES:] else ''}"
        raise ConfigError(f"--task: there is no task {task!r}; {did_you_mean(task, names, shown)}")
    return found


class _Strip:
    """The films of one camera, read from front to back."""

    def __init__(self, folder: Path, info: lerobot.LerobotInfo, camera: str, size: int) -> None:
        self._folder, self._info, self._camera, self._size = folder, info, camera, size
        self._film: Film | None = None
        self._frames: Iterator[Frame] = iter(())
        self._path, self._next = Path(), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._film is not None:
            self._film.close()

    def frames(self, row: EpisodeRow) -> npt.NDArray[np.uint8]:
        """[F, 3, size, size] of an episode. Errors: FilmError; ConfigError where its film is too short."""
        chunk, file, second = row.films[self._camera]
        path = lerobot.place(self._folder, self._info.video_path, chunk, file, self._camera)
        first = round(second * self._info.fps)
        if path != self._path or first < self._next:
            self._open(path, first)
        for _ in range(first - self._next):
            self._frame(row)
        return np.stack([self._frame(row) for _ in range(row.length)])

    def _open(self, path: Path, first: int) -> None:
        if self._film is not None:
            self._film.close()
        start_s = max(0.0, (first - 0.5) / self._info.fps)  # half a frame before it, whatever was rounded
        self._film = Film(path, self._size, start_s=start_s)
        self._frames, self._path, self._next = iter(self._film), path, first

    def _frame(self, row: EpisodeRow) -> Frame:
        frame = next(self._frames, None)
        if frame is None:
            end = row.films[self._camera][2] + row.length / self._info.fps
            raise ConfigError(
                f"{self._path} ends at its second {self._next / self._info.fps:.1f}, and episode {row.index} needs it "
                f"up to {end:.1f}: the film is cut short; fetch it again"
            )
        self._next += 1
        return frame


class _Data:
    """Rows of numbers; the newest file stays in memory."""

    def __init__(self, folder: Path, info: lerobot.LerobotInfo) -> None:
        self._folder, self._info = folder, info
        self._place: tuple[int, int] | None = None
        self._table: dict[str, npt.NDArray[Any]] = {}

    def of(self, row: EpisodeRow) -> Arrays:
        """Action, rows, and what is told, of an episode. Errors: ConfigError."""
        if row.data != self._place:
            self._place, self._table = row.data, self._read(row.data)
        index = self._table["index"]
        at = slice(first := int(np.searchsorted(index, row.first_row)), first + row.length)
        if not np.array_equal(index[at], np.arange(row.first_row, row.first_row + row.length)):
            raise ConfigError(
                f"episode {row.index} has {row.length} rows by its table, and others in its data: it is damaged"
            )
        return {name: array[at] for name, array in self._table.items() if name != "index"}

    def choices(self, rows: Sequence[EpisodeRow]) -> int:
        """One more than the largest action in the files of `rows`. Errors: ConfigError."""
        places = dict.fromkeys(row.data for row in rows)
        return 1 + max(int(self._read(where)[manifest.ACTION].max(initial=0)) for where in places)

    def _read(self, where: tuple[int, int]) -> dict[str, npt.NDArray[Any]]:
        path = lerobot.place(self._folder, self._info.data_path, *where)
        theirs = {ours: lerobot.ROWS[ours] for ours in self._info.rows}
        told = {_TOLD[name]: name for name in self._info.told}
        table = _table(path, [lerobot.ACTION, "index", *theirs.values(), *told.values()])
        found = {"index": _numbers(path, table, "index", 1)[:, 0].astype(np.int64)}
        for ours, name in theirs.items():
            found[ours] = _numbers(path, table, name, self._info.rows[ours]).astype(np.float32)
        found |= {ours: _numbers(path, table, name, 1)[:, 0].astype(_KINDS[ours]) for ours, name in told.items()}
        return found | {manifest.ACTION: self._actions(path, table)}

    def _actions(self, path: Path, table: Any) -> npt.NDArray[Any]:
        space = self._info.action
        if isinstance(space, Box):
            return _numbers(path, table, lerobot.ACTION, space.size).astype(np.float32)
        numbers = _numbers(path, table, lerobot.ACTION, 1)[:, 0].astype(np.int64)
        most = space.n if space is not None and space.n else lerobot.MOST_CHOICES
        if not ((numbers >= 0) & (numbers < most)).all():
            raise ConfigError(f"{path}: {lerobot.ACTION} has whole numbers that are not all one of {most:,}, from 0 on")
        return numbers


def _numbers(path: Path, table: Any, name: str, width: int) -> npt.NDArray[Any]:
    """[rows, width] of a column of numbers, or of rows of them. Errors: ConfigError."""
    column = table.column(name).combine_chunks()
    try:
        flat = column.flatten() if hasattr(column, "flatten") else column
        found: npt.NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(-1, width)
        if len(found) == table.num_rows and np.isfinite(found).all():
            return found
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"{path}: {name} has rows of another length than {width}, or numbers that are not finite")


def _episodes(folder: Path, cameras: Sequence[str]) -> list[EpisodeRow]:
    """All, in order. Errors: ConfigError."""
    fields = ["episode_index", "length", "tasks", "data/chunk_index", "data/file_index", "dataset_from_index"]
    parts = ("chunk_index", "file_index", "from_timestamp")
    films = {camera: [f"videos/{camera}/{part}" for part in parts] for camera in cameras}
    rows: list[EpisodeRow] = []
    for path in sorted((folder / lerobot.EPISODES).glob("chunk-*/file-*.parquet")):
        lerobot.own(folder, path)
        columns = [*fields, *(name for names in films.values() for name in names)]
        found = _table(path, columns, [lerobot.EPISODE_SUCCESS])
        table = {name: column.to_pylist() for name, column in zip(found.column_names, found.columns, strict=True)}
        told = table.get(lerobot.EPISODE_SUCCESS, [None] * found.num_rows)
        try:
            for number, values in enumerate(zip(*(table[name] for name in fields), strict=True)):
                index, length, tasks, chunk, file, first = values
                where = {camera: tuple(table[name][number] for name in names) for camera, names in films.items()}
                rows.append(
                    EpisodeRow(
                        int(index),
                        int(length),
                        printable(str(tasks[0]) if tasks else "", _WORDS),
                        (int(chunk), int(file)),
                        int(first),
                        {camera: (int(c), int(f), float(second)) for camera, (c, f, second) in where.items()},
                        told[number] if isinstance(told[number], bool) else None,
                    )
                )
        except (TypeError, ValueError, LookupError, OverflowError) as error:
            raise ConfigError(f"{path} is damaged ({error})") from None
    if not 0 < len(rows) <= _MOST_EPISODES:
        raise ConfigError(f"{folder / lerobot.EPISODES} tells of {len(rows):,} episodes")
    wrong = next((row for row in rows if row.length < 1 or any(not 0 <= s < 1e7 for *_, s in row.films.values())), None)
    if wrong is not None:
        raise ConfigError(f"{folder / lerobot.EPISODES}: episode {wrong.index} has no length, or no place in its film")
    return sorted(rows, key=lambda row: row.index)


def _table(path: Path, columns: list[str], more: Sequence[str] = ()) -> Any:
    """These columns of a Parquet file, in this order, and those of `more` that it has, as pyarrow has them. Errors:
    ConfigError.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra, and 0.3 s
    from pyarrow import parquet  # noqa: PLC0415

    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise ConfigError(f"{path} is larger than any file of such a data set")
        table = parquet.ParquetFile(path).read(columns=[*columns, *more])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    except pa.ArrowException as error:
        raise ConfigError(f"{path} is damaged ({printable(str(error), _WORDS)})") from None
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise ConfigError(f"{path} has no column {missing[0]}")
    return table.select([*columns, *(name for name in more if name in table.column_names)])

"""`trainer demos export`: our demonstrations as a LeRobotDataset v3.0."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from anchorleg.files import fsync_tree, make_folder, publish_folder, write_bytes, write_json
from anchorleg.words import counted
from trainer.demos import lerobot, manifest
from trainer.demos.importing import Progress
from trainer.demos.lerobot_stats import Stats, stats_of_pictures, stats_of_rows, together
from trainer.demos.manifest import DemoEpisode, DemosManifest
from trainer.demos.store import Arrays, Demos
from trainer.envs.cameras import Picture
from trainer.envs.pictures import COLOURS
from trainer.envs.spaces import IMAGE, Box, Discrete
from trainer.errors import ConfigError, SaveError
from trainer.showing.camera import film

#: Bytes of frames, and of rows, that a file holds: at a twentieth, and as they are, less than what `info.json` says.
_FILM_BYTES, _DATA_BYTES = 20 * lerobot.VIDEO_MB * 10**6, lerobot.DATA_MB * 10**6 // 2
#: What a licence is called where everybody knows it by its name.
_LICENCE_NAME = re.compile(r"[A-Za-z0-9.-]+")
#: What a recorded action is, whatever its environment calls it: docs/export.md, "Other environments".
_UNITS: dict[type, str] = {
    Box: "An action is a row of numbers from -1 to 1. The environment's own lie between its bounds: "
    "`low + (action + 1) / 2 * (high - low)`.",
    Discrete: "An action is a choice, counted from 0: the environment's own `start` is to be added. Where there are "
    "several choices at once, all their combinations are counted through, and the last one changes fastest.",
}


def export(demos: Demos, out: Path, progress: Progress) -> Path:
    """Write `demos` to the folder `out`, which appears when it is whole. What the last action led to is left out: there
    a frame has an action. Grey pictures become coloured ones, as films are.

    Errors: ConfigError where that cannot be; SaveError; ModuleNotFoundError without pyarrow.
    """
    fps = _check(demos.manifest, out)
    unfinished = out.with_name(f".{out.name}.unfinished")
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        make_folder(unfinished)
        _write(demos, unfinished, fps, progress)
        fsync_tree(unfinished)
        publish_folder(unfinished, out)
    except OSError as error:
        raise SaveError(f"{error.filename or out}: {error.strerror or error}; nothing was written to {out}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return out


def _check(told: DemosManifest, out: Path) -> int:
    """Pictures a second. Errors: ConfigError."""
    if os.path.exists(out):
        raise ConfigError(f"{out} is there already: choose another --out, or remove it")
    rates = sorted({episode.fps for episode in told.episodes})
    if len(rates) > 1 or rates[0] != int(rates[0]):
        words = " and ".join(f"{rate:g}" for rate in rates[:3])
        raise ConfigError(
            f"the episodes have {words} pictures a second, and such a data set has one whole number of them: import "
            "them with --fps"
        )
    channels, height, width = told.frame
    if channels not in {len(told.cameras), COLOURS * len(told.cameras)}:
        raise ConfigError(
            f"a frame has {channels} channels of {counted(len(told.cameras), 'camera')}, and a film has three colours, "
            "or one grey, of each: such pictures cannot be exported"
        )
    if height % 2 or width % 2:
        raise ConfigError(
            f"the frames are {height} by {width}, and a film's sides are even: import them with another --size"
        )
    return int(rates[0])


def left_out(told: DemosManifest) -> list[str]:
    """The keys of what is seen that have no name in a LeRobotDataset."""
    return [] if told.opened is None else sorted(told.opened.obs.keys() - lerobot.ROWS.keys() - {IMAGE})


def _write(demos: Demos, folder: Path, fps: int, progress: Progress) -> None:
    told = demos.manifest
    features, tells_success = features_of(told, fps), any(map(_is_told, told.episodes))
    cameras = [key for key in features if key.startswith(lerobot.IMAGES)]
    rows: list[dict[str, Any]] = []
    all_stats: dict[str, list[Stats]] = {name: [] for name in features}
    index = 0
    with _Films(folder, cameras, told.frame, fps) as films, _DataFiles(folder, features) as data:
        for number, (episode, arrays) in enumerate(demos.read()):
            progress(number, len(told.episodes))
            length = episode.actions or episode.frames
            table = _table_of(features, episode, arrays, number, index, length, fps)
            row: dict[str, Any] = {"episode_index": number, "tasks": [_task(told, episode)], "length": length}
            row |= {lerobot.EPISODE_SUCCESS: episode.success} if tells_success else {}
            row |= data.add(table, length)
            row |= {"dataset_from_index": index, "dataset_to_index": index + length}
            stats = {name: stats_of_rows(column) for name, column in table.items()}
            for place, camera in enumerate(cameras):
                frames = _coloured(arrays[IMAGE][:length], place, told.frame[0] // len(told.cameras))
                row |= films.add(camera, frames)
                stats[camera] = stats_of_pictures(frames)
            for name, found in stats.items():
                all_stats[name].append(found)
                row |= {f"stats/{name}/{what}": value.tolist() for what, value in found.items()}
            rows.append(row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
            index += length
    _write_table(lerobot.place(folder, lerobot.EPISODES_PATH, 0, 0), rows)
    _write_tasks(folder / lerobot.TASKS, [_named(task) for task in told.tasks])
    write_json(folder / lerobot.INFO, info_of(told, features, len(rows), index, fps))
    whole = {
        name: {what: value.tolist() for what, value in together(parts).items()} for name, parts in all_stats.items()
    }
    write_json(folder / lerobot.STATS, whole)
    write_bytes(folder / "README.md", _readme(told).encode())
    progress(len(rows), len(rows))


def _readme(told: DemosManifest) -> str:
    licence = told.source.licence or ""
    head = f"license: {licence}\n" if _LICENCE_NAME.fullmatch(licence) else ""
    words = f"Written by Anchorleg (`trainer demos export`) from: {told.source.kind}, {told.source.name}.\n"
    if told.opened is not None and told.source.kind == "recorded":
        words += f"\n{_UNITS[type(told.opened.action)]}\n"
    return f"---\n{head}tags:\n- LeRobot\n---\n\n{words}"


def _is_told(episode: DemoEpisode) -> bool:
    """Whether somebody knows of its success: where an environment does not tell, all its steps say no."""
    return episode.success is not None


def _coloured(frames: npt.NDArray[np.uint8], camera: int, channels: int) -> npt.NDArray[np.uint8]:
    """[T, 3, H, W] of the number `camera`; `channels`: of each, three or one."""
    mine = frames[:, channels * camera : channels * (camera + 1)]
    return mine if channels == COLOURS else mine.repeat(COLOURS, axis=1)


def features_of(told: DemosManifest, fps: int) -> dict[str, dict[str, Any]]:
    """What `info.json` says of each column and camera."""
    _, height, width = told.frame
    about = {
        "video.height": height, "video.width": width, "video.codec": "h264", "video.pix_fmt": "yuv420p",
        "video.fps": fps, "video.channels": COLOURS, "has_audio": False, "is_depth_map": False,
    }  # fmt: skip
    picture = {
        "dtype": "video",
        "shape": [height, width, COLOURS],
        "names": ["height", "width", "channels"],
        "info": about,
    }
    features: dict[str, dict[str, Any]] = {f"{lerobot.IMAGES}{camera}": dict(picture) for camera in told.cameras}
    spaces = told.opened
    if spaces is not None:
        for ours, theirs in lerobot.ROWS.items():
            if ours in spaces.obs:
                features[theirs] = {"dtype": "float32", "shape": list(spaces.obs[ours].shape), "names": None}
        action = spaces.action
        if isinstance(action, Box):
            features[lerobot.ACTION] = {"dtype": "float32", "shape": list(action.shape), "names": None}
        else:
            more = {"names": None, "info": {lerobot.CHOICES: action.n}}
            features[lerobot.ACTION] = {"dtype": "int64", "shape": [1], **more}
        if manifest.REWARD in told.told:
            features[lerobot.REWARD] = {"dtype": "float32", "shape": [1], "names": None}
        features[lerobot.DONE] = {"dtype": "bool", "shape": [1], "names": None}
        if manifest.SUCCESS in told.told and all(map(_is_told, told.episodes)):
            features[lerobot.SUCCESS] = {"dtype": "bool", "shape": [1], "names": None}
    return features | lerobot.DEFAULT_FEATURES


def info_of(told: DemosManifest, features: Mapping[str, Any], episodes: int, frames: int, fps: int) -> dict[str, Any]:
    """`meta/info.json`."""
    return {
        "codebase_version": lerobot.VERSION,
        "fps": fps,
        "features": dict(features),
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": len(told.tasks),
        "chunks_size": lerobot.CHUNK_FILES,
        "data_files_size_in_mb": lerobot.DATA_MB,
        "video_files_size_in_mb": lerobot.VIDEO_MB,
        "data_path": lerobot.DATA_PATH,
        "video_path": lerobot.VIDEO_PATH,
        "robot_type": None,
        "splits": {"train": f"0:{episodes}"},
    }


def _table_of(
    features: Mapping[str, Any], episode: DemoEpisode, arrays: Arrays, number: int, index: int, length: int, fps: int
) -> dict[str, npt.NDArray[Any]]:
    """Column → [length, …] of one episode."""
    found: dict[str, npt.NDArray[Any]] = {}
    if episode.actions:
        found |= {theirs: arrays[ours][:length] for ours, theirs in lerobot.ROWS.items() if ours in arrays}
        found[lerobot.ACTION] = arrays[manifest.ACTION]
        if lerobot.REWARD in features:
            found[lerobot.REWARD] = arrays[manifest.REWARD]
        found[lerobot.DONE] = np.arange(length) == length - 1
        if lerobot.SUCCESS in features:
            found[lerobot.SUCCESS] = arrays[manifest.SUCCESS]
    steps = np.arange(length)
    return found | {
        "timestamp": (steps / fps).astype(np.float32),
        "frame_index": steps,
        "episode_index": np.full(length, number),
        "index": index + steps,
        "task_index": np.full(length, episode.task),
    }


class _Films:
    """One film of each camera, and the next where it is full."""

    def __init__(self, folder: Path, cameras: list[str], frame: tuple[int, int, int], fps: int) -> None:
        self._folder, self._fps, self._size = folder, fps, (frame[2], frame[1])
        self._frames_a_file = max(1, _FILM_BYTES // (COLOURS * frame[1] * frame[2]))
        self._all = ExitStack()
        self._stacks = {camera: self._all.enter_context(ExitStack()) for camera in cameras}
        self._shows: dict[str, Callable[[Picture], None]] = {}
        self._number = dict.fromkeys(cameras, -1)
        self._frames = dict.fromkeys(cameras, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.__exit__(kind, error, trace)

    def add(self, camera: str, frames: npt.NDArray[np.uint8]) -> dict[str, Any]:
        """The frames [T, 3, H, W] of an episode; what its row says of them. Errors: SaveError; ConfigError."""
        if camera not in self._shows or self._frames[camera] + len(frames) > self._frames_a_file:
            self._stacks[camera].close()
            self._number[camera] += 1
            self._frames[camera] = 0
            path = lerobot.place(self._folder, lerobot.VIDEO_PATH, *_numbered(self._number[camera]), camera)
            self._shows[camera] = self._stacks[camera].enter_context(film(path, self._size, self._fps, seekable=True))
        first = self._frames[camera]
        for frame in frames:
            self._shows[camera](np.ascontiguousarray(frame.transpose(1, 2, 0)))
        self._frames[camera] += len(frames)
        chunk, file = _numbered(self._number[camera])
        return {
            f"videos/{camera}/chunk_index": chunk,
            f"videos/{camera}/file_index": file,
            f"videos/{camera}/from_timestamp": first / self._fps,
            f"videos/{camera}/to_timestamp": self._frames[camera] / self._fps,
        }


class _DataFiles:
    """Rows of numbers, a group of rows an episode, and the next file where one is full."""

    def __init__(self, folder: Path, features: Mapping[str, Mapping[str, Any]]) -> None:
        import pyarrow as pa  # noqa: PLC0415 - an extra, and 0.3 s

        self._folder = folder
        self._fields: dict[str, tuple[Any, int]] = {}
        for name, feature in features.items():
            if feature["dtype"] != "video":
                kind = pa.bool_() if feature["dtype"] == "bool" else getattr(pa, feature["dtype"])()
                self._fields[name] = (kind, feature["shape"][0])
        kinds = {name: kind if size == 1 else pa.list_(kind, size) for name, (kind, size) in self._fields.items()}
        self._schema = pa.schema(list(kinds.items()))
        self._writer: Any = None
        self._number, self._bytes = -1, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, table: Mapping[str, npt.NDArray[Any]], length: int) -> dict[str, int]:
        """Those of an episode; what its row says of them. Errors: OSError."""
        import pyarrow as pa  # noqa: PLC0415 - as above
        from pyarrow import parquet  # noqa: PLC0415

        size = sum(column.nbytes for column in table.values())
        if self._writer is None or self._bytes + size > _DATA_BYTES:
            if self._writer is not None:
                self._writer.close()
            self._number, self._bytes = self._number + 1, 0
            path = lerobot.place(self._folder, lerobot.DATA_PATH, *_numbered(self._number))
            make_folder(path.parent)
            self._writer = parquet.ParquetWriter(path, self._schema, compression="snappy", use_dictionary=True)
        columns = []
        for name, (kind, width) in self._fields.items():
            flat = pa.array(table[name].reshape(-1), kind)
            columns.append(flat if width == 1 else pa.FixedSizeListArray.from_arrays(flat, width))
        self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=length)
        self._bytes += size
        chunk, file = _numbered(self._number)
        return {"data/chunk_index": chunk, "data/file_index": file}


def _numbered(number: int) -> tuple[int, int]:
    """(chunk, file) of the `number`-th file."""
    return divmod(number, lerobot.CHUNK_FILES)


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - as above
    from pyarrow import parquet  # noqa: PLC0415

    make_folder(path.parent)
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    parquet.write_table(table, path, compression="snappy")


def _write_tasks(path: Path, tasks: list[str]) -> None:
    """As pandas keeps a table whose index is `task`: LeRobot looks tasks up by it."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    from pyarrow import parquet  # noqa: PLC0415

    described = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
        for name, kind, numpy in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    about = {
        "index_columns": ["task"],
        "column_indexes": [
            {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
        ],
        "columns": described,
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.0.0",
    }  # fmt: skip
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "task": tasks})
    parquet.write_table(table.replace_schema_metadata({"pandas": json.dumps(about)}), path, compression="snappy")


def _task(told: DemosManifest, episode: DemoEpisode) -> str:
    return _named(told.tasks[episode.task])


def _named(task: str) -> str:
    """Films have no task of their own."""
    return task or "demonstration"

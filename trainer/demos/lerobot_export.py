"""`trainer demos export`: our demonstrations as a LeRobotDataset v3.0, of which `trainer.demos.lerobot` says more."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anchorleg.files import fsync_tree, make_folder, publish_folder, write_bytes, write_json
from anchorleg.words import counted
from trainer.demos.lerobot import CHOICES, DATA_PATH, EPISODES, IMAGES, INFO, THEIRS, VERSION, VIDEO_PATH
from trainer.demos.store import ACTION, SUCCESS, Arrays, DemoEpisode, Demos, DemosManifest, Progress
from trainer.envs.pictures import COLOURS
from trainer.envs.spaces import IMAGE, Discrete
from trainer.errors import ConfigError, SaveError
from trainer.showing.film import film

Columns = Mapping[str, npt.NDArray[Any]]
Stats = Mapping[str, npt.NDArray[Any]]

#: Files in a folder of them.
CHUNK_FILES = 1000
#: Of an episode's frames statistics look at 100, and at more of a long one, of about this many pixels a side: as
#: upstream does.
_LEAST_FRAMES, _MOST_FRAMES, _POWER, _SIDE = 100, 10_000, 0.75, 150
#: What a licence is called where everybody knows it by its name.
_LICENCE_NAME = re.compile(r"[A-Za-z0-9.-]+")
#: docs/watching.md, "Other environments".
_UNITS = (
    "An action is a row of numbers from -1 to 1 (the environment's own: `low + (action + 1) / 2 * (high - low)`), or a "
    "choice that counts from 0."
)


def export_lerobot(demos: Demos, out: Path, progress: Progress) -> Path:
    """Write `demos` to the folder `out`, which appears when it is whole. What the last action led to is left out: there
    a frame has an action. Grey pictures become coloured ones, as films are.

    Errors: ConfigError where that cannot be; SaveError; ModuleNotFoundError without pyarrow.
    """
    fps = _whole_fps(demos.manifest, out)
    unfinished = out.with_name(f".{out.name}.unfinished")
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        make_folder(unfinished)
        _write(demos, unfinished, fps, progress)
        fsync_tree(unfinished)
        publish_folder(unfinished, out)
    except OSError as error:
        raise SaveError(
            "demos.not-exported", path=error.filename or out, why=error.strerror or error, out=out
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return out


def left_out(told: DemosManifest) -> list[str]:
    """The keys of what is seen that have no name in a LeRobotDataset."""
    return [] if told.opened is None else sorted(told.opened.obs.keys() - THEIRS.keys() - {IMAGE})


def _whole_fps(told: DemosManifest, out: Path) -> int:
    """Pictures a second. Errors: ConfigError for what cannot be exported."""
    if os.path.exists(out):
        raise ConfigError("demos.out-exists", out=out)
    rates = sorted({episode.fps for episode in told.episodes})
    if len(rates) > 1 or rates[0] != int(rates[0]):
        raise ConfigError("demos.fps-not-whole", rates=" and ".join(f"{rate:g}" for rate in rates[:3]))
    channels, height, width = told.frame
    if channels not in {len(told.cameras), COLOURS * len(told.cameras)}:
        raise ConfigError("demos.channels-no-film", channels=channels, cameras=counted(len(told.cameras), "camera"))
    if height % 2 or width % 2:
        raise ConfigError("demos.odd-sides", height=height, width=width)
    return int(rates[0])


def _write(demos: Demos, folder: Path, fps: int, progress: Progress) -> None:
    """A file of rows and a film of each camera for each block; then what is said of all."""
    import pyarrow as pa
    from pyarrow import parquet

    told, reader = demos.manifest, demos.read()
    cameras = [f"{IMAGES}{camera}" for camera in told.cameras]
    _, height, width = told.frame
    rows: list[dict[str, Any]] = []
    stats: dict[str, list[Stats]] = {}
    columns: dict[str, npt.NDArray[Any]] = {}
    index = 0
    for number, block in enumerate(told.blocks):
        at, first = dict(zip(("chunk_index", "file_index"), divmod(number, CHUNK_FILES), strict=True)), index
        data = folder / DATA_PATH.format(**at)
        make_folder(data.parent)
        tables = []
        with ExitStack() as stack:
            shows = [
                stack.enter_context(
                    film(folder / VIDEO_PATH.format(video_key=camera, **at), (width, height), fps, seekable=True)
                )
                for camera in cameras
            ]
            for _ in block.episodes:
                progress(len(rows), len(told.episodes))
                episode, arrays = next(reader)
                length = episode.actions or episode.frames
                columns = _columns(told, episode, arrays, len(rows), index, fps)
                tables.append(pa.table({name: _arrow(values) for name, values in columns.items()}))
                found = {name: _stats_of(values.reshape(length, -1)) for name, values in columns.items()}
                row: dict[str, Any] = {f"data/{name}": value for name, value in at.items()}
                by_camera = np.split(arrays[IMAGE][:length], len(cameras), axis=1)
                for camera, show, frames in zip(cameras, shows, by_camera, strict=True):
                    coloured = frames if frames.shape[1] == COLOURS else frames.repeat(COLOURS, axis=1)
                    for frame in coloured:
                        show(np.ascontiguousarray(frame.transpose(1, 2, 0)))
                    found[camera] = stats_of_pictures(coloured)
                    row |= {f"videos/{camera}/{name}": value for name, value in at.items()}
                    row[f"videos/{camera}/from_timestamp"] = (index - first) / fps
                    row[f"videos/{camera}/to_timestamp"] = (index - first + length) / fps
                for name, part in found.items():
                    stats.setdefault(name, []).append(part)
                    row |= {f"stats/{name}/{what}": value.tolist() for what, value in part.items()}
                row |= {"episode_index": len(rows), "tasks": [_named(told.tasks[episode.task])], "length": length}
                row |= {"dataset_from_index": index, "dataset_to_index": index + length, "success": episode.success}
                rows.append(row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
                index += length
        with parquet.ParquetWriter(data, tables[0].schema) as writer:
            for each in tables:
                writer.write_table(each, row_group_size=each.num_rows)
    _tell(told, folder, rows)
    whole = {name: {what: v.tolist() for what, v in together(parts).items()} for name, parts in stats.items()}
    write_json(folder / "meta/stats.json", whole)
    write_json(folder / INFO, _info(told, columns, cameras, fps, frames=index))
    progress(len(rows), len(rows))


def _tell(told: DemosManifest, folder: Path, rows: list[dict[str, Any]]) -> None:
    """The tables of episodes and of tasks, and a page for people."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_pylist(rows)
    if all(episode.success is None for episode in told.episodes):
        table = table.drop_columns(["success"])
    path = folder / EPISODES / "chunk-000" / "file-000.parquet"
    make_folder(path.parent)
    parquet.write_table(table, path)
    parquet.write_table(_tasks([_named(task) for task in told.tasks]), folder / "meta/tasks.parquet")
    licence = told.source.licence or ""
    head = f"license: {licence}\n" if _LICENCE_NAME.fullmatch(licence) else ""
    words = f"Written by Anchorleg (`trainer demos export`) from: {told.source.kind}, {told.source.name}.\n"
    words += f"\n{_UNITS}\n" * (told.source.kind == "recorded")
    write_bytes(folder / "README.md", f"---\n{head}tags:\n- LeRobot\n---\n\n{words}".encode())


def _columns(
    told: DemosManifest, episode: DemoEpisode, arrays: Arrays, number: int, index: int, fps: int
) -> dict[str, npt.NDArray[Any]]:
    """Column → [length, …] of one episode."""
    length = episode.actions or episode.frames
    steps = np.arange(length)
    found: dict[str, npt.NDArray[Any]] = {}
    if episode.actions:
        found = {theirs: arrays[ours][:length] for ours, theirs in THEIRS.items() if ours in arrays}
        found["next.done"] = steps == length - 1
        if any(each.success is None for each in told.episodes):
            found.pop(THEIRS[SUCCESS], None)  # where an environment does not tell, all its steps say no
    return found | {
        "timestamp": (steps / fps).astype(np.float32),
        "frame_index": steps,
        "episode_index": np.full(length, number),
        "index": index + steps,
        "task_index": np.full(length, episode.task),
    }


def _arrow(values: npt.NDArray[Any]) -> Any:
    """Of [T] or [T, n] as upstream's reader asks for it: one number a row, or a list of n."""
    import pyarrow as pa

    flat = pa.array(values.reshape(-1))
    return flat if len(flat) == len(values) else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _info(told: DemosManifest, columns: Columns, cameras: Sequence[str], fps: int, frames: int) -> dict[str, Any]:
    """`meta/info.json`; `columns`: of any episode."""
    _, height, width = told.frame
    about = {
        "video.height": height, "video.width": width, "video.codec": "h264", "video.pix_fmt": "yuv420p",
        "video.fps": fps, "video.channels": COLOURS, "has_audio": False, "is_depth_map": False,
    }  # fmt: skip
    names = ["height", "width", "channels"]
    picture = {"dtype": "video", "shape": [height, width, COLOURS], "names": names, "info": about}
    features: dict[str, dict[str, Any]] = dict.fromkeys(cameras, picture)
    for name, values in columns.items():
        features[name] = {"dtype": str(values.dtype), "shape": list(values.shape[1:]) or [1], "names": None}
    if told.opened is not None and isinstance(told.opened.action, Discrete):
        features[THEIRS[ACTION]]["info"] = {CHOICES: told.opened.action.n}
    return {
        "codebase_version": VERSION, "fps": fps, "features": features,
        "total_episodes": len(told.episodes), "total_frames": frames, "total_tasks": len(told.tasks),
        "chunks_size": CHUNK_FILES, "data_files_size_in_mb": 100, "video_files_size_in_mb": 200,
        "data_path": DATA_PATH, "video_path": VIDEO_PATH, "robot_type": None,
        "splits": {"train": f"0:{len(told.episodes)}"},
    }  # fmt: skip


def _tasks(tasks: list[str]) -> Any:
    """As pandas keeps a table whose index is `task`: where LeRobot looks tasks up."""
    import pyarrow as pa

    described = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
        for name, kind, numpy in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    about = {"index_columns": ["task"], "column_indexes": [], "columns": described, "pandas_version": "2.0.0"}
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "task": tasks})
    return table.replace_schema_metadata({"pandas": json.dumps(about)})


def _named(task: str) -> str:
    """Some data sets' episodes have no task."""
    return task or "demonstration"


def stats_of_pictures(frames: npt.NDArray[np.uint8]) -> Stats:
    """Of [T, 3, H, W]: each [3, 1, 1], of brightness in [0, 1], and `count` [1], the frames that were looked at."""
    looked = min(len(frames), max(_LEAST_FRAMES, min(int(len(frames) ** _POWER), _MOST_FRAMES)))
    every = max(1, max(frames.shape[2:]) // _SIDE)
    seen = frames[np.linspace(0, len(frames) - 1, looked).round().astype(int), :, ::every, ::every]
    found = _stats_of(seen.transpose(0, 2, 3, 1).reshape(-1, COLOURS) / np.float32(255))
    return {name: value.reshape(-1, 1, 1) for name, value in found.items()} | {"count": np.array([looked])}


def _stats_of(rows: npt.NDArray[Any]) -> Stats:
    """Of [T, n]: each [n], and `count` [1]."""
    rows = rows.astype(np.float64)
    found = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
    return found | {"count": np.array([len(rows)])}


def together(parts: Sequence[Stats]) -> Stats:
    """Of several episodes."""
    found = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    share = found["count"].reshape(-1, *[1] * (found["mean"].ndim - 1)) / found["count"].sum()
    mean = (found["mean"] * share).sum(0)
    variance = ((found["std"] ** 2 + (found["mean"] - mean) ** 2) * share).sum(0)
    whole = {"min": found["min"].min(0), "max": found["max"].max(0), "mean": mean, "std": np.sqrt(variance)}
    return whole | {"count": found["count"].sum(0)}

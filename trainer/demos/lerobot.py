"""LeRobotDataset v3.0, read by pyarrow and PyAV (the extra `video`).

Checked against huggingface/lerobot at 7427f31 (Aug 2026): src/lerobot/datasets/{utils,io_utils,dataset_metadata,
dataset_reader,dataset_writer,feature_utils,compute_stats}.py. `lerobot` itself wants Python 3.12 and other versions of
torch and numpy: nothing here was read with `lerobot`.

Frame i of an episode lies `from_timestamp + i / fps` seconds into a film that it shares with other episodes; its row is
`dataset_from_index + i`. A data set is from anywhere: its own files are read and no other, whatever it says.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, ValidationError

from anchorleg.files import read_regular
from anchorleg.words import counted, did_you_mean, printable, sized
from trainer.demos.store import (
    ACTION,
    MAX_EPISODE_BYTES,
    REWARD,
    SUCCESS,
    Arrays,
    Count,
    DemoEpisode,
    Demos,
    DemosManifest,
    DemoSource,
    DemosWriter,
    Progress,
    digest_of,
)
from trainer.envs.pictures import COLOURS
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE, ArraySpec, Box, Discrete, Spaces
from trainer.errors import ConfigError

VERSION: Literal["v3.0"] = "v3.0"
INFO, EPISODES = "meta/info.json", "meta/episodes"
#: Where files lie, in upstream's words: no other places are understood.
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
IMAGES = "observation.images."
#: Our names of numbers, and theirs.
THEIRS = {
    STATE: "observation.state",
    PRIVILEGED: "observation.environment_state",
    ACTION: "action",
    REWARD: "next.reward",
    SUCCESS: "next.success",
}
#: Of how many an action is one: a word of ours in its `info`, where upstream has words for cameras alone.
CHOICES = "choices"
#: More than this are no choices, but numbers of something.
_MOST_CHOICES = 4096
#: Names of tasks in a sentence; characters of others' words in one.
_NAMES, _WORDS = 10, 200
#: FFmpeg opens this one file and no list of others, whatever it says, and no picture larger than 8K.
_FFMPEG = {
    "protocol_whitelist": "file",
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,gif,mpeg,mpegts,ogg,asf",
    "max_pixels": str(7680 * 4320),
    "err_detect": "explode",  # a damaged picture is none
    "threads": "1",
}
#: What is sought begins so much earlier: pictures may be kept in another order than they are shown in.
_EARLIER_S = 1.0
#: Where a folder says its licence: the head of its README, or the first line of one of these.
_LICENCES = ("LICENSE", "LICENSE.txt", "LICENCE", "LICENCE.txt", "LICENSE.md")
_NAMED_LICENCE = re.compile(r"^license:\s*['\"]?([\w.-]{1,80})", re.MULTILINE)
_README_BYTES = 4096
M = TypeVar("M", bound=BaseModel)


class _Feature(BaseModel):
    """One column or camera of `info.json`."""

    dtype: str
    shape: tuple[int, ...] = ()
    info: dict[str, Any] | None = None
    video_info: dict[str, Any] | None = None

    @property
    def is_film(self) -> bool:
        """Of colours: depth is not for us."""
        told = (self.info or {}) | (self.video_info or {})
        return self.dtype == "video" and not (told.get("is_depth_map") or told.get("video.is_depth_map"))


class LerobotInfo(BaseModel):
    """What `meta/info.json` says, as far as it is needed."""

    fps: float = Field(gt=0, le=1000)
    features: dict[str, _Feature]
    data_path: Literal["data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"]
    video_path: Literal["videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"] | None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Errors: ConfigError for another version, and for what cannot be read."""
        path = own(folder, INFO)
        try:
            value = json.loads(path.read_bytes())
            version = value.get("codebase_version")
        except OSError as error:
            raise ConfigError("lerobot.unreadable", path=path, why=error.strerror) from None
        except (ValueError, RecursionError, AttributeError) as error:
            raise ConfigError("lerobot.no-json", path=path, why=error) from None
        if version != VERSION:
            raise ConfigError("lerobot.other-version", folder=folder, version=printable(str(version), _WORDS))
        info = _validated(cls, value, path)
        if not info.cameras:
            raise ConfigError("lerobot.no-camera", folder=folder)
        wrong = next((key for key in info.cameras if "/" in key or not key.isprintable()), None)
        if wrong is not None:
            raise ConfigError("lerobot.camera-name", path=path, camera=printable(wrong, _WORDS))
        return info

    @property
    def cameras(self) -> tuple[str, ...]:
        """By their names there."""
        return tuple(key for key, feature in self.features.items() if feature.is_film)

    def chosen(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """The cameras that a user means: by their names, or what follows `observation.images.`. Errors: ConfigError."""
        names = {key.removeprefix(IMAGES): key for key in self.cameras} | {key: key for key in self.cameras}
        for name in wanted:
            if name not in names:
                raise ConfigError("lerobot.unknown-camera", camera=name, cameras=", ".join(self.cameras))
        return tuple(dict.fromkeys(names[name] for name in wanted)) or self.cameras

    @property
    def seen(self) -> dict[str, int]:
        """How many numbers there are in a row of our `STATE` and `PRIVILEGED`, where it has them."""
        return {key: width for key in (STATE, PRIVILEGED) if (width := self._width(key)) is not None}

    def _width(self, name: str) -> int | None:
        """Of a column of rows of real numbers."""
        feature = self.features.get(THEIRS[name])
        if feature is None or feature.dtype not in {"float32", "float64"} or len(feature.shape) != 1:
            return None
        return feature.shape[0] if 0 < feature.shape[0] <= 2**16 else None

    def action(self) -> Box | Discrete | None:
        """A row of real numbers, or one whole number (of 0: nobody says of how many); None: none that we know."""
        feature, width = self.features.get(THEIRS[ACTION]), self._width(ACTION)
        if width is not None:
            return Box(width)
        if feature is None or (feature.dtype, feature.shape) != ("int64", (1,)):
            return None
        choices = (feature.info or {}).get(CHOICES)
        return Discrete(choices if isinstance(choices, int) and 0 < choices <= _MOST_CHOICES else 0)

    def told(self) -> tuple[Any, ...]:
        """What is known of each action beside itself: reward, success."""
        kinds = {name: feature.dtype for name, feature in self.features.items()}
        return tuple(name for name in (REWARD, SUCCESS) if kinds.get(THEIRS[name]) in {"float32", "float64", "bool"})


class _Row(BaseModel):
    """An episode's row of `meta/episodes`. `films`: camera → (chunk, file, second of its first frame)."""

    episode_index: Count
    length: int = Field(ge=1)
    tasks: list[str]
    data: tuple[Count, Count]
    dataset_from_index: Count
    films: dict[str, tuple[Count, Count, Annotated[float, Field(ge=0, allow_inf_nan=False)]]]
    success: Any = None

    @property
    def task(self) -> str:
        """The first that it names."""
        return printable(self.tasks[0], _WORDS) if self.tasks else ""


def own(folder: Path, name: str) -> Path:
    """The path of a file of `folder` itself, or of none. Errors: ConfigError for a link to elsewhere, which may lead to
    what its maker could not read, and for a pipe, which would be waited for.
    """
    path, real = folder / name, os.path.realpath(folder / name)
    if Path(real).is_relative_to(os.path.realpath(folder)) and (os.path.isfile(real) or not os.path.lexists(path)):
        return path
    raise ConfigError("lerobot.link", path=path)


def import_lerobot(
    folder: Path, out: Path, size: int, cameras: Sequence[str], progress: Progress, task: str | None = None
) -> Demos:
    """Each episode of `task` (None: of all), by `cameras` (none: all), `size` pixels a side. What `out` has stays.

    Errors: ConfigError; SaveError; ModuleNotFoundError without pyarrow or PyAV.
    """
    if not (folder / INFO).is_file() and not (folder / INFO).is_symlink():
        raise ConfigError("demos.no-dataset", folder=folder)
    info = LerobotInfo.read(folder)
    chosen = info.chosen(cameras)
    rows = _of_task(_episodes(folder, chosen), task)
    tasks = tuple(dict.fromkeys(row.task for row in rows))
    frame = (COLOURS * len(chosen), size, size)
    for row in rows:  # before hours of them are decoded
        if row.length * prod(frame) > MAX_EPISODE_BYTES:
            raise ConfigError(
                "lerobot.episode-too-long", episode=row.episode_index, frames=row.length,
                cameras=counted(len(chosen), "camera"), size=sized(row.length * prod(frame)),
            )  # fmt: skip
    action, spaces = info.action(), None
    if action == Discrete(0):
        files = dict.fromkeys(row.data for row in rows)
        action = Discrete(1 + max(int(_numbers(folder, info, *file)[ACTION].max(initial=0)) for file in files))
    if action is not None:
        seen = {IMAGE: ArraySpec(frame, "uint8", 0.0, 255.0)}
        seen |= {key: ArraySpec((n,), privileged=key == PRIVILEGED) for key, n in info.seen.items()}
        spaces = Spaces(seen, action, tasks, max(row.length for row in rows))
    asked = digest_of(
        rows=[[row.episode_index, row.length, row.task, *row.data, row.dataset_from_index] for row in rows], size=size
    )
    plan = DemosManifest(
        source=DemoSource(kind="lerobot", name=folder.name, asked=asked, licence=licence_in(folder)),
        cameras=tuple(camera.removeprefix(IMAGES) for camera in chosen),
        frame=frame,
        tasks=tasks,
        spaces=None if spaces is None else spaces.as_json(),
        told=() if spaces is None else info.told(),
    )
    writer = DemosWriter(out, plan)
    numbers = lru_cache(maxsize=1)(lambda *file: _numbers(folder, info, *file))
    for number in range(writer.done, len(rows)):
        row = rows[number]
        progress(number, len(rows))
        arrays = {IMAGE: np.concatenate([_frames(folder, info, row, camera, size) for camera in chosen], axis=1)}
        if spaces is not None:
            arrays |= _of_episode(numbers(*row.data), row)
        success = row.success if isinstance(row.success, bool) else None
        if success is None and SUCCESS in arrays:
            success = bool(arrays[SUCCESS].any())
        episode = DemoEpisode(
            name=f"episode {row.episode_index}",
            frames=row.length,
            actions=0 if spaces is None else row.length,
            fps=info.fps,
            task=tasks.index(row.task),
            success=success,
        )
        writer.add(episode, arrays)
    progress(len(rows), len(rows))
    return writer.finish()


def _of_task(rows: list[_Row], task: str | None) -> list[_Row]:
    """Those that show `task`, by its name as the data set has it; None: all. Errors: ConfigError."""
    found = [row for row in rows if task is None or row.task == printable(task, _WORDS)]
    if task is not None and not found:
        names = sorted({row.task for row in rows})
        shown = f"it has {', '.join(map(repr, names[:_NAMES]))}{', …' if names[_NAMES:] else ''}"
        raise ConfigError("lerobot.unknown-task", task=task, hint=did_you_mean(task, names, shown))
    return found


def _episodes(folder: Path, cameras: Sequence[str]) -> list[_Row]:
    """All, in order. Errors: ConfigError."""
    fields = ["episode_index", "length", "tasks", "dataset_from_index", "success"]
    data = ["data/chunk_index", "data/file_index"]
    films = {c: [f"videos/{c}/{part}" for part in ("chunk_index", "file_index", "from_timestamp")] for c in cameras}
    rows: list[_Row] = []
    for found in sorted((folder / EPISODES).glob("chunk-*/file-*.parquet")):
        path = own(folder, str(found.relative_to(folder)))
        for value in _table(path, [*fields, *data, *(name for names in films.values() for name in names)]).to_pylist():
            value["data"] = [value.get(name) for name in data]
            value["films"] = {camera: [value.get(name) for name in names] for camera, names in films.items()}
            rows.append(_validated(_Row, value, path))
    if not rows:
        raise ConfigError("lerobot.no-episodes", folder=folder / EPISODES)
    return sorted(rows, key=lambda row: row.episode_index)


def _validated(model: type[M], value: Any, path: Path) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = printable(".".join(map(str, first["loc"])), _WORDS)
        words = printable(first["msg"], _WORDS)
        raise ConfigError("lerobot.damaged", path=path, why=f"{place}: {words}") from None


def licence_in(folder: Path) -> str | None:
    """What a folder says of its licence, in a line: in the head of its README, as data sets do, or in a file."""
    named = _NAMED_LICENCE.search(_beginning(folder / "README.md"))
    if named is not None:
        return named[1]
    lines = (_beginning(folder / name).strip().partition("\n")[0] for name in _LICENCES)
    return next((printable(line, _WORDS) for line in lines if line), None)


def _beginning(path: Path) -> str:
    try:
        return read_regular(path, _README_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _frames(folder: Path, info: LerobotInfo, row: _Row, camera: str, size: int) -> npt.NDArray[np.uint8]:
    """[F, 3, size, size] of an episode by one camera, each cut to its middle square and brought to size by area.
    Errors: ConfigError for what is no film, and where it is too short.
    """
    import av

    chunk, file, second = row.films[camera]
    path = own(folder, VIDEO_PATH.format(video_key=camera, chunk_index=chunk, file_index=file))
    frames: list[npt.NDArray[np.uint8]] = []
    try:
        with av.open(f"file:{path.absolute()}", options=_FFMPEG, metadata_errors="replace") as container:
            stream = cast("Any", container.streams.video[0])
            first_s, unit_s = float((stream.start_time or 0) * stream.time_base), float(stream.time_base)
            start_s = max(0.0, second - 0.5 / info.fps)  # half a frame before it, whatever was rounded
            container.seek(int((max(0.0, start_s - _EARLIER_S) + first_s) / unit_s), stream=stream)
            for picture in container.decode(stream):
                if (picture.pts or 0) * unit_s - first_s >= start_s and len(frames) < row.length:
                    frames.append(_square(picture, size))
                if len(frames) == row.length:
                    break
    except (av.FFmpegError, IndexError) as error:
        raise ConfigError(
            "film.unreadable", path=path, why=printable(str(getattr(error, "strerror", error)), _WORDS)
        ) from None
    if len(frames) < row.length:
        needed = second + row.length / info.fps
        raise ConfigError("lerobot.film-short", path=path, episode=row.episode_index, needed=needed)
    return np.stack(frames)


def _square(picture: Any, size: int) -> npt.NDArray[np.uint8]:
    """[3, size, size]: red, green and blue."""
    shortest = min(picture.width, picture.height)
    width, height = (max(size, round(side * size / shortest)) for side in (picture.width, picture.height))
    pixels = picture.reformat(width, height, "rgb24", interpolation="AREA").to_ndarray()
    top, left = (height - size) // 2, (width - size) // 2
    return np.ascontiguousarray(pixels[top : top + size, left : left + size].transpose(2, 0, 1))


def _numbers(folder: Path, info: LerobotInfo, chunk: int, file: int) -> dict[str, npt.NDArray[Any]]:
    """All rows of a file of numbers, by our names, and their `index`. Errors: ConfigError."""
    path, action = own(folder, DATA_PATH.format(chunk_index=chunk, file_index=file)), info.action()
    rows = [(key, (n,), np.float32) for key, n in info.seen.items()]
    told = [(key, (), {REWARD: np.float32, SUCCESS: np.bool_}[key]) for key in info.told()]
    done = (ACTION, (action.size,), np.float32) if isinstance(action, Box) else (ACTION, (), np.int64)
    columns: list[tuple[str, tuple[int, ...], Any]] = [("index", (), np.int64), *rows, *told, done]
    table = _table(path, [THEIRS.get(ours, ours) for ours, *_ in columns])
    found: dict[str, npt.NDArray[Any]] = {}
    for ours, shape, dtype in columns:
        theirs = THEIRS.get(ours, ours)
        if theirs not in table.column_names:
            raise ConfigError("lerobot.no-column", path=path, column=theirs)
        column = table.column(theirs).combine_chunks()
        flat = (column.flatten() if hasattr(column, "flatten") else column).to_numpy(zero_copy_only=False)
        if flat.dtype.kind not in "biuf" or flat.size != table.num_rows * prod(shape) or not np.isfinite(flat).all():
            raise ConfigError("lerobot.bad-numbers", path=path, column=theirs, length=prod(shape))
        found[ours] = flat.reshape(-1, *shape).astype(dtype)
    most = action.n if isinstance(action, Discrete) and action.n else _MOST_CHOICES
    if not isinstance(action, Box) and not ((found[ACTION] >= 0) & (found[ACTION] < most)).all():
        raise ConfigError("lerobot.no-choices", path=path, most=most)
    return found


def _of_episode(numbers: Arrays, row: _Row) -> dict[str, npt.NDArray[Any]]:
    """Those of an episode. Errors: ConfigError."""
    at = slice(first := int(np.searchsorted(numbers["index"], row.dataset_from_index)), first + row.length)
    if not np.array_equal(numbers["index"][at], row.dataset_from_index + np.arange(row.length)):
        raise ConfigError("lerobot.other-rows", episode=row.episode_index, rows=row.length)
    return {name: array[at] for name, array in numbers.items() if name != "index"}


def _table(path: Path, columns: list[str]) -> Any:
    """Those of `columns` that a Parquet file has, as pyarrow has them. Errors: ConfigError; ModuleNotFoundError."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(path).read(columns=columns)
    except OSError as error:
        raise ConfigError("lerobot.unreadable", path=path, why=error.strerror or error) from None
    except pa.ArrowException as error:
        raise ConfigError("lerobot.damaged", path=path, why=printable(str(error), _WORDS)) from None

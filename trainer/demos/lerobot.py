"""LeRobotDataset v3.0: its layout, by name. Read and written here, without LeRobot.

Checked against huggingface/lerobot at 7427f31 (Aug 2026): src/lerobot/datasets/{utils,io_utils,dataset_metadata,
dataset_reader,dataset_writer,feature_utils}.py, src/lerobot/utils/constants.py. `lerobot` itself wants Python 3.12 and
other versions of torch and numpy: nothing here was read by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from anchorleg.files import read_json
from anchorleg.printable import printable
from trainer.envs.spaces import PRIVILEGED, STATE, Box, Discrete
from trainer.errors import ConfigError

VERSION = "v3.0"
INFO, STATS, TASKS, EPISODES = "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/episodes"
_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
EPISODES_PATH = f"{EPISODES}/{_FILE}.parquet"
DATA_PATH = f"data/{_FILE}.parquet"
VIDEO_PATH = f"videos/{{video_key}}/{_FILE}.mp4"
CHUNK_FILES, DATA_MB, VIDEO_MB = 1000, 100, 200

IMAGES = "observation.images."
ACTION, REWARD, DONE, SUCCESS = "action", "next.reward", "next.done", "next.success"
#: Whether an episode succeeded, in its row of `meta/episodes`, of which upstream reads all but statistics as they are:
#: no step says which step counts.
EPISODE_SUCCESS = "success"
#: Of how many an action is one: a word of ours in its `info`, where upstream has words for cameras alone.
CHOICES = "choices"
#: More than this are no choices, but numbers of something.
MOST_CHOICES = 4096
#: Rows of numbers, by what they are called here.
ROWS = {STATE: "observation.state", PRIVILEGED: "observation.environment_state"}
#: What every data set has beside its own.
DEFAULT_FEATURES: dict[str, dict[str, Any]] = {
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    "frame_index": {"dtype": "int64", "shape": [1], "names": None},
    "episode_index": {"dtype": "int64", "shape": [1], "names": None},
    "index": {"dtype": "int64", "shape": [1], "names": None},
    "task_index": {"dtype": "int64", "shape": [1], "names": None},
}
_MAX_JSON_BYTES = 2**24
_PLACE = re.compile(r"\{(video_key|chunk_index|file_index)(?::0(\d)d)?\}")
_WORDS = 80


@dataclass(frozen=True)
class LerobotInfo:
    """What `meta/info.json` says, as far as it is needed. `rows`: our name → how many numbers; `action`: None where
    there are none that we know, one of 0 where nobody says of how many. `told`: which of reward and success there are,
    by their names there.
    """

    fps: float
    cameras: tuple[str, ...]
    rows: Mapping[str, int]
    action: Box | Discrete | None
    told: tuple[str, ...]
    data_path: str
    video_path: str

    @classmethod
    def read(cls, folder: Path) -> LerobotInfo:
        """Errors: ConfigError for another version, and for what cannot be read."""
        value = _json(folder, INFO)
        version = value.get("codebase_version")
        if version != VERSION:
            words = printable(str(version), _WORDS)
            raise ConfigError(
                f"{folder} is a LeRobotDataset of version {words}, and {VERSION} is read: LeRobot's own script "
                "convert_dataset_v21_to_v30 brings a v2.1 to it"
            )
        features, fps = value.get("features"), value.get("fps")
        if not isinstance(features, dict) or not isinstance(fps, int | float) or not 0 < fps <= 1000:
            raise ConfigError(f"{folder / INFO} has no features, or no fps: it is damaged")
        cameras = tuple(key for key, feature in features.items() if _is_film(feature))
        if not cameras:
            kept = [key for key, feature in features.items() if _kind(feature) == "image"]
            more = f" ({kept[0]} is kept as single images)" if kept else ""
            raise ConfigError(f"{folder} has no camera whose films could be read{more}")
        for key in cameras:
            if "/" in key or key in {".", ".."} or not key.isprintable():
                raise ConfigError(f"{folder / INFO}: {printable(key, _WORDS)} can be no camera's name")
        rows = {ours: size for ours, theirs in ROWS.items() if (size := _numbers(features.get(theirs))) is not None}
        return cls(
            float(fps),
            cameras,
            rows,
            _action(features.get(ACTION)),
            tuple(name for name in (REWARD, SUCCESS) if _kind(features.get(name)) in {"float32", "float64", "bool"}),
            str(value.get("data_path") or DATA_PATH),
            str(value.get("video_path") or VIDEO_PATH),
        )

    def chosen(self, wanted: list[str]) -> tuple[str, ...]:
        """The cameras that a user means: by their names, or what follows `observation.images.`. Errors: ConfigError."""
        found = []
        for name in wanted:
            key = next((key for key in self.cameras if name in {key, key.removeprefix(IMAGES)}), None)
            if key is None:
                raise ConfigError(f"there is no camera {name!r}; it has {', '.join(self.cameras)}")
            found.append(key)
        return tuple(dict.fromkeys(found)) or self.cameras


def is_dataset(folder: Path) -> bool:
    """Whether `folder` is a LeRobotDataset, of whatever version."""
    return (folder / INFO).is_file()


def place(folder: Path, template: str, chunk: int, file: int, video_key: str = "") -> Path:
    """Where `template` says that a file lies. Errors: ConfigError where that is not below `folder`."""
    values = {"chunk_index": chunk, "file_index": file, "video_key": video_key}

    def value(found: re.Match[str]) -> str:
        text = str(values[found[1]])
        return text.zfill(int(found[2])) if found[2] else text

    path = _PLACE.sub(value, template)
    pure = PurePosixPath(path)
    if "{" in path or pure.is_absolute() or ".." in pure.parts or chunk < 0 or file < 0:
        raise ConfigError(
            f"{folder / INFO} has a path that leads elsewhere, or that is not understood: {printable(template, _WORDS)}"
        )
    return own(folder, folder / path)


def own(folder: Path, path: Path) -> Path:
    """`path`, where it is a file of `folder` itself or is not there. Errors: ConfigError for a link to elsewhere, which
    may lead to what its maker could not read, and for a pipe, which would be waited for.
    """
    real = Path(os.path.realpath(path))
    if not os.path.lexists(path) or (real.is_relative_to(os.path.realpath(folder)) and real.is_file()):
        return path
    raise ConfigError(f"{path} is a link to elsewhere, or no file: copy the files themselves with cp -rL")


def _json(folder: Path, name: str) -> dict[str, Any]:
    path = own(folder, folder / name)
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise ConfigError(f"{path} is larger than any such file")
        value = read_json(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON ({error})") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object")
    return value


def _kind(feature: Any) -> str | None:
    kind = feature.get("dtype") if isinstance(feature, dict) else None
    return kind if isinstance(kind, str) else None  # a list could not even be looked up


def _is_film(feature: Any) -> bool:
    """A film of colours: depth is not for us."""
    if _kind(feature) != "video":
        return False
    told = [about for name in ("video_info", "info") if isinstance(about := feature.get(name), dict)]
    return not any(about.get("is_depth_map") or about.get("video.is_depth_map") for about in told)


def _numbers(feature: Any) -> int | None:
    """How many, of a row of real numbers."""
    if _kind(feature) not in {"float32", "float64"}:
        return None
    shape = feature.get("shape")
    is_row = isinstance(shape, list) and len(shape) == 1 and isinstance(shape[0], int) and 0 < shape[0] <= 2**16
    return shape[0] if is_row else None


def _action(feature: Any) -> Box | Discrete | None:
    """A row of real numbers, or one whole number."""
    size = _numbers(feature)
    if size is not None:
        return Box(size)
    if _kind(feature) != "int64" or feature.get("shape") != [1]:
        return None
    about = feature.get("info")
    choices = about.get(CHOICES) if isinstance(about, dict) else None
    return Discrete(choices if isinstance(choices, int) and 0 < choices <= MOST_CHOICES else 0)

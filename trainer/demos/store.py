"""A folder of demonstrations: `demos.json`, and blocks of some episodes each, whose frames are zstd-compressed.

``blocks/<number>.safetensors`` has, of its k-th episode, ``<k>.image`` (uint8 [F, 3 · cameras, H, W], packed as
`trainer.buffers.packing` does it) and the other arrays as they are. A block is written once, and the manifest names it
then: so an import that is killed goes on behind its last block, and comes to the same bytes.

Shapes: an episode has F frames and A actions: A is 0 (a film), F (each frame's action), or F - 1 (each frame's, and
what the last one led to).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from anchorleg.files import LEFT_BEHIND_S, make_folder, sweep_temporary, write_bytes, write_json
from anchorleg.words import sized
from trainer.buffers.packing import packed, unpacked
from trainer.envs.spaces import IMAGE, Spaces
from trainer.errors import ConfigError, SaveError, UndecidedError, may_pass, unread

Arrays = Mapping[str, npt.NDArray[Any]]
#: How far it is: (episodes that are there, all of them).
Progress = Callable[[int, int], None]

MANIFEST = "demos.json"
#: An hour of three cameras at 64 pixels, ten pictures a second, has 1.3 GB.
MAX_EPISODE_BYTES = 2 * 2**30
#: What there may be of each action, beside itself.
REWARD, TERMINATED, SUCCESS, ACTION = "reward", "terminated", "success", "action"
_TOLD = {REWARD: np.float32, TERMINATED: np.bool_, SUCCESS: np.bool_}
BLOCKS = "blocks"
#: A block is full with so many frames' bytes, or episodes: what a kill may cost.
_BLOCK_BYTES, _BLOCK_EPISODES = 128 * 2**20, 64

Count = Annotated[int, Field(ge=0)]
Side = Annotated[int, Field(ge=1, le=1024)]


class _Record(BaseModel):
    """Frozen, and nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DemoEpisode(_Record):
    """One episode, `name`d as its source. `success` None: nobody says. `was_cut`: of a film that ended early."""

    name: str
    frames: Annotated[int, Field(ge=1)]
    actions: Count = 0
    fps: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    task: Count = 0
    success: bool | None = None
    was_cut: bool = False


class DemoBlock(_Record):
    """A file with the frames of some episodes: `path` is its name in the folder `blocks`."""

    path: Annotated[str, Field(pattern=r"^[0-9]{6}\.safetensors$")]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    bytes: Count
    episodes: Annotated[tuple[DemoEpisode, ...], Field(min_length=1)]


class DemoSource(_Record):
    """Where they are from: what kind of thing, which, what was asked of it (a digest), and its licence as it says.
    `paid_by`: the settings that decided rewards and ends (`EnvSettings.paid_by`); None: nobody says.
    """

    kind: Literal["films", "lerobot", "recorded"]
    name: str
    asked: str
    licence: str | None = None
    paid_by: dict[str, JsonValue] | None = None


class DemosManifest(_Record):
    """`frame`: [3 · cameras, H, W] of each. `spaces`: of observations and actions, where there are actions; without
    stacks. `told`: what else is known of each action. `is_complete`: whether all that was asked for is there.
    """

    format: Literal[1] = 1
    is_complete: bool = False
    source: DemoSource
    cameras: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]
    frame: tuple[Annotated[int, Field(ge=1, le=192)], Side, Side]
    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("",)
    spaces: dict[str, Any] | None = None
    told: tuple[Literal["reward", "terminated", "success"], ...] = ()
    blocks: tuple[DemoBlock, ...] = ()

    @field_validator("spaces")
    @classmethod
    def _spaces_can_be_read(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            try:
                Spaces.from_json(value)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"spaces: {error}") from None
        return value

    @model_validator(mode="after")
    def _tasks_are_there(self) -> Self:
        wrong = next((episode for episode in self.episodes if episode.task >= len(self.tasks)), None)
        if wrong is not None:
            raise ValueError(f"{wrong.name!r} shows task {wrong.task}, and there are {len(self.tasks)}")
        return self

    @property
    def episodes(self) -> tuple[DemoEpisode, ...]:
        """All, in order."""
        return tuple(episode for block in self.blocks for episode in block.episodes)

    @property
    def num_frames(self) -> int:
        """Of all episodes."""
        return sum(episode.frames for episode in self.episodes)

    @property
    def opened(self) -> Spaces | None:
        """`spaces`."""
        return None if self.spaces is None else Spaces.from_json(self.spaces)

    @property
    def about(self) -> Self:
        """What does not change while episodes come."""
        return self.model_copy(update={"blocks": (), "is_complete": False})

    @property
    def digest(self) -> str:
        """sha256 (hex) of all that it says: the same demonstrations."""
        said = self.model_dump(mode="json", exclude={"source": {"paid_by"}})  # of which `asked` is a digest
        return digest_of(**said)

    def shapes_of(self, episode: DemoEpisode) -> dict[str, tuple[tuple[int, ...], type[np.generic]]]:
        """Name → shape and type of each array of `episode`."""
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {IMAGE: ((episode.frames, *self.frame), np.uint8)}
        spaces = self.opened
        if spaces is not None and episode.actions:
            shapes |= {
                key: ((episode.frames, *spec.shape), np.dtype(spec.dtype).type)
                for key, spec in spaces.obs.items()
                if key != IMAGE
            }
            shapes[ACTION] = ((episode.actions, *spaces.action.shape), spaces.action.dtype)
            shapes |= {name: ((episode.actions,), _TOLD[name]) for name in self.told}
        return shapes


class DamagedDemosError(ConfigError):
    """Demonstrations are not what was written, and which file. The others may be whole."""


@dataclass(frozen=True)
class Demos:
    """Demonstrations that are there. `folder`: where."""

    folder: Path
    manifest: DemosManifest

    @classmethod
    def open(cls, folder: Path) -> Demos:
        """Errors: ConfigError where there are none; as `find`."""
        found = cls.find(folder)
        if found is None:
            raise ConfigError("demos.none", folder=folder)
        return found

    @classmethod
    def find(cls, folder: Path) -> Demos | None:
        """None where there are none. Errors: ConfigError where not all are there that were asked for; as
        `read_manifest`.
        """
        manifest = read_manifest(folder)
        if manifest is None:
            return None
        if not manifest.is_complete:
            raise ConfigError("demos.incomplete", folder=folder, episodes=len(manifest.episodes))
        return cls(folder, manifest)

    def read(self) -> Iterator[tuple[DemoEpisode, Arrays]]:
        """Each episode with its arrays (`DemosManifest.shapes_of`), read-only; one block is in memory at a time.

        Errors: DamagedDemosError; UndecidedError where one cannot be read now.
        """
        for block in self.manifest.blocks:
            tensors = self._tensors(block)
            for number, episode in enumerate(block.episodes):
                yield episode, self._arrays(block, tensors, number, episode)

    def copy_to(self, folder: Path) -> None:
        """Leave them in `folder`, durably; of what is there already, files that are gone or cut are made anew. What a
        job that was killed at it left there goes.

        Errors: as `read`; OSError.
        """
        _sweep(folder / BLOCKS)
        missing = [block for block in self.manifest.blocks if _size_of(folder / BLOCKS / block.path) != block.bytes]
        there = read_manifest(folder)
        if not missing and there is not None and there.digest == self.manifest.digest:
            return
        make_folder(folder / BLOCKS)
        for block in missing:
            write_bytes(folder / BLOCKS / block.path, self._data(block))
        write_json(folder / MANIFEST, self.manifest.model_dump(mode="json"))

    def _data(self, block: DemoBlock) -> bytes:
        path = self.folder / BLOCKS / block.path
        try:
            if path.stat().st_size != block.bytes:
                raise DamagedDemosError("demos.block-cut", path=path, found=path.stat().st_size, bytes=block.bytes)
            data = path.read_bytes()
        except OSError as error:
            raise _unread(path, error) from error
        if hashlib.sha256(data).hexdigest() != block.sha256:
            raise DamagedDemosError("demos.block-changed", path=path)
        return data

    def _tensors(self, block: DemoBlock) -> Arrays:
        try:
            found: Arrays = safetensors.numpy.load(self._data(block))
        except safetensors.SafetensorError as error:
            raise DamagedDemosError("demos.block-damaged", path=self.folder / BLOCKS / block.path, why=error) from None
        return found

    def _arrays(self, block: DemoBlock, tensors: Arrays, number: int, episode: DemoEpisode) -> Arrays:
        shapes = self.manifest.shapes_of(episode)
        _check_bytes(episode, math.prod(shapes[IMAGE][0]))
        mine = {name.removeprefix(f"{number}."): t for name, t in tensors.items() if name.startswith(f"{number}.")}
        try:
            arrays = unpacked(
                mine, {name: (shape[1:], np.dtype(kind)) for name, (shape, kind) in shapes.items()}, episode.frames
            )
        except ValueError as error:
            raise DamagedDemosError(
                "demos.block-damaged", path=f"{self.folder / BLOCKS / block.path}, {episode.name}", why=error
            ) from None
        for name, (shape, kind) in shapes.items():
            found = arrays.get(name)
            fits = found is not None and (found.shape, found.dtype) == (shape, np.dtype(kind))
            if found is None or not fits or (found.dtype.kind == "f" and not np.isfinite(found).all()):
                place = f"{self.folder / BLOCKS / block.path}: {name} of {episode.name}"
                raise DamagedDemosError("demos.array-damaged", place=place, dtype=np.dtype(kind), shape=str(shape))
        return arrays


class DemosWriter:
    """Puts episodes into `folder`, in order, behind those of a writer with the same `plan` that was interrupted.

    `plan`: a manifest without blocks. Errors of every method: ConfigError where the folder holds something else;
    SaveError where it cannot be written.
    """

    def __init__(self, folder: Path, plan: DemosManifest) -> None:
        self.folder = folder
        there = read_manifest(folder)
        if there is not None and there.about.digest != plan.about.digest:
            raise ConfigError("demos.others-there", folder=folder, kind=there.source.kind, name=there.source.name)
        self.manifest = there or plan
        self._waiting: list[tuple[DemoEpisode, dict[str, npt.NDArray[Any]]]] = []
        self._waiting_bytes = 0

    @property
    def done(self) -> int:
        """Episodes that are written."""
        return len(self.manifest.episodes)

    def add(self, episode: DemoEpisode, arrays: Arrays) -> None:
        """The next one, with the arrays that `DemosManifest.shapes_of` names. It is written with its block."""
        for name, (shape, kind) in self.manifest.shapes_of(episode).items():
            if arrays[name].shape != shape or arrays[name].dtype != kind:
                raise ValueError(f"{name} of {episode.name} is {arrays[name].dtype} {arrays[name].shape}, not {shape}")
        size = arrays[IMAGE].nbytes
        _check_bytes(episode, size)
        self._waiting.append((episode, packed({name: np.ascontiguousarray(array) for name, array in arrays.items()})))
        self._waiting_bytes += size
        if self._waiting_bytes >= _BLOCK_BYTES or len(self._waiting) >= _BLOCK_EPISODES:
            self._write()

    def finish(self) -> Demos:
        """All are there."""
        self._write()
        if not self.manifest.episodes:
            raise ConfigError("demos.nothing-made", source=self.manifest.source.name, folder=self.folder)
        self._say(self.manifest.model_copy(update={"is_complete": True}))
        return Demos(self.folder, self.manifest)

    def _write(self) -> None:
        if not self._waiting:
            return
        number = len(self.manifest.blocks)
        tensors = {
            f"{k}.{name}": array for k, (_, arrays) in enumerate(self._waiting) for name, array in arrays.items()
        }
        data: bytes = safetensors.numpy.save(tensors)
        block = DemoBlock(
            path=f"{number:06d}.safetensors",
            sha256=hashlib.sha256(data).hexdigest(),
            bytes=len(data),
            episodes=tuple(episode for episode, _ in self._waiting),
        )
        self._say(self.manifest.model_copy(update={"blocks": (*self.manifest.blocks, block)}), data)
        self._waiting, self._waiting_bytes = [], 0

    def _say(self, manifest: DemosManifest, data: bytes = b"") -> None:
        """The manifest, and before it the `data` of its last block."""
        blocks = self.folder / BLOCKS
        try:
            make_folder(blocks)
            if data:
                _sweep(blocks)
                write_bytes(blocks / manifest.blocks[-1].path, data)
            write_json(self.folder / MANIFEST, manifest.model_dump(mode="json"))
        except OSError as error:
            why = error.strerror or error
            raise SaveError("demos.unwritten", path=error.filename or self.folder, why=why) from error
        self.manifest = manifest


def digest_of(**asked: Any) -> str:
    """sha256 (hex) of what was asked for: another wish is another folder."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_manifest(folder: Path) -> DemosManifest | None:
    """What `folder` says of itself; None where there is nothing.

    Errors: DamagedDemosError; UndecidedError where it cannot be read now.
    """
    path = folder / MANIFEST
    try:
        return DemosManifest.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unread(path, error) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "all of it"
        raise DamagedDemosError("demos.manifest-damaged", path=path, place=place, why=first["msg"]) from None


def _unread(path: Path, error: OSError) -> UndecidedError | DamagedDemosError:
    """What it comes to that `path` cannot be read."""
    if may_pass(error):
        return unread(str(path), error)
    return DamagedDemosError("demos.unreadable", path=path, why=error.strerror)


def _sweep(blocks: Path) -> None:
    """What killed writers left of a block goes. Errors: OSError."""
    sweep_temporary(blocks, time.time() - LEFT_BEHIND_S)


def _size_of(path: Path) -> int | None:
    """Bytes; None where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _check_bytes(episode: DemoEpisode, size: int) -> None:
    """Errors: ConfigError where an episode is longer than anybody can hold."""
    if size > MAX_EPISODE_BYTES:
        raise ConfigError("demos.episode-too-long", episode=episode.name, frames=episode.frames, size=sized(size))

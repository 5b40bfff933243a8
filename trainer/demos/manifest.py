"""`demos.json`: what a folder of demonstrations says of itself.

Shapes: an episode has F frames and A actions: A is 0 (a film), F (each frame's action), or F - 1 (each frame's, and
what the last one led to).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from trainer.envs.spaces import IMAGE, PRIVILEGED, ArraySpec, Box, Discrete, Spaces

MANIFEST = "demos.json"
#: An hour of three cameras at 64 pixels, ten pictures a second, has 1.3 GB.
MAX_EPISODE_BYTES = 2 * 2**30
#: What there may be of each action, beside itself.
REWARD, TERMINATED, SUCCESS, ACTION = "reward", "terminated", "success", "action"
_TOLD = {REWARD: np.float32, TERMINATED: np.bool_, SUCCESS: np.bool_}

Count = Annotated[int, Field(ge=0)]
Side = Annotated[int, Field(ge=1, le=1024)]


class _Record(BaseModel):
    """Frozen, and nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DemoEpisode(_Record):
    """One film or episode, `name`d as its source. `success` None: nobody says. `was_cut`: its file ended early."""

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

    def frame_bytes(self, pictures: Iterable[str]) -> int:
        """What all frames of these pictures, by their keys, take in memory."""
        seen = {} if self.opened is None else self.opened.obs
        shapes = [self.frame if key == IMAGE else seen[key].shape for key in pictures]
        return self.num_frames * sum(map(math.prod, shapes))

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
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

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


def spaces_with(
    frame: tuple[int, ...], rows: Mapping[str, int], action: Box | Discrete, tasks: tuple[str, ...], horizon: int
) -> Spaces:
    """Of pictures of `frame`, and `rows` of so many numbers by key."""
    seen = {key: ArraySpec((size,), privileged=key == PRIVILEGED) for key, size in rows.items()}
    return Spaces({IMAGE: ArraySpec(frame, "uint8", 0.0, 255.0), **seen}, action, tasks, horizon)

"""The settings of each suite in `trainer/envs/suites/`, under `training.env`: a class for each, called as its file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from anchorleg.words import did_you_mean
from trainer.config.fields import PositiveInt, refused
from trainer.config.pictures import ImageSize, Observation, PictureSettings
from trainer.config.settings import EnvSettings
from trainer.errors import FieldError

#: The ten tasks of MT10, as `metaworld.env_dict` 3.1.1 has them; a test compares the two. A task's place is its index,
#: which the one-hot id is made of.
MT10: tuple[str, ...] = (
    "reach-v3", "push-v3", "pick-place-v3", "door-open-v3", "drawer-open-v3", "drawer-close-v3",
    "button-press-topdown-v3", "peg-insert-side-v3", "window-open-v3", "window-close-v3",
)  # fmt: skip

#: All fifty v3 tasks.
MT50: tuple[str, ...] = (
    "assembly-v3", "basketball-v3", "bin-picking-v3", "box-close-v3", "button-press-topdown-v3",
    "button-press-topdown-wall-v3", "button-press-v3", "button-press-wall-v3", "coffee-button-v3", "coffee-pull-v3",
    "coffee-push-v3", "dial-turn-v3", "disassemble-v3", "door-close-v3", "door-lock-v3", "door-open-v3",
    "door-unlock-v3", "hand-insert-v3", "drawer-close-v3", "drawer-open-v3", "faucet-open-v3", "faucet-close-v3",
    "hammer-v3", "handle-press-side-v3", "handle-press-v3", "handle-pull-side-v3", "handle-pull-v3", "lever-pull-v3",
    "pick-place-wall-v3", "pick-out-of-hole-v3", "pick-place-v3", "plate-slide-v3", "plate-slide-side-v3",
    "plate-slide-back-v3", "plate-slide-back-side-v3", "peg-insert-side-v3", "peg-unplug-side-v3", "soccer-v3",
    "stick-push-v3", "stick-pull-v3", "push-v3", "push-wall-v3", "push-back-v3", "reach-v3", "reach-wall-v3",
    "shelf-place-v3", "sweep-into-v3", "sweep-v3", "window-open-v3", "window-close-v3",
)  # fmt: skip

#: Benchmark name → its tasks.
BENCHMARKS: dict[str, tuple[str, ...]] = {"MT10": MT10, "MT50": MT50}

#: Steps after which Meta-World truncates an episode (`SawyerXYZEnv.max_path_length`); it refuses to step any further.
MAX_HORIZON = 500


def checked_tasks(names: Sequence[str]) -> tuple[str, ...]:
    """`names` if they are v3 tasks. Errors: FieldError with the nearest known name."""
    for name in names:
        if name not in MT50:
            hint = did_you_mean(name, MT50, "task names end in -v3, such as 'reach-v3'")
            raise FieldError("env.unknown-task", task=name, hint=hint)
    return tuple(names)


class Metaworld(PictureSettings):
    """Meta-World v3 with the goal visible and reward version v2 (McLean et al. 2025)."""

    KNOWN_CAMERAS: ClassVar[tuple[str, ...]] = (
        "topview", "corner", "corner2", "corner3", "corner4", "behindGripper", "gripperPOV",
    )  # fmt: skip
    USUAL_CAMERAS: ClassVar[tuple[str, ...]] = ("corner2",)
    VERSION: ClassVar[str] = "1"
    SERIES: ClassVar[tuple[str, ...]] = ("metaworld",)
    #: Its instance, and the remembered resets of its task [measured: 1,280 take 28 GB more than ten, `memory gb` of
    #: bench/results/gpu.csv].
    ENV_BYTES: ClassVar[int] = 21 * 2**20
    #: In C; bench/stepping.py.
    STEP_S: ClassVar[float] = 3e-4
    TASK_BYTES: ClassVar[int] = 30 * 2**20
    DRAWN_STEP_S: ClassVar[float] = 6e-3

    name: Literal["metaworld"] = Field("metaworld", description=EnvSettings.model_fields["name"].description)
    observation: Observation = Field(
        "state",
        description="Input of the policy: state (39 numbers), cameras (pictures), both (pictures, hand position "
        "and gripper opening) or clips (as both, several frames: for video encoders).",
    )
    benchmark: str | None = Field(None, exclude=True, description="MT10 or MT50; not with tasks.")
    tasks: tuple[str, ...] = Field(MT10, description="Names of Meta-World v3 tasks; not with benchmark.")
    horizon: Annotated[int, Field(ge=1, le=MAX_HORIZON)] = Field(
        MAX_HORIZON, description="Steps after which an episode is truncated; at most 500."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_the_benchmarks_tasks(cls, value: Any) -> Any:
        """A benchmark is a name for its tasks, and is not kept."""
        if not isinstance(value, dict) or value.get("benchmark") is None:
            return value
        if value.get("tasks") is not None:
            raise FieldError("env.benchmark-and-tasks")
        name = str(value["benchmark"]).upper()
        if name not in BENCHMARKS:
            error = FieldError(
                "env.unknown-benchmark", benchmark=value["benchmark"], hint=did_you_mean(name, BENCHMARKS)
            )
            raise refused(("benchmark",), error, value["benchmark"])
        return {**{key: kept for key, kept in value.items() if key != "benchmark"}, "tasks": BENCHMARKS[name]}

    @field_validator("tasks")
    @classmethod
    def _tasks_are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_tasks(value)


class Arm(PictureSettings):
    """A robot arm with seven joints that must hold its hand at a goal (docs/environments.md)."""

    KNOWN_CAMERAS: ClassVar[tuple[str, ...]] = ("front", "side", "top")
    USUAL_CAMERAS: ClassVar[tuple[str, ...]] = ("front", "side", "top")
    VERSION: ClassVar[str] = "1"
    #: 590 KiB: the compiled scene, MuJoCo's data and its arena.
    ENV_BYTES: ClassVar[int] = 590 * 2**10
    #: In C; bench/stepping.py.
    STEP_S: ClassVar[float] = 3e-5
    TASK_BYTES: ClassVar[int] = 2**20
    DRAWN_STEP_S: ClassVar[float] = 6e-4
    SUCCESS_AT: ClassVar[Literal["any step", "last step"]] = "last step"
    MEASURES: ClassVar[tuple[str, ...]] = ("reached", "triggered", "distance", "steps_to_reach")

    name: Literal["arm"] = Field("arm", description=EnvSettings.model_fields["name"].description)
    tasks: Annotated[tuple[Literal["reach"], ...], Field(min_length=1, max_length=1)] = Field(
        ("reach",), description="The only task."
    )
    # Noise of a whole episode is drawn at its start.
    horizon: Annotated[int, Field(ge=1, le=10_000)] = Field(
        100, description="Steps of 50 ms after which an episode is truncated."
    )
    goals: Literal["workspace", "box", "fixed"] = Field(
        "workspace",
        description="Where goals lie: workspace (anywhere within reach), box (within 15 cm of the resting hand, "
        "as in FetchReach) or fixed (one place).",
    )
    reward: Literal["dense", "tanh", "sparse"] = Field(
        "dense",
        description="dense: -d - 0.01 |a|², plus 1 within 5 cm (d: metres from hand to goal); tanh: 1 - tanh(5 "
        "d); sparse: 0 within 5 cm, else -1.",
    )
    observation: Literal["state", "legacy", "cameras", "both", "clips"] = Field(
        "state",
        description="Input of the policy: state (25 numbers), legacy (8: distance and joint angles, without the "
        "goal's place), cameras (pictures), both (pictures and the arm's own 18 numbers) or clips (as"
        " both, several frames: for video encoders).",
    )
    end_on_success: bool = Field(
        False,
        description="End an episode once the hand is within 5 cm, with that step's reward paid for all remaining "
        "steps.",
    )
    randomize: bool = Field(
        False, description="Randomise masses, gains, damping, action delay and noise of the seen goal in each episode."
    )

    @property
    def paid_by(self) -> dict[str, Any]:
        # An end pays for the steps that are left, which the horizon says.
        horizon = ["horizon"] if self.end_on_success else []
        return self.model_dump(mode="json", include={"name", "reward", "end_on_success", *horizon})


#: `CartPole-v1`, `ALE/Pong-v5`, `module:Env-v0`, `package.module:Name`.
_ID = re.compile(r"(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:)?[\w.-]+(?:/[\w.-]+)*", re.ASCII)
#: A value of `kwargs` that can name no file and no module.
_WORD = re.compile(r"[\w-]*", re.ASCII)


class Gymnasium(PictureSettings):
    """Any environment with Gymnasium's interface (docs/environments.md)."""

    VERSION: ClassVar[str] = "1"
    #: Pictures may be part of what it gives; it alone knows its cameras and lights.
    REFUSED_WITH_STATE: ClassVar[tuple[str, ...]] = ()

    name: Literal["gymnasium"] = Field("gymnasium", description=EnvSettings.model_fields["name"].description)
    observation: Observation = Field(
        "state",
        description="Input of the policy: state (the environment's observation), cameras (its rendering), both, "
        "or clips (both, several frames: for video encoders; of its own pictures if it gives some).",
    )
    # None: only the environment knows how large its pictures are.
    image_size: ImageSize | None = Field(  # type: ignore[assignment]
        None,
        description="Pixels per side of each picture, each the mean of the pixels it covers; default: 64 for "
        "renderings, the original size for its own pictures.",
    )
    id: str = Field(
        description="An id such as CartPole-v1; module:Env-v0 if the module registers it; or package.module:Name "
        "of a class or function that creates it."
    )
    kwargs: dict[str, JsonValue] = Field({}, description="Arguments of gymnasium.make(id, **kwargs).")
    tasks: tuple[str, ...] = Field((), description="Name of its only task; default: the end of the id.")
    #: The longest episode of Gymnasium's robots. The spec's own limit is not known on a login node.
    horizon: PositiveInt = Field(
        1000, description="Steps after which an episode is truncated, unless its own limit is lower."
    )

    @field_validator("cameras", "randomize_view")
    @classmethod
    def _views_are_its_own(cls, value: Any) -> Any:
        if value:
            raise FieldError("env.views-not-its-own")
        return value

    @property
    def draws(self) -> Literal["no", "mujoco", "itself"]:
        return "itself" if self.has_pictures else "no"

    @field_validator("id")
    @classmethod
    def _id_can_be_one(cls, value: str) -> str:
        if not _ID.fullmatch(value):
            raise FieldError("env.no-id", id=value)
        return value

    @model_validator(mode="before")
    @classmethod
    def _with_a_task(cls, value: Any) -> Any:
        """A task called as the id, without its module and namespace."""
        if not isinstance(value, dict) or value.get("tasks") or not isinstance(value.get("id"), str):
            return value
        return {**value, "tasks": (re.split("[:/]", value["id"])[-1],)}

    @field_validator("tasks")
    @classmethod
    def _has_one_task(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) != 1:
            raise FieldError("env.several-tasks", count=len(value))
        return value

    def distrusted(self) -> str | None:
        if ":" in self.id:
            return f"id is {self.id!r}: foreign modules are not imported here"
        for key, value in self.kwargs.items():
            is_plain = (
                _WORD.fullmatch(value) if isinstance(value, str) else value is None or isinstance(value, int | float)
            )
            if not is_plain:
                return f"kwargs.{key} is neither a number nor a plain word"
        return None

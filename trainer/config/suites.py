"""The settings of each suite in `trainer/envs/suites/`, under `training.env`: a class for each, called as its file."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from anchorleg.words import did_you_mean
from trainer.config.settings import EnvSettings, refused
from trainer.config.tasknames import BENCHMARKS, MAX_HORIZON, MT10, checked_tasks


class Metaworld(EnvSettings):
    """Meta-World v3, with the goal visible and reward version v2 (McLean et al. 2025)."""

    VERSION: ClassVar[str] = "1"
    SERIES: ClassVar[tuple[str, ...]] = ("metaworld",)
    #: 18 MiB for its instance, and the remembered resets of its task.
    ENV_BYTES: ClassVar[int] = 20 * 2**20

    name: Literal["metaworld"] = Field("metaworld", description=EnvSettings.model_fields["name"].description)
    benchmark: str | None = Field(None, exclude=True, description="MT10 or MT50; not together with tasks.")
    tasks: tuple[str, ...] = Field(MT10, description="Meta-World v3 task names; not together with benchmark.")
    horizon: Annotated[int, Field(ge=1, le=MAX_HORIZON)] = Field(
        MAX_HORIZON, description="Steps after which an episode is cut; Meta-World allows 500."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_the_benchmarks_tasks(cls, value: Any) -> Any:
        """A benchmark is a name for its tasks, and is not kept."""
        if not isinstance(value, dict) or value.get("benchmark") is None:
            return value
        if value.get("tasks") is not None:
            raise ValueError("benchmark and tasks exclude each other; keep one of them")
        name = str(value["benchmark"]).upper()
        if name not in BENCHMARKS:
            words = f"there is no benchmark {value['benchmark']!r}; {did_you_mean(name, BENCHMARKS)}"
            raise refused([(("benchmark",), words, value["benchmark"])])
        return {**{key: kept for key, kept in value.items() if key != "benchmark"}, "tasks": BENCHMARKS[name]}

    @field_validator("tasks")
    @classmethod
    def _tasks_are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return checked_tasks(value)

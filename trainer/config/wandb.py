"""Weights & Biases: what a config says of it, and what a job's environment is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

#: In a job's environment, which ends at a null byte.
WandbName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^/\\#?%:\x00-\x1f]+$")]


class WandbSection(BaseModel):
    """Where jobs send curves to Weights & Biases. Environment variables take precedence."""

    # A user called 123 is a name all the same.
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    mode: Literal["online", "offline", "disabled"] | None = Field(
        None,
        description="online: send curves during training; offline: send them later with `trainer wandb` and "
        "`wandb sync`; default: WANDB_MODE, else disabled.",
    )
    project: WandbName | None = Field(None, description='Project; default: WANDB_PROJECT, else "anchorleg".')
    entity: WandbName | None = Field(None, description="User or team; default: WANDB_ENTITY, else the key's owner.")
    group: WandbName | None = Field(None, description="Group of the slots' runs; default: the run's id.")
    tags: tuple[Annotated[str, Field(pattern=r"^[^,\x00-\x1f]{1,64}$")], ...] = Field(
        (), description="Tags of each run."
    )


#: What `WANDB_MODE` may say.
WANDB_MODES = ("online", "offline", "disabled")
#: W&B's own words for two of them, from before they had these names.
_OLD_WANDB_MODES = {"run": "online", "dryrun": "offline"}


def wandb_mode(environ: Mapping[str, str]) -> str:
    """`WANDB_MODE` in today's words; `disabled` where it says nothing. What is none of `WANDB_MODES` comes back as it
    is. Pure.
    """
    mode = environ.get("WANDB_MODE", "").strip().lower() or "disabled"
    return _OLD_WANDB_MODES.get(mode, mode)


def wandb_environment(section: WandbSection, environ: Mapping[str, str]) -> dict[str, str]:
    """W&B's own variables for a job: what `environ` says, else what the section says. Never the key. Pure."""
    wanted = {
        "WANDB_BASE_URL": None,
        "WANDB_MODE": section.mode,
        "WANDB_PROJECT": section.project,
        "WANDB_ENTITY": section.entity,
        "WANDB_RUN_GROUP": section.group,
        "WANDB_TAGS": ",".join(section.tags),
    }
    found = {name: environ.get(name) or value for name, value in wanted.items()}
    return {name: value for name, value in found.items() if value}

"""The training section: what a user may write, what it resolves to, and which of it a checkpoint insists on.

A login node imports this module, so it needs pydantic and nothing else (no torch, no numpy, no simulator).
"Step" means a transition: one action of one environment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from anchorleg.words import did_you_mean
from trainer.find import ALGORITHMS, checked
from trainer.presets import ABOUT, DEFAULT_PRESET, PRESETS, by_task
from trainer.tasknames import BENCHMARKS, GOALS_PER_TASK, MAX_HORIZON, checked_tasks

#: Raised whenever the same section would train different numbers: part of every identity.
ALGORITHM = "mtsac/3"

#: Accepted fields that nothing acts on yet → the sentence of the warning.
NOT_BUILT_YET: dict[str, str] = {
    "stream": "live streaming is not built yet; training goes on without it",
    "stream_port": "live streaming is not built yet; the port is ignored",
    "stream_top_k": "live streaming is not built yet; the number of streamed agents is ignored",
}

#: The fields that decide which numbers are trained. A checkpoint is only ever continued with the same values.
#: Not among them, on purpose: `total_steps` (a run may be prolonged), `num_envs` (documented: kept environments go on,
#: new ones are seeded anew), `device`, `threads` and `num_workers` (a job may land on another machine; bit equality
#: then ends, the training does not), and everything about when to save, evaluate, report, keep or end.
IDENTITY_FIELDS = (
    "tasks",
    "seed",
    "batch_size",
    "buffer_size",
    "learning_rate",
    "random_steps",
    "updates_per_step",
    "gamma",
    "tau",
    "init_temperature",
    "shared_temperature",
    "target_entropy",
    "actor_hidden",
    "critic_hidden",
    "critic_net",
    "critic_loss",
    "value_bins",
    "value_limit",
    "weight_decay",
    "grad_clip",
    "adam_eps",
    "horizon",
)

#: In a job's environment, which ends at a null byte.
WandbName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^/\\#?%:\x00-\x1f]+$")]
PositiveInt = Annotated[int, Field(ge=1)]
CountInt = Annotated[int, Field(ge=0)]
Device = Literal["auto", "cpu", "cuda", "mps"]
Widths = Annotated[tuple[Annotated[int, Field(ge=1, le=65_536)], ...], Field(min_length=1, max_length=16)]
#: torch and numpy both take seeds of 32 bits in every one of their generators.
SEEDS = 2**32
Seed = Annotated[int, Field(ge=0, lt=SEEDS)]
Fraction01 = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Rollback = Literal["auto", "ask", "never"]
ContributorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: Above this an update count a step is a typing error: published agents use at most 8.
UpdatesPerStep = Annotated[float, Field(gt=0, le=64)]
#: Meta-World fixes this many goals a task.
GoalCount = Annotated[int, Field(ge=0, le=GOALS_PER_TASK)]
CriticNet = Literal["mlp", "heads", "residual"]
CriticLoss = Literal["squared", "categorical"]
Bins = Annotated[int, Field(ge=2, le=1001)]
Horizon = Annotated[int, Field(ge=1, le=MAX_HORIZON)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Port = Annotated[int, Field(ge=1, le=65_535)]


class TrainingSection(BaseModel):
    """What a user writes under `training`: every field may be left out, the preset fills it in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: str = Field(
        DEFAULT_PRESET, description=f"The named set of values that fills in what is left out: {', '.join(PRESETS)}."
    )
    benchmark: str | None = Field(None, description="MT10 or MT50; not together with tasks.")
    tasks: tuple[str, ...] | None = Field(None, description="Meta-World v3 task names; not together with benchmark.")
    algorithm: str | None = Field(
        None, description="What learns: mtsac, the name of an installed package's, or package.module:Name."
    )
    total_steps: PositiveInt | None = Field(None, description="Train until this many transitions were made.")
    num_envs: PositiveInt | None = Field(None, description="Environments stepped together; left out: one a task.")
    batch_size: PositiveInt | None = Field(None, description="Transitions an update learns from, shared by the tasks.")
    buffer_size: PositiveInt | None = Field(None, description="Transitions kept for replay, all tasks together.")
    learning_rate: Positive | None = Field(None, description="Adam's step size, for actor, critics and temperatures.")
    device: Device | None = Field(None, description="Where the nets live: auto, cpu, cuda or mps.")
    seed: Seed | None = Field(None, description="The seed of everything random; slot k of a run trains seed + k.")
    checkpoint_interval: PositiveInt | None = Field(None, description="Steps between two checkpoints.")
    max_runtime_seconds: Positive | None = Field(None, description="Hand over after this long, whatever the walltime.")
    random_steps: CountInt | None = Field(None, description="First steps, taken at random and without updates.")
    updates_per_step: UpdatesPerStep | None = Field(None, description="Updates a transition; 0.1 is one in ten.")
    gamma: Fraction01 | None = Field(None, description="The discount a step.")
    tau: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="How far the target critics move towards the critics at each update."
    )
    init_temperature: Positive | None = Field(None, description="The entropy temperature at the start.")
    shared_temperature: bool | None = Field(
        None, description="One temperature for all tasks together; else each task has its own."
    )
    target_entropy: Finite | None = Field(None, description="The entropy in nats that each temperature steers to.")
    actor_hidden: Widths | None = Field(None, description="Widths of the actor's hidden layers.")
    critic_hidden: Widths | None = Field(None, description="Widths of each critic's hidden layers.")
    critic_net: CriticNet | None = Field(
        None,
        description="The critics' layers: mlp (plain), heads (plain, and an output layer of its own for each task) or "
        "residual (blocks with layer normalisation, as many as critic_hidden has widths, which must be equal).",
    )
    critic_loss: CriticLoss | None = Field(
        None,
        description="squared (the smaller of both critics counts) or categorical (distributions over value_bins "
        "values; their average counts; rewards are scaled task by task; needs critic_net residual).",
    )
    value_bins: Bins | None = Field(None, description="Values of categorical critics.")
    value_limit: Positive | None = Field(
        None, description="Categorical critics' values lie between minus and plus this."
    )
    weight_decay: NotNegative | None = Field(None, description="AdamW's weight decay, for actor and critics; 0: Adam.")
    grad_clip: NotNegative | None = Field(None, description="Largest gradient norm of a net; 0 does not clip.")
    adam_eps: Positive | None = Field(None, description="Adam's epsilon.")
    horizon: Horizon | None = Field(None, description="Steps after which an episode is cut; Meta-World allows 500.")
    num_workers: CountInt | None = Field(
        None, description="Processes that step the environments; 0: in the trainer itself; left out: by the CPUs."
    )
    threads: PositiveInt | None = Field(None, description="Torch threads of the learner; exact resumes need 1.")
    cuda_graph: bool | None = Field(
        None, description="On an NVIDIA GPU, launch an update's kernels all at once; `trainer autotune` tries it."
    )
    metrics_interval: PositiveInt | None = Field(None, description="Steps that one row of metrics sums up.")
    evaluation_interval: CountInt | None = Field(
        None, description="Evaluate at the first checkpoint past each multiple of this many steps; 0: only at the end."
    )
    evaluation_goals: GoalCount | None = Field(None, description="Fixed goals a task in an evaluation; 0: never.")
    evaluation_unseen_goals: GoalCount | None = Field(
        None, description="As many goals a task more that were not trained on, reported beside the others."
    )
    publish_interval: CountInt | None = Field(
        None, description="Updates after which the policy is published for other machines; 0: only with checkpoints."
    )
    contribution_max_lag: CountInt | None = Field(
        None, description="Oldest policy, in steps behind, whose experience is still taken from other machines."
    )
    contribution_check_share: Share | None = Field(
        None, description="Part of other machines' segments that is simulated again before its rows are taken."
    )
    contribution_rollback: Rollback | None = Field(
        None,
        description="Where rows that were not true have been learned from: ask says how to go back to a checkpoint "
        "from before, auto does it, never says nothing.",
    )
    trusted_contributors: tuple[ContributorName, ...] | None = Field(
        None,
        description="Contributors who are believed without a check. Where an environment cannot be repeated, "
        "nobody else is.",
    )
    keep_checkpoints: PositiveInt | None = Field(None, description="Newest checkpoints kept complete, to resume from.")
    keep_milestones: CountInt | None = Field(None, description="Older checkpoints of which the nets are kept.")
    stream: bool | None = Field(None, description="Send frames to a viewer (not built yet).")
    stream_port: Port | None = Field(None, description="The viewer's port (not built yet).")
    stream_top_k: PositiveInt | None = Field(None, description="How many agents are streamed (not built yet).")

    @field_validator("preset")
    @classmethod
    def _preset_is_known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"there is no preset {value!r}; {did_you_mean(value, PRESETS)}")
        return value

    @field_validator("algorithm")
    @classmethod
    def _algorithm_is_known(cls, value: str | None) -> str | None:
        return None if value is None else checked(ALGORITHMS, value)

    @field_validator("benchmark")
    @classmethod
    def _benchmark_is_known(cls, value: str | None) -> str | None:
        if value is not None and value.upper() not in BENCHMARKS:
            raise ValueError(f"there is no benchmark {value!r}; {did_you_mean(value.upper(), BENCHMARKS)}")
        return value.upper() if value is not None else None

    @field_validator("tasks")
    @classmethod
    def _tasks_are_known(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if value is None else checked_tasks(value)

    @model_validator(mode="after")
    def _it_resolves(self) -> Self:
        if self.benchmark is not None and self.tasks is not None:
            raise ValueError("benchmark and tasks exclude each other; keep one of them")
        resolve(self)
        return self


class Training(BaseModel):
    """The resolved section: every value decided. Each field means what it means in `TrainingSection`.

    Its dump is a valid section again, and resolves to itself.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: str
    tasks: tuple[str, ...]
    algorithm: str = "mtsac"
    total_steps: PositiveInt
    num_envs: PositiveInt
    batch_size: PositiveInt
    buffer_size: PositiveInt
    learning_rate: Positive
    device: Device
    seed: Seed
    checkpoint_interval: PositiveInt
    max_runtime_seconds: Positive | None
    random_steps: CountInt
    updates_per_step: UpdatesPerStep
    gamma: Fraction01
    tau: float
    init_temperature: Positive
    target_entropy: Finite
    actor_hidden: Widths
    critic_hidden: Widths
    grad_clip: NotNegative
    adam_eps: Positive
    horizon: Horizon
    num_workers: CountInt | None
    threads: PositiveInt
    metrics_interval: PositiveInt
    evaluation_interval: CountInt
    evaluation_goals: GoalCount
    # Fields that came later have a default, so that the manifests of older checkpoints can still be read.
    evaluation_unseen_goals: GoalCount = 0
    publish_interval: CountInt = 1_000
    contribution_max_lag: CountInt = 200_000
    contribution_check_share: Share = 0.1
    contribution_rollback: Rollback = "ask"
    trusted_contributors: tuple[ContributorName, ...] = ()
    shared_temperature: bool = False
    critic_net: CriticNet = "mlp"
    critic_loss: CriticLoss = "squared"
    value_bins: Bins = 101
    value_limit: Positive = 10.0
    weight_decay: NotNegative = 0.0
    cuda_graph: bool = False
    keep_checkpoints: PositiveInt
    keep_milestones: CountInt
    stream: bool
    stream_port: Port
    stream_top_k: PositiveInt


class WandbSection(BaseModel):
    """Weights & Biases: whether jobs send their curves there, and where. Variables of the environment are stronger."""

    # A user called 123 is a name all the same.
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    mode: Literal["online", "offline", "disabled"] | None = Field(
        None,
        description="online: curves are sent while it trains; offline: `trainer wandb` and `wandb sync` send them "
        "afterwards; default: WANDB_MODE, else disabled.",
    )
    project: WandbName | None = Field(None, description='Project; default: WANDB_PROJECT, else "anchorleg".')
    entity: WandbName | None = Field(None, description="User or team; default: WANDB_ENTITY, else whose key it is.")
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
        "WANDB_MODE": section.mode,
        "WANDB_PROJECT": section.project,
        "WANDB_ENTITY": section.entity,
        "WANDB_RUN_GROUP": section.group,
        "WANDB_TAGS": ",".join(section.tags),
    }
    found = {name: environ.get(name) or value for name, value in wanted.items()}
    return {name: value for name, value in found.items() if value}


def resolve(section: TrainingSection) -> Training:
    """The preset's values, overlaid by the user's. Errors: ValueError where they do not fit together."""
    values = {name: value for name, value in section.model_dump().items() if value is not None}
    preset = PRESETS[section.preset]
    chosen = values.pop("benchmark", None) or (None if section.tasks else preset.get("benchmark"))
    tasks: tuple[str, ...] = BENCHMARKS[chosen] if chosen is not None else values.get("tasks") or preset["tasks"]
    own = {name: value for name, value in preset.items() if name != "benchmark"}
    merged: dict[str, Any] = {**own, **by_task(section.preset, len(tasks)), **values, "tasks": tasks}
    merged["num_envs"] = merged["num_envs"] or len(tasks)
    if merged["batch_size"] < len(tasks):
        raise ValueError(
            f"batch_size {merged['batch_size']} is smaller than the number of tasks {len(tasks)}: "
            f"each task needs a share of every batch; use {len(tasks)} or more"
        )
    if merged["buffer_size"] < len(tasks) * merged["num_envs"]:
        raise ValueError(
            f"buffer_size {merged['buffer_size']} is too small for {len(tasks)} tasks and {merged['num_envs']} "
            f"environments; use {len(tasks) * merged['num_envs']} or more"
        )
    if merged["critic_net"] == "residual" and len(set(merged["critic_hidden"])) > 1:
        raise ValueError(
            f"critic_hidden {list(merged['critic_hidden'])} has different widths: blocks of a residual critic_net are "
            "added to each other and need one width, such as [512, 512]"
        )
    if merged["critic_loss"] == "categorical" and merged["critic_net"] != "residual":
        raise ValueError("critic_loss categorical needs critic_net residual; set both, or use critic_loss squared")
    return Training(**merged)


def presets() -> dict[str, tuple[str, Training]]:
    """Name → what the preset is for, in a sentence, and what it resolves to."""
    return {name: (ABOUT[name], resolve(TrainingSection(preset=name))) for name in PRESETS}


def identity(training: Training) -> str:
    """sha256 (hex) over `IDENTITY_FIELDS` and the algorithm's version: equal means "may be continued"."""
    values = training.model_dump(mode="json", include=set(IDENTITY_FIELDS))
    text = json.dumps({"algorithm": ALGORITHM, **values}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def differences(saved: dict[str, Any], training: Training) -> list[str]:
    """The identity fields in which a checkpoint's training section differs: `batch_size 512 → 256`, one each."""
    now = training.model_dump(mode="json")
    return [f"{name} {saved.get(name)} → {now[name]}" for name in IDENTITY_FIELDS if saved.get(name) != now[name]]

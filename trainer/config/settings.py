"""What all settings share, whatever they are for, and what stands in more than one section."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from trainer.config.encoders import mistake

#: The type of errors that are a sentence of ours at a place of ours.
SENTENCE = "sentence"

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
PositiveInt = Annotated[int, Field(ge=1)]
CountInt = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _steps_or_total(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        raise ValueError(f'{value!r} is no length: give a number of steps, "total", or 0') from None


#: A number of steps, or as many as the training has.
FallingSteps = Annotated[CountInt | Literal["total"], WrapValidator(_steps_or_total)]
Widths = Annotated[tuple[Annotated[int, Field(ge=1, le=65_536)], ...], Field(min_length=1, max_length=16)]
CriticNet = Literal["mlp", "heads", "residual"]


class TrainingSettings(BaseModel):
    """Checked when it is made, and never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def refused(where: Iterable[tuple[tuple[int | str, ...], str, Any]]) -> ValidationError:
    """What pydantic would raise for (place, sentence, value), one each."""
    return ValidationError.from_exception_data(
        "settings",
        [
            InitErrorDetails(type=PydanticCustomError(SENTENCE, "{error}", {"error": words}), loc=place, input=value)
            for place, words, value in where
        ],
    )


class EnvSettings(TrainingSettings):
    """What a suite is opened with. Each suite has a class of its own, see `trainer.config.suites`."""

    VERSION: ClassVar[str] = "1"
    """Raised when the same settings would give other numbers: part of every identity."""
    SERIES: ClassVar[tuple[str, ...]] = ()
    """Packages of which another series (3.1 of 3.1.1) has other observations or rewards."""
    ENV_BYTES: ClassVar[int] = 0
    """Memory that an environment takes at least, where it was measured: what cannot fit is refused before it begins."""
    STEP_S: ClassVar[float | None] = None
    """About what a step of one takes, where it is always the same; else it is measured where it matters."""
    SUCCESS_AT: ClassVar[Literal["any step", "last step"]] = "any step"
    """Which of its steps says whether an episode succeeded."""
    MEASURES: ClassVar[tuple[str, ...]] = ()
    """What else is told of an episode that has ended: names of the numbers of its last `Outcome`."""

    name: str = Field(description="The suite: metaworld, an installed package's, or package.module:Name.")
    tasks: tuple[str, ...] = Field(description="Tasks, in the order of their numbers.")
    horizon: PositiveInt = Field(description="Steps after which an episode is cut.")

    @model_validator(mode="after")
    def _tasks_are_told_apart(self) -> Self:
        twice = next((name for name in self.tasks if self.tasks.count(name) > 1), None)
        if not self.tasks:
            raise refused([(("tasks",), "the list of tasks is empty; name one at least", self.tasks)])
        if twice is not None:
            words = f"task {twice!r} is listed {self.tasks.count(twice)} times; list each task once"
            raise refused([(("tasks",), words, self.tasks)])
        return self

    @property
    def draws(self) -> Literal["no", "mujoco", "itself"]:
        """What draws what its policy sees; itself: the environment, by its own means."""
        return "no"

    @property
    def drawing_bytes(self) -> int:
        """Memory that drawing takes at least, in all processes that step a training's environments together."""
        return 0

    @property
    def step_s(self) -> float | None:
        """About what a step of one environment takes; None: it is measured where it matters."""
        return self.STEP_S

    @property
    def draws_views(self) -> bool:
        """Whether an episode's seed decides what it looks like, whatever start it has."""
        return False

    @property
    def paid_by(self) -> dict[str, Any]:
        """Its settings that decide what a step pays and where an episode truly ends, as JSON: steps that were recorded
        with other ones are of another problem. Here all that a suite's own class has.
        """
        return self.model_dump(mode="json", exclude={"tasks", "horizon"})

    def succeeded(self, steps: Any) -> bool:
        """Whether an episode did whose `steps` (a sequence, not empty) succeeded like this."""
        return bool(steps[-1]) or (self.SUCCESS_AT == "any step" and any(steps))

    def distrusted(self) -> str | None:
        """Why no environment is opened with these settings where they come from another machine; None: it may be."""
        return None


class EncoderSettings(TrainingSettings):
    """What makes features of pictures: every observation that is not one row of numbers is read by one of its own."""

    arch: str = Field(
        "auto",
        description="Which, by name; auto: nature for pictures, simple3dcnn for clips. docs/encoders.md has all.",
    )
    features: PositiveInt | None = Field(
        None, description="Numbers that it makes of a picture, or of each camera's clip; left out: as many as is usual."
    )
    over_time: Literal["gru", "mean"] = Field(
        "gru", description="How simple2dcnn reads a clip's frames together: mean is cheaper, and loses their order."
    )
    pretrained: bool = Field(False, description="It must come from a file (weights); without one, which file is said.")
    weights: str | None = Field(
        None, description="A file of weights: safetensors (or a folder with its shards), or a .pth of tensors alone."
    )
    weights_sha256: Sha256 | None = Field(
        None, description="Of that file: filled in when a run begins, and part of what it is."
    )
    freeze: bool | None = Field(
        None,
        description="Leave it as it is: its features are made once and kept in place of frames. Left out: true where "
        "it comes from a file.",
    )
    lr_scale: NotNegative = Field(1.0, description="Its part of the learning rate; one from a file bears 0.1.")

    @model_validator(mode="after")
    def _they_fit_together(self) -> EncoderSettings:
        found = mistake(self.arch, pretrained=self.pretrained, weights=self.weights, features=self.features)
        if found is not None:
            field, words = found
            raise refused([((field,), words, getattr(self, field))])
        return self

    @property
    def is_frozen(self) -> bool:
        """Whether it learns nothing."""
        return self.weights is not None if self.freeze is None else self.freeze


class Network(TrainingSettings):
    """The shapes of the nets."""

    actor_hidden: Widths = Field((256, 256), description="Widths of the actor's hidden layers.")
    critic_hidden: Widths = Field((1024, 1024, 1024), description="Widths of each critic's hidden layers.")
    activation: Literal["relu", "tanh"] = Field("relu", description="What stands between plain layers.")
    critic_net: CriticNet = Field(
        "mlp",
        description="The critics' layers: mlp (plain), heads (plain, and an output layer of its own for each task) or "
        "residual (blocks with layer normalisation, as many as critic_hidden has widths, which must be equal).",
    )

    trunk: CountInt = Field(
        0,
        description="Numbers that features are brought down to before the plain layers (linear, layer normalisation, "
        "tanh: DrQ-v2's), of sac, td3 and drqv2; 0: none.",
    )
    encoder: EncoderSettings = Field(EncoderSettings(), description="What reads pictures.")
    encoders: dict[str, str] = Field(
        {},
        description="Key of an observation → another arch than encoder's, or one for a row of numbers.",
    )

    def freezes(self, key: str) -> bool:
        """Whether the encoder of `key`, which has one, learns nothing."""
        return key not in self.encoders and self.encoder.is_frozen

    @property
    def widest(self) -> int:
        """The widest hidden layer."""
        return max(*self.actor_hidden, *self.critic_hidden)


class AlgorithmSettings(TrainingSettings):
    """What an algorithm learns with. Each algorithm has a class of its own, see `trainer.config.algorithms`."""

    VERSION: ClassVar[str] = "1"
    """Raised whenever the same settings would train other numbers: part of every identity."""
    NETWORK: ClassVar[Mapping[str, Any]] = {}
    """Values of the section `network` where nobody says otherwise."""
    NUM_ENVS: ClassVar[int] = 1
    """Environments, at least, where nobody says how many."""

    SHARES: ClassVar[bool] = False
    """Whether it learns in several shards: its algorithm is then an `OnPolicy` or an `OffPolicy`
    (`trainer.algorithms.common`).
    """

    name: str = Field(description="What learns: mtsac, an installed package's, or package.module:Name.")
    shards: Annotated[int, Field(ge=1, le=256)] = Field(
        1,
        description="Parts of each update whose gradients are computed one by one, so that several processes may share "
        "them (docs/ranks.md); any number of processes that divides it trains the same numbers.",
    )

    def check(self, env: EnvSettings, network: Network, num_envs: int) -> None:
        """Errors: ValueError, a sentence, where these settings do not fit to those of the other sections."""

    @property
    def unmixable(self) -> str | None:
        """Why its nets cannot be averaged with those of another slot; None: its algorithm is a
        `trainer.algorithms.base.Mixing`.
        """
        return f"{self.name} does not say which of its numbers can be averaged; mtsac, sac, td3 and drqv2 do"


def in_shards(algorithm: AlgorithmSettings, num_envs: int) -> str | None:
    """Why a training of `algorithm` cannot be cut into its shards; None: it can."""
    shards = algorithm.shards
    if shards == 1:
        return None
    if not algorithm.SHARES:
        return f"shards {shards}: {algorithm.name} learns in one alone: leave it out"
    cut = {"batch_size": getattr(algorithm, "batch_size", shards)}
    if not isinstance(algorithm, OffPolicySettings):
        cut["num_envs"] = num_envs
    for name, number in cut.items():
        if number % shards:
            nearest = f"{-(-number // shards) * shards}"
            return f"{name} {number} is not cut evenly into {shards} shards; use {nearest}, or another number of shards"
    return None


class OnPolicySettings(AlgorithmSettings):
    """Of an algorithm that learns from what its present policy did, and then forgets it."""

    VERSION: ClassVar[str] = "2"
    NETWORK: ClassVar[Mapping[str, Any]] = {"actor_hidden": (64, 64), "critic_hidden": (64, 64), "activation": "tanh"}
    NUM_ENVS: ClassVar[int] = 8

    rollout_steps: PositiveInt = Field(256, description="Steps of each environment that are learned from together.")
    gamma: Share = Field(0.99, description="The discount a step.")
    gae_lambda: Share = Field(
        0.95, description="How far advantages look ahead: 0 is one step, 1 the whole rollout (Schulman et al. 2016)."
    )
    entropy_coef: NotNegative = Field(0.0, description="What the entropy of the policy counts in the loss.")
    value_coef: NotNegative = Field(0.5, description="What the error of the values counts in the loss.")
    grad_clip: NotNegative = Field(0.5, description="Largest gradient norm of all nets together; 0 does not clip.")
    normalise_obs: bool = Field(True, description="Bring observations to mean 0 and deviation 1, by all seen so far.")
    normalise_reward: bool = Field(True, description="Divide rewards by the deviation of their discounted sum.")
    learning_rate_steps: FallingSteps = Field(
        0, description="Steps over which the learning rate falls to 0, in a line; total: total_steps; 0: it stays."
    )

    def check(self, env: EnvSettings, network: Network, num_envs: int) -> None:  # noqa: ARG002 - for those above it
        """As above: the nets are plain ones."""
        if network.critic_net != "mlp":
            raise ValueError(f"critic_net {network.critic_net} is for mtsac; {self.name} has plain ones: leave it out")
        if network.trunk:
            raise ValueError(f"trunk {network.trunk} is for sac, td3 and drqv2; {self.name} has none: leave it out")


class OffPolicySettings(AlgorithmSettings):
    """Of an algorithm that learns from kept transitions, whoever made them: only such ones take contributions."""

    VERSION: ClassVar[str] = "2"
    batch_size: PositiveInt = Field(512, description="Transitions an update learns from, shared by the tasks.")
    buffer_size: PositiveInt = Field(2_000_000, description="Transitions kept for replay, all tasks together.")
    random_steps: CountInt = Field(10_000, description="First steps, taken at random and without updates.")
    # Above 64 an update count a step is a typing error: published agents use at most 8.
    updates_per_step: Annotated[float, Field(gt=0, le=64)] = Field(
        0.1, description="Updates a transition; 0.1 is one in ten."
    )
    precision: Literal["float32", "bf16"] = Field(
        "float32",
        description="What the products of an update are computed in: bf16 rounds what goes into them to bfloat16, for "
        "GPUs that are faster so; nets, moments, targets, acting and checkpoints stay float32.",
    )
    demos: str | None = Field(
        None,
        description="A folder of demonstrations with rewards (`trainer demos`), learned from beside the run's own.",
    )
    # Half is RLPD's (Ball et al. 2023, arXiv 2302.02948); above it a run's own rows would be the smaller part.
    demos_share: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.5, description="Their part of each batch; friends' rows come off it where half would not be the run's own."
    )
    demos_sha256: Sha256 | None = Field(
        None, description="Of the demonstrations: filled in when a run begins, and part of what it is."
    )

    @property
    def steps_summed(self) -> int:
        """Steps of which a transition may be at most; where they are several, it has a `gamma` to discount them by."""
        return 1

    @property
    def sums_steps(self) -> bool:
        """Whether a transition may be of more than one step; each then says of how many."""
        return self.steps_summed > 1

    def check(self, env: EnvSettings, network: Network, num_envs: int) -> None:  # noqa: ARG002 - for those above it
        """As above: of each task there must be a row in each batch, and room for what one step brings."""
        tasks = len(env.tasks)
        if self.batch_size < tasks:
            raise ValueError(
                f"batch_size {self.batch_size} is smaller than the number of tasks {tasks}: "
                f"each task needs a share of every batch; use {tasks} or more"
            )
        if self.buffer_size < tasks * num_envs:
            raise ValueError(
                f"buffer_size {self.buffer_size} is too small for {tasks} tasks and {num_envs} "
                f"environments; use {tasks * num_envs} or more"
            )

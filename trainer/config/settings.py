"""What suites and algorithms are set with: what all suites share, all algorithms, the two kinds of them; and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from trainer.config.fields import (
    CountInt,
    NotNegative,
    PositiveInt,
    SettingFinding,
    Sha256,
    Share,
    TrainingSettings,
    refused,
)
from trainer.config.network import Network
from trainer.errors import FieldError


def _steps_or_total(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        raise FieldError("algorithm.no-length", value=value) from None


#: A number of steps, or as many as the training has.
FallingSteps = Annotated[CountInt | Literal["total"], WrapValidator(_steps_or_total)]


#: Goals that Meta-World fixes for each task of a benchmark (`metaworld._N_GOALS`).
GOALS_PER_TASK = 50
#: The most of a batch that all others may make up together, slots of the group and contributors: learners with mostly
#: others' rows do worse than alone (Ostrovski et al. 2021, arXiv 2110.14020).
MOST_FOREIGN = 0.5
#: Episodes that a slot keeps for the others: of 50 kB each, 10 MB, a quarter of an hour at 700 steps a second.
EPISODES_KEPT = 200


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

    name: str = Field(description="The suite: one of this page's, an installed one, or package.module:Name.")
    tasks: tuple[str, ...] = Field(description="Tasks, in the order of their numbers.")
    horizon: PositiveInt = Field(description="Steps after which an episode is cut.")

    @model_validator(mode="after")
    def _tasks_are_told_apart(self) -> Self:
        if not self.tasks:
            raise refused(("tasks",), FieldError("env.no-tasks"), self.tasks)
        for name in self.tasks:
            if (times := self.tasks.count(name)) > 1:
                raise refused(("tasks",), FieldError("env.task-twice", task=name, times=times), self.tasks)
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

    @property
    def sees(self) -> Literal["pictures", "none", "unknown"]:
        """What the policy sees of pictures, as far as the settings tell that."""
        return "unknown"

    @property
    def picture_shape(self) -> tuple[int, ...] | None:
        """[C, H, W] or, of clips, [T, C, H, W] of the pictures under `image`; None: the settings do not tell it."""
        return None

    @property
    def frames_seen(self) -> int:
        """Steps from the oldest to the newest frame that is seen, both counted; 0: the settings tell of none."""
        return 0

    def findings(self) -> Iterator[SettingFinding]:
        """What is the matter with them."""
        yield from ()


class AlgorithmSettings(TrainingSettings):
    """What an algorithm learns with. Each algorithm has a class of its own, see `trainer.config.algorithms`."""

    VERSION: ClassVar[str] = "1"
    """Raised whenever the same settings would train other numbers: part of every identity."""
    NETWORK: ClassVar[Mapping[str, Any]] = {}
    """Values of the section `network` where nobody says otherwise."""
    NUM_ENVS: ClassVar[int] = 1
    """Environments, at least, where nobody says how many."""

    SHARES: ClassVar[bool] = False
    """Whether it learns in several shards (`trainer.algorithms.common.sharding`, or `.rollouts`)."""
    READS_STATE_ALONE: ClassVar[bool] = False
    """Whether it reads the numbers of a state as they are, and no pictures."""

    name: str = Field(description="The algorithm: one of this page's, an installed one, or package.module:Name.")
    shards: Annotated[int, Field(ge=1, le=256)] = Field(
        1,
        description="Parts of each update, computed separately so that ranks can share them; the number of ranks "
        "does not change the result (docs/cluster.md).",
    )

    def findings(self, env: EnvSettings, network: Network, num_envs: int, total_steps: int) -> Iterator[SettingFinding]:
        """What is the matter with them beside those of the other sections; here: whether it can be cut into shards."""
        if self.shards > 1 and not self.SHARES:
            yield SettingFinding(FieldError("algorithm.unsharded", shards=self.shards, algorithm=self.name))
        cut = {"batch_size": getattr(self, "batch_size", self.shards)}
        if not isinstance(self, OffPolicySettings):
            cut["num_envs"] = num_envs
        for name, number in cut.items():
            if number % self.shards:
                nearest = -(-number // self.shards) * self.shards
                told = {"name": name, "number": number, "shards": self.shards, "nearest": nearest}
                yield SettingFinding(FieldError("algorithm.uneven-shards", **told))

    @property
    def unmixable(self) -> FieldError | None:
        """Why its nets cannot be averaged with those of another slot; None: its algorithm has `weights` and `probe`."""
        return FieldError("mix.unknown-algorithm", algorithm=self.name)


def _unlearned(total_steps: int) -> str:
    return f"but total_steps is {total_steps:,}, so nothing is learned"


class OnPolicySettings(AlgorithmSettings):
    """Of an algorithm that learns from what its present policy did, and then forgets it."""

    VERSION: ClassVar[str] = "2"
    NETWORK: ClassVar[Mapping[str, Any]] = {"actor_hidden": (64, 64), "critic_hidden": (64, 64), "activation": "tanh"}
    NUM_ENVS: ClassVar[int] = 8

    rollout_steps: PositiveInt = Field(256, description="Steps of each environment per rollout.")
    gamma: Share = Field(0.99, description="Discount factor per step.")
    gae_lambda: Share = Field(
        0.95, description="Lambda of generalised advantage estimation (Schulman et al. 2016): 0 looks one step ahead."
    )
    entropy_coef: NotNegative = Field(0.0, description="Weight of the policy's entropy in the loss.")
    value_coef: NotNegative = Field(0.5, description="Weight of the value error in the loss.")
    grad_clip: NotNegative = Field(0.5, description="Maximum gradient norm of all networks together; 0: no clipping.")
    normalise_obs: bool = Field(
        True, description="Normalise observations to mean 0 and deviation 1 over all seen so far."
    )
    normalise_reward: bool = Field(True, description="Divide rewards by the deviation of their discounted sum.")
    learning_rate_steps: FallingSteps = Field(
        0, description="Steps over which the learning rate falls linearly to 0; total: total_steps; 0: constant."
    )

    def findings(self, env: EnvSettings, network: Network, num_envs: int, total_steps: int) -> Iterator[SettingFinding]:
        yield from super().findings(env, network, num_envs, total_steps)
        if network.critic_net != "mlp":
            net = network.critic_net
            yield SettingFinding(FieldError("network.critic-net-of-mtsac", critic_net=net, algorithm=self.name))
        if network.trunk:
            yield SettingFinding(FieldError("network.trunk-of-off-policy", trunk=network.trunk, algorithm=self.name))
        falling, rollout = self.learning_rate_steps, self.rollout_steps * num_envs
        if falling != "total" and 0 < falling < total_steps:
            zero = f"the learning rate is 0 from step {falling:,} on, but total_steps is {total_steps:,}"
            yield SettingFinding(f'{zero}: set learning_rate_steps to "total"', ("learning_rate_steps",))
        if rollout > -(-total_steps // num_envs) * num_envs:
            long = f"a rollout is {rollout:,} steps of all environments, {_unlearned(total_steps)}"
            yield SettingFinding(long, ("rollout_steps",))


class OffPolicySettings(AlgorithmSettings):
    """Of an algorithm that learns from kept transitions, its own or not: only such ones take contributions."""

    VERSION: ClassVar[str] = "2"
    batch_size: PositiveInt = Field(512, description="Transitions per update, divided among the tasks.")
    buffer_size: PositiveInt = Field(2_000_000, description="Transitions in the replay, all tasks together.")
    random_steps: CountInt = Field(10_000, description="Initial steps with random actions and no updates.")
    # Above 64 an update count a step is a typing error: published agents use at most 8.
    updates_per_step: Annotated[float, Field(gt=0, le=64)] = Field(
        0.1, description="Updates per transition; 0.1 is one update for ten transitions."
    )
    precision: Literal["float32", "bf16"] = Field(
        "float32",
        description="Precision of matrix products in updates; bf16 is faster on recent GPUs, everything else "
        "stays float32.",
    )
    demos: str | None = Field(
        None, description="Folder of demonstrations with rewards (`trainer demos`) to learn from in addition."
    )
    # Half is RLPD's (Ball et al. 2023, arXiv 2302.02948); above it a run's own rows would be the smaller part.
    demos_share: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.5, description="Share of demonstrations in each batch; with contributed rows at most half."
    )
    demos_sha256: Sha256 | None = Field(
        None, description="Checksum of the demonstrations, filled in when a run begins; it cannot change."
    )

    @property
    def steps_summed(self) -> int:
        """Steps of which a transition may be at most; where they are several, it has a `gamma` to discount them by."""
        return 1

    @property
    def sums_steps(self) -> bool:
        """Whether a transition may be of more than one step; each then says of how many."""
        return self.steps_summed > 1

    def findings(self, env: EnvSettings, network: Network, num_envs: int, total_steps: int) -> Iterator[SettingFinding]:
        yield from super().findings(env, network, num_envs, total_steps)
        tasks, size = len(env.tasks), self.buffer_size
        if self.batch_size < tasks:
            yield SettingFinding(FieldError("algorithm.batch-below-tasks", batch_size=self.batch_size, tasks=tasks))
        if size < (least := tasks * num_envs):
            told = {"buffer_size": size, "tasks": tasks, "num_envs": num_envs, "least": least}
            yield SettingFinding(FieldError("algorithm.buffer-too-small", **told))
        if (reach := env.frames_seen) and (error := self.short_of_frames(tasks, num_envs, reach)):
            yield SettingFinding(error, ("algorithm", "buffer_size"), size, loads=True)
        if self.random_steps >= -(-total_steps // num_envs) * num_envs:
            first = f"the first {self.random_steps:,} steps have no updates"
            yield SettingFinding(f"{first}, {_unlearned(total_steps)}", ("random_steps",))
        why: dict[str, str] = {}
        if getattr(self, "critic_loss", "") == "squared":
            words = "only critic_loss categorical uses it, and this one is squared"
            why = dict.fromkeys(("value_limit", "value_bins"), words)
        if self.demos is None:
            why["demos_share"] = "no demonstrations are set (demos)"
        yield from (
            SettingFinding(why[name], (name,)) for name in self.model_dump(include=set(why), exclude_defaults=True)
        )

    def short_of_frames(self, tasks: int, num_envs: int, reach: int) -> FieldError | None:
        """Why a replay of frames is too small for a policy that sees those of `reach` steps; None: it is not.

        A step can be drawn while the frames that are seen before it and the steps summed up behind it are all kept. Of
        each environment that is a row for each of them, and one for where an episode begins; rows of the environments
        of one task come by turns, and each task has a ring of its own, all as long (`trainer.buffers.frames`).
        """
        least = tasks * -(-num_envs // tasks) * (reach + self.steps_summed + 1)
        if self.buffer_size >= least:
            return None
        sees, lower = ("one step", "") if reach == 1 else (f"{reach:,} steps", ", frame_stack or frame_stride")
        return FieldError(
            "replay.too-small-for-frames",
            buffer_size=self.buffer_size,
            num_envs=num_envs,
            sees=sees,
            least=least,
            lower=lower,
        )


class GroupSettings(TrainingSettings):
    """Sharing between slots of one run that differ only by seed (docs/groups.md). It may change during a run."""

    rows: bool = Field(
        False, description="Give the other slots one in `every` episodes, and learn from theirs; off-policy only."
    )
    share: Annotated[float, Field(gt=0, le=MOST_FOREIGN)] = Field(
        0.3, description="Maximum share of other slots' rows in a batch; with contributed rows at most one half."
    )
    every: PositiveInt = Field(
        7, description="One in this many episodes is given; 7 suffices for a share of 0.3 among four slots."
    )
    adopt: bool = Field(
        False,
        description="Adopt another slot's learner if it solved a tenth more in two evaluations in a row; slot 0 "
        "never does.",
    )

    mix: bool = Field(
        False, description="Experimental: move the networks regularly towards the mean of all slots; needs init_seed."
    )
    mix_every: PositiveInt = Field(
        1_000,
        description="Updates between two moves; networks come from the newest checkpoints, so moving more often than "
        "checkpoint_interval is useless.",
    )

    @property
    def ways(self) -> tuple[str, ...]:
        """The fields by which slots learn from each other. Where there is one, what several slots come to are not
        several results.
        """
        return tuple(name for name in ("rows", "adopt", "mix") if getattr(self, name))

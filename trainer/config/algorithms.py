"""The settings of each algorithm in `trainer/algorithms/`, under `training.algorithm`: a class for each, called as its
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from trainer.config.fields import CountInt, Finite, NotNegative, Positive, PositiveInt, SettingFinding, Sha256, Share
from trainer.config.network import Network
from trainer.config.pictures import PictureSettings
from trainer.config.settings import AlgorithmSettings, EnvSettings, OffPolicySettings, OnPolicySettings
from trainer.errors import FieldError

Fraction = Annotated[float, Field(gt=0, le=1)]
Discount = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(gt=0, le=64)]
Pixels = Annotated[int, Field(ge=0, le=64)]
FewSteps = Annotated[int, Field(ge=1, le=100)]
Bins = Annotated[int, Field(ge=2, le=1001)]
_TARGETS = "Step of the target critics towards the critics at each update."
_N_STEP = "Steps of rewards before the critics' estimate (n-step returns)."


class Mtsac(OffPolicySettings):
    """Multi-task SAC with one temperature per task and plain, multi-head or residual critics."""

    SHARES: ClassVar[bool] = True
    READS_STATE_ALONE: ClassVar[bool] = True
    VERSION: ClassVar[str] = "7"

    name: Literal["mtsac"] = Field("mtsac", description=AlgorithmSettings.model_fields["name"].description)
    learning_rate: Positive = Field(3e-4, description="Adam's step size for actor, critics and temperatures.")
    gamma: Discount = Field(0.99, description="Discount factor per step.")
    tau: Fraction = Field(0.005, description=_TARGETS)
    init_temperature: Positive = Field(1.0, description="Initial entropy temperature.")
    shared_temperature: bool = Field(False, description="Use one temperature for all tasks.")
    target_entropy: Finite | None = Field(
        None, description="Target entropy of each temperature, in nats; default: minus the size of an action."
    )
    critic_loss: Literal["squared", "categorical"] = Field(
        "squared",
        description="squared (minimum of both critics) or categorical (distributions over value_bins values, "
        "averaged, with rewards scaled per task; needs critic_net residual).",
    )
    # BRC's grid (Nauman et al. 2025).
    value_bins: Bins = Field(101, description="Number of values of categorical critics.")
    value_limit: Positive = Field(10.0, description="Categorical critics' values lie between plus and minus this.")
    weight_decay: NotNegative = Field(0.0, description="AdamW's weight decay for actor and critics; 0: Adam.")
    grad_clip: NotNegative = Field(
        0.0, description="Maximum gradient norm of the actor, and of both critics together; 0: no clipping."
    )
    adam_eps: Positive = Field(1e-8, description="Adam's epsilon.")

    def findings(self, env: EnvSettings, network: Network, num_envs: int, total_steps: int) -> Iterator[SettingFinding]:
        yield from super().findings(env, network, num_envs, total_steps)
        if network.activation != "relu":
            yield SettingFinding(FieldError("network.activation-not-relu", activation=network.activation))
        if network.encoders:
            yield SettingFinding(FieldError("network.encoders-of-state-learner"))
        if isinstance(env, PictureSettings) and env.has_pictures:
            yield SettingFinding(FieldError("env.observation-of-state-learner", observation=env.observation))
        if network.trunk:
            yield SettingFinding(FieldError("network.trunk-of-mtsac", trunk=network.trunk))
        if network.critic_net == "residual" and len(set(network.critic_hidden)) > 1:
            yield SettingFinding(FieldError("network.critic-widths-differ", widths=list(network.critic_hidden)))
        if self.critic_loss == "categorical" and network.critic_net != "residual":
            yield SettingFinding(FieldError("algorithm.categorical-needs-residual"))

    @property
    def unmixable(self) -> FieldError | None:
        # Categorical critics scale rewards by the largest that the slot itself has seen.
        return None if self.critic_loss == "squared" else FieldError("mix.categorical-critics")


class Ppo(OnPolicySettings):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

    SHARES: ClassVar[bool] = True
    VERSION: ClassVar[str] = "3"

    # Where nothing else is said, stable-baselines3's defaults, but that all 8 environments have 2,048 steps together.
    # The single task is read, too: a second bias of the first layer (docs/algorithms.md).
    name: Literal["ppo"] = Field("ppo", description=AlgorithmSettings.model_fields["name"].description)
    learning_rate: Positive = Field(3e-4, description="Adam's step size.")
    adam_eps: Positive = Field(1e-5, description="Adam's epsilon.")
    batch_size: PositiveInt = Field(64, description="Steps per update.")
    epochs: PositiveInt = Field(10, description="Number of times that each step is used.")
    clip: Positive = Field(0.2, description="Clip range of the probability ratio.")
    normalise_advantage: bool = Field(True, description="Normalise each update's advantages to mean 0 and deviation 1.")
    target_kl: NotNegative = Field(
        0.0, description="Stop updates of a rollout once the KL divergence exceeds 1.5 times this (nats); 0: never."
    )

    def findings(self, env: EnvSettings, network: Network, num_envs: int, total_steps: int) -> Iterator[SettingFinding]:
        yield from super().findings(env, network, num_envs, total_steps)
        if self.batch_size > self.rollout_steps * num_envs:
            yield SettingFinding(
                FieldError(
                    "algorithm.batch-above-rollout",
                    batch_size=self.batch_size,
                    rollout_steps=self.rollout_steps,
                    num_envs=num_envs,
                    most=self.rollout_steps * num_envs,
                )
            )


class A2c(OnPolicySettings):
    """Advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783): one update per rollout, from all of it."""

    SHARES: ClassVar[bool] = True

    name: Literal["a2c"] = Field("a2c", description=AlgorithmSettings.model_fields["name"].description)
    rollout_steps: PositiveInt = Field(5, description=OnPolicySettings.model_fields["rollout_steps"].description)
    gae_lambda: Share = Field(1.0, description=OnPolicySettings.model_fields["gae_lambda"].description)
    learning_rate: Positive = Field(7e-4, description="RMSprop's step size.")
    rms_alpha: Share = Field(0.99, description="RMSprop's decay of squared gradients.")
    rms_eps: Positive = Field(1e-5, description="RMSprop's epsilon.")
    normalise_advantage: bool = Field(
        False, description="Normalise each update's advantages to mean 0 and deviation 1."
    )


class PlainOffPolicy(OffPolicySettings):
    """What SAC, TD3 and DrQ-v2 have in common: an actor and two critics of plain layers."""

    SHARES: ClassVar[bool] = True
    NETWORK: ClassVar[Mapping[str, Any]] = {"actor_hidden": (256, 256), "critic_hidden": (256, 256)}

    batch_size: PositiveInt = Field(256, description=OffPolicySettings.model_fields["batch_size"].description)
    buffer_size: PositiveInt = Field(1_000_000, description=OffPolicySettings.model_fields["buffer_size"].description)
    random_steps: CountInt = Field(1_000, description=OffPolicySettings.model_fields["random_steps"].description)
    updates_per_step: Rate = Field(1.0, description="Updates per transition.")
    learning_rate: Positive = Field(3e-4, description="Adam's step size for actor and critics.")
    gamma: Discount = Field(0.99, description="Discount factor per step.")
    tau: Fraction = 0.005
    grad_clip: NotNegative = Field(
        0.0,
        description="Maximum gradient norm of the actor, and of both critics together, each with its encoders; 0:"
        " no clipping.",
    )
    random_shift: Pixels = Field(0, description="Maximum random shift of pictures in updates, in pixels.")

    def findings(self, env: EnvSettings, network: Network, num_envs: int, total_steps: int) -> Iterator[SettingFinding]:
        yield from super().findings(env, network, num_envs, total_steps)
        if self.random_shift and network.freezes("image"):
            yield SettingFinding(FieldError("algorithm.shift-of-frozen-encoder", random_shift=self.random_shift))
        if network.critic_net != "mlp":
            yield SettingFinding(
                FieldError("network.critic-net-of-mtsac", critic_net=network.critic_net, algorithm=self.name)
            )
        # The default value is in every dump.
        if env.sees == "none" and self.random_shift not in {0, type(self).model_fields["random_shift"].default}:
            error = FieldError("algorithm.shift-without-pictures", random_shift=self.random_shift)
            yield SettingFinding(error, ("algorithm", "random_shift"), self.random_shift, loads=True)

    @property
    def unmixable(self) -> FieldError | None:
        return None


class Sac(PlainOffPolicy):
    """Soft actor-critic with a learned temperature (Haarnoja et al. 2018, arXiv 1812.05905), for any observation;
    discrete actions as in Christodoulou 2019, arXiv 1910.07207.
    """

    VERSION: ClassVar[str] = "3"

    # stable-baselines3's defaults, but that it begins to learn at 100 steps, and reads the single task as `Ppo` does.
    name: Literal["sac"] = Field("sac", description=AlgorithmSettings.model_fields["name"].description)
    learning_rate: Positive = Field(3e-4, description="Adam's step size for actor, critics and temperatures.")
    tau: Fraction = Field(0.005, description=_TARGETS)
    init_temperature: Positive = Field(1.0, description="Initial entropy temperature.")
    target_entropy: Finite | None = Field(
        None,
        description="Target entropy in nats; default: minus the size of an action, or 0.89 of the maximum for "
        "discrete actions.",
    )


class Td3(PlainOffPolicy):
    """Twin delayed deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477) for continuous actions, with
    FastTD3's categorical critics, n-step returns and noise (Seo et al. 2025, arXiv 2505.22642).
    """

    VERSION: ClassVar[str] = "3"

    # The authors' code (sfujim/TD3: main.py, TD3.py), but that it begins to learn at 25,000 steps; here as `sac` does.
    name: Literal["td3"] = Field("td3", description=AlgorithmSettings.model_fields["name"].description)
    tau: Fraction = Field(
        0.005, description="Step of the target networks towards actor and critics at each update of the actor."
    )
    policy_delay: PositiveInt = Field(2, description="Critic updates per update of actor and targets.")
    exploration_noise: Positive = Field(
        0.1, description="Standard deviation of the exploration noise; actions lie in [-1, 1]."
    )
    exploration_noise_max: Positive | None = Field(
        None,
        description="If given, each episode draws its deviation between exploration_noise and this; contributors "
        "use the middle.",
    )
    target_noise: NotNegative = Field(0.2, description="Standard deviation of the noise on target actions.")
    target_noise_clip: NotNegative = Field(0.5, description="Limit of target_noise.")
    # One step is the paper's; FastTD3 has 1, 3 or 8 by the environment.
    n_step: FewSteps = Field(1, description=_N_STEP)
    critic_loss: Literal["squared", "categorical"] = Field(
        "squared",
        description="squared, or categorical (distributions over value_bins values); minimum of both critics.",
    )
    # FastTD3's grid (fast_td3/hyperparams.py, BaseArgs), which it changes by the environment.
    value_bins: Bins = Field(101, description="Number of values of categorical critics.")
    value_limit: Positive = Field(
        250.0, description="Categorical critics' values lie between plus and minus this; larger returns are clipped."
    )
    weight_decay: NotNegative = Field(0.0, description="AdamW's weight decay for actor and critics; 0: Adam.")

    @property
    def steps_summed(self) -> int:
        return self.n_step

    def findings(self, env: EnvSettings, network: Network, num_envs: int, total_steps: int) -> Iterator[SettingFinding]:
        yield from super().findings(env, network, num_envs, total_steps)
        if self.exploration_noise_max is not None and self.exploration_noise_max < self.exploration_noise:
            yield SettingFinding(
                FieldError(
                    "algorithm.noise-max-below-noise", most=self.exploration_noise_max, noise=self.exploration_noise
                )
            )


class Cloning(AlgorithmSettings):
    """Behaviour cloning: learns only by imitating demonstrations (Pomerleau 1988)."""

    name: Literal["cloning"] = Field("cloning", description=AlgorithmSettings.model_fields["name"].description)
    demos: str | None = Field(None, description="Folder of demonstrations with actions (`trainer demos`).")
    demos_sha256: Sha256 | None = Field(None, description=OffPolicySettings.model_fields["demos_sha256"].description)
    batch_size: PositiveInt = Field(32, description="Demonstrated actions per update.")
    learning_rate: Positive = Field(1e-4, description="Adam's step size.")
    updates_per_step: Annotated[float, Field(gt=0, le=64)] = Field(1.0, description="Updates per step of training.")

    def findings(self, env: EnvSettings, network: Network, num_envs: int, total_steps: int) -> Iterator[SettingFinding]:
        yield from super().findings(env, network, num_envs, total_steps)
        if self.demos is None:
            yield SettingFinding(FieldError("algorithm.no-demos"))


class Drqv2(PlainOffPolicy):
    """DrQ-v2: a deterministic actor that learns from randomly shifted pictures (Yarats et al. 2021, 2107.09645)."""

    # The authors' (facebookresearch/drqv2: cfgs/config.yaml, cfgs/task/medium.yaml), whose actor has 1,024 a layer.
    # Their 4,000 random steps are frames, two of each action; here they are actions.
    NETWORK: ClassVar[Mapping[str, Any]] = {
        "actor_hidden": (1024, 1024), "critic_hidden": (1024, 1024), "trunk": 50, "encoder": {"arch": "drq"},
    }  # fmt: skip

    name: Literal["drqv2"] = Field("drqv2", description=AlgorithmSettings.model_fields["name"].description)
    batch_size: PositiveInt = Field(256, description=OffPolicySettings.model_fields["batch_size"].description)
    random_steps: CountInt = Field(4_000, description=OffPolicySettings.model_fields["random_steps"].description)
    updates_per_step: Rate = Field(0.5, description="Updates per transition.")
    learning_rate: Positive = Field(1e-4, description="Adam's step size for actor, critics and encoder.")
    tau: Fraction = Field(0.01, description=_TARGETS)
    random_shift: Pixels = Field(4, description=PlainOffPolicy.model_fields["random_shift"].description)
    n_step: FewSteps = Field(3, description=_N_STEP)
    exploration_noise: Positive = Field(
        1.0, description="Initial standard deviation of the exploration noise; actions lie in [-1, 1]."
    )
    exploration_noise_end: Positive = Field(0.1, description="Final standard deviation of that noise.")
    exploration_noise_steps: PositiveInt = Field(500_000, description="Steps over which the deviation falls linearly.")
    noise_clip: NotNegative = Field(0.3, description="Limit of the noise on actions in updates.")
    preactivation_l2: NotNegative = Field(
        0.0,
        description="Weight of a penalty on the input of the actor's tanh, which keeps early actions off their "
        "bounds; 0: none, as in the paper.",
    )

    @property
    def steps_summed(self) -> int:
        return self.n_step

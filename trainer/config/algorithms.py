"""The settings of each algorithm in `trainer/algorithms/`, under `training.algorithm`: a class for each, called as its
file.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from trainer.config.settings import (
    AlgorithmSettings,
    EnvSettings,
    Finite,
    Network,
    NotNegative,
    OffPolicySettings,
    Positive,
)


class Mtsac(OffPolicySettings):
    """Multi-task SAC: a temperature for each task, plain, multi-head or residual critics."""

    VERSION: ClassVar[str] = "4"

    name: Literal["mtsac"] = Field("mtsac", description=AlgorithmSettings.model_fields["name"].description)
    learning_rate: Positive = Field(3e-4, description="Adam's step size, for actor, critics and temperatures.")
    gamma: Annotated[float, Field(ge=0, lt=1)] = Field(0.99, description="The discount a step.")
    tau: Annotated[float, Field(gt=0, le=1)] = Field(
        0.005, description="How far the target critics move towards the critics at each update."
    )
    init_temperature: Positive = Field(1.0, description="The entropy temperature at the start.")
    shared_temperature: bool = Field(
        False, description="One temperature for all tasks together; else each task has its own."
    )
    target_entropy: Finite = Field(-4.0, description="The entropy in nats that each temperature steers to.")
    critic_loss: Literal["squared", "categorical"] = Field(
        "squared",
        description="squared (the smaller of both critics counts) or categorical (distributions over value_bins "
        "values; their average counts; rewards are scaled task by task; needs critic_net residual).",
    )
    # BRC's grid (Nauman et al. 2025).
    value_bins: Annotated[int, Field(ge=2, le=1001)] = Field(101, description="Values of categorical critics.")
    value_limit: Positive = Field(10.0, description="Categorical critics' values lie between minus and plus this.")
    weight_decay: NotNegative = Field(0.0, description="AdamW's weight decay, for actor and critics; 0: Adam.")
    grad_clip: NotNegative = Field(0.0, description="Largest gradient norm of a net; 0 does not clip.")
    adam_eps: Positive = Field(1e-8, description="Adam's epsilon.")

    def check(self, env: EnvSettings, network: Network, num_envs: int) -> None:
        """Beside the batch and the buffer: the critics' layers and loss."""
        super().check(env, network, num_envs)
        if network.encoders:
            raise ValueError("encoders: mtsac reads the numbers of a state as they are; leave them out")
        if network.critic_net == "residual" and len(set(network.critic_hidden)) > 1:
            raise ValueError(
                f"critic_hidden {list(network.critic_hidden)} has different widths: blocks of a residual critic_net "
                "are added to each other and need one width, such as [512, 512]"
            )
        if self.critic_loss == "categorical" and network.critic_net != "residual":
            raise ValueError("critic_loss categorical needs critic_net residual; set both, or use critic_loss squared")

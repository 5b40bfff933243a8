"""A training, every value decided; and which of them a checkpoint insists on.

"Step" means a transition: one action of one environment. What a checkpoint insists on, the training's `identity`, is
the sections `env`, `algorithm` and `network`, the VERSION of the first two, `seed` and `init_seed`. The rest may change
from one job to the next. Of that, some changes numbers: `total_steps` (a run may be prolonged, and a learning rate that
falls over it then falls more slowly), `num_envs` (kept environments go on, new ones are seeded anew), what slots of a
`group` give each other and what is taken from other machines, and `device`, `threads` and `num_workers` (a job may land
on another machine; bit equality then ends, the training does not). All about when to save, evaluate, report, keep or
end changes none in a slot by itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from trainer.config.fields import (
    CountInt,
    Positive,
    PositiveInt,
    SettingFinding,
    Share,
    TrainingSettings,
    all_refused,
    refused,
)
from trainer.config.find import ALGORITHMS, SUITES, Kind, settings_of
from trainer.config.network import Network
from trainer.config.settings import (
    GOALS_PER_TASK,
    AlgorithmSettings,
    EnvSettings,
    GroupSettings,
    OffPolicySettings,
    OnPolicySettings,
)
from trainer.errors import FieldError

Device = Literal["auto", "cpu", "cuda", "mps"]
#: torch and numpy both take seeds of 32 bits in every one of their generators.
SEEDS = 2**32
#: Meta-World fixes this many goals a task.
GoalCount = Annotated[int, Field(ge=0, le=GOALS_PER_TASK)]
ContributorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]

#: The numbers that a training reports of itself (`progress.json`): by its evaluations, and all the time.
BY_EVALUATIONS = ("success", "return")
ALL_THE_TIME = ("steps_per_s", "updates_per_s", "gpu_percent", "save_s")
#: The sections of a training that decide its numbers.
SECTIONS = ("env", "algorithm", "network")
#: Of which a user may write a part.
IN_PARTS = (*SECTIONS, "group")
#: Those that are for somebody by name.
NAMED = {"env": SUITES, "algorithm": ALGORITHMS}


def _of_its_class(kind: Kind) -> BeforeValidator:
    """TrainingSettings as an object in JSON become those of the class that their name asks for."""

    def made(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return settings_of(kind, str(value.get("name"))).model_validate(dict(value))

    return BeforeValidator(made)


class Training(TrainingSettings):
    """What every training has; `env`, `algorithm` and `network` are its sections.

    Its dump is a section that a user might have written, and resolves to itself.
    """

    preset: str = Field(description="The named set of values for omitted fields.")
    env: Annotated[SerializeAsAny[EnvSettings], _of_its_class(SUITES)] = Field(
        description="The environment to train in."
    )
    algorithm: Annotated[SerializeAsAny[AlgorithmSettings], _of_its_class(ALGORITHMS)] = Field(
        description="The learning algorithm."
    )
    network: Network = Network()
    group: GroupSettings = Field(GroupSettings(), description="Sharing between slots of one run.")
    total_steps: PositiveInt = Field(2_000_000, description="Number of transitions (environment steps) to train for.")
    num_envs: PositiveInt = Field(
        description="Environments stepped together; default: one per task, at least 8 for PPO and A2C."
    )
    device: Device = Field("auto", description="Device of the networks.")
    replay_on: Literal["host", "device"] = Field(
        "host",
        description="Where the replay of states is stored: in memory, or on the learner's device, which saves "
        "copies. The results are the same.",
    )
    seed: Annotated[int, Field(ge=0, lt=SEEDS)] = Field(
        0, description="Random seed; slot k of a run uses seed + k; experiments use the same seed."
    )
    init_seed: Annotated[int, Field(ge=0, lt=SEEDS)] | None = Field(
        None, description="Seed of the networks' initial values only, the same for all slots; default: seed."
    )
    checkpoint_interval: PositiveInt = Field(10_000, description="Steps between checkpoints.")
    max_runtime_seconds: Positive | None = Field(None, description="Hand over after this time, whatever the walltime.")
    num_workers: CountInt | None = Field(
        None,
        description="Processes (threads for C simulators) that step environments; 0: the trainer itself; default:"
        " chosen by CPUs and step time.",
    )
    threads: PositiveInt = Field(1, description="Torch threads of the learner; resume is exact only with 1.")
    cuda_graph: bool = Field(
        False, description="On an NVIDIA GPU, launch each update as one CUDA graph; `trainer autotune` tries it."
    )
    metrics_interval: PositiveInt = Field(1_000, description="Steps per row of metrics.")
    evaluation_interval: CountInt = Field(
        200_000,
        description="Evaluate at the first checkpoint after each multiple of this number of steps; 0: only at the end.",
    )
    evaluation_goals: GoalCount = Field(50, description="Fixed goals per task in an evaluation; 0: no evaluations.")
    evaluation_unseen_goals: GoalCount = Field(
        50, description="Additional goals per task that were not trained on, reported separately."
    )
    averaging: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.999,
        description="Decay of the moving average of the actor's weights, which is saved, published and evaluated "
        "beside the actor; 0: none.",
    )
    # Every 1,000 updates is every few seconds at the rates that cluster nodes reach: fresh, and cheap (one small file).
    publish_interval: CountInt = Field(
        1_000, description="Updates between publications of the policy; 0: only with checkpoints."
    )
    # Off-policy learning bears old experience; a tenth of a usual run of 2M steps is where it stops to be worth it.
    contribution_max_lag: CountInt = Field(
        200_000, description="Maximum age, in steps, of the policy that played contributed experience."
    )
    contribution_check_share: Share = Field(
        0.1, description="Share of contributed segments that is simulated again before it is accepted."
    )
    contribution_rollback: Literal["auto", "ask", "never"] = Field(
        "ask",
        description="If false rows were learned: ask names the command that returns to an earlier checkpoint, "
        "auto returns, never does nothing.",
    )
    trusted_contributors: tuple[ContributorName, ...] = Field(
        (),
        description="Contributors accepted without a check; the only ones if the environment cannot be simulated "
        "again.",
    )
    keep_checkpoints: PositiveInt = Field(3, description="Number of newest checkpoints kept complete, to resume from.")
    keep_milestones: CountInt = Field(10, description="Number of older checkpoints whose networks are kept.")
    stream: bool = Field(
        True, description="Let the viewer show agents during training; nothing is sent while nobody watches."
    )
    stream_port: Annotated[int, Field(ge=1, le=65_535)] = Field(
        9999, description="Port of the viewer's page on your laptop."
    )
    stream_top_k: PositiveInt = Field(2, description="Number of best-scoring agents that the viewer shows.")

    @model_validator(mode="after")
    def _sections_fit_together(self) -> Self:
        self.network.check_pictures(self.env.picture_shape)
        for what, *_, loads in self.findings():
            if isinstance(what, FieldError) and not loads:
                raise what
        if not self.uses_experience:
            alone = f"{self.algorithm.name} is on-policy"
            if self.replay_on == "device":
                raise refused(("replay_on",), FieldError("replay.none-kept", alone=alone), self.replay_on)
            for way in self.group.ways[:1]:
                why = FieldError("group.on-policy", alone=alone)
                raise refused(("group", way), why, True)
        unmixable = self.algorithm.unmixable
        if unmixable is None and self.init_seed is None:
            unmixable = FieldError("mix.needs-init-seed")
        if self.group.mix and unmixable is not None:
            raise refused(("group", "mix"), unmixable, True)
        return self

    def findings(self) -> Iterator[SettingFinding]:
        """What is the matter with its sections beside each other."""
        algorithm, env = self.algorithm, self.env
        yield from algorithm.findings(env, self.network, self.num_envs, self.total_steps)
        yield from env.findings()
        state_alone = algorithm.name if algorithm.READS_STATE_ALONE else ""
        yield from self.network.findings(state_alone, env.sees, algorithm.NETWORK.get("encoder", {}))
        steps = self.num_envs * env.horizon  # an episode is as old as the policy of its first step
        if self.group.rows and steps > self.contribution_max_lag:
            error = FieldError("group.episodes-too-long", steps=steps, wanted=2 * steps)
            yield SettingFinding(error, ("contribution_max_lag",), self.contribution_max_lag, loads=True)

    def check_written(self) -> None:
        """Refuse also what a user may not ask for, though a checkpoint that says so still loads. Errors:
        ValidationError.
        """
        if found := [finding for finding in self.findings() if isinstance(finding.what, FieldError)]:
            raise all_refused(found)

    def warnings_of(self) -> list[tuple[str, str]]:
        """(field, what it comes to) of settings that can hardly be meant: they are told, and done."""
        return [(str(place[0]), what) for what, place, *_ in self.findings() if isinstance(what, str)]

    @property
    def seed_of_nets(self) -> int:
        """What the nets' first values are drawn from."""
        return self.seed if self.init_seed is None else self.init_seed

    @property
    def plays_in_shards(self) -> bool:
        """Whether each shard has environments and a rollout of its own; else shards are parts of a batch alone."""
        return self.algorithm.shards > 1 and not self.uses_experience

    @property
    def uses_experience(self) -> bool:
        """Whether its algorithm learns from kept transitions; else it has no replay, and takes no contributions."""
        return isinstance(self.algorithm, OffPolicySettings)

    @property
    def off_policy(self) -> OffPolicySettings:
        """The algorithm's settings where it learns from kept transitions. Errors: TypeError where it does not."""
        if not isinstance(self.algorithm, OffPolicySettings):
            raise TypeError(f"{self.algorithm.name} is on-policy")
        return self.algorithm

    @property
    def demos(self) -> str | None:
        """The folder of demonstrations that it learns from, alone or beside its own rows; None: it does not."""
        folder: str | None = getattr(self.algorithm, "demos", None)
        return folder

    @property
    def rollout(self) -> int:
        """Steps of all environments that are learned from together and forgotten; 0 where there are no such."""
        steps: int = self.algorithm.rollout_steps if isinstance(self.algorithm, OnPolicySettings) else 0
        return steps * self.num_envs

    @property
    def falling_steps(self) -> int:
        """Steps over which the learning rate falls to 0; 0: it stays."""
        steps = self.algorithm.learning_rate_steps if isinstance(self.algorithm, OnPolicySettings) else 0
        return self.total_steps if steps == "total" else steps

    @property
    def learned_at_once(self) -> int:
        """Steps that one update learns from: `batch_size`, or a whole rollout."""
        size: int = getattr(self.algorithm, "batch_size", self.rollout)
        return size

    def changed(self, **values: Any) -> Training:
        """With other values, by their short names or in sections. Errors: ValidationError."""
        return Training.model_validate(merged(self.model_dump(mode="json"), in_sections(values, classes(self))))


def classes(training: Training) -> dict[str, type[TrainingSettings]]:
    """Section → the class of its settings."""
    return {name: type(getattr(training, name)) for name in SECTIONS}


def in_sections(values: Mapping[str, Any], classes: Mapping[str, type[TrainingSettings]]) -> dict[str, Any]:
    """`values` with each short name in its section: `{"batch_size": 256}` is `{"algorithm": {"batch_size": 256}}`.

    A section's own name alone is an object with that name: `"algorithm": "ppo"`. What is said twice is the short
    name's. Errors: ValidationError for a short name of several sections.
    """
    found: dict[str, Any] = {}
    short: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        is_own = name in Training.model_fields or name == "name"
        having = [section for section in SECTIONS if not is_own and name in classes[section].model_fields]
        if len(having) > 1:
            places = " or ".join(f"{section}.{name}" for section in having)
            words = " and ".join(having)
            raise refused((name,), FieldError("config.short-name-of-several", sections=words, places=places), value)
        if having:
            short.setdefault(having[0], {})[name] = value
        elif name in NAMED and isinstance(value, str):
            found[name] = {"name": value}
        else:
            found[name] = dict(value) if name in SECTIONS and isinstance(value, Mapping) else value
    return merged(found, short)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, in sections; `above` is stronger. Of tasks and a benchmark, the one that is above replaces the other; a
    section that is for another suite or algorithm replaces all of it, as another encoder does.
    """
    result = {**below, **above}
    for section in IN_PARTS:
        old, new = below.get(section), above.get(section)
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            continue
        if "name" in old and new.get("name", old["name"]) != old["name"]:
            continue
        gone = _TASKS if _TASKS & new.keys() else set()
        result[section] = {**{name: value for name, value in old.items() if name not in gone}, **new}
        one, other = old.get("encoder"), new.get("encoder")
        if (
            isinstance(one, Mapping)
            and isinstance(other, Mapping)
            and other.get("arch", one.get("arch")) == one.get("arch")
        ):
            result[section]["encoder"] = {**one, **other}
    return result


#: Each replaces the other.
_TASKS = {"tasks", "benchmark"}


def deciding(training: Training) -> dict[str, Any]:
    """What no job of a training may change, as JSON."""
    seeds = {"seed"} if training.init_seed is None else {"seed", "init_seed"}  # as it was before there were two
    sections = training.model_dump(mode="json", include={*seeds, *SECTIONS})
    del sections["network"]["encoder"]["weights"]  # where a file lies: what it is, its sum says
    algorithm = _without_place_of_demos(sections["algorithm"])
    # What was not there before is left out where it changes nothing: what was begun then goes on.
    sections["algorithm"] = {name: value for name, value in algorithm.items() if (name, value) not in _NEWER.items()}
    versions = {name: type(getattr(training, name)).VERSION for name in NAMED}
    return {**sections, "versions": versions}


#: Settings of algorithms that came later, and their values that change no number.
_NEWER: dict[str, Any] = {"shards": 1, "precision": "float32", "preactivation_l2": 0.0}


def _without_place_of_demos(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """Its settings without where demonstrations lie; where there are none, without all about them: what was begun when
    there was no such setting goes on.
    """
    gone = {"demos"} if algorithm.get("demos") else {"demos", "demos_share", "demos_sha256"}
    return {name: value for name, value in algorithm.items() if name not in gone}


def identity(training: Training) -> str:
    """sha256 (hex) over what decides its numbers: equal means "may be continued"."""
    text = json.dumps(deciding(training), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def group_identity(training: Training) -> str:
    """16 hex digits of its identity but for the seed: slots in which it is the same are of one group."""
    return identity(training.model_copy(update={"seed": 0}))[:16]


def differences(saved: Mapping[str, Any], training: Training) -> list[str]:
    """What decides its numbers and is another in `saved`, a dump: `batch_size 512 → 256`, one each."""
    seeds = [(name, saved.get(name), getattr(training, name)) for name in ("seed", "init_seed")]
    found = [f"{name} {then} → {now}" for name, then, now in seeds if then != now]
    return found + differences_in(SECTIONS, saved, training)


def differences_in(sections: Iterable[str], saved: Mapping[str, Any], training: Training) -> list[str]:
    """What decides numbers in some `sections` and is another in `saved`, a dump; one each."""
    then, now = in_sections(saved, classes(training)), deciding(training)
    then["algorithm"] = {**_NEWER, **_without_place_of_demos(then.get("algorithm") or {})}
    now["algorithm"] = {**_NEWER, **now["algorithm"]}
    found = [(section, _flat(then.get(section) or {}), _flat(now[section])) for section in sections]
    return [
        f"{section if name == 'name' else name} {before.get(name)} → {after.get(name)}"
        for section, before, after in found
        for name in dict.fromkeys([*after, *before])
        if before.get(name) != after.get(name)
    ]


def _flat(section: Mapping[str, Any]) -> dict[str, Any]:
    """With an encoder's settings each by a name of its own, but for where its file lies."""
    encoder = section.get("encoder")
    if not isinstance(encoder, Mapping):
        return dict(section)
    inner = {f"encoder.{name}": value for name, value in encoder.items() if name != "weights"}
    return {**{name: value for name, value in section.items() if name != "encoder"}, **inner}

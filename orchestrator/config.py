"""`cluster_config.json`, or a YAML file: what a user writes, checked, with one sentence for each mistake."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, WithJsonSchema, model_validator

from anchorleg.places import user_path
from anchorleg.words import did_you_mean
from orchestrator.errors import ConfigError, FieldError
from orchestrator.experiments import MOST_SLOTS, expanded, read_lines, settings_in
from orchestrator.notation import filled, format_duration, names_in
from orchestrator.sections import (
    ActorsSection,
    CodeSection,
    CollaborationSection,
    ContainerSection,
    QueueSection,
    RelaySection,
    Section,
    SlurmSection,
)
from trainer.config.read import DocumentError, located, read_document, sentences
from trainer.config.section import BEGUN, TrainingSection, named_first, names_under_training, put, resolve, trained
from trainer.config.training import SECTIONS, SEEDS, Training, differences_in, group_identity, identity
from trainer.config.wandb import WandbSection

#: Slurm's `--signal` may come up to 60 s early (sbatch(1)), so that much of the walltime is not to be counted on.
EARLY_SIGNAL_S = 60
#: From a job's first instruction to the first training step: imports, environments, loading the replay buffer.
START_UP_S = 20
#: A login node is shared: the man page of squeue asks not to poll in loops.
SLURM_POLL_S = 30.0
LOCAL_POLL_S = 1.0

#: As a list of objects, each with its name, once it is checked; a grid or a file's name is as good in the file.
Experiments = Annotated[
    tuple[dict[str, Any], ...],
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}, {"type": "string"}]}),
]

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class RunConfig(Section):
    """The whole file."""

    role: Literal["train", "actors"] = Field(
        "train", description="train, or actors: jobs that play for another account's training (see actors)."
    )
    run_name: str = Field("mt10", pattern=NAME_PATTERN, description="Name of the run: letters, digits, . _ -")
    run_dir: str | None = Field(
        None, pattern=r"^[^\x00]+$", description="Run folder, relative to this file; default: runs/NAME."
    )
    after: str | None = Field(None, min_length=1, description="Run that must finish first: its name, id or folder.")
    executor: Literal["auto", "slurm", "local"] = Field(
        "auto", description="auto: slurm if sbatch exists; a run keeps the executor of its first job."
    )
    slots: int = Field(
        1, ge=1, le=MOST_SLOTS, description="Number of slots; slot k trains with seed + k. Omit with experiments."
    )
    slot_overrides: dict[str, dict[str, Any]] = Field(
        {}, description='Training fields (or params of your own program) by slot: {"1": {…}}.'
    )
    experiments: Experiments | None = Field(
        None,
        description="One slot per experiment: a grid of fields, a list of objects, or a JSON Lines file. See queue.",
    )
    queue: QueueSection = QueueSection()
    python: str | None = Field(None, description="Python that jobs use; default: the one that runs the orchestrator.")
    lead_seconds: int = Field(120, ge=1, le=65535, description="Seconds before its end at which a job hands over.")
    poll_seconds: float | None = Field(None, ge=0.2, le=60, description="Seconds between two polls of the queue.")
    slurm: SlurmSection = SlurmSection()
    relay: RelaySection = RelaySection()
    code: CodeSection = CodeSection()
    container: ContainerSection | None = None
    actors: ActorsSection | None = None
    training: TrainingSection = TrainingSection()
    collaboration: CollaborationSection = CollaborationSection()
    wandb: WandbSection = WandbSection()
    command: list[str] | None = Field(
        None,
        min_length=1,
        description="Your own program instead of the trainer; `@{name}` is replaced by a param, `@{slot}` by the slot.",
    )
    params: dict[str, Any] = Field(
        {}, description="Settings of your own program, passed in the file ANCHORLEG_CONFIG and as `@{name}` in command."
    )
    notify: list[str] | None = Field(
        None,
        min_length=1,
        description="Command to run if a slot finishes, fails or waits, or the queue is long unreachable.",
    )

    @model_validator(mode="before")
    @classmethod
    def _actors_ask_for_no_gpu(cls, value: Any) -> Any:
        """The default of slurm.gpus is a trainer's; actors play on the CPU, and a GPU would be taken for nothing."""
        slurm = value.get("slurm", {}) if isinstance(value, dict) and value.get("role") == "actors" else None
        return {**value, "slurm": {"gpus": 0, **slurm}} if isinstance(slurm, dict) else value

    @model_validator(mode="before")
    @classmethod
    def _with_a_slot_for_each_experiment(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("experiments") is None:
            return value
        try:
            rows = expanded(value["experiments"])
        except FieldError as error:
            raise FieldError.at("", "experiments", error) from None
        if value.get("slots", len(rows)) != len(rows):
            raise FieldError("config.slots-and-experiments", count=len(rows))
        return {**value, "experiments": rows, "slots": len(rows)}

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> RunConfig:
        self._check_role()
        if self.experiments is not None and self.slot_overrides:
            raise FieldError("config.overrides-and-experiments")
        for key in self.slot_overrides:
            if key not in {str(slot) for slot in range(self.slots)}:
                raise FieldError("config.override-of-no-slot", slot=key, last=self.slots - 1)
        relay, most = self.relay, self.relay.escalate
        if self.slurm.slots_per_job > 1 and (relay.queue_ahead or most.mem is not None or most.time_limit is not None):
            raise FieldError("config.packed-relay", name="queue_ahead" if relay.queue_ahead else "escalate")
        if self.relay.escalate.mem is not None and not self.slurm.memory_mb:
            raise FieldError("config.escalate-without-mem")
        if info.context is not BEGUN:
            self._check_trainings()
        last = self.training.seed + (self.slots - 1 if self.experiments is None else 0)
        if last >= SEEDS:
            raise FieldError("config.seed-too-large", slot=self.slots - 1, seed=last, largest=SEEDS - 1)
        if self.command is None:
            if self.params:
                raise FieldError("config.params-of-the-trainer")
            if self.relay.keep_checkpoints is not None:
                raise FieldError("config.checkpoints-of-the-trainer")
            if self.code.snapshot:
                raise FieldError("config.snapshot-of-the-trainer")
        else:
            self._check_params(self.command)
        return self

    def _check_trainings(self) -> None:
        rows = {f"slot_overrides.{key}": fields for key, fields in self.slot_overrides.items()}
        rows |= {f"experiments.{row['name']}": settings_in(row) for row in self.experiments or ()}
        for where, fields in rows.items() if self.trains else ():
            try:
                resolve(self.training.over(fields))
            except ValidationError as error:
                place, why = sentences(error, TrainingSection)[0]
                raise FieldError.at("", f"{where}.{place}", why) from None
        ranks = self.slurm.ranks
        for slot in range(self.slots if ranks > 1 and self.command is None else 0):
            shards = resolve(self.training.over(self.fields_of(slot))).algorithm.shards
            if self.role == "train" and shards % ranks:
                raise FieldError("config.ranks-and-shards", ranks=ranks, slot=slot, shards=shards)
            if self.role == "actors":
                raise FieldError("config.ranks-of-actors")
            if self.container is not None:
                raise FieldError("config.ranks-in-container")

    @property
    def places(self) -> int:
        """How many of its jobs run at once, at most."""
        return min(self.slots, (self.slurm.max_jobs or self.slots) * self.slurm.slots_per_job)

    def fields_of(self, slot: int) -> dict[str, Any]:
        """What one slot has otherwise than the others: of its experiment, or of `slot_overrides`."""
        if self.experiments is not None:
            return settings_in(self.experiments[slot])
        return self.slot_overrides.get(str(slot), {})

    def name_of(self, slot: int) -> str:
        """The name of a slot's experiment; empty where it has none."""
        rows = self.experiments or ()
        return str(rows[slot]["name"]) if slot < len(rows) else ""

    def with_experiments(self, rows: Sequence[dict[str, Any]], *, begun: bool = False) -> RunConfig:
        """With these behind its own, by other names; `begun`: they were checked before. Errors: ValidationError."""
        value = self.model_dump(mode="json", exclude_unset=True)
        known = [*(self.experiments or ()), *rows]
        value |= {"experiments": known, "slots": len(known)}
        return RunConfig.model_validate(value, context=BEGUN if begun else None)

    def _check_role(self) -> None:
        if self.role == "train":
            if self.actors is not None:
                raise FieldError("config.actors-without-role")
            return
        if self.actors is None:
            raise FieldError("config.actors-without-folder")
        for name in ("training", "wandb", "collaboration", "command", "params", "slot_overrides", "experiments"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise FieldError("config.not-for-actors", name=name)

    @property
    def trains(self) -> bool:
        """Whether the jobs run our trainer's training: neither a program of your own nor actors."""
        return self.role == "train" and self.command is None

    def _check_params(self, command: list[str]) -> None:
        try:
            json.dumps([self.params, self.slot_overrides, self.experiments], allow_nan=False)
        except ValueError:
            raise FieldError("config.params-not-json") from None
        places = {name for word in command for name in names_in(word)} - {"slot", *self.params}
        for slot in range(self.slots) if places else ():
            own = self.fields_of(slot)
            if missing := sorted(places - own.keys()):
                known = ["slot", *self.params, *own]
                hint = did_you_mean(missing[0], known)
                raise FieldError("config.no-param", param=missing[0], slot=self.name_of(slot) or slot, near=hint)

    def training_of(self, slot: int) -> TrainingSection:
        """The training section of one slot, with its fields; without experiments its seed + slot. Errors: as `over`."""
        seed = self.training.seed + (slot if self.experiments is None else 0)
        return self.training.over({"seed": seed, **(self.fields_of(slot) if self.command is None else {})})

    def trained_by(self, slot: int) -> Training:
        """The training of one slot, resolved, as it was begun. Errors: ConfigError where that cannot be done here."""
        try:
            return trained(self.training_of(slot).written)
        except ValidationError as error:
            facts = {"slot": slot, "why": FieldError.at("", *sentences(error, TrainingSection)[0])}
            raise ConfigError("config.not-here", name=self.run_name, python=sys.executable, **facts) from None

    def max_runtime_s(self, slot: int) -> float | None:
        """How long a job of one slot works at most, seconds, whatever its walltime; None: as long as that lets it."""
        own = self.fields_of(slot) if self.command is None and slot < self.slots else {}
        longest = {**self.training.written, **own}.get("max_runtime_seconds")
        return float(longest) if longest else None

    def longest_job_s(self, slot: int) -> float:
        """How long a whole job of one slot works until it hands over, at most, seconds."""
        to_its_end = float(self.slurm.time_limit - self.lead_seconds)
        return min(to_its_end, self.max_runtime_s(slot) or to_its_end)

    def command_of(self, slot: int) -> list[str] | None:
        """Your own program's words for one slot, with its params (no texts as JSON); None where the trainer runs."""
        if self.command is None:
            return None
        values = {"slot": slot, **self.settings_of(slot)}
        texts = {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in values.items()
        }
        return [filled(word, texts.__getitem__) for word in self.command]

    def settings_of(self, slot: int) -> dict[str, Any]:
        """What a slot's program reads from ANCHORLEG_CONFIG, or what its actors play for. Errors: as `trained_by`."""
        if self.actors is not None:
            return self.actors.model_dump(mode="json")
        if self.command is not None:
            return {**self.params, **self.fields_of(slot)}
        return self.trained_by(slot).model_dump(mode="json")


def training_identity(config: RunConfig, first: int = 0) -> tuple[str, ...] | None:
    """One hash per slot from `first` on; None where our trainer does not train. Errors: ValidationError."""
    if not config.trains:
        return None
    return tuple(identity(resolve(config.training_of(slot))) for slot in range(first, config.slots))


def smallest_time_limit_s(lead_s: int, executor: str) -> int:
    """The shortest walltime in which a job can do something between its start and its hand-over."""
    return lead_s + START_UP_S + (EARLY_SIGNAL_S if executor == "slurm" else 0)


def check_walltime(config: RunConfig, executor: str) -> None:
    """Refuse a walltime that leaves no time to train. Errors: ConfigError."""
    smallest = smallest_time_limit_s(config.lead_seconds, executor)
    field = "time_limit" if config.slurm.time_min is None else "time_min"
    limit_s = config.slurm.time_min or min(place.time_limit for place in config.slurm.places)
    if limit_s < smallest:
        early_s = EARLY_SIGNAL_S if executor == "slurm" else 0
        seconds = {"limit_s": limit_s, "lead_s": config.lead_seconds, "early_s": early_s, "start_s": START_UP_S}
        limit = format_duration(limit_s)
        raise ConfigError("config.walltime-too-short", field=field, limit=limit, **seconds, smallest_s=smallest)


def check_mixing(config: RunConfig) -> None:
    """Refuse slots that would mix their weights with nobody's. Errors: ConfigError."""
    if not config.trains:
        return
    trainings = [resolve(config.training_of(slot)) for slot in range(config.slots)]
    groups = [group_identity(training) for training in trainings]
    for slot, training in enumerate(trainings):
        if not training.group.mix or groups.count(groups[slot]) > 1:
            continue
        if config.slots == 1:
            raise ConfigError("config.mix-alone")
        other = 1 if slot == 0 else 0
        what = ", ".join(differences_in(SECTIONS, trainings[other].model_dump(mode="json"), training))
        raise ConfigError("config.mix-with-another", slot=slot, differs=what or "another init_seed", other=other)


def check_start(config: RunConfig, executor: str) -> None:
    """Refuse what is well written and must not begin with `executor`. Errors: ConfigError."""
    check_walltime(config, executor)
    if config.experiments is not None and executor == "local" and config.slurm.max_jobs is None:
        raise ConfigError("config.max-jobs-needed", slots=config.slots, cores=os.cpu_count())
    if config.relay.preemption_notice != "none" and executor != "local":
        raise ConfigError("config.notice-on-slurm", notice=config.relay.preemption_notice)
    check_mixing(config)


def load_config(path: Path, overrides: dict[str, Any] | None = None) -> RunConfig:
    """Read and check a config file. `overrides`: dotted path → value. Errors: ConfigError, one sentence a mistake."""
    try:
        value = read_document(path)
    except FileNotFoundError:
        raise ConfigError("config.no-file", path=path) from None
    except OSError as error:
        raise ConfigError("config.unreadable", path=path, why=error.strerror) from None
    except DocumentError as error:
        raise ConfigError("config.document", path=path, why=error) from None
    value = apply_overrides(value, overrides or {})
    if isinstance(named := value.get("experiments"), str):
        value = {**value, "experiments": read_lines(path.parent / user_path(named))}
    return parse_config(value, path, overrides or {})


def apply_overrides(value: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """`value` with each dotted path set. A null section in the way becomes an object."""
    for dotted, new in named_first(overrides.items()):
        in_training = dotted.startswith("training.")
        *folders, leaf = dotted.split(".", 1) if in_training else dotted.split(".")
        at = value
        for name in folders:
            if not isinstance(at.get(name), dict):
                at[name] = {}
            at = at[name]
        if in_training:
            put(at, leaf, new)
        else:
            at[leaf] = new
    return value


def parse_config(value: dict[str, Any], where: Path | str, typed: Collection[str] = ()) -> RunConfig:
    """Check an already parsed config. `typed`: dotted paths of what did not stand there but was typed. Errors:
    ConfigError naming `where` (of a file with the line, or the command line) and each field.
    """
    try:
        return RunConfig.model_validate(value)
    except ValidationError as error:
        found = sentences(error, RunConfig, {"training": names_under_training()})
        raise located(ConfigError, found, where, typed) from None

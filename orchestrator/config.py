"""`cluster_config.json`: what a user writes, checked, with one sentence for each mistake.

The training section's fields belong to `trainer.config`; this module only carries it.
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from orchestrator.errors import ConfigError
from orchestrator.walltime import parse_duration_s
from trainer.config import NOT_BUILT_YET, TrainingSection, WandbSection, resolve

#: Slurm's `--signal` may come up to 60 s early (sbatch(1)), so that much of the walltime is not to be counted on.
EARLY_SIGNAL_S = 60
#: From a job's first instruction to the first training step: imports, environments, loading the replay buffer.
START_UP_S = 20
#: A login node is shared: the man page of squeue asks not to poll in loops.
SLURM_POLL_S = 30.0
LOCAL_POLL_S = 1.0

#: numpy and torch take 32 bits.
SEEDS = 2**32
#: sbatch splits its lines at white space, and a newline would begin a line of shell.
Word = Annotated[str, StringConstraints(pattern=r"^[^\s'\"\\]+$")]

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class Section(BaseModel):
    """Base of the config's sections: unknown fields are refused."""

    # An account called 123 is a name all the same.
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class SlurmSection(Section):
    """What to ask of Slurm for each job. Empty fields are left to the site's defaults."""

    partition: Word | None = Field(None, description="Partition to submit to.")
    account: Word | None = Field(None, description="Account to charge.")
    qos: Word | None = Field(None, description="Quality of service.")
    time_limit: str = Field("4:00:00", description='Walltime of one job: "4:00:00", "1-12" or minutes.')
    cpus_per_task: int = Field(8, ge=1, description="CPU cores of a job.")
    gpus: int = Field(1, ge=0, description="GPUs of a job, on this machine too; the trainer uses one.")
    gpu_type: Word | None = Field(None, description='GPU type as in sinfo, for example "a100".')
    mem: str | None = Field(None, pattern=r"^\d+[KMGT]?$", description='Memory of a job, for example "32G".')
    constraint: Word | None = Field(None, description="Node features.")
    exclude: Word | None = Field(None, description="Nodes not to use.")
    max_jobs: int | None = Field(None, ge=1, description="Most jobs of the user at once, other work included.")
    setup: list[str] = Field([], description='Shell lines before the job, for example "module load cuda".')
    extra: list[str] = Field([], description='Further sbatch options, for example "--mail-type=FAIL".')

    @field_validator("time_limit", mode="before")
    @classmethod
    def _time_limit(cls, value: Any) -> str:
        text = str(value)
        if parse_duration_s(text) is None:
            raise ValueError("a job needs a finite time limit, for example 4:00:00")
        return text

    @field_validator("extra")
    @classmethod
    def _extra(cls, value: list[str]) -> list[str]:
        ours = (
            "--test-only",
            "--wait",
            "--time",
            "--signal",
            "--chdir",
            "--output",
            "--error",
            "--job-name",
            "--requeue",
            "--no-requeue",
            "--array",
            "--clusters",  # squeue and sacct ask the cluster of the controller alone
        )
        for option in value:
            if not option.startswith("-"):
                raise ValueError(f'"{option}" is not an sbatch option: write "--name=value"')
            name = re.split(r"[=\s]", option)[0]
            abbreviates = len(name) > 2 and any(own.startswith(name) for own in ours)
            if abbreviates or (
                not name.startswith("--") and name[:2] in {"-D", "-J", "-M", "-W", "-a", "-e", "-o", "-t"}
            ):
                raise ValueError(f'"{option}" is set by the orchestrator, which depends on it: leave it out')
            if "\n" in option:
                raise ValueError("an sbatch option is one line")
        return value

    @property
    def time_limit_s(self) -> int:
        """The walltime in seconds."""
        return parse_duration_s(self.time_limit) or 0


class ContainerSection(Section):
    """Run the command inside an image."""

    image: str = Field(description="Image file (apptainer, singularity) or folder (charliecloud).")
    runtime: Literal["apptainer", "singularity", "ch-run"] = Field("apptainer", description="Container runtime.")
    binds: list[str] = Field([], description='Folders to bring in: "/scratch" or "/host/path:/inside".')
    python: str = Field("python3", description="Python inside the image, for the default command.")


class CollaborationSection(Section):
    """Sharing with other machines. Policies are always published; experience that comes back is used if `enabled`."""

    enabled: bool = Field(False, description="Let the training use experience that laptops send in.")
    shared_dir: str | None = Field(
        None,
        pattern=r"^[^\x00]+$",
        description="Folder that laptops reach, relative to this file; default: shared/ in the run folder.",
    )


class RelaySection(Section):
    """How a slot goes from one job to the next, and what happens after failures."""

    queue_ahead: bool = Field(
        False, description="Queue each next job behind the running one. It takes two jobs a slot."
    )
    baton: bool = Field(True, description="A Slurm job that ends while no controller is alive runs one tick itself.")
    failure_budget: int = Field(6, ge=1, description="So many failures in a row without a new checkpoint stop a slot.")
    retry_delays_seconds: list[Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)]] = Field(
        [0, 60, 900, 1800, 3600],
        min_length=1,
        description="Wait after the 1st, 2nd, ... failure in a row; the last one goes on. A new checkpoint resets it.",
    )
    stall_seconds: float = Field(
        600,
        ge=1,
        allow_inf_nan=False,
        description="A program that reported progress and is silent so long, and 5 times its usual, is restarted.",
    )


class RunConfig(Section):
    """The whole file."""

    run_name: str = Field("mt10", pattern=NAME_PATTERN, description="Name of the run: letters, digits, . _ -")
    run_dir: str | None = Field(
        None, pattern=r"^[^\x00]+$", description="Run folder, relative to this file; default: runs/<run_name>."
    )
    executor: Literal["auto", "slurm", "local"] = Field("auto", description="auto: slurm where there is sbatch.")
    slots: int = Field(1, ge=1, le=1000, description="Jobs to keep going at once; slot k trains with seed + k.")
    slot_overrides: dict[str, dict[str, Any]] = Field({}, description='Training fields of one slot: {"1": {…}}.')
    python: str | None = Field(None, description="Python of the compute side; default: the one that runs this.")
    lead_seconds: int = Field(120, ge=1, le=65535, description="How long before its end a job hands over.")
    poll_seconds: float | None = Field(None, ge=0.2, le=60, description="Seconds between looks at the queue.")
    slurm: SlurmSection = SlurmSection()
    relay: RelaySection = RelaySection()
    container: ContainerSection | None = None
    training: TrainingSection = TrainingSection()
    collaboration: CollaborationSection = CollaborationSection()
    wandb: WandbSection = WandbSection()
    command: list[str] | None = Field(None, min_length=1, description="Your own program instead of the trainer.")
    notify: list[str] | None = Field(
        None, min_length=1, description="Command to run when a slot finishes or fails, or the queue is unseen for long."
    )

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        for key, fields in self.slot_overrides.items():
            if key not in {str(slot) for slot in range(self.slots)}:
                raise ValueError(f'slot_overrides: there is no slot "{key}" (slots: 0 to {self.slots - 1})')
            merged = {**self.training.model_dump(exclude_unset=True), **fields}
            try:
                resolve(TrainingSection.model_validate(merged))
            except ValidationError as error:
                raise ValueError(f"slot_overrides.{key}: {_sentences(error, TrainingSection)[0][1]}") from None
        last = (self.training.seed or 0) + self.slots - 1
        if last >= SEEDS:
            raise ValueError(
                f"training.seed: slot {self.slots - 1} would get the seed {last}; the largest is {SEEDS - 1}"
            )
        if self.command is None:
            resolve(self.training)
        return self

    def training_of(self, slot: int) -> TrainingSection:
        """The training section of one slot: seed + slot, then its overrides."""
        merged = self.training.model_dump(exclude_unset=True)
        merged["seed"] = (self.training.seed or 0) + slot
        merged.update(self.slot_overrides.get(str(slot), {}))
        return TrainingSection.model_validate(merged)


def smallest_time_limit_s(lead_s: int, executor: str) -> int:
    """The shortest walltime in which a job can do something between its start and its hand-over."""
    return lead_s + START_UP_S + (EARLY_SIGNAL_S if executor == "slurm" else 0)


def check_walltime(config: RunConfig, executor: str) -> None:
    """Refuse a walltime that leaves no time to train. Errors: ConfigError."""
    smallest = smallest_time_limit_s(config.lead_seconds, executor)
    if config.slurm.time_limit_s < smallest:
        early = f" + {EARLY_SIGNAL_S} s that Slurm may signal early" if executor == "slurm" else ""
        raise ConfigError(
            f"slurm.time_limit: {config.slurm.time_limit} is {config.slurm.time_limit_s} s, too short to train in: it "
            f"must hold lead_seconds ({config.lead_seconds}){early} + {START_UP_S} s of start-up = {smallest} s. "
            "Ask for a longer time_limit or lower lead_seconds."
        )


def load_config(path: Path, overrides: dict[str, Any] | None = None) -> RunConfig:
    """Read and check a config file. `overrides`: dotted path → value, stronger than the file.

    Errors: ConfigError, one sentence a mistake.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such config file. Write one with `orchestrator init`, or name it with --config."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from None
    try:
        value = json.loads(text, object_pairs_hook=_without_doubles)
    except (RecursionError, _DoubleKeyError) as error:
        words = (
            f'"{error}" is written twice in one object' if isinstance(error, _DoubleKeyError) else "nested too deeply"
        )
        raise ConfigError(f"{path}: {words}.") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}, line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}.") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: a config is a JSON object in braces, this is a {type(value).__name__}.")
    return parse_config(apply_overrides(value, overrides or {}), str(path), overrides or {})


class _DoubleKeyError(Exception):
    """A key that stands twice; of the two JSON would silently keep the last."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise _DoubleKeyError(name)
    return dict(pairs)


def apply_overrides(value: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """`value` with each dotted path set. A null section in the way becomes an object."""
    for dotted, new in overrides.items():
        *folders, leaf = dotted.split(".")
        at = value
        for name in folders:
            if not isinstance(at.get(name), dict):
                at[name] = {}
            at = at[name]
        at[leaf] = new
    return value


def parse_config(value: dict[str, Any], where: str, typed: Collection[str] = ()) -> RunConfig:
    """Check an already parsed config. `typed`: dotted paths of what did not stand there but was typed.

    Errors: ConfigError naming `where` (or the command line) and each field.
    """
    try:
        return RunConfig.model_validate(value)
    except ValidationError as error:
        found = _sentences(error, RunConfig)
        lines = [f"{'the command line' if dotted in typed else where}: {words}" for dotted, words in found]
        raise ConfigError("\n".join(lines)) from None


#: What pydantic says of these names its own classes, or leaves the notation open.
_KINDS_OF_VALUES = {
    "list_type": "a list is needed, in brackets: [...]",
    "too_short": "the list must not be empty",
    "model_type": "a section is needed, in braces: {...}",
    "model_attributes_type": "a section is needed, in braces: {...}",
    "dict_type": "an object is needed, in braces: {...}",
}


def _sentences(error: ValidationError, model: type[BaseModel]) -> list[tuple[str, str]]:
    """(dotted path, sentence) of each mistake."""
    lines = []
    for problem in error.errors(include_url=False):
        path = [str(part) for part in problem["loc"]]
        dotted = ".".join(path) or "config"
        if problem["type"] == "extra_forbidden":
            names = _known_fields(model, path[:-1])
            near = difflib.get_close_matches(path[-1], names, n=1, cutoff=0.5)
            hint = f'did you mean "{near[0]}"?' if near else f"known here: {', '.join(sorted(names))}."
            words = f"{dotted}: there is no such field; {hint}"
        elif problem["type"] == "value_error":
            words = str(problem["ctx"]["error"]) if "ctx" in problem else problem["msg"]
            words = f"{dotted}: {words}" if path else words
        elif problem["type"] == "string_pattern_mismatch":
            words = f"{dotted}: {problem['input']!r} cannot be used. {_description(model, path)}".rstrip()
        else:
            words = _KINDS_OF_VALUES.get(problem["type"]) or problem["msg"][0].lower() + problem["msg"][1:]
            words = f"{dotted}: {words} (found {problem['input']!r})"
        lines.append((dotted, words))
    return lines


def _known_fields(model: type[BaseModel], path: list[str]) -> list[str]:
    for name in path:
        field = model.model_fields.get(name)
        if field is None:
            return []
        inner = _model_in(field.annotation)
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _description(model: type[BaseModel], path: list[str]) -> str:
    for name in path[:-1]:
        inner = _model_in(model.model_fields[name].annotation) if name in model.model_fields else None
        if inner is None:
            return ""
        model = inner
    field = model.model_fields.get(path[-1])
    return field.description or "" if field is not None else ""


def _model_in(annotation: Any) -> type[BaseModel] | None:
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    for option in options:
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None


def idle_gpus(config: RunConfig) -> str:
    """What to know where each job asks for more GPUs than our trainer uses; empty where it does not."""
    if config.command is not None or config.slurm.gpus <= 1:
        return ""
    others = "the other one stays idle" if config.slurm.gpus == 2 else "the others stay idle"
    return (
        f"slurm.gpus: {config.slurm.gpus}: the trainer uses one GPU of a job, and {others}. Set it to 1, and slots to "
        "the number of GPUs that you want to use."
    )


def warnings_of(config: RunConfig) -> list[str]:
    """What the config asks for and does not get, one sentence each."""
    warnings = [
        f"training.{name}: {words}"
        for name, words in NOT_BUILT_YET.items()
        if getattr(config.training, name, None) not in {None, False}
    ]
    if words := idle_gpus(config):
        warnings.append(words)
    return warnings

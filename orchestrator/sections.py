"""The sections of `cluster_config.json` that are not the trainer's: their fields, and what each may hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from anchorleg.places import user_path
from orchestrator.errors import FieldError
from orchestrator.notation import format_duration, parse_duration_s

#: sbatch splits its lines at white space, and a newline would begin a line of shell.
Word = Annotated[str, StringConstraints(pattern=r"^[^\s'\"\\]+$")]


def _walltime_s(value: Any) -> int:
    if (seconds := parse_duration_s(str(value))) is None:
        raise FieldError("config.no-time-limit")
    return seconds


#: Seconds; in a file as Slurm writes it.
Walltime = Annotated[
    int, BeforeValidator(_walltime_s), PlainSerializer(format_duration), WithJsonSchema({"type": "string"})
]


class Section(BaseModel):
    """Base of the config's sections: unknown fields are refused."""

    # An account called 123 is a name all the same.
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


def in_mb(mem: str | None) -> float:
    """As Slurm counts it; 0 for None."""
    number, unit = (mem or "0").rstrip("KMGT"), (mem or "0")[-1]
    return float(number) * {"K": 1 / 1024, "G": 1024, "T": 1024**2}.get(unit, 1)


def _sets(option: str, names: Sequence[str], letters: Sequence[str]) -> bool:
    """Whether an sbatch option is, or abbreviates, one of `names`, or is one of the `letters`."""
    name = re.split(r"[=\s]", option)[0]
    if not name.startswith("--"):
        return name[:2] in letters
    return len(name) > 2 and any(own.startswith(name) for own in names)


class AlternativeSection(Section):
    """Where else a job may start: fields that replace those of `slurm`. It goes where Slurm would start it first."""

    partition: Word | None = Field(None, description="As in slurm.")
    account: Word | None = Field(None, description="As in slurm.")
    qos: Word | None = Field(None, description="As in slurm.")
    constraint: Word | None = Field(None, description="As in slurm.")
    gpu_type: Word | None = Field(None, description="As in slurm.")
    mem: str | None = Field(None, pattern=r"^\d+[KMGT]?$", description="As in slurm.")
    time_limit: Walltime | None = Field(None, description="As in slurm.")

    @model_validator(mode="after")
    def _says_something(self) -> AlternativeSection:
        if not self.model_dump(exclude_none=True):
            raise FieldError("config.empty-alternative")
        return self


class SlurmSection(Section):
    """Resources and options of each Slurm job. Omitted fields use the site's defaults."""

    partition: Word | None = Field(None, description="Partition to submit to.")
    account: Word | None = Field(None, description="Account to charge.")
    qos: Word | None = Field(None, description="Quality of service (QOS) to request.")
    time_limit: Walltime = Field(
        "4:00:00", validate_default=True, description='Walltime of one job: "4:00:00", "1-12" or minutes.'
    )
    time_min: Walltime | None = Field(
        None, description="Shortest useful walltime; Slurm may shorten a job to it, to start it earlier."
    )
    cpus_per_task: int = Field(8, ge=1, description="CPU cores of a job, or of each rank if there are several.")
    nodes: int = Field(1, ge=1, le=256, description="Nodes of a job; ranks must be a multiple of it.")
    ranks: int = Field(
        1, ge=1, le=256, description="Processes that train a slot together in one job; must divide algorithm.shards."
    )
    gpus: int = Field(
        1, ge=0, description="GPUs per node of a job, also with executor local; each rank of the trainer uses one."
    )
    gpu_type: Word | None = Field(None, description='GPU type as in sinfo, for example "a100".')
    mem: str | None = Field(None, pattern=r"^\d+[KMGT]?$", description='Memory of a job, for example "32G".')
    constraint: Word | None = Field(None, description="Required node features.")
    exclude: Word | None = Field(None, description="Nodes to avoid.")
    max_jobs: int | None = Field(None, ge=1, description="Maximum number of your jobs at once, including other work.")
    clusters: list[Annotated[str, StringConstraints(pattern=r"^[\w-]+$")]] = Field(
        [], max_length=8, description="Clusters of the site that jobs may go to, to the one that starts them first."
    )
    alternatives: list[AlternativeSection] = Field(
        [],
        max_length=8,
        description="Places for the same jobs, each with its own partition, account, qos, constraint, gpu_type, mem or"
        " time_limit. Jobs go where they start first.",
    )
    slots_per_job: int = Field(1, ge=1, le=64, description="Slots that share one job, with its cores, GPUs and memory.")
    setup: list[str] = Field([], description='Shell lines to run first in the job, for example "module load cuda".')
    extra: list[str] = Field([], description='Additional sbatch options, for example "--mail-type=FAIL".')

    @model_validator(mode="after")
    def _consistent(self) -> SlurmSection:
        if self.time_min is not None and self.time_min > self.time_limit:
            raise FieldError("config.time-min-too-long", limit=format_duration(self.time_limit))
        if self.ranks % self.nodes:
            raise FieldError("config.ranks-and-nodes", ranks=self.ranks, nodes=self.nodes)
        if self.slots_per_job > 1 and self.nodes * self.ranks > 1:
            raise FieldError("config.packed-ranks")
        for option in self.extra if self.ranks > 1 else ():
            if _sets(option, ("--nodes", "--ntasks", "--ntasks-per-node"), ("-n", "-N")):
                raise FieldError("config.sbatch-option-of-ranks", option=option)
        return self

    @property
    def places(self) -> tuple[SlurmSection, ...]:
        """It, and it with each alternative's fields."""
        others = ({name: getattr(one, name) for name in one.model_fields_set} for one in self.alternatives)
        return (self, *(self.model_copy(update=fields) for fields in others))

    @property
    def memory_mb(self) -> float:
        """`mem` in MB; 0 where it is left to the site, or all of a node is asked for."""
        return in_mb(self.mem)

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes that no job may have, as `exclude` and `extra` name them."""
        found = (re.fullmatch(r"(?:--exclude[=\s]|-x)\s*(.+)", option) for option in self.extra)
        return (*((self.exclude,) if self.exclude else ()), *(one[1] for one in found if one))

    @field_validator("extra")
    @classmethod
    def _extra(cls, value: list[str]) -> list[str]:
        ours = (
            "--test-only", "--wait", "--time", "--signal", "--chdir", "--output", "--error", "--job-name", "--requeue",
            "--no-requeue", "--array", "--clusters",
        )  # fmt: skip
        for option in value:
            if not option.startswith("-"):
                raise FieldError("config.sbatch-option-form", option=option)
            if _sets(option, ours, ("-D", "-J", "-M", "-W", "-a", "-e", "-o", "-t")):
                raise FieldError("config.sbatch-option-of-ours", option=option)
            if "\n" in option:
                raise FieldError("config.sbatch-option-lines")
        return value


class ContainerSection(Section):
    """Run jobs inside a container image."""

    image: str = Field(
        description="Image file (apptainer, singularity), folder (ch-run), or what podman or enroot know it by."
    )
    runtime: Literal["apptainer", "singularity", "ch-run", "podman", "pyxis"] = Field(
        "apptainer", description="Container runtime; ch-run: Charliecloud, pyxis: srun --container-image."
    )
    binds: list[str] = Field([], description='Folders to mount: "/scratch" or "/host/path:/inside".')
    python: str = Field("python3", description="Python inside the image, for the default command.")
    options: list[str] = Field([], description='Additional options of the runtime, for example "--cleanenv".')

    @property
    def is_file(self) -> bool:
        """Whether the image is a file or folder, and not a name that the runtime knows."""
        return self.runtime not in {"podman", "pyxis"}

    def for_job(self, folder: Path, slurm: SlurmSection) -> dict[str, Any]:
        """What `jobside.container_command` needs. `folder`: the config's, to which the image's path is relative."""
        image = str(folder / user_path(self.image)) if self.is_file else self.image
        return {**self.model_dump(), "image": image, "gpus": slurm.gpus, "cpus": slurm.cpus_per_task}


class CodeSection(Section):
    """Your own program's code, for `command`."""

    snapshot: bool | str = Field(
        False,
        description='Jobs run a copy taken at the first start: true: of this file\'s folder, "git": of the last commit,'
        " or another folder.",
    )


class CollaborationSection(Section):
    """Sharing with other machines. Policies are always published; experience is accepted if `enabled`."""

    enabled: bool = Field(False, description="Accept experience from laptops.")
    shared_dir: str | None = Field(
        None,
        pattern=r"^[^\x00]+$",
        description="Folder that laptops use, relative to this file; default: shared/ in the run folder.",
    )
    group: str | None = Field(
        None,
        pattern=r"^[^\s:/]+$",
        description="Unix group whose accounts may read the shared folder and contribute with their own quota.",
    )
    rows_per_day: int | None = Field(
        None, ge=1, le=10**12, description="Maximum steps per contributor and day (UTC); null: no limit."
    )
    oldest_client: str | None = Field(
        None,
        pattern=r"^\d{1,6}(\.\d{1,6}){0,3}$",
        description="Oldest Anchorleg version whose experience is accepted, such as 0.2; null: any.",
    )


class ActorsSection(Section):
    """For `"role": "actors"`: jobs that play for another account's training and contribute experience."""

    shared_dir: str = Field(
        pattern=r"^[^\x00]+$", description="The training's shared folder, relative to this file; ask its owner."
    )
    run: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}(/\d{1,6})?$",
        description="RUN or RUN/SLOT to play for; default: the slot that needs experience most.",
    )
    num_envs: int | None = Field(
        None, ge=1, le=4096, description="Environments per job; default: two per requested CPU core."
    )


class EscalateSection(Section):
    """What a slot may ask for after a job that ran out of it. Omitted fields stay as in `slurm`."""

    mem: str | None = Field(
        None, pattern=r"^\d+[KMGT]?$", description="Maximum memory: out of memory, the next job gets 1.5 times as much."
    )
    time_limit: Walltime | None = Field(
        None,
        description="Maximum walltime: killed at its walltime with nothing saved, the next job gets twice as much.",
    )

    @property
    def memory_mb(self) -> float:
        """`mem` in MB."""
        return in_mb(self.mem)


class RelaySection(Section):
    """How a slot continues from job to job, also after failures."""

    queue_ahead: bool = Field(False, description="Queue each next job behind the running one; needs two jobs per slot.")
    keep_checkpoints: int | None = Field(
        None, ge=1, description="Newest checkpoints of your own program to keep; null: all. See docs/programs.md."
    )
    failover_tick: bool = Field(
        True, description="Let a Slurm job that ends without a live controller run one tick itself."
    )
    preemption_notice: Literal["none", "aws", "gcp", "auto"] = Field(
        "none",
        description="Cloud whose preemption notice makes local jobs save and end (auto: AWS or Google). See "
        "docs/cluster.md.",
    )
    failure_budget: int = Field(
        6, ge=1, description="Failures in a row without a new checkpoint after which a slot stops."
    )
    retry_delays_seconds: list[Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)]] = Field(
        [0, 60, 900, 1800, 3600],
        min_length=1,
        description="Wait after the 1st, 2nd, ... failure in a row (then the last value); a new checkpoint resets"
        " the count.",
    )
    escalate: EscalateSection = Field(
        EscalateSection(), description="Ask for more memory or time after a job that ran out of it."
    )
    stall_seconds: float = Field(
        600,
        ge=1,
        allow_inf_nan=False,
        description="Restart a program whose reports stop for this long and for 5 times their usual interval.",
    )


class HalvingSection(Section):
    """Successive halving: experiments pause at rungs, and the best of each rung continue (ASHA, arXiv 1810.05934)."""

    first_steps: int = Field(ge=1, description="Steps of the first rung; each later one has `factor` times as many.")
    factor: int = Field(3, ge=2, le=100, description="One in this many experiments continues beyond a rung.")


class QueueSection(Section):
    """Which slot gets the next free job if there are more slots than jobs. No running job is stopped for it."""

    order: Literal["fair", "priority", "in turn"] = Field(
        "fair", description="fair: least training time first; priority: highest first, then fair; in turn: as written."
    )
    metric: str | None = Field(
        None,
        min_length=1,
        description='Reported metric that ranks experiments by its best value, for example "success".',
    )
    goal: Literal["max", "min"] = Field("max", description="Whether a higher or lower metric is better.")
    halving: HalvingSection | None = Field(None, description="Stop the worst experiments early.")
    probe_first: bool = Field(
        False, description="Start one slot, and the others once it has done 20 steps (start --probe-first)."
    )

    @model_validator(mode="after")
    def _halving_has_a_metric(self) -> QueueSection:
        if self.halving is not None and self.metric is None:
            raise FieldError("config.halving-without-metric")
        return self

"""The sections of `cluster_config.json` that are not the trainer's: their fields, and what each may hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
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

from orchestrator.errors import FieldError
from orchestrator.notation import format_duration, parse_duration_s

#: sbatch splits its lines at white space, and a newline would begin a line of shell.
Word = Annotated[str, StringConstraints(pattern=r"^[^\s'\"\\]+$")]


def _walltime_s(value: Any) -> int:
    seconds = parse_duration_s(str(value))
    if seconds is None:
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


def _sets(option: str, names: Sequence[str], letters: Sequence[str]) -> bool:
    """Whether an sbatch option is, or abbreviates, one of `names`, or is one of the `letters`."""
    name = re.split(r"[=\s]", option)[0]
    if not name.startswith("--"):
        return name[:2] in letters
    return len(name) > 2 and any(own.startswith(name) for own in names)


class SlurmSection(Section):
    """What to ask of Slurm for each job. Empty fields are left to the site's defaults."""

    partition: Word | None = Field(None, description="Partition to submit to.")
    account: Word | None = Field(None, description="Account to charge.")
    qos: Word | None = Field(None, description="Quality of service.")
    time_limit: Walltime = Field(
        "4:00:00", validate_default=True, description='Walltime of one job: "4:00:00", "1-12" or minutes.'
    )
    cpus_per_task: int = Field(
        8, ge=1, description="CPU cores of a job; of each of its ranks, where there are several."
    )
    nodes: int = Field(1, ge=1, le=256, description="Nodes of a job; ranks must be a multiple.")
    ranks: int = Field(
        1, ge=1, le=256, description="Processes of a job that train its slot together; algorithm.shards must fit."
    )
    gpus: int = Field(
        1,
        ge=0,
        description="GPUs of a job on each node, on this machine too; each rank of the trainer uses one.",
    )
    gpu_type: Word | None = Field(None, description='GPU type as in sinfo, for example "a100".')
    mem: str | None = Field(None, pattern=r"^\d+[KMGT]?$", description='Memory of a job, for example "32G".')
    constraint: Word | None = Field(None, description="Node features.")
    exclude: Word | None = Field(None, description="Nodes not to use.")
    max_jobs: int | None = Field(None, ge=1, description="Most jobs of the user at once, other work included.")
    setup: list[str] = Field([], description='Shell lines before the job, for example "module load cuda".')
    extra: list[str] = Field([], description='Further sbatch options, for example "--mail-type=FAIL".')

    @model_validator(mode="after")
    def _every_node_has_as_many_ranks(self) -> SlurmSection:
        if self.ranks % self.nodes:
            raise FieldError("config.ranks-and-nodes", ranks=self.ranks, nodes=self.nodes)
        for option in self.extra if self.ranks > 1 else ():
            if _sets(option, ("--nodes", "--ntasks", "--ntasks-per-node"), ("-n", "-N")):
                raise FieldError("config.sbatch-option-of-ranks", option=option)
        return self

    @property
    def memory_mb(self) -> float:
        """`mem` in MB, as Slurm counts it; 0 where it is left to the site, or all of a node is asked for."""
        number, unit = (self.mem or "0").rstrip("KMGT"), (self.mem or "0")[-1]
        return float(number) * {"K": 1 / 1024, "G": 1024, "T": 1024**2}.get(unit, 1)

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes that no job may have, as `exclude` and `extra` name them."""
        found = (re.fullmatch(r"(?:--exclude[=\s]|-x)\s*(.+)", option) for option in self.extra)
        return (*((self.exclude,) if self.exclude else ()), *(one[1] for one in found if one))

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
                raise FieldError("config.sbatch-option-form", option=option)
            if _sets(option, ours, ("-D", "-J", "-M", "-W", "-a", "-e", "-o", "-t")):
                raise FieldError("config.sbatch-option-of-ours", option=option)
            if "\n" in option:
                raise FieldError("config.sbatch-option-lines")
        return value


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
    group: str | None = Field(
        None,
        pattern=r"^[^\s:/]+$",
        description="Unix group whose accounts may play for this run with their own quota; it reads the shared folder.",
    )
    rows_per_day: int | None = Field(
        None, ge=1, le=10**12, description="Steps that one contributor may give the run a day (UTC); null: no limit."
    )
    oldest_client: str | None = Field(
        None,
        pattern=r"^\d{1,6}(\.\d{1,6}){0,3}$",
        description="First version of Anchorleg whose experience is taken, such as 0.2; null: any.",
    )


class ActorsSection(Section):
    """With `"role": "actors"`: jobs that play for somebody else's training and hand in what they experience."""

    shared_dir: str = Field(
        pattern=r"^[^\x00]+$", description="The training's shared folder, relative to this file. Ask its owner for it."
    )
    run: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}(/\d{1,6})?$",
        description="RUN or RUN/SLOT to play for; default: whatever slot in the folder needs it most.",
    )
    num_envs: int | None = Field(
        None, ge=1, le=4096, description="Environments of a job; default: two for each CPU core that it asks for."
    )


class RelaySection(Section):
    """How a slot goes from one job to the next, and what happens after failures."""

    queue_ahead: bool = Field(
        False, description="Queue each next job behind the running one. It takes two jobs a slot."
    )
    keep_checkpoints: int | None = Field(
        None, ge=1, description="Newest checkpoints of your own program that stay; null: all. See docs/programs.md."
    )
    failover_tick: bool = Field(
        True, description="A Slurm job that ends while no controller is alive runs one tick itself."
    )
    preemption_notice: Literal["none", "aws", "gcp", "auto"] = Field(
        "none",
        description="Whose notice that this machine is taken away has every local job save and end; auto: AWS's or "
        "Google's, whichever answers. Needs executor local. See docs/cluster.md.",
    )
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


class HalvingSection(Section):
    """Successive halving: experiments stop at rungs, and the best of each rung go on (ASHA, arXiv 1810.05934)."""

    first_steps: int = Field(ge=1, description="Steps to the first rung; each further one is `factor` times as far.")
    factor: int = Field(3, ge=2, le=100, description="Of so many experiments at a rung, one goes on.")


class QueueSection(Section):
    """Which slot gets the next free job, where there are more slots than jobs. No running job is stopped for it."""

    order: Literal["fair", "priority", "in turn"] = Field(
        "fair", description="fair: who has worked least; priority: the largest, then fair; in turn: as written."
    )
    metric: str | None = Field(
        None, min_length=1, description='What the programs report beside "step", for example "success": best so far.'
    )
    goal: Literal["max", "min"] = Field("max", description="Whether more or less of the metric is better.")
    halving: HalvingSection | None = Field(None, description="Stop experiments early that fall behind.")

    @model_validator(mode="after")
    def _halving_has_a_metric(self) -> QueueSection:
        if self.halving is not None and self.metric is None:
            raise FieldError("config.halving-without-metric")
        return self

"""What was found, before anybody judges it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from anchorleg.disks import DiskQuota
from orchestrator.config import RunConfig
from orchestrator.executors.base import Frozen
from orchestrator.executors.site import Answered, Command, SubmitCheck
from orchestrator.executors.site_text import SiteLimits, SiteSettings
from orchestrator.executors.slurm_text import Partition

#: What a probe wrote on its node.
Report = Mapping[str, Any]


def section(report: Report, name: str) -> Report:
    """One look's result; empty where there is none."""
    found = report.get(name)
    return found if isinstance(found, dict) else {}


class ProbeStep(Frozen):
    """One thing tried on the shared folder. `error` empty: it worked."""

    name: str
    seconds: float = 0.0
    error: str = ""


class FolderFacts(Frozen):
    """The folder that is to hold the run. Sizes in bytes; skew in seconds, its clock minus ours; None: not told."""

    path: str
    kind: str = ""
    steps: tuple[ProbeStep, ...] = ()
    free_bytes: int | None = None
    free_files: int | None = None
    skew_s: float | None = None


class SlurmFacts(Frozen):
    """What Slurm said. Texts are the reason where there is no answer. `conf_missing`: what SLURM_CONF names in vain."""

    commands: tuple[Command, ...]
    conf_missing: str = ""
    answered: Answered | None = None
    settings: SiteSettings | str = ""
    skew_s: float | None = None
    accounting: str = ""
    accounting_words: str = ""
    partitions: tuple[Partition, ...] | str = ""
    limits: SiteLimits = SiteLimits(told=False)
    trial: SubmitCheck | None = None
    queue_error: str = ""
    live_jobs: int | None = None


class PythonFacts(Frozen):
    """The compute side's interpreter, as the login node sees it. `version` empty: it could not be run, see `words`."""

    command: str
    version: str = ""
    shim_ok: bool = False
    words: str = ""


class HostFacts(Frozen):
    """This machine as a home for a controller. None: cannot be told."""

    systemd: bool = False
    lingers: bool | None = None
    kills_user_processes: bool | None = None
    cpu_limit_s: int | None = None
    open_files: int | None = None
    in_job: str = ""


class Missing(Frozen):
    """A file that the config names, in which field, and that is not there as seen from this machine."""

    field: str
    path: str


class RunFacts(Frozen):
    """The run, where there is one. `controller` empty: nobody looks after it.

    `damage`: what of its files cannot be read, and what to do.
    """

    begun: bool = False
    damage: str = ""
    controller: str = ""
    wish: str = ""


class LoginFacts(Frozen):
    """Everything gathered on the login node. `slurm` None: the executor is local, and `gpus` are this machine's.

    `sharing`: what keeps accounts from working together, "found. advice." each; `gpus_in_vain`: why jobs cannot use the
    GPUs that they ask for, "found; advice".
    """

    config: RunConfig
    config_known: bool
    executor: str
    folder: FolderFacts
    quotas: tuple[DiskQuota, ...] = ()
    slurm: SlurmFacts | None = None
    python: PythonFacts
    missing: tuple[Missing, ...] = ()
    sharing: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    gpus_in_vain: str = ""
    host: HostFacts = HostFacts()
    run: RunFacts = RunFacts()


class ProbeResult(Frozen):
    """What came of a probe. `report`: the job's own file, as far as it got; `error`: why there is none or half of one.

    Delays in seconds: `visible_s` from a write on one side to its sight on the other, there and back;
    `skew_s`: the node's clock minus ours.
    """

    job_id: str = ""
    pending_s: float | None = None
    limit_s: float = 0.0
    lead_s: float = 0.0
    report: dict[str, Any] = Field(default_factory=dict)
    visible_s: tuple[float, ...] = ()
    skew_s: float | None = None
    error: str = ""
    output: str = ""

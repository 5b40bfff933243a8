"""What Slurm says about itself and about a user's limits, read. Pure: text in, facts out."""

from __future__ import annotations

import re
import time
from typing import Literal

from orchestrator.executors.base import Frozen
from orchestrator.executors.slurm_text import UnreadableError, told_duration_s

#: `sacctmgr show assoc format=` (sacctmgr(1)): who, then limits on jobs that run and that wait or run.
ASSOC_FORMAT = "Account,Partition,QOS,DefaultQOS,MaxJobs,MaxSubmit,MaxWall"
#: `sacctmgr show qos format=`: limits a user.
QOS_FORMAT = "Name,MaxJobsPU,MaxSubmitPU,MaxWall"

_SETTING = re.compile(r"^(\w+(?:\[\d+\])?)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_AS_OF = re.compile(r"^Configuration data as of (\d{1,12})\s*$", re.MULTILINE)
_SECONDS = re.compile(r"(\d+)(?: sec)?")
#: A time as SLURM_TIME_FORMAT=%s has it: no count of anything else is that long.
_MOMENT = re.compile(r"\b1\d{9}\b")
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


class SiteLimits(Frozen):
    """What a user may have: `running` jobs, `submitted` ones (running and waiting), `wall_s` for each; None: no limit.

    `told` False: this site does not say; the limits show in sbatch's refusals only.
    """

    told: bool
    running: int | None = None
    submitted: int | None = None
    wall_s: int | None = None
    why: str = ""


class SiteSettings(Frozen):
    """`scontrol show config`. `as_of`: unix seconds on slurmctld's clock."""

    values: dict[str, str]
    as_of: float | None = None

    def text(self, name: str) -> str:
        """A setting as Slurm prints it; empty where it is not told or null."""
        value = self.values.get(name, "")
        return "" if value == "(null)" else value

    def seconds(self, name: str) -> float | None:
        """A setting that counts seconds; None where it is not told or has no end."""
        match = _SECONDS.fullmatch(self.text(name))
        return float(match[1]) if match else None


def parse_settings(text: str) -> SiteSettings:
    """Errors: UnreadableError where it is no configuration at all."""
    values = dict(_SETTING.findall(text))
    if not values:
        raise UnreadableError(f"scontrol printed no setting: {text[:80]!r}")
    as_of = _AS_OF.search(text)
    return SiteSettings(values=values, as_of=float(as_of[1]) if as_of else None)


def parse_version(text: str) -> str:
    """`22.05.8` from "slurm-wlm 22.05.8" or "slurm 24.11.0-1"; empty where there is none."""
    match = _VERSION.search(text)
    return match[0] if match else ""


def is_older(version: str, than: tuple[int, int]) -> bool:
    """Whether a version is certainly before `than` (major, minor)."""
    match = _VERSION.match(version)
    return match is not None and (int(match[1]), int(match[2])) < than


def parse_limits(
    assoc: str, qos: str, account: str | None, partition: str | None, wanted_qos: str | None
) -> SiteLimits:
    """The strictest limits on one user's jobs, from `sacctmgr -nP show` of ASSOC_FORMAT and QOS_FORMAT.

    An association of another account or partition does not count. Without a wanted QOS the default one counts.
    """
    running: list[int] = []
    submitted: list[int] = []
    walls: list[int | None] = []
    qos_names = {wanted_qos} if wanted_qos else set()
    seen = False
    for line in assoc.splitlines():
        fields = line.split("|")
        if len(fields) != ASSOC_FORMAT.count(",") + 1:
            raise UnreadableError(f"sacctmgr printed a line that is none of its columns: {line!r}")
        of_account, of_partition, every_qos, default_qos, most_running, most_submitted, longest = fields
        if (account and of_account != account) or (of_partition and partition and of_partition != partition):
            continue
        seen = True
        running += _numbers(most_running)
        submitted += _numbers(most_submitted)
        walls.append(told_duration_s(longest))
        if not wanted_qos:
            only = every_qos if "," not in every_qos else ""
            qos_names |= {default_qos or only} - {""}
    if not seen:
        return SiteLimits(told=False, why="it shows no association of yours")
    for line in qos.splitlines():
        fields = line.split("|")
        if len(fields) == QOS_FORMAT.count(",") + 1 and fields[0] in qos_names:
            running += _numbers(fields[1])
            submitted += _numbers(fields[2])
            walls.append(told_duration_s(fields[3]))
    least = [min(found, default=None) for found in (running, submitted, [wall for wall in walls if wall is not None])]
    return SiteLimits(told=True, running=least[0], submitted=least[1], wall_s=least[2])


def ping_says(returncode: int, stdout: str) -> Literal["up", "down"]:
    """`scontrol ping`: a primary or backup controller that is up will do."""
    return "up" if returncode == 0 and re.search(r"\bis UP\b", stdout) else "down"


def with_readable_times(words: str) -> str:
    """Slurm's words with unix seconds as the local time of day."""
    return _MOMENT.sub(lambda match: time.strftime("%Y-%m-%d %H:%M", time.localtime(int(match[0]))), words)


def _numbers(text: str) -> list[int]:
    return [int(text)] if text.isdigit() else []

"""What Slurm says about itself and about a user's limits, read. Pure: text in, facts out."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
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


#: On jobs that run, on those submitted, and on walltime (seconds); None: no limit.
_Limits = tuple[int | None, int | None, int | None]


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
    """The limits on one user's jobs, from `sacctmgr -nP show` of ASSOC_FORMAT and QOS_FORMAT.

    Of each limit the QOS's holds where it has one, else the association's (slurm.schedmd.com/resource_limits.html).
    An association of another account or partition does not count; of several of one account the strictest does. Without
    an account it is not known which of the user's is charged: of each limit that account's counts which allows most.
    Without a wanted QOS the default one counts.
    """
    qos_rows = [line.split("|") for line in qos.splitlines() if line.count("|") == QOS_FORMAT.count(",")]
    of_accounts: dict[str, list[_Limits]] = {}
    for line in assoc.splitlines():
        fields = line.split("|")
        if len(fields) != ASSOC_FORMAT.count(",") + 1:
            continue  # of a site's wrapper
        of_account, of_partition, every_qos, default_qos, *limits = fields
        is_other = of_partition and partition and of_partition not in partition.split(",")
        if is_other or (account and of_account != account):
            continue
        name = wanted_qos or default_qos or (every_qos if "," not in every_qos else "")
        of_qos: _Limits = next((_limits(row[1:]) for row in qos_rows if name and row[0] == name), (None, None, None))
        holds = [own if first is None else first for first, own in zip(of_qos, _limits(limits), strict=True)]
        of_accounts.setdefault(of_account, []).append((holds[0], holds[1], holds[2]))
    if not of_accounts:
        return SiteLimits(told=False, why="it shows no association of yours")
    running, submitted, wall_s = (_most(found) for found in zip(*map(_least, of_accounts.values()), strict=True))
    return SiteLimits(told=True, running=running, submitted=submitted, wall_s=wall_s)


def _limits(fields: Sequence[str]) -> _Limits:
    running, submitted, longest = fields
    return _number(running), _number(submitted), told_duration_s(longest)


def _least(found: Sequence[_Limits]) -> tuple[int | None, ...]:
    return tuple(min((one for one in limits if one is not None), default=None) for limits in zip(*found, strict=True))


def _most(limits: Sequence[int | None]) -> int | None:
    told = [limit for limit in limits if limit is not None]
    return max(told) if len(told) == len(limits) else None


def ping_says(returncode: int, stdout: str) -> Literal["up", "down"]:
    """`scontrol ping`: a primary or backup controller that is up will do."""
    return "up" if returncode == 0 and re.search(r"\bis UP\b", stdout) else "down"


def with_readable_times(words: str) -> str:
    """Slurm's words with unix seconds as the local time of day."""
    return _MOMENT.sub(lambda match: time.strftime("%Y-%m-%d %H:%M", time.localtime(int(match[0]))), words)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None

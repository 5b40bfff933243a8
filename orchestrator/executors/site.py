"""What a Slurm site allows one user, asked once for `orchestrator doctor`. A refused answer is a fact, no exception."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.executors.base import Frozen, SubmitOutcome, Uncertain
from orchestrator.executors.slurm import Answer, NoAnswer, folder_options, on_clusters, run_command, scrubbed
from orchestrator.executors.slurm_text import own_words, possible_ids, read_submission, told_duration_s

#: A person waits for each answer. Slurm's own patience is MessageTimeout, 10 s by default.
QUESTION_TIMEOUT_S = 20.0
#: `sacctmgr show assoc format=` (sacctmgr(1)): who, then limits on jobs that run and that wait or run.
ASSOC_FORMAT = "Account,Partition,QOS,DefaultQOS,MaxJobs,MaxSubmit,MaxWall"
#: `sacctmgr show qos format=`: limits a user.
QOS_FORMAT = "Name,MaxJobsPU,MaxSubmitPU,MaxWall"

#: On jobs that run, on those submitted, and on walltime (seconds); None: no limit.
_Limits = tuple[int | None, int | None, int | None]


class SiteLimits(Frozen):
    """At most so many `running` jobs, `submitted` ones, `wall_s` for each; None: no limit. `told`: the site says so."""

    told: bool
    running: int | None = None
    submitted: int | None = None
    wall_s: int | None = None
    why: str = ""


class SubmitCheck(Frozen):
    """What Slurm would do with a script. `outcome` None: it would take it; `words`: when and where it would begin."""

    outcome: SubmitOutcome | None
    words: str


class Site:
    """One user's view of a site, with the controller's `env`. Limits are those of the first of `clusters`."""

    def __init__(self, env: Mapping[str, str], clusters: Sequence[str] = ()) -> None:
        self._clusters = clusters
        self._env = {**scrubbed(env), "LC_ALL": "C"}  # a person reads the times

    def ping(self) -> tuple[bool, str]:
        """(whether slurmctld or its backup answers, Slurm's words). Unlike other commands it needs 20 ms to say no."""
        answer = self._ask(["scontrol", "ping"])
        if isinstance(answer, NoAnswer):
            return False, answer.why
        is_up = answer.returncode == 0 and re.search(r"\bis UP\b", answer.stdout) is not None
        return is_up, own_words(answer.stdout) or own_words(answer.stderr)

    def limits(self, account: str | None, partition: str | None, qos: str | None) -> SiteLimits:
        """How many jobs the user may have on this cluster, from sacctmgr. Many sites do not say."""
        settings = self._ask(["scontrol", *on_clusters(self._clusters[:1]), "show", "config"])
        told = "" if isinstance(settings, NoAnswer) else settings.stdout
        cluster = re.search(r"^ClusterName\s*=\s*(\S+)", told, re.MULTILINE)
        user = [f"user={pwd.getpwuid(os.getuid()).pw_name}", *([f"cluster={cluster[1]}"] if cluster else [])]
        texts = []
        for asked in (
            ["sacctmgr", "-nP", "show", "assoc", *user, f"format={ASSOC_FORMAT}"],
            ["sacctmgr", "-nP", "show", "qos", f"format={QOS_FORMAT}"],
        ):
            answer = self._ask(asked)
            if isinstance(answer, NoAnswer):
                return SiteLimits(told=False, why=answer.why)
            if answer.returncode != 0:
                words = own_words(answer.stderr) or own_words(answer.stdout)
                if "accounting_storage plugin" in words:
                    words = "this site keeps no accounts"
                return SiteLimits(told=False, why=words or f"sacctmgr ended with {answer.returncode}")
            texts.append(answer.stdout)
        return parse_limits(texts[0], texts[1], account, partition, qos)

    def would_take(self, script: Path) -> SubmitCheck:
        """`sbatch --test-only`: all of Slurm's checks of a job script, and no job (a job id is used up)."""
        options = [*on_clusters(self._clusters), "--test-only", *folder_options(str(script.parent))]
        answer = self._ask(["sbatch", *options, str(script)])
        if isinstance(answer, NoAnswer):
            return SubmitCheck(outcome=Uncertain(why=answer.why), words=answer.why)
        words = own_words(answer.stderr) or own_words(answer.stdout)
        if answer.returncode == 0 and not possible_ids(answer.stdout):
            return SubmitCheck(outcome=None, words=words)
        if answer.returncode == 0:  # sbatch itself prints no id here
            why = f"a wrapper prints numbers that look like a job's id: {own_words(answer.stdout)}"
            return SubmitCheck(outcome=Uncertain(why=why), words=why)
        # It says "allocation failure: <sentence>" where a submission says "Batch job submission failed: <sentence>".
        return SubmitCheck(outcome=read_submission(answer.returncode, "", answer.stderr), words=words)

    def _ask(self, command: list[str]) -> Answer:
        return run_command(command, self._env, QUESTION_TIMEOUT_S)


def parse_limits(
    assoc: str, qos: str, account: str | None, partition: str | None, wanted_qos: str | None
) -> SiteLimits:
    """The limits on one user's jobs, from `sacctmgr -nP show` of ASSOC_FORMAT and QOS_FORMAT.

    Of each limit the QOS's (wanted, else default) holds where it has one, else the association's
    (slurm.schedmd.com/resource_limits.html). Associations of other accounts or partitions do not count; of several of
    one account the strictest does. Without an account nobody knows which is charged: the one counts that allows most.
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
        return SiteLimits(told=False, why="it shows no association for you")
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


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None

"""What a Slurm site offers and allows, asked once for `orchestrator doctor`. Jobs are `orchestrator.executors.slurm`'s.

An answer that a site refuses is a fact ("not told"), never an exception.
"""

from __future__ import annotations

import os
import pwd
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.executors.base import Frozen, SubmitOutcome, Uncertain
from orchestrator.executors.site_text import (
    ASSOC_FORMAT,
    QOS_FORMAT,
    SiteLimits,
    SiteSettings,
    parse_limits,
    parse_settings,
    parse_version,
    ping_says,
    with_readable_times,
)
from orchestrator.executors.slurm import FOR_READING, NoAnswer, folder_options, run_command, scrubbed
from orchestrator.executors.slurm_text import UnreadableError, own_words, possible_ids, read_submission

#: `orchestrator` uses these; sacct may be missing (a site without history is a supported one).
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct")
#: A person waits for each answer. Slurm's own patience is MessageTimeout, 10 s by default.
QUESTION_TIMEOUT_S = 20.0


class Command(Frozen):
    """One of Slurm's commands here. `path` empty: it is not on PATH."""

    name: str
    path: str
    version: str = ""


class Answered(Frozen):
    """Whether slurmctld answers, and after how many seconds."""

    up: bool
    seconds: float
    words: str


class SubmitCheck(Frozen):
    """What Slurm would do with a script. `outcome` None: it would take it; `words`: when and where it would begin."""

    outcome: SubmitOutcome | None
    words: str


class Site:
    """One user's view of a Slurm site, with `env` (PATH, SLURM_CONF, …) as the controller's commands have it."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        timeout_s: float = QUESTION_TIMEOUT_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._env = {**scrubbed(env), **FOR_READING}
        self._timeout_s = timeout_s
        self._monotonic = monotonic

    def commands(self) -> tuple[Command, ...]:
        """Where Slurm's commands are and which version they have. Asks nothing of slurmctld."""
        found = []
        for name in COMMANDS:
            path = shutil.which(name, path=self._env.get("PATH")) or ""
            answer = run_command([name, "--version"], self._env, self._timeout_s) if path else None
            told = "" if answer is None or isinstance(answer, NoAnswer) else answer.stdout
            found.append(Command(name=name, path=path, version=parse_version(told)))
        return tuple(found)

    def ping(self) -> Answered:
        """`scontrol ping`: 20 ms where nothing listens, unlike every other command."""
        began = self._monotonic()
        answer = run_command(["scontrol", "ping"], self._env, self._timeout_s)
        seconds = self._monotonic() - began
        if isinstance(answer, NoAnswer):
            return Answered(up=False, seconds=seconds, words=answer.why)
        words = own_words(answer.stdout) or own_words(answer.stderr)
        return Answered(up=ping_says(answer.returncode, answer.stdout) == "up", seconds=seconds, words=words)

    def settings(self) -> SiteSettings | str:
        """`scontrol show config`, or why there is none."""
        answer = run_command(["scontrol", "show", "config"], self._env, self._timeout_s)
        if isinstance(answer, NoAnswer):
            return answer.why
        if answer.returncode != 0:
            return own_words(answer.stderr) or f"scontrol ended with {answer.returncode}"
        try:
            return parse_settings(answer.stdout)
        except UnreadableError as error:
            return str(error)

    def limits(self, cluster: str, account: str | None, partition: str | None, qos: str | None) -> SiteLimits:
        """How many jobs the user may have, from sacctmgr. Many sites do not say. `cluster` empty: any of the site's."""
        user = pwd.getpwuid(os.getuid()).pw_name
        here = [f"cluster={cluster}"] if cluster else []
        texts = []
        asked = (
            ["sacctmgr", "-nP", "show", "assoc", f"user={user}", *here, f"format={ASSOC_FORMAT}"],
            ["sacctmgr", "-nP", "show", "qos", f"format={QOS_FORMAT}"],
        )
        for command in asked:
            answer = run_command(command, self._env, self._timeout_s)
            if isinstance(answer, NoAnswer):
                return SiteLimits(told=False, why=answer.why)
            if answer.returncode != 0:
                words = own_words(answer.stderr) or own_words(answer.stdout)
                if "accounting_storage plugin" in words:
                    words = "this site keeps no accounts"
                return SiteLimits(told=False, why=words or f"sacctmgr ended with {answer.returncode}")
            texts.append(answer.stdout)
        try:
            return parse_limits(texts[0], texts[1], account, partition, qos)
        except UnreadableError as error:
            return SiteLimits(told=False, why=str(error))

    def would_take(self, script: Path) -> SubmitCheck:
        """`sbatch --test-only`: all of Slurm's checks of a job script, and no job (a job id is used up)."""
        command = ["sbatch", "--test-only", *folder_options(str(script.parent)), str(script)]
        answer = run_command(command, self._env, self._timeout_s)
        if isinstance(answer, NoAnswer):
            return SubmitCheck(outcome=Uncertain(why=answer.why), words=answer.why)
        words = own_words(answer.stderr) or own_words(answer.stdout)
        if answer.returncode == 0 and not possible_ids(answer.stdout):
            return SubmitCheck(outcome=None, words=with_readable_times(words))
        if answer.returncode == 0:  # sbatch itself prints no id here
            why = f"a wrapper prints numbers that look like a job's id: {own_words(answer.stdout)}"
            return SubmitCheck(outcome=Uncertain(why=why), words=why)
        # It says "allocation failure: <sentence>" where a submission says "Batch job submission failed: <sentence>".
        return SubmitCheck(outcome=read_submission(answer.returncode, "", answer.stderr), words=words)

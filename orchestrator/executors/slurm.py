"""Jobs on a Slurm cluster: all that the controller asks of Slurm, and all that it has it do. (`site` asks for `doctor`;
jobs ask in `jobside`, `doctor.probe` and `trainer.machine.launching`.)

It runs Slurm's own commands, as a user would: one `squeue` for everything (or for each cluster), one `sacct` only on
request. Every command has a time limit and an environment without the variables that would change what it prints. An
outage is an answer (`Poll.error`, `Accounting.status`, `Uncertain`), not an exception.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.disk import LOCAL_DISK
from orchestrator.executors.base import (
    TOKEN,
    Accounting,
    Frozen,
    JobRequest,
    JobRow,
    JobState,
    Poll,
    SubmitOutcome,
    SubmitRefused,
    Submitted,
    Uncertain,
    jobs_of_run,
)
from orchestrator.executors.slurm_text import (
    SACCT_OPTIONS,
    SINFO_OPTIONS,
    SQUEUE_OPTIONS,
    Partition,
    UnreadableError,
    cancel_complaint,
    expected_start,
    own_words,
    parse_min_job_age_s,
    parse_sacct,
    parse_sinfo,
    parse_squeue,
    read_submission,
)

#: Longer than Slurm's own patience (MessageTimeout, 10 s by default, repeated once); short beside the lease's TTL.
COMMAND_TIMEOUT_S = 45.0
#: A stopped controller works off its requests when it answers squeue again; a minute more is for the history's lag.
SUBMIT_GRACE_S = COMMAND_TIMEOUT_S + 60.0
#: slurm.conf(5), MinJobAge: its default; taken while the controller does not say.
DEFAULT_MIN_JOB_AGE_S = 300.0
#: What Slurm expects to start within this begins now: its main loop and a node's prolog take as long.
AT_ONCE_S = 60.0
#: Clocks of login node and controller differ, and the history rounds.
CLOCK_SLACK_S = 300.0
#: One request of scancel carries many ids; a command line has its limits.
IDS_A_COMMAND = 200
#: Variables that give Slurm's commands other defaults: output formats, filters, and our own job's id if we run in one.
_SPEAKING = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SCONTROL_", "SRUN_", "SALLOC_")


class Partitions(Frozen):
    """The answer to "what is there to ask for?". With `error` set it says nothing about the cluster."""

    rows: tuple[Partition, ...] = ()
    error: str | None = None


class NoAnswer(Frozen):
    """A command that gave no answer. `started` is False where it was certainly never run."""

    why: str
    started: bool


Answer = subprocess.CompletedProcess[str] | NoAnswer


class SlurmExecutor:
    """The jobs of one run, and of `user_id`, known by their work folder below `jobs_dir` (absolute). `clusters`: of a
    site with several, where jobs may go; a job's id names its cluster then, as sbatch does: `17;west`.
    """

    name = "slurm"
    queues_behind = True
    avoids_nodes = True
    submit_grace_s = SUBMIT_GRACE_S

    def __init__(
        self,
        jobs_dir: Path,
        env: Mapping[str, str],
        *,
        clusters: Sequence[str] = (),
        command_timeout_s: float = COMMAND_TIMEOUT_S,
        user_id: int | None = None,
    ) -> None:
        self.jobs_dir = jobs_dir
        # The job inherits what sbatch has: the user's own locale and time format.
        self._submit_env = scrubbed(env)
        # So that times are unix seconds and messages are the ones we know.
        self._env = {**self._submit_env, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        self._timeout_s = command_timeout_s
        self._clusters = tuple(clusters)
        self._user = str(os.getuid() if user_id is None else user_id)
        self._min_job_age_s: float | None = None

    def submit(self, request: JobRequest) -> SubmitOutcome:
        """`sbatch`, once. The work folder is the submission's name in the queue and in the history."""
        options, clusters = folder_options(request.job_dir), self._clusters
        if request.after:
            number, _, cluster = request.after.partition(";")
            options.append(f"--dependency=afterany:{number}")
            clusters = (cluster,) if cluster else clusters  # a job waits for one of its own cluster only
        if request.exclude:
            options.append(f"--exclude={','.join(request.exclude)}")
        place = self._soonest(request)
        options += request.places[place] if request.places else ()
        command = ["sbatch", *on_clusters(clusters), "--parsable", *options, request.script]
        answer = run_command(command, self._submit_env, self._timeout_s)
        if isinstance(answer, NoAnswer):
            if not answer.started:
                return SubmitRefused(kind="temporary", words=answer.why)
            return Uncertain(why=answer.why, silent=True)
        outcome = read_submission(answer.returncode, answer.stdout, answer.stderr)
        if not isinstance(outcome, Submitted):
            return outcome
        job_id = outcome.job_id if self._clusters else outcome.job_id.partition(";")[0]
        return outcome.model_copy(update={"place": place, "job_id": job_id})

    def is_free(self, request: JobRequest, place: int) -> bool:
        """Whether `sbatch --test-only` expects the job to begin at once in another of its places than `place`."""
        starts = (self._start_of(request, other) for other in range(len(request.places)) if other != place)
        return any(start is not None and start <= time.time() + AT_ONCE_S for start in starts)

    def _soonest(self, request: JobRequest) -> int:
        """The place where Slurm expects to start it first; of equal ones, and where it expects nothing, the first."""
        places = range(len(request.places)) if len(request.places) > 1 else range(0)
        starts = {place: start for place in places if (start := self._start_of(request, place)) is not None}
        soonest = min(starts.values(), default=0.0)
        return next((place for place, start in starts.items() if start <= soonest + AT_ONCE_S), 0)

    def _start_of(self, request: JobRequest, place: int) -> float | None:
        """When Slurm expects to start it there (unix seconds); None: never, or it does not say."""
        exclude = [f"--exclude={','.join(request.exclude)}"] if request.exclude else []
        options = [*folder_options(request.job_dir), *exclude, *request.places[place]]
        answer = self._run("sbatch", *on_clusters(self._clusters), "--test-only", *options, request.script)
        return None if isinstance(answer, NoAnswer) or answer.returncode != 0 else expected_start(answer.stderr)

    def poll(self) -> Poll:
        """One `squeue` for all jobs of the user: those that ended, and those in hidden or closed partitions, too."""
        asked_at = time.time()
        rows: list[JobRow] = []
        try:
            for cluster in self._clusters or ("",):
                answer = self._ask("squeue", cluster, "-a", "-r", "-t", "all", "-u", self._user, *SQUEUE_OPTIONS)
                # -a shows of a federation's jobs those, too, that began on another cluster: that is no end.
                found = (row for row in parse_squeue(_printed("squeue", answer)) if row.raw_state != "REVOKED")
                rows += (_on(row, cluster) for row in found)
        except UnreadableError as error:
            return Poll(at=asked_at, error=str(error))
        live = sum(row.state is not JobState.ENDED for row in rows)
        ours, elsewhere = self._ours(rows)
        others = live - sum(row.state is not JobState.ENDED for row in ours)
        return Poll(at=asked_at, rows=ours, others=others, elsewhere=elsewhere)

    def accounting(self, since: float) -> Accounting:
        """One `sacct`. A site without accounting, or without the command, is `disabled`."""
        asked_at = time.time()
        # Relative to the machine's own now: a time of day would be read in the reader's time zone.
        age_s = max(0, math.ceil(asked_at - since + CLOCK_SLACK_S))
        path = self._env.get("PATH")
        if shutil.which("sacct", path=path) is None and shutil.which("squeue", path=path) is not None:
            return Accounting(at=asked_at, status="disabled", error="there is no sacct on PATH")
        rows: list[JobRow] = []
        try:
            for cluster in self._clusters or ("",):
                answer = self._ask("sacct", cluster, "-X", "-u", self._user, "-S", f"now-{age_s}", *SACCT_OPTIONS)
                if not isinstance(answer, NoAnswer) and "accounting storage is disabled" in answer.stderr:
                    return Accounting(at=asked_at, status="disabled")
                rows += (_on(row, cluster) for row in parse_sacct(_printed("sacct", answer)))
        except UnreadableError as error:
            return Accounting(at=asked_at, status="blind", error=str(error))
        return Accounting(at=asked_at, status="ok", rows=self._ours(rows)[0])

    def wake(self, job_ids: list[str]) -> str | None:
        """SIGUSR2 to the batch process of each job that runs, and to nothing else of it."""
        # Without the state scancel asks again for a minute whether a waiting job can be signalled by now.
        return self._scancel(job_ids, "--signal=USR2", "--batch", "--state=RUNNING")

    def cancel(self, job_ids: list[str], *, waiting: bool = False) -> str | None:
        """SIGTERM to every process, SIGKILL after the site's KillWait; waiting jobs are taken out of the queue."""
        return self._scancel(job_ids, *(["--state=PENDING"] if waiting else []))

    def forget_after_s(self) -> float:
        """The site's MinJobAge, asked once; its default while a controller does not answer."""
        if self._min_job_age_s is None:
            found = []
            for cluster in self._clusters or ("",):
                answer = self._ask("scontrol", cluster, "show", "config")
                if isinstance(answer, NoAnswer) or answer.returncode != 0:
                    return DEFAULT_MIN_JOB_AGE_S
                # 0 means that nothing is ever purged; then the default is as safe as any other.
                found.append(parse_min_job_age_s(answer.stdout) or DEFAULT_MIN_JOB_AGE_S)
            self._min_job_age_s = max(found)
        return self._min_job_age_s

    def partitions(self, *, hidden: bool = True) -> Partitions:
        """What `sinfo` offers. `hidden`: also those that are hidden, or closed to the user's groups."""
        answer = self._run("sinfo", *on_clusters(self._clusters), *(["-a"] if hidden else []), "-e", *SINFO_OPTIONS)
        try:
            return Partitions(rows=parse_sinfo(_printed("sinfo", answer)))
        except UnreadableError as error:
            return Partitions(error=str(error))

    def _scancel(self, job_ids: Sequence[str], *options: str) -> str | None:
        complaints = []
        parts = [job_id.partition(";") for job_id in job_ids]
        for cluster in dict.fromkeys(part[2] for part in parts):
            ids = [part[0] for part in parts if part[2] == cluster]
            for first in range(0, len(ids), IDS_A_COMMAND):
                answer = self._ask("scancel", cluster, *options, *ids[first : first + IDS_A_COMMAND])
                if isinstance(answer, NoAnswer):
                    complaints.append(answer.why)
                    break  # the rest would wait as long each, and the lease must be kept; they are asked again
                if complaint := cancel_complaint(answer.stderr):
                    complaints.append(complaint)
        return "; ".join(complaints) or None

    def _ours(self, rows: Sequence[JobRow]) -> tuple[tuple[JobRow, ...], tuple[JobRow, ...]]:
        """The run's: those below `jobs_dir` by their path, and those by whose token a folder is there."""
        base, names, found = str(self.jobs_dir), None, []
        for row in rows:
            if row.work_dir.startswith(f"{base}/"):
                found.append((row, row.work_dir))
            elif TOKEN.match(name := row.work_dir.rstrip("/").rpartition("/")[2]):
                names = set(LOCAL_DISK.names(self.jobs_dir)) if names is None else names
                if name in names:
                    found.append((row, f"{base}/{name}"))
        return jobs_of_run(found)

    def _ask(self, program: str, cluster: str, *words: str) -> Answer:
        return self._run(program, *on_clusters([cluster] if cluster else []), *words)

    def _run(self, *command: str) -> Answer:
        return run_command(command, self._env, self._timeout_s)


def on_clusters(clusters: Sequence[str]) -> list[str]:
    """The option of each of Slurm's commands that names them; of several, sbatch takes the one that starts it first."""
    return ["-M", ",".join(clusters)] if clusters else []


def _on(row: JobRow, cluster: str) -> JobRow:
    return row.model_copy(update={"job_id": f"{row.job_id};{cluster}"}) if cluster else row


def folder_options(job_dir: str) -> list[str]:
    """Where a job works and writes. sbatch replaces `%` in a file's name, and in the folder before a relative one."""
    file = f"{job_dir.replace('%', '%%')}/job-%j"
    return [f"--chdir={job_dir}", f"--output={file}.out", f"--error={file}.err"]


def scrubbed(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without what would change the commands' answers, or what a job of ours asks for."""
    return {key: value for key, value in env.items() if key == "SLURM_CONF" or not key.startswith(_SPEAKING)}


def run_command(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Answer:
    """Run one command, in the folder of who started us (jobs know it as SLURM_SUBMIT_DIR), or in / where it is gone:
    sbatch refuses everything without one. At the time limit its children are killed, too: sites wrap Slurm's commands.
    """
    folder = None
    try:
        os.getcwd()
    except OSError:
        folder = "/"
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(env),
            executable=shutil.which(command[0], path=env.get("PATH")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return NoAnswer(why=f"{command[0]} could not be run: {error.strerror}", started=False)
    with child:
        try:
            stdout, stderr = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            _kill_group(child)
            # It may have said why it waits (a full controller makes sbatch try for ever).
            words = own_words((error.stderr or b"").decode(errors="replace"))
            why = f"{command[0]} did not answer within {timeout_s:g} s"
            return NoAnswer(why=f"{why}: {words}" if words else why, started=True)
        except BaseException:
            _kill_group(child)
            raise
    # Folders have any bytes in their names, and ours must be known again.
    out, words = stdout.decode("utf-8", "surrogateescape"), stderr.decode("utf-8", "replace")
    return subprocess.CompletedProcess(command, child.returncode, out, words)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)


def _printed(name: str, answer: Answer) -> str:
    """Errors: UnreadableError where the command failed, or gave no answer."""
    if isinstance(answer, NoAnswer):
        raise UnreadableError(answer.why)
    if answer.returncode != 0:
        raise UnreadableError(own_words(answer.stderr) or f"{name} ended with {answer.returncode} and no message")
    return answer.stdout

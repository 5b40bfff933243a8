"""What Slurm's commands print, read. Pure: text in, facts out.

Text with named columns only: `--json` ignores filters in versions that are still in use and changes its schema between
releases. The column that a user chooses freely (the work folder) comes last; it may hold `|` and even newlines.

A text that cannot be read is an `UnreadableError`, never an empty list: "nothing there" is a fact about jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from orchestrator.executors.base import Frozen, JobRow, JobState, SubmitOutcome, SubmitRefused, Submitted, Uncertain
from orchestrator.walltime import parse_duration_s

#: `squeue -o`: id, state, reason, partitions, node, submit, start, end, work folder (squeue(1)).
SQUEUE_FORMAT = "%A|%T|%r|%P|%N|%V|%S|%e|%Z"
#: `sacct -o` (sacct(1)).
SACCT_FORMAT = "JobIDRaw,State,ExitCode,NodeList,Submit,Start,End,WorkDir"
#: `sinfo -o`: partition, availability, longest walltime, nodes, CPUs, MB, GRES (sinfo(1)).
SINFO_FORMAT = "%P|%a|%l|%D|%c|%m|%G"

#: Sources: squeue(1), sacct(1) "JOB STATE CODES" and slurm.h up to 25.11. A name that is not here is UNKNOWN.
_STATES: Mapping[JobState, frozenset[str]] = {
    JobState.PENDING: frozenset({
        "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT",
    }),
    JobState.RUNNING: frozenset({"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"}),
    JobState.ENDING: frozenset({"COMPLETING", "STAGE_OUT"}),
    JobState.ENDED: frozenset({
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "REVOKED", "TIMEOUT",
    }),
}  # fmt: skip

_SQUEUE_LINE = re.compile(
    r"(\d{1,20})\|([A-Z_]+)\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|(.*)", re.DOTALL
)
_SACCT_LINE = re.compile(
    r"(\d{1,20})\|([A-Z_]+(?: by \d+)?)\|(\d{1,6}):(\d{1,6})\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|(.*)", re.DOTALL
)
_SINFO_LINE = re.compile(r"([^|]+)\|([^|]*)\|([^|]*)\|(\d{1,9})\|(\d{1,9})\+?\|(\d{1,12})\+?\|(.*)")
_JOB_ID = re.compile(r"(\d+)(?:;\S+)?")
_GPU = re.compile(r"gpu(?::([^:,()]+))?:(\d{1,9})(?:\([^)]*\))?(?=,|$)")
_SPEAKER = re.compile(r"^(?:sbatch|scancel|squeue|sacct|sinfo|scontrol|sacctmgr): (?:error: |fatal: )?")
_EPOCH = re.compile(r"\d{1,12}")

#: A program that died of a signal, as shells count it.
_SIGNAL_BASE = 128

#: The request may have reached the controller.
_NO_ANSWER = re.compile(
    r"timed out|\((?:send|receive|shutdown) failure\)|Zero Bytes were transmitted|[Uu]nexpected message", re.IGNORECASE
)
#: sbatch never got as far as asking, or the controller could not read who asks and did nothing.
_NOT_ASKED = re.compile(
    r"\(connect failure\)|configuration source|Munge encode failed|Protocol authentication error"
    r"|Invalid authentication credential"
)
#: Limits on the number of a user's jobs, and on what a group uses at this moment: they pass by waiting.
_QUOTA = re.compile(r"(?:Assoc|QOS)(?:(?:Max|Grp)Submit|Grp)\w*|job submit limit(?!, user's size)", re.IGNORECASE)
#: Limits on one job: this one will never do.
_JOB_LIMIT = re.compile(r"(?:Assoc|QOS)(?:Max|Min)\w+")
#: The sentence for all of them; alone it names none, and waiting is the harmless reading.
_POLICY = "Job violates accounting/QOS policy"
_WAIT = re.compile(
    r"temporarily unable to accept job|inactive or drain|Slurm backup controller|presently disabled"
    r"|Resource temporarily unavailable|[Uu]nable to contact slurm controller|in standby mode",
)
#: slurm_errno.c's sentences for requests that are as wrong tomorrow.
_PERMANENT = re.compile(
    r"\binvalid\b(?! message| rpc)|not permitted|permission denied|can ?not be satisfied|is not available"
    r"|not available now|more processors requested|count specification|unable to open file"
    r"|does not look like a batch script|unrecognized option|contains dos line breaks|batch script is empty"
    r"|exceeds|disallowed|must specify|is required|not in the (?:valid|allowed)|does not exist|no such file"
    r"|no partition specified",
    re.IGNORECASE,
)


class UnreadableError(ValueError):
    """A command ended well, but what it printed is not what we asked for. It says nothing about any job."""


class Partition(Frozen):
    """One partition. Walltimes in seconds, None: no limit (or none told); CPUs and memory (MB) of its smallest node.

    `gpus`: what one node has at most, by type; "" for GPUs without a type.
    """

    name: str
    is_default: bool
    is_up: bool
    time_limit_s: int | None
    nodes: int
    cpus_per_node: int
    memory_mb: int
    gpus: dict[str, int]


def job_state(raw: str) -> JobState:
    """What a state of Slurm means: its first word (`CANCELLED by 33`, `CANCELLED+`); unknown ones are not terminal."""
    word = raw.split(maxsplit=1)[0].rstrip("+") if raw.strip() else ""
    return next((state for state, names in _STATES.items() if word in names), JobState.UNKNOWN)


def parse_squeue(text: str) -> tuple[JobRow, ...]:
    """The rows of `squeue -h -o SQUEUE_FORMAT`. Errors: UnreadableError."""
    rows = []
    for match in _records(text, _SQUEUE_LINE):
        job_id, raw, reason, partition, node, submitted, started, ends, work_dir = match.groups()
        rows.append(
            JobRow(
                job_id=job_id,
                state=job_state(raw),
                raw_state=raw,
                work_dir=work_dir,
                reason="" if reason == "None" else reason,
                partition=partition,
                node=node,
                submitted_at=_time(submitted),
                started_at=_time(started),
                ends_at=_time(ends),
            )
        )
    return tuple(rows)


def parse_sacct(text: str) -> tuple[JobRow, ...]:
    """The rows of `sacct -X -n -P -o SACCT_FORMAT`. Errors: UnreadableError."""
    rows = []
    for match in _records(text, _SACCT_LINE):
        job_id, raw, code, number, node, submitted, started, ended, work_dir = match.groups()
        state = job_state(raw)
        rows.append(
            JobRow(
                job_id=job_id,
                state=state,
                raw_state=raw,
                work_dir=work_dir,
                node="" if node == "None assigned" else node,
                submitted_at=_time(submitted),
                started_at=_time(started),
                ends_at=_time(ended),
                exit_code=_exit_code(int(code), int(number)) if state is JobState.ENDED else None,
            )
        )
    return tuple(rows)


def parse_sinfo(text: str) -> tuple[Partition, ...]:
    """The partitions of `sinfo -h -e -o SINFO_FORMAT`, one for its several lines (nodes differ), in their order.

    Errors: UnreadableError.
    """
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        match = _SINFO_LINE.fullmatch(line.strip())
        if match is None:
            raise UnreadableError(f"sinfo printed a line that is none of its columns: {line!r}")
        name, available, longest, nodes, cpus, memory, gres = match.groups()
        one = Partition(
            name=name.rstrip("*"),
            is_default=name.endswith("*"),
            is_up=available == "up",
            time_limit_s=told_duration_s(longest),
            nodes=int(nodes),
            cpus_per_node=int(cpus),
            memory_mb=int(memory),
            gpus=_gpus(gres),
        )
        found[one.name] = _together(found[one.name], one) if one.name in found else one
    return tuple(found.values())


def parse_min_job_age_s(text: str) -> float | None:
    """MinJobAge of `scontrol show config`; None where it is not told."""
    match = re.search(r"^MinJobAge\s*=\s*(\d+)", text, re.MULTILINE)
    return float(match[1]) if match else None


def read_submission(returncode: int, stdout: str, stderr: str) -> SubmitOutcome:
    """What an `sbatch --parsable` that ended says about its job.

    Only words that exclude it make a refusal; anything else is uncertain, because sbatch also fails after the
    controller has taken the job.
    """
    ids = [match[1] for line in stdout.splitlines() if (match := _JOB_ID.fullmatch(line.strip()))]
    if returncode == 0:
        return Submitted(job_id=ids[-1]) if ids else Uncertain(why=f"sbatch printed no job id: {own_words(stdout)!r}")
    words = own_words(stderr)
    if ids:  # it was accepted, whatever failed behind that
        return Uncertain(why=words or f"sbatch printed the id {ids[-1]} and ended with {returncode}")
    if _NO_ANSWER.search(stderr):
        return Uncertain(why=words, silent=True)
    if _NOT_ASKED.search(stderr):
        return SubmitRefused(kind="temporary", words=words)
    if _QUOTA.search(stderr) or (_POLICY in stderr and not _JOB_LIMIT.search(stderr)):
        return SubmitRefused(kind="quota", words=words)
    if _JOB_LIMIT.search(stderr):
        return SubmitRefused(kind="permanent", words=words)
    if _WAIT.search(stderr):
        return SubmitRefused(kind="temporary", words=words)
    if _PERMANENT.search(stderr):
        return SubmitRefused(kind="permanent", words=words)
    return Uncertain(why=words or f"sbatch ended with {returncode} and no word")


def accounting_is_disabled(stderr: str) -> bool:
    """Whether sacct says that this site keeps no history."""
    return "accounting storage is disabled" in stderr


def cancel_complaint(stderr: str) -> str | None:
    """What scancel complains of, less what is no error: jobs that are unknown or over."""
    # The sentences of slurm_errno.c.
    harmless = ("Invalid job id", "already completing or completed")
    lines = [line for line in stderr.splitlines() if line.strip() and not any(word in line for word in harmless)]
    return own_words("\n".join(lines)) or None


def is_below(work_dir: str, folder: str) -> bool:
    """Whether an absolute path lies below a folder; both as they were given to sbatch."""
    return work_dir.startswith(folder.rstrip("/") + "/")


def rows_below(rows: Iterable[JobRow], folder: str) -> tuple[JobRow, ...]:
    """The jobs whose work folder lies below `folder`, which itself may be called anything, but not what is in it.

    What a site's wrapper prints behind the last row reads as more of that row's folder. It must not hide the job.
    """
    return tuple(_without_banner(row, len(folder.rstrip("/"))) for row in rows if is_below(row.work_dir, folder))


def _without_banner(row: JobRow, start: int) -> JobRow:
    end = row.work_dir.find("\n", start)
    return row if end < 0 else row.model_copy(update={"work_dir": row.work_dir[:end]})


def _records(text: str, pattern: re.Pattern[str]) -> Iterable[re.Match[str]]:
    """A line that does not look like a record goes on where the last one (its work folder) stopped."""
    records: list[str] = []
    for line in text.removesuffix("\n").split("\n") if text.strip() else ():
        if pattern.fullmatch(line):
            records.append(line)
        elif records:
            records[-1] += "\n" + line
        else:
            raise UnreadableError(f"the answer begins with something else: {line!r}")
    return (match for record in records if (match := pattern.fullmatch(record)))


def _time(text: str) -> float | None:
    """Unix seconds as SLURM_TIME_FORMAT=%s prints them; N/A, Unknown and None are None."""
    return float(text) if _EPOCH.fullmatch(text) else None


def _exit_code(code: int, number: int) -> int:
    return _SIGNAL_BASE + number if number else code


def told_duration_s(text: str) -> int | None:
    """Seconds of a duration that Slurm printed; None for "infinite", and for words that are none."""
    try:
        return parse_duration_s(text)
    except ValueError:
        return None


def _gpus(gres: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for match in _GPU.finditer(gres):
        counts[match[1] or ""] = counts.get(match[1] or "", 0) + int(match[2])
    return counts


def _together(one: Partition, other: Partition) -> Partition:
    return one.model_copy(
        update={
            "nodes": one.nodes + other.nodes,
            "cpus_per_node": min(one.cpus_per_node, other.cpus_per_node),
            "memory_mb": min(one.memory_mb, other.memory_mb),
            "gpus": {name: max(one.gpus.get(name, 0), other.gpus.get(name, 0)) for name in {**one.gpus, **other.gpus}},
        }
    )


def own_words(text: str) -> str:
    """Slurm's own words on one line, without the program's name before each."""
    lines = (_SPEAKER.sub("", line.strip()) for line in text.split("\n"))
    return "; ".join(dict.fromkeys(line for line in lines if line))

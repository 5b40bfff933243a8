"""What Slurm's commands print, read: text in, facts out.

Text with named columns: `--json` ignores filters in versions that are still in use and changes its schema. A work
folder may hold `|` and even newlines, and sites wrap Slurm's commands in scripts, which print lines of their own. So
every column ends with our `MARK`, and the header is asked for: what has no mark is a wrapper's, and an answer without
the header is an `UnreadableError`, never an empty list: "nothing there" is a fact about jobs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from orchestrator.executors.base import Frozen, JobRow, JobState, SubmitOutcome, SubmitRefused, Submitted, Uncertain
from orchestrator.notation import parse_duration_s

MARK = "|anchorleg|"


def _marked(*fields: str) -> str:
    return "".join(f"{field}{MARK}" for field in fields)


#: Of `squeue`: id, state, reason, partitions, node, submit, start, end, work folder (squeue(1)).
SQUEUE_OPTIONS = ("-o", _marked("%A", "%T", "%r", "%P", "%N", "%V", "%S", "%e", "%Z"))
#: Of `sacct` (sacct(1)). With -p a delimiter ends the line, too.
SACCT_OPTIONS = ("-p", f"--delimiter={MARK}", "-o", "JobIDRaw,State,ExitCode,NodeList,Submit,Start,End,WorkDir")
#: Of `sinfo`: partition, availability, longest walltime, nodes, CPUs, MB, GRES (sinfo(1)).
SINFO_OPTIONS = ("-o", _marked("%P", "%a", "%l", "%D", "%c", "%m", "%G"))

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


def _row_of(*fields: str) -> re.Pattern[str]:
    return re.compile(f"^{''.join(f'({field}){re.escape(MARK)}' for field in fields)}$", re.MULTILINE)


_TEXT = r"[^|\n]*"
_LAST = r"[\s\S]*?"
_SQUEUE_ROW = _row_of(r"\d{1,20}", "[A-Z_]+", *[_TEXT] * 6, _LAST)
_SACCT_ROW = _row_of(r"\d{1,20}", r"[A-Z_]+(?: by \d+)?", r"\d{1,6}:\d{1,6}", *[_TEXT] * 4, _LAST)
_SINFO_ROW = _row_of(r"[^|\n]+", _TEXT, _TEXT, r"\d{1,9}\+?", r"\d{1,9}\+?", r"\d{1,12}\+?", _LAST)
#: The names of all columns: no row has so many words in a row.
_HEADER = re.compile(f"(?:[A-Za-z_]+{re.escape(MARK)}){{7,}}$", re.MULTILINE)
_JOB_ID = re.compile(r"\d+(?:;\S+)?")
_GPU = re.compile(r"gpu(?::([^:,()]+))?:(\d{1,9})(?:\([^)]*\))?(?=,|$)")
_SPEAKER = re.compile(r"^(?:sbatch|scancel|squeue|sacct|sinfo|scontrol|sacctmgr): (?:error: |fatal: )?")
_TO_START = re.compile(r"to start at (\d+)\s")
_EPOCH = re.compile(r"\d{1,12}")

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
_WAIT = re.compile(
    r"temporarily unable to accept job|inactive or drain|Slurm backup controller|presently disabled"
    r"|Resource temporarily unavailable|[Uu]nable to contact slurm controller|in standby mode"
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
    """No answer, or not what we asked for. It says nothing about any job."""


class Partition(Frozen):
    """One partition. Walltimes in seconds, None: no limit (or none told); CPUs and memory (MB) of its smallest node,
    `most_…` of its largest (0: not told). `gpus`: what one node has at most, by type; "" for GPUs without a type.
    """

    name: str
    is_default: bool
    is_up: bool
    time_limit_s: int | None
    nodes: int
    cpus_per_node: int
    memory_mb: int
    gpus: dict[str, int]
    most_cpus: int = 0
    most_memory_mb: int = 0


def job_state(raw: str) -> JobState:
    """What a state of Slurm means: its first word (`CANCELLED by 33`, `CANCELLED+`); unknown ones are not terminal."""
    word = raw.split(maxsplit=1)[0].rstrip("+") if raw.strip() else ""
    return next((state for state, names in _STATES.items() if word in names), JobState.UNKNOWN)


def parse_squeue(text: str) -> tuple[JobRow, ...]:
    """The rows of `squeue` with SQUEUE_OPTIONS. Errors: UnreadableError."""
    rows = []
    for job_id, raw, reason, partition, node, *times, work_dir in _rows(text, _SQUEUE_ROW):
        row = _job(job_id, raw, node, times, work_dir)
        rows.append(row.model_copy(update={"reason": "" if reason == "None" else reason, "partition": partition}))
    return tuple(rows)


def parse_sacct(text: str) -> tuple[JobRow, ...]:
    """The rows of `sacct -X` with SACCT_OPTIONS. Errors: UnreadableError."""
    rows = []
    for job_id, raw, code, node, *times, work_dir in _rows(text, _SACCT_ROW):
        row = _job(job_id, raw, "" if node == "None assigned" else node, times, work_dir)
        exit_code = _exit_code(code) if row.state is JobState.ENDED else None
        rows.append(row.model_copy(update={"exit_code": exit_code}))
    return tuple(rows)


def _job(job_id: str, raw: str, node: str, times: Sequence[str], work_dir: str) -> JobRow:
    submitted, started, ends = map(_time, times)
    return JobRow(
        job_id=job_id,
        state=job_state(raw),
        raw_state=raw,
        work_dir=work_dir,
        node=node,
        submitted_at=submitted,
        started_at=started,
        ends_at=ends,
    )


def parse_sinfo(text: str) -> tuple[Partition, ...]:
    """The partitions of `sinfo -e` with SINFO_OPTIONS, one for its several lines. Errors: UnreadableError."""
    found: dict[str, Partition] = {}
    for name, available, longest, nodes, cpus, memory, gres in _rows(text, _SINFO_ROW):
        one = Partition(
            name=name.rstrip("*"),
            is_default=name.endswith("*"),
            is_up=available == "up",
            time_limit_s=told_duration_s(longest),
            nodes=int(nodes.rstrip("+")),
            cpus_per_node=int(cpus.rstrip("+")),
            memory_mb=int(memory.rstrip("+")),
            gpus=_gpus(gres),
            most_cpus=0 if cpus.endswith("+") else int(cpus),
            most_memory_mb=0 if memory.endswith("+") else int(memory),
        )
        found[one.name] = _together(found[one.name], one) if one.name in found else one
    return tuple(found.values())


def parse_min_job_age_s(text: str) -> float | None:
    """MinJobAge of `scontrol show config`; None where it is not told."""
    match = re.search(r"^MinJobAge\s*=\s*(\d+)", text, re.MULTILINE)
    return float(match[1]) if match else None


def read_submission(returncode: int, stdout: str, stderr: str) -> SubmitOutcome:
    """What an `sbatch --parsable` that ended says about its job. Only words that exclude it make a refusal: sbatch also
    fails after the controller has taken the job.
    """
    ids = possible_ids(stdout)
    if returncode == 0:
        if len(ids) == 1:
            return Submitted(job_id=ids.pop())
        which = "several numbers that may be its id" if ids else "no job id"
        return Uncertain(why=f"sbatch printed {which}: {own_words(stdout)!r}")
    words = own_words(stderr)
    if ids:  # it was accepted, whatever failed behind that
        return Uncertain(why=words or f"sbatch printed an id ({own_words(stdout)}) and ended with {returncode}")
    if _NO_ANSWER.search(stderr):
        return Uncertain(why=words, silent=True)
    if _NOT_ASKED.search(stderr):
        return SubmitRefused(kind="temporary", words=words)
    # The sentence for all limits; alone it names none, and waiting is the harmless reading.
    is_policy = "Job violates accounting/QOS policy" in stderr
    if _QUOTA.search(stderr) or (is_policy and not _JOB_LIMIT.search(stderr)):
        return SubmitRefused(kind="quota", words=words)
    if _JOB_LIMIT.search(stderr):
        return SubmitRefused(kind="permanent", words=words)
    if _WAIT.search(stderr):
        return SubmitRefused(kind="temporary", words=words)
    if _PERMANENT.search(stderr):
        return SubmitRefused(kind="permanent", words=words)
    return Uncertain(why=words or f"sbatch ended with {returncode} and no message")


def possible_ids(stdout: str) -> set[str]:
    """The lines that may be what `sbatch --parsable` prints: `17`, or `17;west`. A site's wrapper prints some, too."""
    return {line.strip() for line in stdout.splitlines() if _JOB_ID.fullmatch(line.strip())}


def expected_start(stderr: str) -> float | None:
    """When `sbatch --test-only` expects a job to start: `Job 7 to start at T using …`, in 26.05 `… at T a using …`."""
    found = _TO_START.search(stderr)
    return _time(found[1]) if found else None


def cancel_complaint(stderr: str) -> str | None:
    """What scancel complains of, less what is no error: jobs that are unknown or over."""
    # The sentences of slurm_errno.c.
    harmless = ("Invalid job id", "already completing or completed")
    lines = [line for line in stderr.splitlines() if line.strip() and not any(word in line for word in harmless)]
    return own_words("\n".join(lines)) or None


def _rows(text: str, pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    """The fields of each marked row. Errors: UnreadableError without the header, or where a mark belongs to no row."""
    rest, headers = _HEADER.subn("", text)
    rows = [match.groups() for match in pattern.finditer(rest)]
    left = [*pattern.sub("", rest).splitlines(), *(row[-1] for row in rows)]
    if torn := [line for line in left if MARK in line]:
        raise UnreadableError(f"a row of the answer does not match its columns: {torn[0]!r}")
    if not headers:
        raise UnreadableError(f"the answer is unexpected: {own_words(text)[:200]!r}")
    return rows


def _time(text: str) -> float | None:
    """Of SLURM_TIME_FORMAT=%s; N/A, Unknown and None are None."""
    return float(text) if _EPOCH.fullmatch(text) else None


def _exit_code(told: str) -> int:
    code, _, number = told.partition(":")  # the number of a signal, which shells count from 128 on
    return 128 + int(number) if int(number) else int(code)


def told_duration_s(text: str) -> int | None:
    """Seconds of a duration that Slurm printed; None for "infinite", and for words that are none."""
    try:
        return parse_duration_s(text)
    except ValueError:
        return None


def _gpus(gres: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for match in _GPU.finditer(gres):
        counts[match[1] or ""] += int(match[2])
    return dict(counts)


def _together(one: Partition, other: Partition) -> Partition:
    return one.model_copy(
        update={
            "nodes": one.nodes + other.nodes,
            "cpus_per_node": min(one.cpus_per_node, other.cpus_per_node),
            "memory_mb": min(one.memory_mb, other.memory_mb),
            "most_cpus": max(one.most_cpus, other.most_cpus),
            "most_memory_mb": max(one.most_memory_mb, other.most_memory_mb),
            "gpus": {name: max(one.gpus.get(name, 0), other.gpus.get(name, 0)) for name in {**one.gpus, **other.gpus}},
        }
    )


def own_words(text: str) -> str:
    """On one line, without the program's name before each."""
    lines = (_SPEAKER.sub("", line.strip()) for line in text.split("\n"))
    return "; ".join(dict.fromkeys(line for line in lines if line))

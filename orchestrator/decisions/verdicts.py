"""How an attempt ended, and why. Pure: exit record, scheduler's word, progress, end of the log → verdict and cause."""

from __future__ import annotations

import re
import signal

from anchorleg.job import DO_NOT_REQUEUE, HANDED_OVER
from anchorleg.words import roughly
from orchestrator.decisions.evidence import Evidence, Exit
from orchestrator.decisions.models import Gone, Submission, Verdict
from orchestrator.decisions.sightings import CANCELLED_BY, RAN_TWICE, was_not_launched

#: The shim's word for a hand-over that somebody wished by the hand-over file.
ASKED_TO = "asked to"
#: The shim's word for a program that it made print its stacks and end.
STALLED = "stalled"

OUT_OF_MEMORY = "out of memory"
GPU_FULL = "the GPU ran out of memory"
NO_SPACE = "no space left on the disk"
#: The kernel has one word for both; who looks at the disk can tell.
NO_INODES = "no inode left on the disk: it cannot hold more files"
_NO_ROOM: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"No space left on device"), NO_SPACE),
    (re.compile(r"Disk quota exceeded"), "the disk quota is used up"),
)
_ROOM_WORDS = frozenset(words for _, words in _NO_ROOM)
#: The kernel says of it what it says of a disk. Names there have no folder: torch's `</torch_3118_1>`, Python's
#: `'/psm_0ba1'`. It is the node's memory, and what fills it is mostly the program itself.
_NO_SHARED_MEMORY = re.compile(
    r"^(?=.*(?:</torch_|/dev/shm|'/psm_|'/sem\.|joblib)).*No space left on device.*"
    r"|(?:out of|insufficient) shared memory",
    re.MULTILINE,
)
_CPU_LIMIT = "it used up a process's CPU time (`ulimit -t` in a job)"
_FILE_LIMIT = "a file reached the maximum size (`ulimit -f` in a job)"
#: The kernel's signals for them.
_LIMITS: dict[int, str] = {signal.SIGXCPU: _CPU_LIMIT, signal.SIGXFSZ: _FILE_LIMIT}
_RENDERER = re.compile(
    r"(?i)(error|fail|cannot|could not|unable)[^\r\n]*\b(egl|glfw|opengl|osmesa)\b"
    r"|\b(egl|glfw|opengl|osmesa)\w*\b[^\r\n]*(error|fail|cannot|could not|unable)"
)
#: What to look for in the end of a log, most specific first: pattern → words for the user.
CAUSES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"CUDA out of memory|OutOfMemoryError", re.IGNORECASE), GPU_FULL),
    (
        re.compile(r"(?i)oom-kill|out of memory|exceeded \w+ memory limit|Cannot allocate memory|MemoryError"),
        OUT_OF_MEMORY,
    ),
    (_NO_SHARED_MEMORY, "the machine's shared memory (/dev/shm) is full"),
    *_NO_ROOM,
    (re.compile(r"CPU time limit exceeded"), _CPU_LIMIT),
    (re.compile(r"File size limit exceeded|File too large"), _FILE_LIMIT),
    (re.compile(r"CUDA error|no CUDA-capable device|CUDA driver", re.IGNORECASE), "a CUDA error"),
    (_RENDERER, "the renderer (EGL/OpenGL) failed"),
    (re.compile(r"not finite|\bNaN\b", re.IGNORECASE), "a value became NaN"),
)

_KNOWN_CAUSES = frozenset(words for _, words in CAUSES)
#: In so many characters of the end a cause is looked for, without lines that only say where code stands.
LAST_WORDS = 4096
_WHERE_CODE_STANDS = re.compile(r"^(?:  +(?:File |\S).*|frame #.*|Extension modules: .*)\n", re.MULTILINE)
#: What slurmstepd writes into the job's log (slurmstepd_job.c): why it ends a job; and where slurmctld takes the job
#: from its node, as one does that does not remember starting it. An OOM killer and a person leave no such line.
_DUE_TO = re.compile(r"slurmstepd[^\n]* CANCELLED AT \S+ DUE TO (TIME LIMIT|PREEMPTION|NODE FAILURE)")
_WORD_OF = {"TIME LIMIT": "TIMEOUT", "PREEMPTION": "PREEMPTED", "NODE FAILURE": "NODE_FAIL"}
_KILLED_BY_SLURM = re.compile(r"slurmstepd[^\n]*\*\*\* REASON: ([^\n]+?) \*\*\*")

_SCHEDULER_WORDS = {
    "TIMEOUT": (Verdict.TIMED_OUT, "killed at its walltime before it could hand over"),
    "DEADLINE": (Verdict.TIMED_OUT, "killed at its deadline before it could hand over"),
    "PREEMPTED": (Verdict.PREEMPTED, "preempted by another job"),
    "OUT_OF_MEMORY": (Verdict.CRASHED, OUT_OF_MEMORY),
    "NODE_FAIL": (Verdict.NODE_FAILED, "its node failed"),
    "BOOT_FAIL": (Verdict.NODE_FAILED, "its node did not boot"),
}
#: What took a job's node, whether the job could still save or not.
NODE_TAKEN = frozenset(_SCHEDULER_WORDS[word][1] for word in ("PREEMPTED", "NODE_FAIL"))
NOTHING_SAVED = "its program exited with code 0 early, and saved nothing: look at `orchestrator logs`"
_BEFORE_IT_BEGAN = "it ended before its program started"
_WITHOUT_A_WORD = "it ended without a message"
_MISNAMED = "the next job cannot find its checkpoint: a name in checkpoints/ must be the step, in digits only"
_NOT_AGAIN = "it asked not to run again (exit code 93)"
#: Of a job without any word: an error output needs room, too.
DISK_FULL = "it left no message, and the disk is full"
#: How a crash ended, at the end of its cause.
_HOW = re.compile(r"(?:exit code|killed by signal) \d+(?=\)?\Z)")
#: What the run itself lacks, wherever a job goes.
_LACKED_ANYWHERE = re.compile(
    r"No module named '?(?:anchorleg|orchestrator|trainer|syncd)\b"
    r"|cannot import name .*\bfrom '(?:anchorleg|orchestrator|trainer|syncd)\b"
    r"|is not the copy that the run made of our code"  # templates/train.sbatch
)
#: What a node does not have. Where the controller's machine has it, it may be the node's fault.
_LACKED_THERE = re.compile(r"there is no .+: set \"python\"|\S could not be started on |can't open file ")
#: Of the trainer (docs/troubleshooting.md): a config, checkpoints or a combination of both that it cannot use.
_TRAINERS_OWN = frozenset({2, 3, 4})
#: Our own reasons to cancel a job for which its node could do nothing. They say how the attempt ended, too.
LAUNCH_FAILED = "its node failed to start it"
NEVER_BEGAN = "it ran, but its program never started: slurm.setup, its node or the shared folder on it hangs"
#: Of a job whose output files are not there, which the batch system makes before the job's script runs.
NOT_SEEN_THERE = "it left no file: its node does not see the run's folder"


def judge(
    evidence: Evidence,
    gone: Gone,
    submission: Submission | None = None,
    *,
    stalled_s: float | None = None,
    disk_full: bool = False,
) -> tuple[Verdict, str]:
    """(verdict, cause in plain words) of an attempt whose claimant is gone. `submission`: the one that is gone, for our
    own cancels. `stalled_s`: how long its program had reported nothing new when it was told to end for that; None: it
    was not. `disk_full`: there is no room for last words.
    """
    ended, progress = evidence.exit, evidence.progress
    if ended is not None:
        if ended.superseded_by is not None:
            return Verdict.SUPERSEDED, f"attempt {ended.superseded_by} had taken over"
        if evidence.is_complete:
            return Verdict.FINISHED, ""
        if ended.code == DO_NOT_REQUEUE:
            return Verdict.DO_NOT_REQUEUE, cause_in(evidence.log_tail) or _NOT_AGAIN
        if ended.terminated and _word(gone) == "CANCELLED" and not _is_ours(submission):
            return Verdict.CANCELLED, _cancelled_by(gone.raw_state)
        if ended.code == 0:
            if evidence.made_progress:
                return Verdict.HANDED_OVER, "it ended before its total"
            words = "it ended with exit code 0 before its total, without a new checkpoint"
            return Verdict.NO_PROGRESS, _not_found(evidence, ended) or words
        by_slurm = _SCHEDULER_WORDS.get(_word(gone, evidence.log_tail) if ended.terminated else "")
        if ended.code == HANDED_OVER:
            # Who is asked in the middle of his start-up has nothing to save, and is not to blame.
            asked = ended.asked is not None if progress is None else ended.asked in {ASKED_TO, "SIGTERM"}
            believed = asked or (progress is None and (ended.time_used or 0.0) >= 0.5)
            if evidence.made_progress or (believed and not _misnamed(evidence, ended)):
                lost = by_slurm is not None and by_slurm[1] in NODE_TAKEN
                return Verdict.HANDED_OVER, by_slurm[1] if by_slurm is not None and lost else ended.asked or ""
            words = "it asks for another job, but left no new checkpoint"
            return Verdict.NO_PROGRESS, _not_found(evidence, ended) or words
        if ended.asked == STALLED or stalled_s is not None:
            return Verdict.STALLED, _stall_words(stalled_s)
        return by_slurm or _crash(ended, evidence.log_tail)
    if evidence.claim is None and evidence.declined:
        return Verdict.NOT_NEEDED, "its slot no longer needed it"
    return _by_the_scheduler(evidence, gone, submission, stalled_s, disk_full=disk_full)


def lacks_a_program(evidence: Evidence) -> bool:
    """Whether its last words are that its node has no interpreter, program or script."""
    return _LACKED_THERE.search(_last_lines(evidence)) is not None


def follows_the_job(evidence: Evidence, *, trainer: bool, lacking: bool) -> bool:
    """Whether what it ended of would meet its job on every node. `lacking`: the controller's machine lacks it, too."""
    if trainer and evidence.exit is not None and evidence.exit.code in _TRAINERS_OWN:
        return True
    return _LACKED_ANYWHERE.search(_last_lines(evidence)) is not None or (lacking and lacks_a_program(evidence))


def _last_lines(evidence: Evidence) -> str:
    words = evidence.exit.words if evidence.exit is not None else ""
    return "\n".join([*_last_words(evidence.log_tail).strip().splitlines()[-5:], words])


def _misnamed(evidence: Evidence, ended: Exit) -> str:
    """What it saved under a name that no next job finds; empty where it did not. An attempt that went on from a
    checkpoint knows how they are named: what else lies there is a save that was cut short, or none.
    """
    return "" if evidence.start_step else ended.misnamed


def _not_found(evidence: Evidence, ended: Exit) -> str:
    """Of an attempt that made no progress, that it thinks otherwise; empty where it does not."""
    if name := _misnamed(evidence, ended):
        return f"{_MISNAMED}, not {name}"
    saved = evidence.progress.checkpoint_step if evidence.progress is not None else evidence.start_step
    if saved <= evidence.start_step:
        return ""
    return f"it reports a checkpoint of step {saved:,}, which is not in checkpoints/"


def _crash(ended: Exit, log_tail: str) -> tuple[Verdict, str]:
    if ended.code == -signal.SIGKILL and (by_slurm := _KILLED_BY_SLURM.search(log_tail)):
        return Verdict.NODE_FAILED, f"Slurm killed it: {by_slurm[1]}"
    how = f"killed by signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
    # A shell whose last command died of a signal ends with 128 more.
    cause = ended.words or _LIMITS.get(-ended.code if ended.code < 0 else ended.code - 128) or cause_in(log_tail)
    if cause in _ROOM_WORDS:
        return Verdict.NO_ROOM, f"{cause} ({how})"
    # At the walltime Slurm kills program and shim together, and the shim may live long enough to say so.
    if ended.code == -signal.SIGKILL and not cause and ended.deadline is not None and ended.at > ended.deadline:
        return _SCHEDULER_WORDS["TIMEOUT"]
    return Verdict.CRASHED, f"{cause} ({how})" if cause else how


def _by_the_scheduler(
    evidence: Evidence, gone: Gone, submission: Submission | None, stalled_s: float | None, *, disk_full: bool
) -> tuple[Verdict, str]:
    """Without a record of its own: what the scheduler says, and the end of the log."""
    word = _word(gone, evidence.log_tail)
    if word == "CANCELLED":
        if submission is None or not _is_ours(submission):
            # Slurm would hold the job and say `launch failed requeued held`, but ours may not be requeued: slurmd kills
            # it. A person's cancel of a waiting job names no node.
            if evidence.claim is None and gone.node and was_not_launched(gone.raw_state, gone.ran_s):
                return Verdict.NODE_FAILED, f"{gone.node} could not start it"
            return Verdict.CANCELLED, _cancelled_by(gone.raw_state)
        if stalled_s is not None:
            return Verdict.STALLED, _stall_words(stalled_s)
        if submission.cancelled_for in {LAUNCH_FAILED, NEVER_BEGAN}:
            return Verdict.NODE_FAILED, submission.cancelled_for
        return Verdict.CANCELLED, submission.cancelled_for or "cancelled by us"
    last_words = cause_in(evidence.log_tail)
    no_room = disk_words(evidence.log_tail) or (DISK_FULL if disk_full and not last_words else "")
    if word == "NODE_FAIL" and no_room:
        # On this machine the word says that the process is gone which records a job's end: a full disk ends it, too.
        return Verdict.NO_ROOM, no_room
    if word in _SCHEDULER_WORDS:
        return _SCHEDULER_WORDS[word]
    if gone.proof == RAN_TWICE:
        return Verdict.NODE_FAILED, "Slurm started it twice, and ended its first run"
    if by_slurm := _KILLED_BY_SLURM.search(evidence.log_tail):
        return Verdict.NODE_FAILED, f"Slurm killed it: {by_slurm[1]}"
    has_begun = evidence.claim is not None
    if not word and not no_room and (last_words not in _KNOWN_CAUSES if has_begun else not evidence.log_tail.strip()):
        # A program that ends leaves its shim, which says so. Both are gone, and so is what the scheduler knew.
        began = "it ended" if has_begun else "it never began"
        return Verdict.NODE_FAILED, f"{began}, and no record of its end exists ({gone.proof})"
    if evidence.left_nothing and not no_room:
        return Verdict.NODE_FAILED, f"{NOT_SEEN_THERE} ({gone.raw_state or gone.proof})"
    if evidence.claim is None:
        cause = f"{_BEFORE_IT_BEGAN} ({last_words or no_room or gone.raw_state or gone.proof})"
    else:
        cause = last_words or no_room or f"{_WITHOUT_A_WORD} ({gone.raw_state or gone.proof})"
    is_full = last_words in _ROOM_WORDS or no_room == DISK_FULL
    return Verdict.NO_ROOM if is_full else Verdict.CRASHED, cause


def _word(gone: Gone, log_tail: str = "") -> str:
    """The scheduler's for how it ended; where it says none, what its log tells."""
    due_to = _DUE_TO.search(log_tail)
    return gone.raw_state.partition(" ")[0].rstrip("+") or (_WORD_OF[due_to[1]] if due_to else "")


def _is_ours(submission: Submission | None) -> bool:
    return submission is not None and submission.cancelled_at is not None


def _cancelled_by(raw_state: str) -> str:
    who = CANCELLED_BY.search(raw_state)
    return f"cancelled by user {who[1]} (scancel)" if who else "cancelled (scancel)"


def _stall_words(stalled_s: float | None) -> str:
    since = f" for {roughly(stalled_s)}" if stalled_s else ""
    return f"no progress{since}; its stacks are in the job's .err"


def disk_words(log_tail: str) -> str:
    """That a job found no room to write on a disk, in words; empty where it did not say so."""
    of_disks = _NO_SHARED_MEMORY.sub("", _last_words(log_tail))
    return next((words for pattern, words in _NO_ROOM if pattern.search(of_disks)), "")


def cause_in(log_tail: str) -> str:
    """A known cause in the end of a log, else its last line; empty where there is nothing."""
    last = _last_words(log_tail)
    if words := next((words for pattern, words in CAUSES if pattern.search(last)), ""):
        return words
    lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
    return lines[-1][:160] if lines else ""


def _last_words(log_tail: str) -> str:
    return _WHERE_CODE_STANDS.sub("", log_tail)[-LAST_WORDS:]


def told_to_others(verdict: str, cause: str) -> str:
    """Our own words of a cause, for those who may not see a job's output, whose last line may name files."""
    if verdict == Verdict.DO_NOT_REQUEUE:
        return _NOT_AGAIN
    if cause.startswith(_MISNAMED):
        return _MISNAMED
    if verdict != Verdict.CRASHED:
        return cause
    ours = (*_KNOWN_CAUSES, _BEFORE_IT_BEGAN, _WITHOUT_A_WORD)
    words = next((one for one in sorted(ours, key=len, reverse=True) if cause.startswith(one)), "")
    how = found[0] if (found := _HOW.search(cause)) else ""
    return f"{words} ({how})" if words and how else words or how or str(verdict)

"""What may be wrong with the place of a run: this machine, its folder, Slurm. The facts, and what they mean. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from anchorleg.disks import DiskQuota
from anchorleg.findings import Check, Judgement, Judgements, Level, ok, problem, warning
from anchorleg.words import sized
from orchestrator.config import RunConfig, check_walltime
from orchestrator.configwarnings import idle_gpus
from orchestrator.doctor import slurmchecks
from orchestrator.errors import ConfigError
from orchestrator.executors.base import Frozen
from orchestrator.executors.local import sharing
from orchestrator.notation import format_duration
from orchestrator.run.starting import PythonFacts, unusable_python

#: What the shim is written for.
MIN_PYTHON = (3, 11)
#: A checkpoint of MT10 with its replay rows is some hundred MB, and several are kept for each slot.
LOW_SPACE_BYTES = 10 * 2**30
#: Less than one checkpoint with its rows.
NO_SPACE_BYTES = 2**30
#: An attempt makes some dozens of files; a run of weeks some ten thousand.
LOW_FILES = 20_000
#: Of a quota; the rest goes within days of training.
QUOTA_TIGHT = 0.9
#: An fsync on a busy network folder takes tens of milliseconds; a second delays every decision.
SLOW_STEP_S = 1.0
#: Which tries a run cannot do without, and what breaks.
_NEEDED = {
    "mkdir": "nothing can be written there",
    "write and fsync": "nothing can be written durably there",
    "rename over a file": "a crash could leave incomplete files",
    "link": "two controllers could both own the run, because the lease and each job's claim are hard links",
    "rename of a folder": "checkpoints are published by a rename",
}


class Try(Frozen):
    """One thing tried on the shared folder. `error` empty: it worked."""

    name: str
    seconds: float = 0.0
    error: str = ""


class FolderFacts(Frozen):
    """The folder that is to hold the run. Sizes in bytes; None: not told."""

    path: str
    kind: str = ""
    steps: tuple[Try, ...] = ()
    free_bytes: int | None = None
    free_files: int | None = None


class LoginFacts(Frozen):
    """Everything gathered on the login node. `slurm` None: the executor is local, and `gpus` are this machine's.

    `missing`: (field, path) of the files that the config names and that are not there; `sharing`: what keeps accounts
    from working together, "found. advice." each. The last three: what becomes of a controller on this machine.
    """

    config: RunConfig
    executor: str
    folder: FolderFacts
    quotas: tuple[DiskQuota, ...] = ()
    slurm: slurmchecks.SlurmFacts | None = None
    python: PythonFacts
    missing: tuple[tuple[str, str], ...] = ()
    sharing: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    ends_at_logout: bool = False
    cpu_limit_s: int | None = None
    in_job: str = ""


def _walltime(facts: LoginFacts) -> Judgement:
    try:
        check_walltime(facts.config, facts.executor)
    except ConfigError as error:
        found, _, advice = str(error).rpartition(". ")  # its last sentence says what to do
        return problem(found, advice)
    limit, lead_s = format_duration(facts.config.slurm.time_limit), facts.config.lead_seconds
    return ok(f"{limit} a job, with hand-over {lead_s} s before its end")


def _gpus_here(facts: LoginFacts) -> Judgements:
    there, places, wanted = facts.gpus, facts.config.places, facts.config.slurm.gpus
    if facts.executor != "local":
        return None
    if words := sharing(there, places, wanted):
        return warning(*_split(words, "; "))
    if not there:
        return ok("none, so jobs use the CPU")
    if not wanted:
        return ok(f"{len(there)}, but slurm.gpus asks for none")
    return ok(f"{len(there)}, one per slot")


def _folder(facts: LoginFacts) -> Judgement:
    told = facts.folder
    where = f"{told.path} ({told.kind})" if told.kind else told.path
    if fatal := next((step for step in told.steps if step.error), None):
        return problem(
            f"{where}: {fatal.name} does not work ({fatal.error}); {_NEEDED[fatal.name]}",
            "set run_dir to a folder on a disk, a volume or NFS, not on a mounted bucket",
        )
    if slow := [step for step in told.steps if step.seconds >= SLOW_STEP_S]:
        found = f"{where}: {', '.join(f'{step.name} took {step.seconds:.1f} s' for step in slow)}"
        return warning(found, "saves and hand-overs take longer")
    if told.kind in {"tmpfs", "ramfs"}:
        return warning(f"{where} is this machine's memory, invisible to other nodes", "set run_dir to a shared disk")
    took = max((step.seconds for step in told.steps), default=0.0)
    return ok(f"{where}: rename, link and fsync work, the slowest in {1000 * took:.0f} ms")


def _space(facts: LoginFacts) -> Judgements:
    free, files = facts.folder.free_bytes, facts.folder.free_files
    if free is None:
        return None
    found = f"{sized(free)} free" + (f", room for {files:,} files" if files is not None else "")
    if free < LOW_SPACE_BYTES:
        advice = "checkpoints with their replay rows take some GB a slot: make room or set run_dir elsewhere"
        return Judgement(Level.PROBLEM if free < NO_SPACE_BYTES else Level.WARNING, found, advice)
    if files is not None and files < LOW_FILES:
        return warning(found, "few inodes are left: remove old runs")
    return ok(found)


def _quotas(facts: LoginFacts) -> Iterator[Judgement]:
    for told in facts.quotas:
        shares = []
        if told.limit_bytes:
            used = f"{sized(told.used_bytes)} of {sized(told.limit_bytes)}"
            shares.append((told.used_bytes / told.limit_bytes, used))
        if told.limit_files:
            shares.append((told.used_files / told.limit_files, f"{told.used_files:,} of {told.limit_files:,} files"))
        most = max((share for share, _ in shares), default=0.0)
        found = f"{told.filesystem}: {', '.join(words for _, words in shares) or 'no limit'}"
        advice = "make room: a job that cannot save loses its training"
        yield ok(found) if most < QUOTA_TIGHT else problem(found, advice) if most >= 1 else warning(found, advice)


def _python(facts: LoginFacts) -> Judgement:
    told, least = facts.python, ".".join(map(str, MIN_PYTHON))
    if not told.version:  # it may be there on the compute nodes only
        advice = 'if the compute nodes lack it, too, set "python" in the config; --probe checks that'
        return warning(f"{told.command} does not run here ({told.words})", advice)
    if tuple(map(int, told.version.split(".")[:2])) < MIN_PYTHON:
        found = f"{told.command} is Python {told.version}; jobs need {least} or newer"
        return problem(found, 'set "python" in the config to one')
    if not told.shim_ok:
        found = f"{told.command} (Python {told.version}) cannot load the job's shim: {told.words}"
        return problem(found, "reinstall Anchorleg from its checkout")
    if error := unusable_python(facts.config, told, facts.executor):
        return problem(*_split(str(error), ": "))
    return ok(f"{told.command}: Python {told.version}")


def _missing(facts: LoginFacts) -> Iterator[Judgement]:
    for field, path in facts.missing:
        if field == "container.image":
            yield problem(f"{path} is not there", f"set {field} to an existing path")
        elif field == "notify":
            yield warning(f"{path} is not there", "no notifications; set notify to a program of this machine")
        else:
            yield warning(f"{path} is not there", "every job ends at once if the compute nodes lack it, too")


def _host(facts: LoginFacts) -> Iterator[Judgement]:
    advice = "run `orchestrator tick` from a crontab: every tick is a new process"
    if facts.in_job:
        found = f"this is inside Slurm job {facts.in_job}; a controller here ends with it"
        yield warning(found, "start it on a login node")
    if facts.ends_at_logout:
        found = "systemd ends your processes at logout here (KillUserProcesses=yes, no lingering)"
        yield warning(found, f"run `loginctl enable-linger` once, or {advice}")
    if facts.cpu_limit_s is not None:
        found = f"a process here may use {facts.cpu_limit_s} s of CPU; a controller needs some minutes a day"
        yield warning(found, advice)


def _split(words: str, mark: str) -> tuple[str, str]:
    """One of `start`'s sentences: (what was found, what to do)."""
    found, _, advice = words.partition(mark)
    return found, advice.rstrip(".")


def _of_slurm(judge: slurmchecks.Judge, facts: LoginFacts) -> Judgements:
    """Where the executor is Slurm; only whether it answers where it could not be asked."""
    if facts.slurm is None or not (facts.slurm.is_up or judge is slurmchecks.slurmctld):
        return None
    return judge(facts.config, facts.slurm)


CHECKS: tuple[Check[LoginFacts], ...] = (
    Check("walltime", _walltime),
    *(Check(name, partial(_of_slurm, judge)) for name, judge in slurmchecks.CHECKS),
    Check("GPUs asked for", lambda facts: idle_gpus(facts.config)),
    Check("GPUs here", _gpus_here),
    Check("folder", _folder),
    Check("space", _space),
    Check("quota", _quotas),
    Check("python", _python),
    Check("programs", _missing),
    Check("other accounts", lambda facts: (warning(*_split(words, ". ")) for words in facts.sharing)),
    Check("host", _host),
)

"""Judges the facts of this machine, the folder and the run. Pure. Slurm's own part is `slurmchecks`."""

from __future__ import annotations

from collections.abc import Iterator

from anchorleg.findings import Finding, Level
from anchorleg.words import sized
from orchestrator.config import check_walltime
from orchestrator.configwarnings import idle_gpus
from orchestrator.doctor.facts import DiskQuota, FolderFacts, HostFacts, LoginFacts
from orchestrator.doctor.slurmchecks import slurm_findings
from orchestrator.errors import ConfigError
from orchestrator.executors.gpus import gpus_of_slot, sharing
from orchestrator.walltime import format_duration

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
#: A clock that is off by this shifts every "seconds ago" on the screen; decisions do not rest on it.
SKEW_SEEN_S = 2.0
#: An fsync on a busy network folder takes tens of milliseconds; a second delays every decision.
SLOW_STEP_S = 1.0
#: A controller holds some dozen files; a hook or rsync below it some more.
FEW_FILES = 256

#: Of a thousand slots as many are written out.
SLOTS_NAMED = 8

#: Which tries a run cannot do without, and what breaks.
_NEEDED = {
    "mkdir": "nothing can be written there",
    "write and fsync": "nothing can be written durably there",
    "rename over a file": "a crash could leave torn files",
    "link": "two controllers could both own the run: the lease and each job's claim are hard links",
    "rename of a folder": "checkpoints are published by a rename",
}


def examine(facts: LoginFacts) -> tuple[Finding, ...]:
    """Every check, in the order in which they are shown."""
    return tuple(_all(facts))


def worst(findings: tuple[Finding, ...]) -> Level:
    """The worst level among them."""
    order = (Level.OK, Level.WARNING, Level.PROBLEM)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)


def _all(facts: LoginFacts) -> Iterator[Finding]:
    if not facts.config_known:
        yield Finding(
            check="config",
            level=Level.WARNING,
            found="there is no cluster_config.json here; defaults are examined",
            advice="write one with `orchestrator init`, or name one with --config",
        )
    yield from _walltime(facts)
    if facts.slurm is not None:
        yield from slurm_findings(facts.config, facts.slurm)
    else:
        found = "jobs run on this machine (executor: local); Slurm is not asked"
        yield Finding(check="executor", level=Level.OK, found=found)
    yield from _gpus(facts)
    yield from folder_findings(facts.folder)
    yield from (quota_finding(quota) for quota in facts.quotas)
    yield from _python(facts)
    yield from _missing(facts)
    yield from _sharing(facts)
    yield from host_findings(facts.host)
    yield from _controller(facts)


def _sharing(facts: LoginFacts) -> Iterator[Finding]:
    """What keeps other accounts from playing for this run, or this one from playing for theirs."""
    for words in facts.sharing:
        found, _, advice = words.partition(". ")
        yield Finding(check="other accounts", level=Level.WARNING, found=found, advice=advice.rstrip("."))
    config = facts.config
    if facts.sharing or (config.actors is None and config.collaboration.group is None):
        return
    ok = f"members of {config.collaboration.group} can play for this run" if config.actors is None else "we may play"
    yield Finding(check="other accounts", level=Level.OK, found=ok)


def _walltime(facts: LoginFacts) -> Iterator[Finding]:
    config = facts.config
    try:
        check_walltime(config, facts.executor)
    except ConfigError as error:
        words, _, what = str(error).partition(" Ask ")
        yield Finding(check="walltime", level=Level.PROBLEM, found=words, advice=f"ask {what}")
        return
    yield Finding(
        check="walltime",
        level=Level.OK,
        found=f"{format_duration(config.slurm.time_limit)} a job, handed over {config.lead_seconds} s before its end",
    )


def _gpus(facts: LoginFacts) -> Iterator[Finding]:
    """GPUs that the trainer would leave idle, and how the slots of this machine get theirs."""
    config, there = facts.config, facts.gpus
    if words := idle_gpus(config):
        found, _, advice = words.partition(". ")
        yield Finding(check="GPUs asked for", level=Level.WARNING, found=found, advice=advice.rstrip("."))
    if facts.gpus_in_vain:
        found, _, advice = facts.gpus_in_vain.partition("; ")
        yield Finding(check="GPUs asked for", level=Level.PROBLEM, found=found, advice=advice)
    if facts.executor != "local":
        return
    wanted = config.slurm.gpus
    if words := sharing(there, config.slots, config.places, wanted):
        found, _, advice = words.rstrip(".").partition("; ")
        yield Finding(check="GPUs here", level=Level.WARNING, found=found, advice=advice)
    elif there and wanted:
        count = min(config.places, SLOTS_NAMED)
        slots = [f"slot {slot}: {','.join(gpus_of_slot(there, slot, wanted))}" for slot in range(count)]
        more = f", and {config.places - count} more" if config.places > count else ""
        found = f"{len(there)} here, each slot has its own ({'; '.join(slots)}{more})"
        yield Finding(check="GPUs here", level=Level.OK, found=found)
    else:
        found = f"{len(there)} here, and slurm.gpus asks for none" if there else "none here: jobs compute on the CPU"
        yield Finding(check="GPUs here", level=Level.OK, found=found)


def folder_findings(folder: FolderFacts) -> Iterator[Finding]:
    """The shared folder: what works on it, how fast, how much room, and its clock."""
    broken = [step for step in folder.steps if step.error]
    slow = [step for step in folder.steps if step.seconds >= SLOW_STEP_S]
    where = f"{folder.path} ({folder.kind})" if folder.kind else folder.path
    fatal = [step for step in broken if step.name in _NEEDED]
    if fatal:
        step = fatal[0]
        yield Finding(
            check="folder",
            level=Level.PROBLEM,
            found=f"{where}: {step.name} does not work ({step.error}); {_NEEDED[step.name]}",
            advice="set run_dir to a folder on a disk, a volume or NFS: mounted buckets are none of them",
        )
    elif broken:
        found = f"{where}: {'; '.join(f'{step.name}: {step.error}' for step in broken)}"
        yield Finding(check="folder", level=Level.WARNING, found=found, advice="a run can live with it")
    elif slow:
        found = f"{where}: {', '.join(f'{step.name} took {step.seconds:.1f} s' for step in slow)}"
        yield Finding(check="folder", level=Level.WARNING, found=found, advice="saves and hand-overs take longer")
    else:
        took = max((step.seconds for step in folder.steps), default=0.0)
        found = f"{where}: rename, link, fsync and unlink work, the slowest in {1000 * took:.0f} ms"
        yield Finding(check="folder", level=Level.OK, found=found)
    if folder.kind in {"tmpfs", "ramfs"}:
        found = f"{folder.path} is {folder.kind}: memory of this machine, which no other node sees"
        yield Finding(check="folder kind", level=Level.WARNING, found=found, advice="set run_dir to a shared disk")
    if folder.free_bytes is not None:
        yield _space(folder)
    if folder.skew_s is not None:
        yield skew_finding("folder clock", "the folder's server", folder.skew_s)


def _space(folder: FolderFacts) -> Finding:
    free = folder.free_bytes or 0
    found = f"{sized(free)} free"
    level, advice = Level.OK, ""
    if folder.free_files is not None:
        found += f", room for {folder.free_files:,} files"
        if folder.free_files < LOW_FILES:
            level, advice = Level.WARNING, "few inodes are left: remove old runs"
    if free < LOW_SPACE_BYTES:
        level = Level.PROBLEM if free < NO_SPACE_BYTES else Level.WARNING
        advice = "checkpoints with their replay rows take some GB a slot: make room or set run_dir elsewhere"
    return Finding(check="space", level=level, found=found, advice=advice)


def quota_finding(quota: DiskQuota) -> Finding:
    """One filesystem's quota."""
    shares = []
    if quota.limit_bytes:
        used = f"{sized(quota.used_bytes)} of {sized(quota.limit_bytes)}"
        shares.append((quota.used_bytes / quota.limit_bytes, used))
    if quota.limit_files:
        shares.append((quota.used_files / quota.limit_files, f"{quota.used_files:,} of {quota.limit_files:,} files"))
    most = max((share for share, _ in shares), default=0.0)
    found = f"{quota.filesystem}: {', '.join(words for _, words in shares) or 'no limit'}"
    level = Level.PROBLEM if most >= 1 else Level.WARNING if most >= QUOTA_TIGHT else Level.OK
    advice = "make room: a job that cannot save loses what it trained" if level is not Level.OK else ""
    return Finding(check="quota", level=level, found=found, advice=advice)


def skew_finding(check: str, whose: str, skew_s: float) -> Finding:
    """Two clocks."""
    if abs(skew_s) < SKEW_SEEN_S:
        return Finding(check=check, level=Level.OK, found=f"{whose} and this machine agree")
    how = "ahead of" if skew_s > 0 else "behind"
    return Finding(
        check=check,
        level=Level.WARNING,
        found=f"{whose} is {abs(skew_s):.0f} s {how} this machine",
        advice="nothing is decided by comparing clocks, but times shown are off by that; tell the site's admins",
    )


def _python(facts: LoginFacts) -> Iterator[Finding]:
    python = facts.python
    if not python.version:
        # It may be there on the compute nodes only.
        yield Finding(
            check="python",
            level=Level.WARNING,
            found=f"{python.command} does not run here ({python.words})",
            advice='if the compute nodes lack it too, set "python" in the config; --probe tells',
        )
    elif tuple(map(int, python.version.split(".")[:2])) < MIN_PYTHON:
        least = ".".join(map(str, MIN_PYTHON))
        found = f"{python.command} is Python {python.version}; jobs need {least} or newer"
        yield Finding(check="python", level=Level.PROBLEM, found=found, advice='set "python" in the config to one')
    elif not python.shim_ok:
        found = f"{python.command} (Python {python.version}) cannot load the job's shim: {python.words}"
        yield Finding(check="python", level=Level.PROBLEM, found=found, advice="install Anchorleg's checkout again")
    else:
        yield Finding(check="python", level=Level.OK, found=f"{python.command}: Python {python.version}")


def _missing(facts: LoginFacts) -> Iterator[Finding]:
    advices = {
        "container.image": (Level.PROBLEM, "set container.image to what is there"),
        "command": (Level.WARNING, "every job ends at once if the compute nodes lack it too"),
        "notify": (Level.WARNING, "nobody will be told; set notify to a program of this machine"),
    }
    for one in facts.missing:
        level, advice = advices[one.field]
        yield Finding(check=one.field, level=level, found=f"{one.path} is not there", advice=advice)


def host_findings(host: HostFacts) -> Iterator[Finding]:
    """This machine as a home for a controller."""
    if host.in_job:
        yield Finding(
            check="host",
            level=Level.WARNING,
            found=f"this is inside Slurm job {host.in_job}; a controller here ends with it",
            advice="start it on a login node",
        )
    if host.kills_user_processes and not host.lingers:
        yield Finding(
            check="logout",
            level=Level.WARNING,
            found="systemd ends your processes at logout here (KillUserProcesses=yes, no lingering)",
            advice="run `loginctl enable-linger` once, or have a crontab run `orchestrator tick`",
        )
    elif host.systemd:
        how = "you linger" if host.lingers else "KillUserProcesses is off"
        yield Finding(check="logout", level=Level.OK, found=f"a detached controller outlives a logout ({how})")
    if host.cpu_limit_s is not None:
        yield Finding(
            check="CPU time",
            level=Level.WARNING,
            found=f"a process here may use {host.cpu_limit_s} s of CPU; a controller uses some minutes a day",
            advice="have a crontab run `orchestrator tick`: every tick is a process of its own",
        )
    if host.open_files is not None and host.open_files < FEW_FILES:
        found = f"a process here may open {host.open_files} files"
        yield Finding(check="open files", level=Level.WARNING, found=found, advice=f"ulimit -n {FEW_FILES}")


def _controller(facts: LoginFacts) -> Iterator[Finding]:
    run = facts.run
    if not run.begun:
        yield Finding(check="run", level=Level.OK, found="not begun yet")
    elif run.damage:
        yield Finding(check="run", level=Level.PROBLEM, found=run.damage.rstrip("."))
    elif run.controller:
        yield Finding(check="run", level=Level.OK, found=f"looked after by {run.controller}")
    elif run.wish == "run":
        advice = f"take it up again with `orchestrator start {facts.config.run_name}`"
        yield Finding(check="run", level=Level.WARNING, found="begun, and no controller lives", advice=advice)
    else:
        yield Finding(check="run", level=Level.OK, found="begun, and stopped on request")

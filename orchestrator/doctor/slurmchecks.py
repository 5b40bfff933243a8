"""Judges what Slurm says about itself, against one config. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from anchorleg.findings import Finding, Level
from anchorleg.words import counted
from orchestrator.config import EARLY_SIGNAL_S, SLURM_POLL_S, RunConfig
from orchestrator.doctor.facts import SlurmFacts
from orchestrator.executors.base import SubmitRefused, Uncertain
from orchestrator.executors.site import Answered, Command
from orchestrator.executors.site_text import SiteLimits, SiteSettings, is_older
from orchestrator.executors.slurm_text import Partition
from orchestrator.walltime import format_duration

#: Below this Slurm prints or knows less than we read: 20.11 has sacct's columns and --signal=B: as used here.
OLDEST_TRIED = (20, 11)
#: What every command says where there is neither a slurm.conf nor a DNS record of a slurmctld.
NOT_CONFIGURED = "configuration source"
#: From here on a job knows its own end without asking (SLURM_JOB_END_TIME).
TELLS_END = (23, 2)
#: A healthy slurmctld answers a ping in some 20 ms; a person notices a second.
SLOW_ANSWER_S = 2.0
#: An ended job must be seen at least twice before Slurm forgets it.
POLLS_REMEMBERED = 2
#: A signal or a deadline that is off by this is lost in the lead's reserve.
SKEW_FELT_S = 20.0
#: A job that trains for less of its walltime than this is mostly overhead.
WORTH_IT = 0.8


def slurm_findings(config: RunConfig, slurm: SlurmFacts) -> Iterator[Finding]:
    """Slurm's part of the examination."""
    if slurm.conf_missing:
        yield Finding(
            check="slurm.conf",
            level=Level.PROBLEM,
            found=f"SLURM_CONF names {slurm.conf_missing}, which is not there",
            advice="set SLURM_CONF to the site's file, or unset it",
        )
        return
    yield from commands(slurm.commands)
    if slurm.answered is None:
        return
    yield answer(slurm.answered)
    if not slurm.answered.up:
        return
    if slurm.queue_error:
        yield Finding(
            check="queue",
            level=Level.PROBLEM,
            found=f"squeue cannot be read: {slurm.queue_error}",
            advice="a run would see none of its jobs and submit nothing: see what `type squeue` runs here",
        )
    yield accounting(slurm)
    yield from partition(config, slurm.partitions)
    if slurm.trial is not None:
        yield trial(slurm)
    yield jobs_allowed(config, slurm.limits, slurm.live_jobs)
    if (wall_s := slurm.limits.wall_s) is not None and wall_s < config.slurm.time_limit:
        yield Finding(
            check="walltime allowed",
            level=Level.PROBLEM,
            found=f"your account or QOS allows {format_duration(wall_s)} a job; slurm.time_limit asks for "
            f"{format_duration(config.slurm.time_limit)}, and such a job may wait for ever",
            advice=f'set slurm.time_limit to "{format_duration(wall_s)}", or choose another slurm.qos',
        )
    if isinstance(slurm.settings, str):
        advice = "Slurm's defaults are assumed"
        yield Finding(check="settings", level=Level.WARNING, found=f"not told: {slurm.settings}", advice=advice)
    else:
        yield from settings(config, slurm.settings)
    if slurm.skew_s is not None:
        yield clock(slurm.skew_s)


def commands(found: tuple[Command, ...]) -> Iterator[Finding]:
    """Slurm's commands are here and belong together."""
    missing = [one.name for one in found if not one.path]
    versions = sorted({one.version for one in found if one.version})
    needed = [name for name in missing if name != "sacct"]
    if needed:
        yield Finding(
            check="commands",
            level=Level.PROBLEM,
            found=f"not on PATH: {', '.join(needed)}",
            advice="run this on a login node, or load Slurm's module first",
        )
    elif len(versions) > 1:
        found_words = f"of different versions: {', '.join(f'{one.name} {one.version}' for one in found if one.version)}"
        advice = "look at PATH: two installations of Slurm are mixed"
        yield Finding(check="commands", level=Level.WARNING, found=found_words, advice=advice)
    elif versions and is_older(versions[0], OLDEST_TRIED):
        least = f"{OLDEST_TRIED[0]}.{OLDEST_TRIED[1]:02d}"
        found_words = f"Slurm {versions[0]} is older than what was tried ({least})"
        yield Finding(check="commands", level=Level.WARNING, found=found_words, advice="run `doctor --probe`")
    else:
        yield Finding(check="commands", level=Level.OK, found=f"Slurm {' '.join(versions) or 'of unknown version'}")


def answer(answered: Answered) -> Finding:
    """Slurmctld answers, and soon."""
    if not answered.up and NOT_CONFIGURED in answered.words:
        return Finding(
            check="slurmctld",
            level=Level.PROBLEM,
            found="Slurm's commands are here, but no slurm.conf says which cluster this is",
            advice='run this on a login node, set SLURM_CONF, or set executor to "local"',
        )
    if not answered.up:
        return Finding(
            check="slurmctld",
            level=Level.PROBLEM,
            found=f"does not answer: {answered.words}",
            advice="wait for the site; a run that is under way loses nothing meanwhile",
        )
    found = f"answers in {1000 * answered.seconds:.0f} ms"
    if answered.seconds >= SLOW_ANSWER_S:
        advice = 'the site is busy: set "poll_seconds": 60'
        return Finding(check="slurmctld", level=Level.WARNING, found=found, advice=advice)
    return Finding(check="slurmctld", level=Level.OK, found=found)


def accounting(slurm: SlurmFacts) -> Finding:
    """The history. Doing without is supported."""
    if slurm.accounting == "ok":
        return Finding(check="accounting", level=Level.OK, found="sacct answers")
    if slurm.accounting == "disabled":
        found = "none here; ends are proven by the queue and the jobs' own records"
        return Finding(check="accounting", level=Level.OK, found=found)
    return Finding(
        check="accounting",
        level=Level.WARNING,
        found=f"sacct does not answer: {slurm.accounting_words}",
        advice="a run goes on by the queue and its jobs' records; it waits only where both are silent",
    )


def chosen(config: RunConfig, offered: tuple[Partition, ...]) -> tuple[Partition, ...]:
    """The partitions that the config means: by name, several with commas between, else the default one."""
    name = config.slurm.partition
    if name is None:
        return tuple(row for row in offered if row.is_default)
    return tuple(row for row in offered if row.name in name.split(","))


def walltime_allowed_s(config: RunConfig, slurm: SlurmFacts) -> int | None:
    """What partition, account and QOS allow a job at most; None where there is no limit, or none told. Of several
    partitions a job waits for one that fits and allows it.
    """
    rows = () if isinstance(slurm.partitions, str) else chosen(config, slurm.partitions)
    rows = tuple(row for row in rows if row.is_up and sum(row.gpus.values()) >= config.slurm.gpus) or rows
    limits = [row.time_limit_s for row in rows]
    told = [limit for limit in limits if limit is not None]
    of_partition = max(told) if told and len(told) == len(limits) else None
    return min((wall for wall in (of_partition, slurm.limits.wall_s) if wall is not None), default=None)


def partition(config: RunConfig, offered: tuple[Partition, ...] | str) -> Iterator[Finding]:
    """The partition is there, up, and long and large enough; of several, one is."""
    name = config.slurm.partition
    if isinstance(offered, str):
        advice = "run this again when Slurm has time; sbatch checks the partition too"
        yield Finding(check="partition", level=Level.WARNING, found=f"sinfo does not tell: {offered}", advice=advice)
        return
    names = ", ".join(row.name for row in offered) or "none"
    missing = set(name.split(",") if name else ()) - {row.name for row in offered}
    if missing:
        what = " and ".join(f'"{one}"' for one in sorted(missing))
        found = f"{what} {'is' if len(missing) == 1 else 'are'} not there"
        advice = f"set slurm.partition to one of: {names}"
        yield Finding(check="partition", level=Level.PROBLEM, found=found, advice=advice)
    judged = [(row, tuple(_unfit(config, row, names))) for row in chosen(config, offered)]
    if not judged and not name:
        advice = f"set slurm.partition to one of these, unless the site chooses by itself: {names}"
        yield Finding(check="partition", level=Level.WARNING, found="the site has no default one", advice=advice)
    fit = [row for row, found in judged if not found]
    yield from (_fits(row) for row in fit)
    if not fit:
        yield from (one for _, found in judged for one in found)
    yield from _use(config)


def _unfit(config: RunConfig, row: Partition, names: str) -> Iterator[Finding]:
    wanted, gpus = config.slurm, sum(row.gpus.values())
    if not row.is_up:
        advice = f"choose another partition ({names}) or wait"
        yield Finding(check="partition", level=Level.PROBLEM, found=f"{row.name} is down", advice=advice)
    if row.time_limit_s is not None and wanted.time_limit > row.time_limit_s:
        asked, given = format_duration(wanted.time_limit), format_duration(row.time_limit_s)
        yield Finding(
            check="partition",
            level=Level.PROBLEM,
            found=f"{row.name} gives {_longest(row)}; slurm.time_limit asks for {asked}",
            advice=f'set slurm.time_limit to "{given}": else a job may wait for ever',
        )
    if wanted.gpus > gpus:
        found = f"a node of {row.name} has {gpus} GPUs; slurm.gpus asks for {wanted.gpus}"
        advice = "lower slurm.gpus or choose another partition"
        yield Finding(check="partition", level=Level.PROBLEM, found=found, advice=advice)


def _fits(row: Partition) -> Finding:
    gpus = sum(row.gpus.values())
    each = f"{row.cpus_per_node} CPUs and {counted(gpus, 'GPU') if gpus else 'no GPUs'}"
    found = f"{row.name} is up: {_longest(row)}, {row.nodes} nodes, each with {each}"
    return Finding(check="partition", level=Level.OK, found=found)


def _longest(row: Partition) -> str:
    return "no time limit" if row.time_limit_s is None else f"at most {format_duration(row.time_limit_s)} a job"


def _use(config: RunConfig) -> Iterator[Finding]:
    before_s = config.lead_seconds + EARLY_SIGNAL_S
    useful = 1 - before_s / max(1, config.slurm.time_limit)
    if 0 < useful < WORTH_IT:
        yield Finding(
            check="use of a job",
            level=Level.WARNING,
            found=f"hand-over may begin {before_s} s before the end, so a job trains for at least {100 * useful:.0f} % "
            "of its walltime",
            advice="ask for a longer time_limit, or lower lead_seconds to a few times what a save takes",
        )


def trial(slurm: SlurmFacts) -> Finding:
    """What `sbatch --test-only` says of the very script."""
    tried = slurm.trial
    if tried is None or tried.outcome is None:
        found = tried.words.partition(" to start at ")[2] if tried else ""
        words = f"Slurm would take it, and start it at {found}" if found else "Slurm would take it"
        return Finding(check="job script", level=Level.OK, found=words)
    if isinstance(tried.outcome, SubmitRefused) and tried.outcome.kind == "permanent":
        advice = "correct the slurm section of the config; `orchestrator render` shows the script"
        return Finding(check="job script", level=Level.PROBLEM, found=f"Slurm refuses it: {tried.words}", advice=advice)
    if isinstance(tried.outcome, Uncertain):
        found = f"sbatch --test-only gave no clear answer: {tried.words}"
        return Finding(check="job script", level=Level.WARNING, found=found, advice="--probe tells")
    advice = "a limit of this moment: a run waits until it passes"
    return Finding(check="job script", level=Level.WARNING, found=f"not now: {tried.words}", advice=advice)


def jobs_needed(config: RunConfig) -> int:
    """How many jobs a run may have in the queue at once."""
    return config.places * (2 if config.relay.queue_ahead else 1)


def jobs_allowed(config: RunConfig, limits: SiteLimits, live_jobs: int | None) -> Finding:
    """The user's limits against the number of jobs that the config keeps."""
    needed, places = jobs_needed(config), config.places
    fewer = "slots" if places == config.slots else "slurm.max_jobs"
    count = "" if live_jobs is None else f"; you have {live_jobs} there now"
    most = config.slurm.max_jobs
    if not limits.told:
        found = f"limits are not told ({limits.why or 'no answer'}); they are learned from sbatch's refusals{count}"
        return Finding(check="job limits", level=Level.OK, found=found)
    submitted = limits.submitted
    told = f"{submitted or 'any number of'} jobs submitted, {limits.running or 'any number of'} running{count}"
    if submitted is not None and submitted < places:
        advice = f"set {fewer} to {submitted}, or live with {counted(places - submitted, 'job')} refused"
        return Finding(check="job limits", level=Level.WARNING, found=told, advice=advice)
    if limits.running is not None and limits.running < places:
        advice = f"{places - limits.running} of {places} jobs will always wait: set {fewer} to "
        return Finding(check="job limits", level=Level.WARNING, found=told, advice=f"{advice}{limits.running}")
    if submitted is not None and submitted < needed:
        advice = f"relay.queue_ahead wants {needed}: only {submitted - places} slots can queue ahead"
        return Finding(check="job limits", level=Level.WARNING, found=told, advice=advice)
    if submitted is not None and submitted == places and config.relay.failover_tick:
        advice = (
            "with as many jobs allowed as run at once, a job cannot submit its successor before it has left the queue: "
            f"without a controller failover ticks alone settles at {places - 1} of {places} jobs"
        )
        return Finding(check="job limits", level=Level.WARNING, found=told, advice=advice)
    if most is not None and submitted is not None and most > submitted:
        advice = f"set slurm.max_jobs to {submitted}"
        return Finding(check="job limits", level=Level.WARNING, found=told, advice=advice)
    return Finding(check="job limits", level=Level.OK, found=told)


def settings(config: RunConfig, told: SiteSettings) -> Iterator[Finding]:
    """slurm.conf, as far as a relay feels it."""
    poll_s = config.poll_seconds or SLURM_POLL_S
    age_s = told.seconds("MinJobAge")
    if age_s is not None and age_s < POLLS_REMEMBERED * poll_s:
        yield Finding(
            check="MinJobAge",
            level=Level.WARNING,
            found=f"Slurm forgets an ended job after {age_s:g} s; the queue is looked at every {poll_s:g} s",
            advice=f'set "poll_seconds" to {max(1, int(age_s / POLLS_REMEMBERED))} or less; until then ends are '
            "proven by the jobs' own records",
        )
    elif age_s is not None:
        yield Finding(check="MinJobAge", level=Level.OK, found=f"ended jobs stay in the queue for {age_s:g} s")
    parts = []
    if (wait_s := told.seconds("KillWait")) is not None:
        parts.append(f"{wait_s:g} s from TERM to KILL")
    if requeue := told.text("JobRequeue"):
        parts.append("Slurm requeues by default; our jobs ask not to be" if requeue == "1" else "no requeue by default")
    preempt = told.text("PreemptMode")
    parts.append("no preemption" if preempt in {"", "OFF"} else f"preemption: {preempt}, which is resumed from")
    yield Finding(check="ends", level=Level.OK, found="; ".join(parts))
    if told.text("EnforcePartLimits").upper() in {"NO", ""}:
        found = "sbatch takes jobs above a partition's limits, which then wait for ever; `status` names them"
    else:
        found = "sbatch refuses jobs above a partition's limits"
    yield Finding(check="limits at sbatch", level=Level.OK, found=found)
    version = told.text("SLURM_VERSION")
    if is_older(version, TELLS_END):
        found = f"slurmctld {version} does not tell a job its end; each job asks squeue once"
        yield Finding(check="version", level=Level.OK, found=found)
    elif version:
        yield Finding(check="version", level=Level.OK, found=f"slurmctld {version}")


def clock(skew_s: float) -> Finding:
    """Slurmctld's clock against ours."""
    if abs(skew_s) < SKEW_FELT_S:
        return Finding(check="Slurm's clock", level=Level.OK, found=f"within {max(1.0, abs(skew_s)):.0f} s of ours")
    how = "ahead of" if skew_s > 0 else "behind"
    return Finding(
        check="Slurm's clock",
        level=Level.WARNING,
        found=f"slurmctld is {abs(skew_s):.0f} s {how} this machine",
        advice="times shown are off by that; if the nodes are off too, raise lead_seconds by as much",
    )

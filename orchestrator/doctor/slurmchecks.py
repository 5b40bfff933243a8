"""What Slurm says about itself and allows, against one config. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anchorleg.findings import Judgement, Judgements, Level, ok, problem, warning
from anchorleg.words import counted
from orchestrator.config import RunConfig, smallest_time_limit_s
from orchestrator.executors.base import Frozen, SubmitRefused, Uncertain
from orchestrator.executors.site import SiteLimits, SubmitCheck
from orchestrator.executors.slurm_text import Partition
from orchestrator.notation import format_duration


class SlurmFacts(Frozen):
    """What Slurm said. `conf_missing`: what SLURM_CONF names in vain; `commands_missing`: what is not on PATH; `down`:
    why slurmctld does not answer. Where one of these is set, nothing else was asked. Texts stand in place of answers
    that are not there.
    """

    conf_missing: str = ""
    commands_missing: tuple[str, ...] = ()
    down: str = ""
    partitions: tuple[Partition, ...] | str = ""
    limits: SiteLimits = SiteLimits(told=False)
    trial: SubmitCheck | None = None
    queue_error: str = ""

    @property
    def is_up(self) -> bool:
        """Whether Slurm can be asked, and a job be sent."""
        return not (self.conf_missing or self.commands_missing or self.down)


Judge = Callable[[RunConfig, SlurmFacts], Judgements]


def slurmctld(_config: RunConfig, slurm: SlurmFacts) -> Judgement:
    """Whether Slurm can be asked: only then the other checks can judge."""
    if slurm.conf_missing:
        found = f"SLURM_CONF names {slurm.conf_missing}, which does not exist"
        return problem(found, "set SLURM_CONF to the site's file, or unset it")
    if slurm.commands_missing:
        found = f"not on PATH: {', '.join(slurm.commands_missing)}"
        return problem(found, "run this on a login node, or load Slurm's module first")
    if "configuration source" in slurm.down:  # neither a slurm.conf nor a DNS record of a slurmctld
        found = "Slurm's commands are here, but no slurm.conf says which cluster this is"
        return problem(found, 'run this on a login node, set SLURM_CONF, or set executor to "local"')
    if slurm.down:
        return problem(f"does not answer: {slurm.down}", "wait for the site; no run loses anything")
    if slurm.queue_error:
        found = f"the queue cannot be read: {slurm.queue_error}"
        return problem(found, "a run would see none of its jobs: check `type squeue` here")
    return ok("it answers")


def _chosen(config: RunConfig, offered: tuple[Partition, ...]) -> tuple[Partition, ...]:
    names = config.slurm.partition.split(",") if config.slurm.partition is not None else None
    return tuple(row for row in offered if (row.is_default if names is None else row.name in names))


def walltime_allowed_s(config: RunConfig, slurm: SlurmFacts) -> int | None:
    """At most, by partitions (a job waits for one that fits), account and QOS; None: no limit, or none told."""
    rows = () if isinstance(slurm.partitions, str) else _chosen(config, slurm.partitions)
    rows = tuple(row for row in rows if row.is_up and sum(row.gpus.values()) >= config.slurm.gpus) or rows
    told = [row.time_limit_s for row in rows if row.time_limit_s is not None]
    of_partition = max(told) if told and len(told) == len(rows) else None
    return min((wall for wall in (of_partition, slurm.limits.wall_s) if wall is not None), default=None)


def _shorter(config: RunConfig, slurm: SlurmFacts) -> dict[str, Any]:
    """The walltime that fits, where a job of it still has time to train."""
    longest_s = walltime_allowed_s(config, slurm)
    fits = longest_s is not None and longest_s >= smallest_time_limit_s(config.lead_seconds, "slurm")
    return {"slurm.time_limit": format_duration(longest_s)} if fits and longest_s is not None else {}


def partition(config: RunConfig, slurm: SlurmFacts, *, lasting: bool = False) -> Iterator[Judgement]:
    """Of each place where jobs may start. `lasting`: without what passes by waiting, or what a QOS may allow."""
    for place in config.slurm.places:
        config, name, offered = config.model_copy(update={"slurm": place}), place.partition, slurm.partitions
        if isinstance(offered, str):
            yield warning(f"sinfo does not answer: {offered}", "run this again later; sbatch checks the partition, too")
            continue
        names = ", ".join(row.name for row in offered) or "none"
        if missing := sorted(set(name.split(",") if name else ()) - {row.name for row in offered}):
            what = " and ".join(f'"{one}"' for one in missing)
            found = f"{what} {'does' if len(missing) == 1 else 'do'} not exist"
            yield problem(found, f"set slurm.partition to one of: {names}")
        judged = [(row, list(_unfit(config, slurm, row, offered, lasting=lasting))) for row in _chosen(config, offered)]
        if not judged and not name:
            advice = f"set slurm.partition to one of these, or let the site choose: {names}"
            yield warning("the site has no default", advice)
        fit = [_fits(row) for row, faults in judged if not faults]
        yield from fit or (fault for _, faults in judged for fault in faults)


def _unfit(
    config: RunConfig, slurm: SlurmFacts, row: Partition, offered: tuple[Partition, ...], *, lasting: bool
) -> Iterator[Judgement]:
    wanted, gpus = config.slurm, sum(row.gpus.values())
    cpus, ranks = row.most_cpus, wanted.ranks // wanted.nodes
    if not row.is_up and not lasting:
        yield problem(f"{row.name} is down", f"wait{_or([one for one in offered if one.is_up])}")
    if row.time_limit_s is not None and wanted.time_limit > row.time_limit_s and not (lasting and wanted.qos):
        found = f"{row.name} gives {_longest(row)}, but slurm.time_limit asks for {format_duration(wanted.time_limit)}"
        longer = _or([one for one in offered if (one.time_limit_s or wanted.time_limit) >= wanted.time_limit])
        advice = f'set slurm.time_limit to "{format_duration(row.time_limit_s)}"{longer}'
        yield problem(found, advice, _shorter(config, slurm))
    if wanted.gpus > gpus:
        others = _or([one for one in offered if sum(one.gpus.values()) >= wanted.gpus])
        found = f"a node of {row.name} has {counted(gpus, 'GPU')}, but slurm.gpus asks for {wanted.gpus}"
        yield problem(found, f"set slurm.gpus to {gpus}{others}")
    if 0 < cpus < wanted.cpus_per_task * ranks:
        fits = max(1, cpus // ranks)
        found = f"a node of {row.name} has {counted(cpus, 'CPU')}, but slurm.cpus_per_task asks for"
        yield problem(
            f"{found} {wanted.cpus_per_task}" + (f" for each of {ranks} ranks" if ranks > 1 else ""),
            f"set slurm.cpus_per_task to {fits}",
            {"slurm.cpus_per_task": fits},
        )
    if 1 < row.most_memory_mb < wanted.memory_mb:
        fits_mb = f"{row.most_memory_mb}M"
        found = f"a node of {row.name} has {fits_mb} of memory, but slurm.mem asks for {wanted.mem}"
        yield problem(found, f'set slurm.mem to "{fits_mb}"', {"slurm.mem": fits_mb})


def _or(rows: Sequence[Partition]) -> str:
    names = " or ".join(row.name for row in rows)
    return f", or set slurm.partition to {names}" if rows else ""


def _fits(row: Partition) -> Judgement:
    gpus = sum(row.gpus.values())
    each = f"{row.cpus_per_node} CPUs and {counted(gpus, 'GPU') if gpus else 'no GPUs'}"
    return ok(f"{row.name} is up: {_longest(row)}, {row.nodes} nodes, each with {each}")


def _longest(row: Partition) -> str:
    return "no time limit" if row.time_limit_s is None else f"at most {format_duration(row.time_limit_s)} a job"


def _job_script(_config: RunConfig, slurm: SlurmFacts) -> Judgements:
    tried = slurm.trial
    if tried is None:
        return None
    if tried.outcome is None:
        at = tried.words.partition(" to start at ")[2]
        return ok("Slurm would accept it" + (f", and start it at {at}" if at else ""))
    if isinstance(tried.outcome, SubmitRefused) and tried.outcome.kind == "permanent":
        advice = "correct the slurm section of the config; `orchestrator render` shows the script"
        return problem(f"Slurm refuses it: {tried.words}", advice)
    if isinstance(tried.outcome, Uncertain):
        return warning(f"sbatch --test-only gave no clear answer: {tried.words}", "--probe tells")
    return warning(f"not now: {tried.words}", "a temporary limit: a run waits until it passes")


def _job_limits(config: RunConfig, slurm: SlurmFacts) -> Judgement:
    limits = slurm.limits
    if not limits.told:
        return ok(f"limits are unknown ({limits.why or 'no answer'}); they are learned from sbatch's refusals")
    submitted, running = limits.submitted or "any number of", limits.running or "any number of"
    found, advice = f"{submitted} jobs submitted, {running} running", _too_few_jobs(config, limits)
    sets: dict[str, Any] = {}
    if (most := limits.submitted) is not None and (config.slurm.max_jobs is None or config.slurm.max_jobs > most):
        sets["slurm.max_jobs"] = most  # what would be refused is not tried
    if most is not None and config.relay.queue_ahead and most < 2 * config.places:
        sets["relay.queue_ahead"] = False
    return Judgement(Level.WARNING if advice else Level.OK, found, advice, sets)


def _too_few_jobs(config: RunConfig, limits: SiteLimits) -> str:
    """What to do where the limits are too narrow; empty where they are not."""
    places, submitted, running, most = config.places, limits.submitted, limits.running, config.slurm.max_jobs
    fewer = "slots" if places == config.slots else "slurm.max_jobs"
    needed = places * (2 if config.relay.queue_ahead else 1)
    if submitted is not None and submitted < places:
        return f"set {fewer} to {submitted}, or Slurm refuses {counted(places - submitted, 'job')}"
    if running is not None and running < places:
        return f"{places - running} of {places} jobs will always wait: set {fewer} to {running}"
    if submitted is None:
        return ""
    if submitted < needed:
        return f"relay.queue_ahead needs {needed} jobs: only {submitted - places} slots can queue ahead"
    if submitted == places and config.relay.failover_tick:
        return (
            "your job limit equals the number of slots, and a job can submit its successor only after it has left the "
            f"queue: without a controller, only {places - 1} of {places} slots continue"
        )
    return f"set slurm.max_jobs to {submitted}" if most is not None and most > submitted else ""


def _walltime_allowed(config: RunConfig, slurm: SlurmFacts) -> Judgements:
    wall_s, asked_s = slurm.limits.wall_s, config.slurm.time_limit
    if wall_s is None or wall_s >= asked_s:
        return None
    return problem(
        f"your account or QOS allows {format_duration(wall_s)} a job; slurm.time_limit asks for "
        f"{format_duration(asked_s)}, so the job may never start",
        f'set slurm.time_limit to "{format_duration(wall_s)}", or choose another slurm.qos',
        _shorter(config, slurm),
    )


#: In the order in which they are shown.
CHECKS: tuple[tuple[str, Judge], ...] = (
    ("slurmctld", slurmctld),
    ("partition", partition),
    ("job script", _job_script),
    ("job limits", _job_limits),
    ("walltime allowed", _walltime_allowed),
)

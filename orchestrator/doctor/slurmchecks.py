"""What Slurm says about itself, against one config. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anchorleg.findings import Check, Judgement, Judgements, ok, problem, warning
from anchorleg.words import counted
from orchestrator.config import EARLY_SIGNAL_S, SLURM_POLL_S, RunConfig
from orchestrator.doctor.facts import LoginFacts, SlurmFacts
from orchestrator.executors.base import SubmitRefused, Uncertain
from orchestrator.executors.site_text import SiteLimits, SiteSettings, is_older
from orchestrator.executors.slurm_text import Partition
from orchestrator.notation import format_duration

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


def answered(name: str, judge: Callable[[RunConfig, SlurmFacts], Judgements]) -> Check[LoginFacts]:
    """A check where slurmctld answers: after a ping that fails nothing else was asked."""

    def judge_if_up(facts: LoginFacts) -> Judgements:
        slurm = facts.slurm
        is_up = slurm is not None and slurm.answered is not None and slurm.answered.up
        return judge(facts.config, slurm) if slurm is not None and is_up else None

    return Check(name, judge_if_up)


def configured(name: str, judge: Callable[[RunConfig, SiteSettings], Judgements]) -> Check[LoginFacts]:
    """A check where Slurm tells its settings."""
    return answered(
        name, lambda config, slurm: None if isinstance(slurm.settings, str) else judge(config, slurm.settings)
    )


def _slurm_conf(facts: LoginFacts) -> Judgements:
    if facts.slurm is None or not facts.slurm.conf_missing:
        return None
    found = f"SLURM_CONF names {facts.slurm.conf_missing}, which is not there"
    return problem(found, "set SLURM_CONF to the site's file, or unset it")


def _commands(facts: LoginFacts) -> Judgements:
    if facts.slurm is None or facts.slurm.conf_missing:
        return None
    found = facts.slurm.commands
    missing = [one.name for one in found if not one.path and one.name != "sacct"]
    versions = sorted({one.version for one in found if one.version})
    if missing:
        return problem(f"not on PATH: {', '.join(missing)}", "run this on a login node, or load Slurm's module first")
    if len(versions) > 1:
        words = f"of different versions: {', '.join(f'{one.name} {one.version}' for one in found if one.version)}"
        return warning(words, "look at PATH: two installations of Slurm are mixed")
    if versions and is_older(versions[0], OLDEST_TRIED):
        least = f"{OLDEST_TRIED[0]}.{OLDEST_TRIED[1]:02d}"
        return warning(f"Slurm {versions[0]} is older than what was tried ({least})", "run `doctor --probe`")
    return ok(f"Slurm {' '.join(versions) or 'of unknown version'}")


def _slurmctld(facts: LoginFacts) -> Judgements:
    told = facts.slurm.answered if facts.slurm is not None else None
    if told is None:
        return None
    if not told.up and NOT_CONFIGURED in told.words:
        found = "Slurm's commands are here, but no slurm.conf says which cluster this is"
        return problem(found, 'run this on a login node, set SLURM_CONF, or set executor to "local"')
    if not told.up:
        advice = "wait for the site; a run that is under way loses nothing meanwhile"
        return problem(f"does not answer: {told.words}", advice)
    found = f"answers in {1000 * told.seconds:.0f} ms"
    return warning(found, 'the site is busy: set "poll_seconds": 60') if told.seconds >= SLOW_ANSWER_S else ok(found)


def _queue(_config: RunConfig, slurm: SlurmFacts) -> Judgements:
    if not slurm.queue_error:
        return None
    advice = "a run would see none of its jobs and submit nothing: see what `type squeue` runs here"
    return problem(f"squeue cannot be read: {slurm.queue_error}", advice)


def _accounting(_config: RunConfig, slurm: SlurmFacts) -> Judgement:
    if slurm.accounting == "ok":
        return ok("sacct answers")
    if slurm.accounting == "disabled":
        return ok("none here; ends are proven by the queue and the jobs' own records")
    advice = "a run goes on by the queue and its jobs' records; it waits only where both are silent"
    return warning(f"sacct does not answer: {slurm.accounting_words}", advice)


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


def _partition(config: RunConfig, slurm: SlurmFacts) -> Iterator[Judgement]:
    name, offered = config.slurm.partition, slurm.partitions
    if isinstance(offered, str):
        advice = "run this again when Slurm has time; sbatch checks the partition too"
        yield warning(f"sinfo does not tell: {offered}", advice)
        return
    names = ", ".join(row.name for row in offered) or "none"
    if missing := sorted(set(name.split(",") if name else ()) - {row.name for row in offered}):
        what = " and ".join(f'"{one}"' for one in missing)
        found = f"{what} {'is' if len(missing) == 1 else 'are'} not there"
        yield problem(found, f"set slurm.partition to one of: {names}")
    judged = [(row, list(_unfit(config, row, names))) for row in chosen(config, offered)]
    if not judged and not name:
        advice = f"set slurm.partition to one of these, unless the site chooses by itself: {names}"
        yield warning("the site has no default one", advice)
    fit = [_fits(row) for row, faults in judged if not faults]
    yield from fit or (fault for _, faults in judged for fault in faults)


def _unfit(config: RunConfig, row: Partition, names: str) -> Iterator[Judgement]:
    wanted, gpus = config.slurm, sum(row.gpus.values())
    if not row.is_up:
        yield problem(f"{row.name} is down", f"choose another partition ({names}) or wait")
    if row.time_limit_s is not None and wanted.time_limit > row.time_limit_s:
        yield problem(
            f"{row.name} gives {_longest(row)}; slurm.time_limit asks for {format_duration(wanted.time_limit)}",
            f'set slurm.time_limit to "{format_duration(row.time_limit_s)}": else a job may wait for ever',
        )
    if wanted.gpus > gpus:
        found = f"a node of {row.name} has {gpus} GPUs; slurm.gpus asks for {wanted.gpus}"
        yield problem(found, "lower slurm.gpus or choose another partition")


def _fits(row: Partition) -> Judgement:
    gpus = sum(row.gpus.values())
    each = f"{row.cpus_per_node} CPUs and {counted(gpus, 'GPU') if gpus else 'no GPUs'}"
    return ok(f"{row.name} is up: {_longest(row)}, {row.nodes} nodes, each with {each}")


def _longest(row: Partition) -> str:
    return "no time limit" if row.time_limit_s is None else f"at most {format_duration(row.time_limit_s)} a job"


def _use_of_job(config: RunConfig, _slurm: SlurmFacts) -> Judgements:
    before_s = config.lead_seconds + EARLY_SIGNAL_S
    useful = 1 - before_s / max(1, config.slurm.time_limit)
    if not 0 < useful < WORTH_IT:
        return None
    return warning(
        f"hand-over may begin {before_s} s before the end, so a job trains for at least {100 * useful:.0f} % "
        "of its walltime",
        "ask for a longer time_limit, or lower lead_seconds to a few times what a save takes",
    )


def _job_script(_config: RunConfig, slurm: SlurmFacts) -> Judgements:
    tried = slurm.trial
    if tried is None:
        return None
    if tried.outcome is None:
        at = tried.words.partition(" to start at ")[2]
        return ok("Slurm would take it" + (f", and start it at {at}" if at else ""))
    if isinstance(tried.outcome, SubmitRefused) and tried.outcome.kind == "permanent":
        advice = "correct the slurm section of the config; `orchestrator render` shows the script"
        return problem(f"Slurm refuses it: {tried.words}", advice)
    if isinstance(tried.outcome, Uncertain):
        return warning(f"sbatch --test-only gave no clear answer: {tried.words}", "--probe tells")
    return warning(f"not now: {tried.words}", "a limit of this moment: a run waits until it passes")


def _job_limits(config: RunConfig, slurm: SlurmFacts) -> Judgement:
    limits = slurm.limits
    count = "" if slurm.live_jobs is None else f"; you have {slurm.live_jobs} there now"
    if not limits.told:
        why = limits.why or "no answer"
        return ok(f"limits are not told ({why}); they are learned from sbatch's refusals{count}")
    submitted, running = limits.submitted or "any number of", limits.running or "any number of"
    found, advice = f"{submitted} jobs submitted, {running} running{count}", _too_few_jobs(config, limits)
    return warning(found, advice) if advice else ok(found)


def _too_few_jobs(config: RunConfig, limits: SiteLimits) -> str:
    """What to do where the limits are too narrow; empty where they are not."""
    places, submitted, running, most = config.places, limits.submitted, limits.running, config.slurm.max_jobs
    fewer = "slots" if places == config.slots else "slurm.max_jobs"
    needed = places * (2 if config.relay.queue_ahead else 1)
    if submitted is not None and submitted < places:
        return f"set {fewer} to {submitted}, or live with {counted(places - submitted, 'job')} refused"
    if running is not None and running < places:
        return f"{places - running} of {places} jobs will always wait: set {fewer} to {running}"
    if submitted is None:
        return ""
    if submitted < needed:
        return f"relay.queue_ahead wants {needed}: only {submitted - places} slots can queue ahead"
    if submitted == places and config.relay.failover_tick:
        return (
            "with as many jobs allowed as run at once, a job cannot submit its successor before it has left the queue: "
            f"without a controller failover ticks alone settles at {places - 1} of {places} jobs"
        )
    return f"set slurm.max_jobs to {submitted}" if most is not None and most > submitted else ""


def _walltime_allowed(config: RunConfig, slurm: SlurmFacts) -> Judgements:
    wall_s, asked_s = slurm.limits.wall_s, config.slurm.time_limit
    if wall_s is None or wall_s >= asked_s:
        return None
    return problem(
        f"your account or QOS allows {format_duration(wall_s)} a job; slurm.time_limit asks for "
        f"{format_duration(asked_s)}, and such a job may wait for ever",
        f'set slurm.time_limit to "{format_duration(wall_s)}", or choose another slurm.qos',
    )


def _settings(_config: RunConfig, slurm: SlurmFacts) -> Judgements:
    unknown = isinstance(slurm.settings, str)
    return warning(f"not told: {slurm.settings}", "Slurm's defaults are assumed") if unknown else None


def _min_job_age(config: RunConfig, told: SiteSettings) -> Judgements:
    age_s, poll_s = told.seconds("MinJobAge"), config.poll_seconds or SLURM_POLL_S
    if age_s is None:
        return None
    if age_s >= POLLS_REMEMBERED * poll_s:
        return ok(f"ended jobs stay in the queue for {age_s:g} s")
    return warning(
        f"Slurm forgets an ended job after {age_s:g} s; the queue is looked at every {poll_s:g} s",
        f'set "poll_seconds" to {max(1, int(age_s / POLLS_REMEMBERED))} or less; until then ends are '
        "proven by the jobs' own records",
    )


def _ends(_config: RunConfig, told: SiteSettings) -> Judgement:
    parts = []
    if (wait_s := told.seconds("KillWait")) is not None:
        parts.append(f"{wait_s:g} s from TERM to KILL")
    if requeue := told.text("JobRequeue"):
        parts.append("Slurm requeues by default; our jobs ask not to be" if requeue == "1" else "no requeue by default")
    preempt = told.text("PreemptMode")
    parts.append("no preemption" if preempt in {"", "OFF"} else f"preemption: {preempt}, which is resumed from")
    return ok("; ".join(parts))


def _limits_at_sbatch(_config: RunConfig, told: SiteSettings) -> Judgement:
    if told.text("EnforcePartLimits").upper() in {"NO", ""}:
        return ok("sbatch takes jobs above a partition's limits, which then wait for ever; `status` names them")
    return ok("sbatch refuses jobs above a partition's limits")


def _version(_config: RunConfig, told: SiteSettings) -> Judgements:
    number = told.text("SLURM_VERSION")
    if is_older(number, TELLS_END):
        return ok(f"slurmctld {number} does not tell a job its end; each job asks squeue once")
    return ok(f"slurmctld {number}") if number else None


def _clock(_config: RunConfig, slurm: SlurmFacts) -> Judgements:
    skew_s = slurm.skew_s
    if skew_s is None:
        return None
    if abs(skew_s) < SKEW_FELT_S:
        return ok(f"within {max(1.0, abs(skew_s)):.0f} s of ours")
    return warning(
        f"slurmctld is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine",
        "times shown are off by that; if the nodes are off too, raise lead_seconds by as much",
    )


CHECKS: tuple[Check[LoginFacts], ...] = (
    Check("slurm.conf", _slurm_conf),
    Check("commands", _commands),
    Check("slurmctld", _slurmctld),
    answered("queue", _queue),
    answered("accounting", _accounting),
    answered("partition", _partition),
    answered("use of a job", _use_of_job),
    answered("job script", _job_script),
    answered("job limits", _job_limits),
    answered("walltime allowed", _walltime_allowed),
    answered("settings", _settings),
    configured("MinJobAge", _min_job_age),
    configured("ends", _ends),
    configured("limits at sbatch", _limits_at_sbatch),
    configured("version", _version),
    answered("Slurm's clock", _clock),
)

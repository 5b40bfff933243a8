"""From what was found to values for the config, each with its reason. Pure."""

from __future__ import annotations

import math
from typing import Any

from orchestrator.config import EARLY_SIGNAL_S, SLURM_POLL_S, apply_overrides, smallest_time_limit_s
from orchestrator.doctor.facts import LoginFacts, ProbeResult, SlurmFacts, section
from orchestrator.doctor.probechecks import SIGNAL_SLACK_S, earliness_s, sbatch_works
from orchestrator.doctor.slurmchecks import POLLS_REMEMBERED, SKEW_FELT_S, walltime_allowed_s
from orchestrator.executors.site_text import SiteSettings
from orchestrator.notation import format_duration

#: A save of MT10 takes a few seconds.
SHORTEST_LEAD_S = 10
#: A wait that is worth a second job in the queue for each slot.
LONG_WAIT_S = 60.0


def advise(facts: LoginFacts, result: ProbeResult | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(fields to set, nested as in the file; one reason each, and for what was measured and may stay)."""
    values: dict[str, Any] = {}
    reasons: list[str] = []
    if facts.slurm is not None:
        _from_slurm(facts, facts.slurm, values, reasons)
    if result is not None and result.report:
        _lead(facts, result, values, reasons)
        _from_node(facts, result, values, reasons)
    return apply_overrides({}, values), tuple(reasons)


def _from_slurm(facts: LoginFacts, slurm: SlurmFacts, values: dict[str, Any], reasons: list[str]) -> None:
    config, most = facts.config, slurm.limits.submitted
    longest_s = walltime_allowed_s(config, slurm)
    if longest_s is not None and config.slurm.time_limit > longest_s:
        # Half of what is left for a save, half for training.
        lead_s = (longest_s - smallest_time_limit_s(0, facts.executor)) // 2
        fits = longest_s >= smallest_time_limit_s(config.lead_seconds, facts.executor)
        if fits or lead_s >= SHORTEST_LEAD_S:
            values["slurm.time_limit"] = format_duration(longest_s)
            reasons.append("slurm.time_limit: no job here is given more")
        else:
            reasons.append(f"{longest_s} s a job leave no time to train: choose another partition or QOS")
        if not fits and lead_s >= SHORTEST_LEAD_S:
            values["lead_seconds"] = lead_s
            reasons.append("lead_seconds: else such a job hands over before it trains")
    if most is not None and (config.slurm.max_jobs is None or config.slurm.max_jobs > most):
        values["slurm.max_jobs"] = most
        reasons.append(f"slurm.max_jobs: the site allows {most}; what would be refused is not tried")
    if most is not None and config.relay.queue_ahead and most < 2 * config.places:
        values["relay.queue_ahead"] = False
        reasons.append(f"relay.queue_ahead: it wants {2 * config.places} jobs, the site allows {most}")
    if isinstance(slurm.settings, SiteSettings) and (age_s := slurm.settings.seconds("MinJobAge")) is not None:
        poll_s = config.poll_seconds or SLURM_POLL_S
        if age_s < POLLS_REMEMBERED * poll_s and age_s >= POLLS_REMEMBERED:
            values["poll_seconds"] = int(age_s // POLLS_REMEMBERED)
            reasons.append(f"poll_seconds: Slurm forgets ended jobs after {age_s:g} s")


def _lead(facts: LoginFacts, result: ProbeResult, values: dict[str, Any], reasons: list[str]) -> None:
    """The lead must hold a save. What a late signal or a slow clock takes from it is added."""
    lead_s = facts.config.lead_seconds
    early_s = earliness_s(result)
    lost_s = 0.0
    if early_s is not None and early_s < result.lead_s - SIGNAL_SLACK_S:
        lost_s = result.lead_s - early_s
        why = f"the signal came {lost_s:.0f} s later than asked for"
    elif early_s is not None:
        over = max(0.0, early_s - result.lead_s)
        reasons.append(
            f"lead_seconds: {lead_s} holds where a save takes less; the signal came {over:.0f} s earlier than asked for"
            + (f" (up to {EARLY_SIGNAL_S} s is Slurm's way)" if facts.executor == "slurm" else "")
        )
        return
    elif result.report.get("done"):
        # By the clock, then: the node's against Slurm's.
        behind_s = ((facts.slurm.skew_s if facts.slurm else None) or 0.0) - (result.skew_s or 0.0)
        lost_s = behind_s if behind_s > SKEW_FELT_S else 0.0
        why = f"no signal came, and the node's clock is {behind_s:.0f} s behind Slurm's"
    if lost_s:
        values["lead_seconds"] = lead_s + math.ceil(lost_s)
        reasons.append(f"lead_seconds: {why}")


def _from_node(facts: LoginFacts, result: ProbeResult, values: dict[str, Any], reasons: list[str]) -> None:
    config, report = facts.config, result.report
    if config.relay.failover_tick and sbatch_works(report) is False:
        values["relay.failover_tick"] = False
        reasons.append("relay.failover_tick: sbatch does not work on the nodes, so a job cannot submit its successor")
    most = facts.slurm.limits.submitted if facts.slurm is not None else None
    room = most is None or most >= 2 * config.places
    if facts.executor == "slurm" and not config.relay.queue_ahead and (result.pending_s or 0) > LONG_WAIT_S and room:
        waited = format_duration(result.pending_s or 0)
        values["relay.queue_ahead"] = True
        reasons.append(
            f"relay.queue_ahead: even this small job waited for {waited}; a queued successor waits meanwhile"
        )
    drawing = section(report, "drawing")
    way = next((name for name in ("egl", "osmesa") if section(drawing, name).get("works")), None)
    stated = section(section(report, "environment"), "shown").get("MUJOCO_GL")
    if config.command is None and way is not None and stated != way and facts.executor == "slurm":
        values["slurm.setup"] = [*config.slurm.setup, f"export MUJOCO_GL={way}"]
        reasons.append(f"slurm.setup: MUJOCO_GL={way} works on the node, so no job has to find out")

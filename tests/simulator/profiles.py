"""What kind of cluster, site and month a seed stands for."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

DAY_S = 86_400.0
#: The seeds of the long suite, and of the quick one; `bench/simulator.py` runs as many as it is told.
SEEDS = 12
QUICK_SEEDS = 10

#: Faults, by how often a day they come on a bad cluster (expected number). A seed scales each by its own factor.
FAULTS_A_DAY = {
    "controller crash": 2.0,
    "controller crash at a call": 4.0,
    "controller freeze": 0.4,
    "slurmctld down": 0.7,
    "slurmctld hung": 0.5,
    "slurmctld killed": 0.3,
    "slurmdbd down": 0.4,
    "node failure": 0.7,
    "node crash": 0.3,
    "preemption": 0.8,
    "clock step": 0.3,
    "login disk full": 0.2,
    "node disk full": 0.1,
    "user holds a job": 0.2,
    "user cancels a job": 0.15,
    "user stops the run": 0.1,
    "user starts elsewhere": 0.5,
    "other jobs": 3.0,
    "drain": 0.3,
    "bad node": 0.1,
    "queue waits": 0.3,
}
#: As above; drawn last, so that all else of a seed's profile stays what it was.
LATER_FAULTS_A_DAY = {"dependency taken off": 0.5, "jobs folder removed": 0.1}
#: What a person asks of single experiments.
REQUESTS_A_DAY = 3.0


@dataclass(frozen=True)
class Profile:
    """Drawn from the seed. Shares are probabilities per event; `rates`: faults a day. `host`: what keeps a controller
    alive: a daemon that is started again, cron, or nobody for days, but for the jobs that run failover ticks.
    """

    seed: int
    slots: int = 4
    experiments: bool = False
    order: str = "fair"
    halving: int = 0
    days: float = 30.0
    poll_s: float = 300.0
    walltime_s: float = 4 * 3600.0
    lead_s: float = 120.0
    accounting: str = "up"
    queue_ahead: bool = False
    host: str = "daemon"
    failover: bool = False
    max_submit: int | None = None
    max_jobs: int | None = None
    nodes: int = 6
    lag_s: float = 0.0
    squeue_cache_s: float = 0.0
    unknown_state: float = 0.0
    poll_fails: float = 0.0
    refused: float = 0.0
    lost_answer: float = 0.0
    runaway: float = 0.0
    bad_checkpoint: float = 0.0
    first_id_again: int = 10**6
    places: bool = False
    packs: int = 1
    fates: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)

    @classmethod
    def drawn(cls, seed: int, **fixed: object) -> Profile:
        """The profile of a seed; `fixed` overrides what was drawn."""
        rng = random.Random(seed)
        some = lambda most, share=0.6: rng.uniform(0.0, most) if rng.random() < share else 0.0  # noqa: E731
        max_submit = rng.choice((None, None, 4, 5, 8))
        drawn = {
            "accounting": "disabled" if rng.random() < 0.25 else "up",
            "queue_ahead": rng.random() < 0.5,
            "host": "cron" if rng.random() < 0.25 else "daemon",
            "max_submit": max_submit,
            "max_jobs": max_submit if rng.random() < 0.3 else None,
            "lag_s": some(60.0),
            "squeue_cache_s": some(25.0, 0.4),
            "unknown_state": some(0.02),
            "poll_fails": some(0.02),
            "refused": some(0.1),
            "lost_answer": some(0.1),
            "runaway": some(0.02),
            "bad_checkpoint": some(0.05),
            "first_id_again": rng.choice((10**6, 160)),
            "fates": {
                "crash": some(0.08), "stall": some(0.04), "out of memory": some(0.04), "do not requeue": some(0.002),
            },
            "rates": {name: rate * some(1.5, 0.7) for name, rate in FAULTS_A_DAY.items()},
            "failover": rng.random() < 0.6,
        }  # fmt: skip
        if (fixed.get("failover") or drawn["failover"]) and drawn["host"] == "daemon" and rng.random() < 0.4:
            drawn["host"] = "jobs"
        drawn["rates"] |= {name: rate * some(1.5, 0.7) for name, rate in LATER_FAULTS_A_DAY.items()}
        drawn["places"] = rng.random() < 0.5
        drawn["packs"] = rng.choice((1, 2, 4))
        return cls(seed=seed, **{**drawn, **fixed})  # type: ignore[arg-type]

    @classmethod
    def of_experiments(cls, seed: int, slots: int = 12, **fixed: object) -> Profile:
        """As `drawn`, with more slots than the four jobs that may run at once, failover ticks, and a person who changes
        his mind.
        """
        rng = random.Random(-seed - 1)
        queue = {
            "slots": slots, "experiments": True, "max_jobs": rng.choice((4, 4, None)), "max_submit": rng.choice((4, 5)),
            "order": rng.choice(("fair", "priority", "in turn")), "halving": rng.choice((0, 0, 2, 3)), "failover": True,
        }  # fmt: skip
        profile = cls.drawn(seed, **{**queue, **fixed})
        return replace(profile, rates={**profile.rates, "user asks": REQUESTS_A_DAY})

    def __str__(self) -> str:
        site = f"accounting {self.accounting}, {self.host}, lag {self.lag_s:.0f} s, limit {self.max_submit}"
        more = f", {self.slots} experiments {self.order}, halving {self.halving}" if self.experiments else ""
        relay = f"queue ahead {'on' if self.queue_ahead else 'off'}, failover ticks {'on' if self.failover else 'off'}"
        return f"seed {self.seed}: {site}, {relay}{more}"

"""`trainer autotune`: what this machine can give."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trainer.tuning.autotune import Facts, Recommendation
    from trainer.tuning.host import Host

#: What a person waits for once, and what a dozen choices of a second each need.
AUTOTUNE_S = 60.0
_GB = 2**30

UserIdOption = Annotated[
    str | None, typer.Option(help="Name to keep the measurement under; left out: this machine's name.")
]
BudgetOption = Annotated[float, typer.Option(min=5, max=600, help="Seconds that measuring may take.")]
AgainOption = Annotated[bool, typer.Option("--again", help="Measure anew, although it was done before.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def autotune(
    user_id: UserIdOption = None,
    budget: BudgetOption = AUTOTUNE_S,
    again: AgainOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure what this machine can give, and recommend settings that leave a core and 4 GB to you.

    The result is kept, and used by `trainer actors --num-envs auto`.
    """
    from trainer.tuning.autotune import cache_file, recommend  # noqa: PLC0415
    from trainer.tuning.host import look  # noqa: PLC0415

    host = look()
    facts, known = measured(host, user_id, budget_s=budget, again=again)
    best = recommend(replace(facts, host=host))
    if as_json:
        file = str(cache_file(user_id or host.name))
        value = {"recommendation": asdict(best), "measured": asdict(facts), "file": file, "from_cache": known}
        print(json.dumps(value, indent=2))
    else:
        _show(facts, best, time.time(), known=known)


def measured(host: Host, user_id: str | None, *, budget_s: float, again: bool) -> tuple[Facts, bool]:
    """The facts of this machine: as they were kept (True), or measured and kept now (False; told on standard error).

    For `trainer actors --autotune` too. Errors: ConfigError, SaveError.
    """
    from trainer.tuning.autotune import cache_file, is_busy, is_of, read_facts, write_facts  # noqa: PLC0415

    path = cache_file(user_id or host.name)
    facts = read_facts(path)
    if facts is not None and is_of(facts, host) and not again:
        return facts, True
    from trainer.tuning import benchmark  # noqa: PLC0415 - torch and the simulator

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if facts is not None and not again:
        say("the machine or its software has changed since the last time")
    if is_busy(host):
        say("other programs keep this machine busy: the numbers will be low; --again measures anew when it is idle")
    say(f"measuring this machine for at most {budget_s:.0f} s; what else runs now counts as slowness")
    facts = benchmark.measure(budget_s, say)
    write_facts(path, facts)
    return facts, False


def _show(facts: Facts, best: Recommendation, now: float, *, known: bool) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    out = Console(highlight=False)
    rows = [(str(one.num_envs), str(one.workers), f"{one.steps_per_s:,.0f}") for one in facts.stepping]
    if out.is_terminal:
        table = Table("environments", "workers", "steps/s")
        for column in table.columns:
            column.justify = "right"
        for one, row in zip(facts.stepping, rows, strict=True):
            chosen = (one.num_envs, one.workers) == (best.num_envs, best.workers)
            table.add_row(*row, style="bold green" if chosen else None)
        out.print(table)
    else:
        for row in rows:
            print("\t".join(row))
    print(_machine(facts))
    print(f"recommended: {_choice(best)}")
    if best.steps_per_s is not None:
        print(f"  about {best.steps_per_s:,.0f} steps/s, policy included; a core and 4 GB stay yours")
    for note in best.notes:
        print(f"  {note}")
    if known:
        print(f"measured {_age(now - facts.measured_at)} ago; --again measures anew")
    print("next: trainer actors --shared-dir ~/shared_weights --num-envs auto --contribute")


def _choice(best: Recommendation) -> str:
    envs = f"{best.num_envs} environment{'s' * (best.num_envs > 1)}"
    workers = f"in {best.workers} worker{'s' * (best.workers > 1)}" if best.workers else "in the program itself"
    return f"{envs} {workers}, policy on {best.device}, {best.threads} thread{'s' * (best.threads > 1)}"


def _machine(facts: Facts) -> str:
    host = facts.host
    memory = "memory unknown"
    if host.memory_bytes is not None:
        free = "" if host.free_bytes is None else f" ({host.free_bytes / _GB:.1f} GB were free)"
        memory = f"{host.memory_bytes / _GB:.1f} GB{free}"
    cores = f"{host.cores} core{'s' * (host.cores > 1)}"
    return f"{host.name}: {cores}, {memory}, {facts.accelerator_name or 'no GPU that torch can use'}"


def _age(seconds: float) -> str:
    minutes = max(0, round(seconds / 60))
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 60 * 48 else f"{minutes // 1440} days"

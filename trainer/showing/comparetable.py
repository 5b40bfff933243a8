"""A comparison for people at a terminal, and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

from rich.console import Console

from anchorleg.words import counted, duration, sized
from trainer.showing.certainty import MIN_SEEDS, Estimate
from trainer.showing.comparison import THRESHOLDS, Contender, Seeded, probability_of_improvement, rising
from trainer.showing.frame import print_table
from trainer.showing.tables import percent

#: Contenders that a sentence names.
_NAMED = 3


def show_comparison(contenders: Sequence[Contender], out: Console) -> None:
    """Three tables: how well, how soon, and who is better than whom; and at which step they are judged."""
    order = rising(contenders)
    print_table(
        out,
        ["algorithm", "seeds", f"{word_for(order)} (IQM)", "return", "area", "worst seed", "largest drop"],
        [
            [
                one.name, str(len(one.seeds)), scored(one, one.final), f"{one.mean_return:.4g}", f"{one.area:.3g}",
                _score(one, one.worst), _score(one, one.largest_drop),
            ]
            for one in order
        ],
    )  # fmt: skip
    soon = [f"to {threshold:.0%}" for threshold in THRESHOLDS]
    print_table(
        out,
        ["algorithm", *soon, "steps", "time", "steps/s", "policy"],
        [
            [
                one.name, *(_steps(one.steps_to(threshold)) for threshold in THRESHOLDS), _trained(one),
                duration(one.seconds), f"{one.steps_per_second:,.0f}", _size(one),
            ]
            for one in order
        ],
    )  # fmt: skip
    if len(order) > 1:
        print_table(
            out,
            ["is better", "than", "probability"],
            [[a.name, b.name, _likely(probability_of_improvement(a, b))] for a, b in combinations(order, 2)],
        )
    print(judged_at(order))
    print(f"in brackets: {' or '.join(dict.fromkeys(one.interval for one in order))}")
    if (count := min(len(one.seeds) for one in order)) < MIN_SEEDS:
        print(f"{count} seeds say nothing of other seeds; use {MIN_SEEDS} or more")


def comparison_as_json(contenders: Sequence[Contender]) -> dict[str, Any]:
    """All numbers of the tables, and the curves."""
    order = rising(contenders)
    return {
        "contenders": [
            {
                "algorithm": one.name,
                "seeds": [seed.seed for seed in one.seeds],
                "judged_at": one.step,
                "steps": [seed.steps for seed in one.seeds],
                "iqm": asdict(one.final),
                "interval": one.interval,
                "mean_return": one.mean_return,
                "area": one.area,
                "worst_seed": one.worst,
                "largest_drop": one.largest_drop,
                "steps_to": {str(threshold): one.steps_to(threshold) for threshold in THRESHOLDS},
                "seconds": one.seconds,
                "steps_per_second": one.steps_per_second,
                "parameters": one.seeds[0].parameters,
                "policy_bytes": one.seeds[0].policy_bytes,
                "evaluations": [_evaluations(seed) for seed in one.curves],
            }
            for one in order
        ],
        "probability_of_improvement": [
            {"is_better": a.name, "than": b.name, **asdict(probability_of_improvement(a, b))}
            for a, b in combinations(order, 2)
        ],
    }


def not_apart(contenders: Sequence[Contender]) -> list[str]:
    """A sentence of each contender that counts a seed more than once: equal seeds begin alike, and are one sample."""
    told = []
    for one in contenders:
        counts = Counter(seed for each in one.seeds for seed in {*(each.group or (each.seed,))})
        if again := sorted(seed for seed, count in counts.items() if count > 1):
            named = f"seed{'s' if again[1:] else ''} {', '.join(map(str, again))}"
            told.append(
                f"{one.name}: {named} counted more than once, and equal seeds are no further samples: give each run "
                "seeds of its own (slot k trains seed + k: at least `slots` apart)"
            )
    return told


def judged_at(contenders: Sequence[Contender]) -> str:
    """The step at which they are, and, where some were evaluated later too, who was not: a sentence."""
    words = f"judged at step {min(one.step for one in contenders):,}"
    if all(one.curves == one.seeds for one in contenders):
        return words
    words += ", the last at which all were evaluated"
    named = [f"{one.name} (seed {', '.join(map(str, ended))})" for one in contenders if (ended := _ended(one))]
    more = [counted(len(named) - _NAMED, "other")] if named[_NAMED:] else []
    who = " and ".join([", ".join(named[:_NAMED]), *more])
    return f"{words}: {who} came no further" if who else words


def _ended(one: Contender) -> list[int]:
    """The seeds that were not evaluated after the step at which it is judged."""
    return [cut.seed for cut, whole in zip(one.seeds, one.curves, strict=True) if cut == whole]


def word_for(contenders: Sequence[Contender]) -> str:
    """What their scores are."""
    return "success" if all(one.tells_success for one in contenders) else "return"


def scored(contender: Contender, found: Estimate) -> str:
    """A score with its interval."""
    if contender.tells_success:
        return percent(found)
    return f"{found.value:.4g} ({found.low:.4g} to {found.high:.4g})"


def _score(contender: Contender, value: float) -> str:
    return f"{100 * value:.0f} %" if contender.tells_success else f"{value:.4g}"


def _likely(found: Estimate) -> str:
    """Of few seeds nothing is known about others."""
    return f"{found.value:.0%}" if (found.low, found.high) == (0.0, 1.0) else percent(found)


def _size(one: Contender) -> str:
    seed = one.seeds[0]
    return f"{seed.parameters:,} numbers, {sized(seed.policy_bytes)}"


def _evaluations(seed: Seeded) -> list[dict[str, Any]]:
    return [
        {"step": one.step, "success": dict(one.success), "return": total}
        for one, total in zip(seed.evaluations, seed.returns, strict=True)
    ]


def _trained(one: Contender) -> str:
    """So many steps, or from the seed with the fewest to that with the most."""
    least, most = min(seed.steps for seed in one.seeds), max(seed.steps for seed in one.seeds)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _steps(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"

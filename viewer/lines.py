"""A picture as lines of text: `viewer --headless`, for pipes and terminals without a browser. Pure."""

from __future__ import annotations

from anchorleg.words import counted, duration, roughly
from viewer.model import PageSnapshot, RunPage, SlotCard


def lines_of(snapshot: PageSnapshot, now: float) -> list[str]:
    """One line for each slot; before them what is wrong, and each other run."""
    if snapshot.note:
        return [snapshot.note]
    others = [row for row in snapshot.runs if snapshot.run is None or row.run_id != snapshot.run.run_id]
    lines = [
        f"{row.name} ({row.run_id}): {row.state or 'not read yet'}, {counted(row.slots, 'slot')}" for row in others
    ]
    if snapshot.run is not None:
        lines += [
            f"trouble: {one.words}" + (f" `{one.command}`" if one.command else "") for one in snapshot.run.troubles
        ]
        lines += [_line(card, snapshot.run, now) for card in snapshot.run.cards.values()]
        lines += _rest(snapshot.run)
    return lines


def _line(card: SlotCard, run: RunPage, now: float) -> str:
    parts = [f"{run.name} slot {card.slot}", *([card.name] if card.name else []), card.state]
    parts += [f"job {card.job}"] if card.job else []
    if card.step is not None:
        parts += [f"step {card.step:,}" + (f"/{card.total:,}" if card.total else "")]
    parts += [f"{card.rate:g} steps/s"] if card.rate else []
    parts += [f"job ends in {duration(card.ends_at - now)}"] if card.ends_at is not None and card.ends_at > now else []
    parts += [f"success {_percent(run, card.slot)}"] if _percent(run, card.slot) else []
    parts += [card.why] if card.why else []
    parts += [card.next] if card.next else []
    return ", ".join(parts)


def _percent(run: RunPage, slot: int) -> str:
    found = next((row for row in run.evaluations if row.slot == slot and row.score == "success"), None)
    return f"{100 * found.value:.0f} % at step {found.step:,}" if found is not None else ""


def _rest(run: RunPage) -> list[str]:
    if run.pages > 1:
        return [f"slots {run.page * 50} to {run.page * 50 + len(run.cards) - 1} of {run.slots}"]
    return [f"way: {run.way.words}"] if run.way is not None else []


def ages(run: RunPage, now: float) -> list[str]:
    """Of the newest policies, one line each."""
    return [
        f"slot {p.slot}: policy {p.version}, step {p.step:,}, {roughly(now - p.created_at)} old" for p in run.policies
    ]

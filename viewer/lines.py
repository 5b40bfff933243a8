"""A picture, and agents at play, as lines of text: `viewer --headless`, for pipes and terminals without a browser."""

from __future__ import annotations

import time
from collections.abc import Callable

from anchorleg.live.batches import JPEG, ORIGIN_TRAINING, POSE
from anchorleg.words import counted, lines_shown, printable
from orchestrator.screens.status import plain_line
from viewer.live.hub import Hub
from viewer.live.shown import AgentNews, AgentsShown, CheckedBatch
from viewer.model import PageSnapshot

#: Between two lines of one agent.
EVERY_S = 1.0


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
        quiet = {"ends_at": None, "forecast": None}  # they count down, and a line is said when it changes
        lines += [
            f"{snapshot.run.name} {plain_line(card.model_copy(update=quiet), now)}"
            for card in snapshot.run.cards.values()
        ]
        if snapshot.run.pages > 1:
            lines.append(f"{len(snapshot.run.cards)} of {snapshot.run.slots} slots; the page shows all")
    return lines


def agent_line(news: AgentNews, batch: CheckedBatch) -> str:
    """Where an agent is. Pure."""
    header = batch.header
    origin = "in training" if header["origin"] == ORIGIN_TRAINING else f"by {header['origin']}"
    parts = [f"slot {news.slot}", origin, header["task"]]
    parts += [f"step {header['step']:,}", f"return {header['return']:,.1f}"]
    parts += [] if header["success"] is None else ["success" if header["success"] else "no success yet"]
    parts += [f"{name} {value}" for name, value in header["facts"].items() if batch.kind not in (POSE, JPEG)]
    return "agent: " + ", ".join(part for part in parts if part)


class AgentLines:
    """Prints what `hub` has."""

    def __init__(self, hub: Hub, *, clock: Callable[[], float] = time.monotonic, every_s: float = EVERY_S) -> None:
        self._hub, self._box = hub, hub.enter()
        self._clock, self._every_s = clock, every_s
        self._due: dict[int, float] = {}
        self._said: set[str] = set()

    def say_for(self, seconds: float) -> None:
        """Print what comes within so many seconds."""
        end = self._clock() + seconds
        while (left := end - self._clock()) > 0:
            found = self._box.take(left)
            if found is None:
                continue
            number, news = found
            self._box.seen(number)
            if isinstance(news, AgentsShown):
                self._once([str(news.value.get("note") or ""), *(_note(tile) for tile in news.value["tiles"])])
            elif isinstance(news, AgentNews) and self._clock() >= self._due.get(news.slot, 0.0):
                self._due[news.slot] = self._clock() + self._every_s
                print(lines_shown([agent_line(news, news.batches[-1])]), flush=True)

    def close(self) -> None:
        """Look no more."""
        self._hub.leave(self._box)

    def _once(self, sentences: list[str]) -> None:
        for sentence in sentences:
            if sentence and sentence not in self._said:
                self._said.add(sentence)
                print(lines_shown([sentence]), flush=True)


def _note(tile: dict[str, object]) -> str:
    words = str(tile["note"] or tile["why"])
    return f"slot {tile['slot']}: {printable(words)}" if words else ""

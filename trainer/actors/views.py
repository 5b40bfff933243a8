"""What a user of `trainer actors` sees: a live table, plain lines in a pipe, or JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anchorleg.words import counted, duration

#: The table is drawn anew this often: quick enough to follow, and 0.2 % of a core.
LIVE_EVERY_S = 0.5
#: In a pipe: few enough for a log.
PLAIN_EVERY_S = 10.0
#: Columns that one task takes in the live table: the longest name (without its -v3) and its numbers.
_TASK_COLUMNS = 40
#: Reasons of refusals that one line names.
_REASONS = 3


@dataclass(frozen=True)
class Recording:
    """What became of the experience. `waiting` lies in the outbox; `lost` found no room; `trouble` is a sentence."""

    waiting: int
    recorded: int
    lost: int
    sent: int
    accepted: int
    refused: Mapping[str, int]
    trouble: str | None

    def words(self) -> str:
        """One line."""
        parts = [f"{self.waiting:,} waiting", f"{self.sent:,} sent", f"{self.accepted:,} accepted"]
        refused = sum(self.refused.values())
        most = sorted(self.refused.items(), key=lambda item: -item[1])[:_REASONS]
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in most)
        parts.append(f"{refused:,} refused" + (f" ({reasons})" if reasons else ""))
        if self.lost:
            parts.append(f"{self.lost:,} not recorded")
        return " · ".join(parts)


@dataclass(frozen=True)
class TaskScore:
    """Of one task: episodes so far, share of the last ones solved, their mean return."""

    episodes: int
    success: float
    mean_return: float


@dataclass(frozen=True)
class Playing:
    """The actors at one moment. `policy` is None while they wait; `doing` says in words what for, or "playing"."""

    doing: str
    steps: int = 0
    episodes: int = 0
    steps_per_s: float | None = None
    envs: int = 0
    workers: int = 0
    device: str = "cpu"
    run: str = ""
    slot: int = 0
    policy: str | None = None
    policy_step: int = 0
    policy_age_s: float = 0.0
    swaps: int = 0
    tasks: Mapping[str, TaskScore] = field(default_factory=dict)
    recording: Recording | None = None
    network: str | None = None

    @property
    def success(self) -> float | None:
        """Mean over the tasks that have episodes."""
        rates = [score.success for score in self.tasks.values() if score.episodes]
        return sum(rates) / len(rates) if rates else None

    def policy_words(self) -> str:
        """Which policy acts, and how old it is."""
        if self.policy is None:
            return "none yet"
        return (
            f"{self.policy} of {self.run}/{self.slot}: step {self.policy_step:,}, "
            f"{duration(max(0.0, self.policy_age_s))} old"
        )

    def speed_words(self) -> str:
        """How fast, on what, how far."""
        rate = f"{self.steps_per_s:,.0f} steps/s" if self.steps_per_s is not None else "measuring"
        where = counted(self.envs, "environment")
        where += f" in {counted(self.workers, 'worker')}" if self.workers else ""
        return f"{rate} · {where}, {self.device} · {self.steps:,} steps, {self.episodes:,} episodes"

    def line(self) -> str:
        """Everything on one line."""
        parts = [f"policy {self.policy_words()}"] if self.policy else []
        if self.doing != "playing":
            parts.append(self.doing)
        if self.policy:
            parts.append(self.speed_words())
        if self.success is not None:
            parts.append(f"success {100 * self.success:.0f} %")
        if self.recording:
            parts.append(self.recording.words())
            parts += [self.recording.trouble] if self.recording.trouble else []
        if self.network:
            parts.append(self.network)
        return " · ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "success": self.success}


class ActorDisplay:
    """Live on a terminal, plain lines elsewhere, JSON lines if asked. Use it as a context."""

    def __init__(self, *, as_json: bool = False, console: Console | None = None) -> None:
        self._json = as_json
        self._console = console or Console(emoji=False, highlight=False)
        self._live: Live | None = None
        self._shown_at = float("-inf")
        self._last_doing = ""

    def __enter__(self) -> Self:
        if not self._json and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="ellipsis")
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live:
            self._live.stop()
        self._live = None

    @property
    def every_s(self) -> float:
        """How often `progress` shows something."""
        return LIVE_EVERY_S if self._live else PLAIN_EVERY_S

    def is_due(self, doing: str) -> bool:
        """Whether `progress` would show something now: making a `Playing` reads files."""
        return doing != self._last_doing or time.monotonic() - self._shown_at >= self.every_s

    def say(self, sentence: str) -> None:
        """One line for the log."""
        if self._json:
            print(json.dumps({"note": sentence}), flush=True)
        else:
            self._console.print(sentence, markup=False, soft_wrap=not self._console.is_terminal)

    def progress(self, playing: Playing, *, now: bool = False) -> None:
        """Where the actors stand; as often as one likes."""
        if not (now or self.is_due(playing.doing)):
            return
        self._shown_at, self._last_doing = time.monotonic(), playing.doing
        if self._json:
            print(json.dumps(playing.as_json()), flush=True)
        elif self._live:
            self._live.update(screen(playing, self._console.width), refresh=True)
        else:
            print(playing.line(), flush=True)

    def summary(self, playing: Playing, sentence: str) -> None:
        """The last word."""
        if self._json:
            print(json.dumps({"end": True, **playing.as_json()}), flush=True)
            return
        if self._live:
            self._live.update(screen(playing, self._console.width), refresh=True)
            self._live.stop()
            self._live = None
        self.say(sentence)
        sys.stdout.flush()


def screen(playing: Playing, width: int) -> Group:
    """The live table for a terminal of `width` columns."""
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("policy", Text(playing.policy_words()))
    if playing.doing != "playing":
        rows.add_row("now", Text(playing.doing))
    if playing.policy:
        rows.add_row("speed", Text(playing.speed_words()))
    if playing.recording:
        rows.add_row("outbox", Text(playing.recording.words()))
        if playing.recording.trouble:
            rows.add_row("", Text(playing.recording.trouble, style="yellow"))
    if playing.network:
        rows.add_row("network", Text(playing.network))
    parts: list[Any] = [rows]
    if playing.tasks:
        parts.append(_tasks(playing.tasks, max(1, width // _TASK_COLUMNS)))
    return Group(*parts)


def _tasks(tasks: Mapping[str, TaskScore], columns: int) -> Table:
    """Task, share of the last episodes solved, mean return; laid out in `columns` side by side, top to bottom."""
    columns = min(columns, -(-len(tasks) // 5))  # five rows or fewer need no second column
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for _ in range(columns):
        table.add_column("task", no_wrap=True)
        table.add_column("solved", justify="right")
        table.add_column("return", justify="right")
    cells = [_cells(name, score) for name, score in tasks.items()]
    height = -(-len(cells) // columns)
    for row in range(height):
        line: list[str] = []
        for part in cells[row::height]:
            line += part
        table.add_row(*line)
    return table


def _cells(name: str, score: TaskScore) -> Sequence[str]:
    short = name.removesuffix("-v3")
    if not score.episodes:
        return short, "-", "-"
    return short, f"{100 * score.success:.0f} %", f"{score.mean_return:,.0f}"

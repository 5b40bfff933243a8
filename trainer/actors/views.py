"""What a user of `trainer actors` sees: a live table, plain lines in a pipe, or JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anchorleg.files import read_json_or_none
from anchorleg.words import counted, duration
from syncd import store
from syncd.outbox import SILENT_AFTER_S, Outbox, read_contributions
from trainer.actors.follower import Followed
from trainer.envs.step import Step
from trainer.sharing.recorder import Dispatch

#: The table is drawn anew this often: quick enough to follow, and 0.2 % of a core.
LIVE_EVERY_S = 0.5
#: In a pipe: few enough for a log.
PLAIN_EVERY_S = 10.0
#: Success is the share of so many last episodes of a task.
LAST_EPISODES = 50
#: Speed is that of so many last seconds.
_RATE_WINDOW_S = 10.0
#: The mirror's files are read this often; syncd writes its own once a second.
_FILES_EVERY_S = 2.0


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
        refused = ", ".join(f"{reason} {count:,}" for reason, count in self.refused.items())
        return (
            f"{self.waiting:,} waiting · {self.sent:,} sent · {self.accepted:,} accepted · "
            f"{sum(self.refused.values()):,} refused" + (f" ({refused})" if refused else "")
        ) + (f" · {self.lost:,} not recorded" if self.lost else "")


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

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say: a name of each part, and its words."""
        policy, envs = "none yet", counted(self.envs, "environment")
        if self.policy is not None:
            age = duration(max(0.0, self.policy_age_s))
            policy = f"{self.policy} of {self.run}/{self.slot}: step {self.policy_step:,}, {age} old"
        envs += f" in {counted(self.workers, 'worker')}" if self.workers else ""
        rate = f"{self.steps_per_s:,.0f} steps/s" if self.steps_per_s is not None else "measuring"
        speed = f"{rate} · {envs}, {self.device} · {self.steps:,} steps, {self.episodes:,} episodes"
        found = [
            ("policy", policy),
            ("now", self.doing if self.doing != "playing" else ""),
            ("speed", speed if self.policy else ""),
            ("success", f"{100 * self.success:.0f} %" if self.success is not None else ""),
            ("outbox", self.recording.words() if self.recording else ""),
            ("", (self.recording.trouble or "") if self.recording else ""),
            ("network", self.network or ""),
        ]
        return [(name, words) for name, words in found if words]

    def line(self) -> str:
        """Everything on one line."""
        return " · ".join(f"{name} {words}" if name in {"policy", "success"} else words for name, words in self.rows())

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

    def is_due(self, doing: str) -> bool:
        """Whether `progress` would show something now: making a `Playing` reads files."""
        every_s = LIVE_EVERY_S if self._live else PLAIN_EVERY_S
        return doing != self._last_doing or time.monotonic() - self._shown_at >= every_s

    def say(self, sentence: str) -> None:
        """One line for the log."""
        if self._json:
            print(json.dumps({"note": sentence}), flush=True)
        else:
            self._console.print(sentence, markup=False, soft_wrap=not self._console.is_terminal)

    def progress(self, playing: Playing) -> None:
        """Where the actors stand; as often as one likes."""
        if not self.is_due(playing.doing):
            return
        self._shown_at, self._last_doing = time.monotonic(), playing.doing
        if self._json:
            print(json.dumps(playing.as_json()), flush=True)
        elif self._live:
            leave = Text("Ctrl-C ends these actors; the training continues.", style="dim")
            self._live.update(Group(screen(playing), leave), refresh=True)
        else:
            print(playing.line(), flush=True)

    def summary(self, playing: Playing, sentence: str) -> None:
        """The last word."""
        if self._json:
            print(json.dumps({"end": True, **playing.as_json()}), flush=True)
            return
        if self._live:
            self._live.update(screen(playing), refresh=True)
            self._live.stop()
            self._live = None
        self.say(sentence)
        sys.stdout.flush()


def screen(playing: Playing) -> Group:
    """The live table."""
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    for name, words in playing.rows():
        rows.add_row(name, Text(words))
    tasks = [_cell(name.removesuffix("-v3"), score) for name, score in playing.tasks.items()]
    head = [Text("task, share of its last episodes solved, mean return:", style="dim")] * bool(tasks)
    return Group(rows, *head, Columns(tasks, equal=True, column_first=True))


def _cell(task: str, score: TaskScore) -> Text:
    """Its share of the last episodes solved, and their mean return."""
    return Text(f"{task} {100 * score.success:.0f} % {score.mean_return:,.0f}" if score.episodes else task)


class ActorCounts:
    """Steps, episodes, speed, success by task, and what became of the segments. `folder` is the mirror (DIR).

    `workers`, and `unneeded` (why nothing is recorded), are for the actors to set.
    """

    def __init__(
        self,
        folder: Path,
        envs: int,
        workers: int,
        device: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.steps = 0
        self.episodes = 0
        self.swaps = 0
        self.doing = "starting"
        self.unneeded: str | None = None
        self.workers = workers
        self._folder, self._envs, self._device = folder, envs, device
        self._clock, self._wall = clock, wall
        self._marks: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._counts: dict[str, int] = {}
        self._last: dict[str, deque[tuple[bool, float]]] = {}
        self._outbox: Outbox | store.Deposit | None = None
        self._dispatch: Dispatch | None = None
        self._read_at = float("-inf")
        self._recording: Recording | None = None
        self._network: str | None = None

    def records(self, outbox: Outbox | store.Deposit | None, dispatch: Dispatch | None) -> None:
        """Where the segments go; None: nowhere."""
        self._outbox, self._dispatch = outbox, dispatch

    def wait(self, what: str) -> None:
        """Nothing is played: it waits for `what`."""
        self.doing = what
        self._marks = deque([(self._clock(), self.steps)])

    def swapped(self, followed: Followed, *, is_other_slot: bool) -> None:
        """Another policy acts from now on; with another slot the tasks' figures start anew."""
        self.swaps += 1
        if is_other_slot:
            self._counts = dict.fromkeys(followed.manifest.tasks, 0)
            self._last = {}

    def stepped(self, step: Step, tasks: tuple[str, ...]) -> None:
        """Count one step of all environments."""
        self.doing = "playing"
        self.steps += len(step.task)
        now = self._clock()
        if now - self._marks[-1][0] >= 1.0:
            self._marks.append((now, self.steps))
            while now - self._marks[1][0] >= _RATE_WINDOW_S:
                self._marks.popleft()
        for i in np.flatnonzero(step.finished):
            name = tasks[step.task[i]]
            self.episodes += 1
            self._counts[name] += 1
            last = self._last.setdefault(name, deque(maxlen=LAST_EPISODES))
            last.append((bool(step.episode_success[i]), float(step.episode_return[i])))

    def playing(self, current: Followed | None, *, is_fresh: bool = False) -> Playing:
        """Where it stands now. `is_fresh`: read the mirror's files again, however lately that was done."""
        self._read_files(is_fresh=is_fresh)
        manifest = current.manifest if current else None
        return Playing(
            doing=self.doing,
            steps=self.steps,
            episodes=self.episodes,
            steps_per_s=self._rate(),
            envs=self._envs,
            workers=self.workers,
            device=self._device,
            run=manifest.run_id if manifest else "",
            slot=manifest.slot if manifest else 0,
            policy=str(manifest.version) if manifest else None,
            policy_step=manifest.step if manifest else 0,
            policy_age_s=self._wall() - manifest.created_at if manifest else 0.0,
            swaps=self.swaps,
            tasks={name: self._score(name) for name in self._counts},
            recording=self._recording,
            network=self._network,
        )

    def _rate(self) -> float | None:
        at, steps = self._marks[0]
        seconds = self._clock() - at
        return (self.steps - steps) / seconds if seconds >= 1.0 and self.steps > steps else None

    def _score(self, name: str) -> TaskScore:
        last = self._last.get(name)
        if not last:
            return TaskScore(0, 0.0, 0.0)
        success = sum(solved for solved, _ in last) / len(last)
        return TaskScore(self._counts[name], success, sum(total for _, total in last) / len(last))

    def _read_files(self, *, is_fresh: bool) -> None:
        now = self._clock()
        if now - self._read_at < _FILES_EVERY_S and not is_fresh:
            return
        self._read_at = now
        self._network = network_words(self._folder, self._wall())
        if self._outbox and self._dispatch:
            waiting = self._outbox.count()
            accepted, refused, sent = self._judged(self._outbox, waiting)
            why = self._dispatch.trouble or self.unneeded
            self._recording = Recording(
                waiting=waiting,
                recorded=self._dispatch.recorded,
                lost=self._dispatch.lost,
                sent=sent,
                accepted=accepted,
                refused=refused,
                trouble=f"{why}; playing continues without recording" if why else None,
            )

    def _judged(self, outbox: Outbox | store.Deposit, waiting: int) -> tuple[int, Mapping[str, int], int]:
        """(accepted, refused, sent): of this machine's mirror, or of all that this account ever gave to the folder."""
        if isinstance(outbox, store.Deposit):
            judged = outbox.judged()
            return judged.accepted, judged.refused, judged.accepted + sum(judged.refused.values()) + waiting
        counts = read_contributions(self._folder)
        return counts.accepted, counts.refused, counts.sent


def network_words(folder: Path, now: float) -> str | None:
    """What syncd last said about the connection of the mirror `folder`; None where it never ran here."""
    status = read_json_or_none(folder / "state" / "status.json")
    if not isinstance(status, dict):
        return None
    state, at, since = status.get("state"), status.get("written_at"), status.get("since")
    if not isinstance(state, str):
        return None
    if isinstance(at, int | float) and now - at > SILENT_AFTER_S:
        return f"no syncd is running here (last seen {_time(at)}); playing continues"
    words = f"{state} since {_time(since)}" if isinstance(since, int | float) else state
    return words if state in {"live", "syncing"} else f"{words}; playing continues"


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).astimezone().strftime("%H:%M:%S")

"""The running sums of a row of metrics. They are part of the checkpoint, so rows end at the same places whatever is
saved or handed over meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.machine.group import Group, gathered_numbers
from trainer.state import State, of_shards, shard_of, shared_of


class Meter:
    """Running sums since the last row: update metrics as double sums, episodes task by task."""

    def __init__(self, names: Sequence[str], tasks: Sequence[str], measures: Sequence[str] = ()) -> None:
        """`measures`: what is told of an episode beside its return and success."""
        self._names = tuple(names)
        self._tasks = tuple(tasks)
        self._measures = tuple(measures)
        self._clear(0)

    def _clear(self, step: int) -> None:
        self._from = step
        self._updates = 0
        self._sums = [0.0] * len(self._names)
        self._episodes = [0] * len(self._tasks)
        self._successes = [0] * len(self._tasks)
        self._returns = [0.0] * len(self._tasks)
        self._measured = [[(0, 0.0)] * len(self._measures) for _ in self._tasks]

    def add_update(self, values: Sequence[float]) -> None:
        """One update's metrics, in the order of `names`. Sums run in this order, so pausing changes no digit."""
        self._updates += 1
        for i, value in enumerate(values):
            self._sums[i] += value

    def add_episodes(
        self,
        finished: npt.NDArray[np.bool_],
        task: npt.NDArray[np.integer],
        returns: npt.NDArray[np.floating],
        success: npt.NDArray[np.bool_],
        measures: npt.NDArray[np.floating] | None = None,
    ) -> None:
        """The episodes that ended in one vector step; all [N], `measures` [N, M] where there are some."""
        for i in np.flatnonzero(finished):
            k = int(task[i])
            self._episodes[k] += 1
            self._successes[k] += int(success[i])
            self._returns[k] += float(returns[i])
            for number, value in enumerate(measures[i].tolist() if self._measures and measures is not None else ()):
                count, total = self._measured[k][number]
                if not math.isnan(value):
                    self._measured[k][number] = count + 1, total + value

    @property
    def updates(self) -> int:
        """Updates since the last row."""
        return self._updates

    def row(self, step: int, measures: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """The row that ends at `step`, with `measures` of each task; the sums start anew."""
        value: dict[str, Any] = {"from": self._from, "to": step, "updates": self._updates}
        if self._updates:
            value |= {name: total / self._updates for name, total in zip(self._names, self._sums, strict=True)}
        value["tasks"] = {
            task: self._of_task(k, {name: values[k] for name, values in measures.items()})
            for k, task in enumerate(self._tasks)
        }
        self._clear(step)
        return value

    def take(self, state: State) -> None:
        """Add the episodes of another meter, as it is in `state`."""
        saved = state.numbers
        for k in range(len(self._tasks)):
            self._episodes[k] += saved["episodes"][k]
            self._successes[k] += saved["successes"][k]
            self._returns[k] += saved["returns"][k]
            if self._measures:
                self._measured[k] = [
                    (count + more, total + added)
                    for (count, total), (more, added) in zip(self._measured[k], saved["measured"][k], strict=True)
                ]

    def state(self) -> State:
        """Floats round-trip exactly in JSON."""
        numbers = {
            "from": self._from,
            "updates": self._updates,
            "sums": list(self._sums),
            "episodes": list(self._episodes),
            "successes": list(self._successes),
            "returns": list(self._returns),
        }
        if self._measures:
            numbers["measured"] = [list(of_task) for of_task in self._measured]
        return State({}, numbers)

    def load(self, state: State) -> None:
        """Go on from `state`."""
        saved = state.numbers
        self._from, self._returns = saved["from"], list(saved["returns"])
        if len(saved["sums"]) == len(self._names):  # else it measures more or less since: the means begin anew
            self._updates, self._sums = saved["updates"], list(saved["sums"])
        self._episodes, self._successes = list(saved["episodes"]), list(saved["successes"])
        if self._measures:
            self._measured = [[(count, total) for count, total in of_task] for of_task in saved["measured"]]

    def _of_task(self, k: int, measures: Mapping[str, float]) -> dict[str, Any]:
        value: dict[str, Any] = {"episodes": self._episodes[k], **measures}
        if episodes := self._episodes[k]:
            value |= {"success": self._successes[k] / episodes, "return": self._returns[k] / episodes}
            means = zip(self._measures, self._measured[k], strict=True)
            value |= {name: total / count for name, (count, total) in means if count}
        return value


class ShardedMeter:
    """A meter where there are several shards: the updates are those of all, each shard counts its own episodes."""

    def __init__(self, group: Group, shards: range, make: Callable[[], Meter]) -> None:
        self._group, self._make = group, make
        self._all = make()
        self._own = {shard: make() for shard in shards}

    def add_update(self, values: Sequence[float]) -> None:
        """One update's metrics, in the order of `names`."""
        self._all.add_update(values)

    def add_episodes(self, *columns: npt.NDArray[Any]) -> None:
        """The episodes that ended in one vector step of all shards here, which have as many rows each."""
        parts = [np.split(column, len(self._own)) for column in columns]
        for meter, *own in zip(self._own.values(), *parts, strict=True):
            meter.add_episodes(*own)

    @property
    def updates(self) -> int:
        """Updates since the last row."""
        return self._all.updates

    def row(self, step: int, measures: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """The row that ends at `step`; episodes are in that of rank 0 alone. The sums start anew."""
        own = {shard: meter.state() for shard, meter in self._own.items()}
        for state in gathered_numbers(self._group, own).values():
            self._all.take(state)
        self._own = {shard: self._make() for shard in self._own}
        return self._all.row(step, measures)

    def state(self) -> State:
        """With the shards here."""
        return of_shards({shard: meter.state() for shard, meter in self._own.items()}, self._all.state())

    def load(self, state: State) -> None:
        """Go on from `state`, which has all shards."""
        self._all.load(shared_of(state))
        for shard, meter in self._own.items():
            meter.load(shard_of(state, shard))

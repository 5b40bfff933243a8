"""Which environment a lane shows: its own task's, or those of the tasks in turn. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchorleg.live.wanted import ANY, LANE


def task_of(lane: str) -> int | None:
    """The task number of a lane; None: any. Errors: ValueError where it is none."""
    if not LANE.fullmatch(lane):
        raise ValueError(f"there is no lane {lane!r}; use any, or t and the number of a task, such as t3")
    return None if lane == ANY else int(lane[1:])


def chosen(lane: str, playing: Sequence[int], shown_at: Mapping[int, float]) -> int | None:
    """The environment that `lane` shows from now on; None: nobody plays what it wants.

    `playing`: each environment's task number, negative where it has none. `shown_at`: when each task was shown last;
    for "any" the one that was not shown for longest is next, and of those never shown the first.
    """
    wanted = task_of(lane)
    candidates = [index for index, task in enumerate(playing) if task >= 0 and wanted in {None, task}]
    return min(
        candidates, key=lambda index: (shown_at.get(playing[index], float("-inf")), playing[index]), default=None
    )

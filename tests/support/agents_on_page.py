"""Agents at play as a page shows them: a mirror for it, what moves, and where that is on the canvas."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from daemons import PATIENCE_S
from fake_agents import FakeAgent, swing
from policies import RUN, a_draft, tensors

from syncd import store

#: A batch leaves so often, as a job's do.
BATCH_S, PICTURES = 0.2, 6


def a_mirror(folder: Path, slots: int) -> Path:
    for slot in range(slots):
        place = store.Shared(folder).slot(RUN, slot)
        store.publish(place, a_draft(place, 1, 1, step=1000 - slot), store.rounded(tensors(slot)))
    return folder


@contextlib.contextmanager
def playing(write: Callable[[int], object]) -> Iterator[list[int]]:
    """Call `write` with the number of a batch, five times a second; yields how many there were, as the one element."""
    over, count = threading.Event(), [0]

    def go_on() -> None:
        while not over.wait(BATCH_S):
            write(count[0])
            count[0] += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join(PATIENCE_S)


def moves(agent: FakeAgent, **more: Any) -> Callable[[int], None]:
    return lambda k: agent.pose(*(swing(PICTURES * k + i) for i in range(PICTURES)), **more)


def tile(page: Any, slot: int = 0) -> Any:
    return page.locator(f'[data-agent="{slot}"]')


def said(page: Any, words: str, slot: int = 0) -> None:
    tile(page, slot).get_by_text(words).first.wait_for()


def middle_of_red(page: Any, slot: int = 0) -> tuple[float, float] | None:
    """Where the red box is on its canvas, in pixels of the page; None: it is not there."""
    from PIL import Image

    data = tile(page, slot).locator("canvas").first.screenshot()
    image = Image.open(io.BytesIO(data)).convert("RGB")
    width, raw = image.size[0], image.tobytes()
    red = [k for k in range(len(raw) // 3) if raw[3 * k] > 90 and max(raw[3 * k + 1], raw[3 * k + 2]) < 60]
    if len(red) < 30:
        return None
    return sum(k % width for k in red) / len(red), sum(k // width for k in red) / len(red)

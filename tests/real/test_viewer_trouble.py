"""Disks that are full and lines that are cut, on the page: a sentence, nothing blank, and the picture comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents_on_page import a_mirror, middle_of_red, moves, playing, said, tile
from browser import Pages, a_viewer
from daemons import wait_for
from fake_agents import FakeAgent, live_folder
from full_disk import fill
from laptops import Machine
from policies import RUN

from anchorleg.live.wanted import FILE, Asked
from syncd import store

FULL = "cannot be written (No space left on device)"


class Job:
    """An agent that plays as long as it is asked to, as one of a training does, and survives a disk that is full."""

    def __init__(self, shared: Path) -> None:
        self.agent = FakeAgent(live_folder(shared, RUN, 0))
        self._asked = Asked(shared / "v1" / "runs" / RUN / FILE, 0)
        self._moves = moves(self.agent)
        self.is_asked, self.turns = False, 0

    def turn(self, number: int) -> None:
        """A fifth of a second of it."""
        self.is_asked = bool(self._asked.lanes())
        self.turns += 1
        if self.is_asked:
            with contextlib.suppress(OSError):
                self._moves(number)


def wait_for_moves(page: Any) -> None:
    """Until the box was seen at two places, from now on."""
    places: list[float] = []

    def has_moved() -> bool:
        found = middle_of_red(page)
        places.extend([found[0]] if found else [])
        return bool(places) and max(places) - min(places) > 40

    wait_for(has_moved, "the box to move")


def goes_through_a_full_disk(page: Any, disk: Path, job: Job) -> None:
    """The page says it, keeps its tile, and the picture is back when there is room."""
    wait_for_moves(page)
    ballast = fill(disk)
    said(page, FULL)
    wait_for(lambda: not job.is_asked, "the wish to grow old")
    said(page, "delayed")
    assert tile(page).locator("canvas").first.is_visible()
    turns = job.turns
    wait_for(lambda: job.turns > turns, "the training to go on")
    ballast.unlink()
    tile(page).get_by_text(FULL).first.wait_for(state="detached")
    wait_for_moves(page)


@pytest.mark.long
def test_a_shared_folder_without_room_is_told_and_the_picture_comes_back(
    pages: Pages, small_disk: Path, tmp_path: Path
) -> None:
    shared = a_mirror(small_disk / "shared", 1)
    job = Job(shared)
    with a_viewer(tmp_path, str(shared)) as url, playing(job.turn):
        goes_through_a_full_disk(pages.open(url), small_disk, job)


@pytest.mark.long
def test_a_line_that_freezes_and_is_cut_is_told_as_a_delay_and_the_picture_comes_back(
    pages: Pages, tmp_path: Path, new_machine: Callable[..., Machine]
) -> None:
    shared = a_mirror(tmp_path / "shared", 1)
    job = Job(shared)
    machine = new_machine("anna", shared)
    daemon = machine.start("watch", "syncd", "watch")
    wait_for(lambda: store.Shared(machine.folder).slots(), "the slot in the mirror")
    with a_viewer(tmp_path, str(machine.folder)) as url, playing(job.turn):
        page = pages.open(url)
        wait_for_moves(page)
        machine.server.pause()
        said(page, "delayed")
        machine.server.stop()
        wait_for(lambda: not job.is_asked, "the wish to grow old")
        assert tile(page).locator("canvas").first.is_visible()
        machine.server.start()
        wait_for_moves(page)
    assert daemon.poll() is None
    assert "Traceback" not in machine.said("watch")

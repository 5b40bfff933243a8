"""The event history: whole, in order, in few files, whatever dies when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.disk import Disk
from orchestrator.run.ledger import EPOCHS_OPEN, FILES_KEPT, append_event, join_old, read_events
from orchestrator.run.rundir import RunDir

NOW = 1_000_000.0
EPOCHS = FILES_KEPT + 5


class Dead(BaseException):
    """The process was killed here."""


class Mortal(Disk):
    """A disk whose process dies before its n-th change."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Dead

    def write(self, path: Path, data: bytes) -> None:
        self._live()
        super().write(path, data)

    def remove(self, path: Path) -> None:
        self._live()
        super().remove(path)


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def tell(run_dir: RunDir, epochs: range) -> None:
    for epoch in epochs:
        append_event(run_dir, epoch, "tick", NOW, of=epoch)


def told(run_dir: RunDir) -> list[Any]:
    return [event["of"] for event in read_events(run_dir)]


def files(run_dir: RunDir) -> int:
    return len(list(run_dir.path.glob("events-*")))


def test_a_torn_last_line_is_left_out_and_spoils_no_other(run_dir: RunDir) -> None:
    append_event(run_dir, 0, "whole", NOW)
    with open(run_dir.events(0), "a") as file:
        file.write('{"at": 1, "ki')
    append_event(run_dir, 1, "next", NOW)
    assert [event["kind"] for event in read_events(run_dir)] == ["whole", "next"]


@pytest.mark.parametrize("changes", [0, 1, 2, 50, EPOCHS - EPOCHS_OPEN - 1])
def test_killed_in_a_joining_nothing_is_lost_or_told_twice(run_dir: RunDir, changes: int) -> None:
    tell(run_dir, range(EPOCHS))
    with pytest.raises(Dead):
        join_old(RunDir(run_dir.path, Mortal(changes)), EPOCHS)
    assert told(run_dir) == list(range(EPOCHS))
    tell(run_dir, range(EPOCHS, EPOCHS + FILES_KEPT))
    join_old(run_dir, EPOCHS + FILES_KEPT)
    assert told(run_dir) == list(range(EPOCHS + FILES_KEPT))
    assert files(run_dir) <= FILES_KEPT

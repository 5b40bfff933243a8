"""What a program of one's own shows of itself: only what is wanted, and never at the cost of the program."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from live_rings import ring_of, wish_in

from anchorleg.job import Job
from anchorleg.live import showing
from anchorleg.live.batches import JPEG, checked
from anchorleg.live.ring import MAX_PAYLOAD_BYTES, RingReader
from anchorleg.live.showing import Showing
from anchorleg.live.wanted import LOOK_EVERY_S, Wish

RUN = "mine-0123abcd"
PICTURE = b"\xff\xd8 a picture"


class Program:
    """A job with a clock of the test's."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.folder = folder
        self.job = Job(folder / "run", 2, 5, run_id=RUN, shared_dir=folder)
        self.job._showing = Showing(folder, RUN, 2, 5, clock=lambda: self.now, wall=lambda: 77.0)

    def is_watched(self, fps: int = 10) -> None:
        self.viewer = wish_in(self.folder, RUN, Wish(2, "any", fps), clock=lambda: self.now)
        self.now += LOOK_EVERY_S

    def shown(self) -> list[tuple[int, dict, bytes]]:
        cells = self.reader.newer()
        return [(cell.kind, *checked(cell.kind, cell.payload)) for cell in cells]

    @property
    def reader(self) -> RingReader:
        return RingReader(ring_of(self.folder, RUN, 2))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_nobody_looks_and_nothing_is_written(program):
    assert program.job.watched() == 0
    assert not program.job.show({"badges": 1}, jpeg=PICTURE)
    assert not program.job._showing.show(facts={}, jpeg=None, task="", episode=0, step=0, score=0, success=None)
    assert not ring_of(program.folder, RUN, 2).exists()


def test_what_is_shown_says_whose_it_is(program):
    program.is_watched()
    assert program.job.watched() == 10
    assert program.job.show(
        {"badges": 2, "town": "Pallet", "won": False}, jpeg=PICTURE, task="red", episode=3, step=40, score=-1.5,
        success=True,
    )  # fmt: skip
    ((kind, header, body),) = program.shown()
    assert (kind, body) == (JPEG, PICTURE)
    assert header == {
        "at": 77.0, "task": "red", "episode": 3, "step": 40, "attempt": 5, "origin": "training", "return": -1.5,
        "success": True, "facts": {"badges": 2.0, "town": "Pallet", "won": False},
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"facts": {"x": float("nan")}}, {"facts": {"x": [1]}}, {"facts": {"x": object()}}, {"score": float("inf")},
        {"jpeg": b"GIF89a"}, {"jpeg": b"\xff\xd8" + bytes(MAX_PAYLOAD_BYTES)}, {"task": 3}, {"step": -1},
        {"episode": "one"}, {"facts": {"x": "y" * 10_000}},
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_a_warning_once_and_no_error(program, wrong):
    program.is_watched(fps=60)
    with pytest.warns(UserWarning, match="cannot be shown"):
        assert not program.job.show(**wrong)
    program.now += 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not program.job.show(**wrong)
        program.now += 1.0
        assert program.job.show({"fine": True})


def test_a_full_disk_is_nothing_to_the_program(program, monkeypatch):
    program.is_watched()

    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        patch.setattr(showing.RingWriter, "write", full)
        assert not program.job.show({"a": 1})
    program.now += 1.0
    assert program.job.show({"a": 1})

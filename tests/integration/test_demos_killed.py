"""kill -9 at every write of a recording: who goes on comes to the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("av")

import demos
from guillotine import ORDERLY, in_a_fork, killed_at_every_write

from trainer.demos import store

pytestmark = pytest.mark.trainer


def prepare(folder: Path) -> None:
    """Nothing is there yet."""


def program(folder: Path, fall: Callable[[], None] = lambda: None) -> None:
    """Record five episodes, two a block."""
    store._BLOCK_EPISODES = 2
    fall()
    demos.recorded(folder / "out", 5)


def look(folder: Path) -> dict[str, Any]:
    """What there is when another one has done the same work to its end."""
    then = in_a_fork(lambda: program(folder))
    left = hashlib.sha256()
    for path in sorted(path for path in (folder / "out").rglob("*") if path.is_file() and path.name[0] != "."):
        left.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return {"then": then, "left": left.hexdigest()}


@pytest.mark.long
def test_a_kill_at_any_write_leaves_what_the_next_one_goes_on_from_to_the_bit(tmp_path):
    records = killed_at_every_write(__file__, tmp_path)
    assert len(records) > 20
    assert {record["then"] for record in records} == {ORDERLY}
    assert {record["left"] for record in records} == {records[-1]["left"]}  # the last one was not interrupted

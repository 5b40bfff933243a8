"""A job that was queued behind another one: when it begins, and when it leaves that to the controller."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.decisions.sightings import HEARTBEAT_SILENT_S
from orchestrator.jobside import SILENT_S, why_not_behind


class Before:
    """The attempt before, on the disk, and the time that the successor spends on it."""

    def __init__(self, slot_dir: Path) -> None:
        self.slot_dir, self.folder = slot_dir, slot_dir / "attempts" / "3"
        self.folder.mkdir(parents=True)
        self.now, self.asked = 1000.0, False
        self.then: Callable[[float], None] = lambda _waited_s: None

    def write(self, name: str, **facts: object) -> None:
        (self.folder / name).write_text(json.dumps(facts))

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then(self.now - 1000.0)

    def why_not(self) -> str | None:
        folder = self.slot_dir / "attempts" / "3"
        return why_not_behind(folder, lambda: self.asked, self.sleep, lambda: self.now)

    @property
    def waited_s(self) -> float:
        return self.now - 1000.0


@pytest.fixture
def before(tmp_path: Path) -> Before:
    return Before(tmp_path / "slots" / "0")


def test_it_is_as_patient_as_the_controller() -> None:
    assert SILENT_S == HEARTBEAT_SILENT_S


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        ({"code": 75}, None),
        ({"code": 1}, "ended with 1"),
        ({"code": 0}, "ended with 0"),
        ({"code": 75, "terminated": True}, "a SIGTERM"),
    ],
)
def test_a_record_of_the_end_is_believed_at_once(before: Before, ended: dict[str, object], why: str | None) -> None:
    before.write("claim", token="t")
    before.write("exit.json", **ended)
    found = before.why_not()
    assert found is None if why is None else why in (found or "")
    assert before.waited_s == 0.0


def test_one_that_died_without_a_word_is_waited_for_until_its_heart_is_silent(before: Before) -> None:
    before.write("claim", token="t")
    before.write("heartbeat.json", beat=7)
    assert before.why_not() is None
    assert SILENT_S <= before.waited_s <= SILENT_S + 2.0


def test_a_last_beat_that_shows_late_is_no_sign_of_life(before: Before) -> None:
    before.write("claim", token="t")
    before.write("heartbeat.json", beat=7)
    before.then = lambda waited_s: before.write("heartbeat.json", beat=8 if waited_s >= 50 else 7)
    assert before.why_not() is None
    assert SILENT_S + 50 <= before.waited_s <= SILENT_S + 55


def test_beside_one_that_works_it_does_not_run(before: Before) -> None:
    before.write("claim", token="t")
    before.then = lambda waited_s: before.write("heartbeat.json", beat=int(waited_s // 30))
    assert "still active" in (before.why_not() or "")
    assert before.waited_s <= SILENT_S


def test_while_it_waits_it_can_be_held_and_ended(before: Before) -> None:
    before.write("claim", token="t")
    before.asked = True
    assert "a SIGTERM" in (before.why_not() or "")
    (before.slot_dir / "hold").touch()
    assert "held" in (before.why_not() or "")


def test_a_job_that_never_began_is_not_waited_for(before: Before) -> None:
    assert before.why_not() is None
    assert before.waited_s == 0.0


def test_it_begins_as_soon_as_the_end_shows(before: Before) -> None:
    before.write("claim", token="t")
    before.then = lambda waited_s: before.write("exit.json", code=75) if waited_s >= 40 else None
    assert before.why_not() is None
    assert 40 <= before.waited_s <= 42

"""A controller whose disk fills up in the middle, and one whose run folder is taken away: nothing is lost or harmed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from full_disk import fill
from relay import NewRelay, Relay

PAGE = 4096


def fill_last_page(events: Path) -> None:
    """Not one more byte fits into the pages that a file has: only so does a full disk refuse to let it grow."""
    with open(events, "a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": "padding"}).ljust(PAGE - 1 - file.tell() % PAGE) + "\n")


def history(relay: Relay) -> list[tuple[str, int, int]]:
    """(kind, slot, attempt) of every event."""
    lines = [line for path in relay.run_dir.glob("events-*.jsonl") for line in path.read_text().splitlines()]
    events = [json.loads(line) for line in lines]
    return [(event["kind"], event["slot"], event["attempt"]) for event in events if "attempt" in event]


@pytest.mark.long
def test_jobs_that_end_while_the_controllers_disk_is_full_are_all_told_of_when_there_is_room(
    new_relay: NewRelay, small_disk: Path
) -> None:
    relay = new_relay(total=60, slots=2, held_at=10)
    small_disk.joinpath("run").mkdir()
    relay.run_dir.parent.mkdir()
    relay.run_dir.symlink_to(small_disk / "run")
    (relay.folder / "slots").mkdir()
    (small_disk / "run" / "slots").symlink_to(relay.folder / "slots")  # what the jobs write has room
    controller = relay.spawn("start")
    relay.wait_for_step(10, slot=0)
    relay.wait_for_step(10, slot=1)
    for slot in (0, 1):
        relay.wait_for(lambda slot=slot: history(relay).count(("started", slot, 0)) == 1, "the start to be told of")

    fill_last_page(relay.run_dir / "events-0.jsonl")
    ballast = fill(small_disk)
    for slot in (0, 1):
        relay.hand_over(slot)
    relay.wait_for(lambda: "No space left on device" in relay.output(), "the controller to say so")
    assert relay.run("status", "--json").code == 0
    ballast.unlink()
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    for slot in (0, 1):
        relay.assert_exactly_once(60, slot)
        for attempt in relay.attempts(slot):
            for kind in ("submission", "started", "ended"):
                assert history(relay).count((kind, slot, attempt)) == 1, (kind, slot, attempt)


@pytest.mark.long
def test_a_run_folder_that_was_made_anew_is_not_touched_by_its_old_controller(new_relay: NewRelay) -> None:
    relay = new_relay(total=2000)
    old = relay.spawn("start")
    relay.wait_for_step(3)

    shutil.move(relay.run_dir, relay.folder / "moved")
    assert relay.run("start", "--set", 'command=["python3", "./count.py", "5"]').code == 0
    anew = relay.snapshot()

    assert relay.ended(old) == 9, relay.output_file(0).read_text()
    said = relay.output_file(0).read_text()
    assert "[lease.folder-gone]" in said
    assert "Traceback" not in said
    assert relay.snapshot() == anew

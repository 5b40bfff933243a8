"""What a contributor's rsync left behind: segments reach the inbox, the rest goes."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from syncd.access import landing
from syncd.access.landing import Landing
from syncd.shared.inbox import MAX_SEGMENT_BYTES, Inbox
from syncd.store import Shared

RUN = "mt10-0a1b2c3d"
NOW = time.time()


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    shared = Shared(tmp_path)
    shared.slot(RUN, 0).path.mkdir(parents=True)
    return shared.inbox("alice")


def put(place: Landing, data: bytes, name: str | None = None, folder: str = f"{RUN}/0") -> str:
    path = place.path / folder / (name or hashlib.sha256(data).hexdigest())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path.name


def test_segments_go_in_and_the_rest_is_told_and_goes(inbox: Inbox, tmp_path: Path):
    (tmp_path / "secret").write_text("x")
    with Landing(inbox) as place:
        good = put(place, b"honest")
        put(place, b"renamed", "0" * 64)
        put(place, b"elsewhere", folder=f"{RUN}/7")
        put(place, b"stray", "note.txt", folder=".")
        put(place, b"deep", folder=f"{RUN}/0/deeper")
        put(place, b"odd slot", folder=f"{RUN}/\N{SUPERSCRIPT TWO}")
        put(place, bytes(MAX_SEGMENT_BYTES + 1))
        (place.path / RUN / "0" / ("b" * 64)).symlink_to(tmp_path / "secret")
        os.mkfifo(place.path / RUN / "0" / ("c" * 64))
        reasons = sorted(refusal.reason for _, refusal in place.take_in())
    assert reasons == ["damaged", "name", "name", "name", "name", "name", "other_run", "size"]
    assert [path.name for path in inbox.waiting(RUN, 0, now=NOW)] == [good]
    assert not place.path.exists()
    assert not list(inbox.files("tmp"))


def test_a_dropped_contributor_brings_nothing(inbox: Inbox):
    inbox.drop(by="the owner", now=NOW)
    with Landing(inbox) as place:
        put(place, b"honest")
        assert [refusal.reason for _, refusal in place.take_in()] == ["dropped"]


def test_too_much_is_noticed_while_it_comes(inbox: Inbox, monkeypatch: pytest.MonkeyPatch):
    with Landing(inbox) as place:
        put(place, b"honest")
        assert not place.is_overfull()
        monkeypatch.setattr(landing, "MAX_FILES", 1)
        put(place, b"")
        assert place.is_overfull()
        monkeypatch.setattr(landing, "MAX_FILES", 100)
        monkeypatch.setattr(landing, "MAX_WAITING_BYTES", 5)
        assert place.is_overfull()


def test_folders_count_and_deep_ones_are_too_much(inbox: Inbox, monkeypatch: pytest.MonkeyPatch):
    """A path of rsync's may be 4,095 bytes long below the landing: longer than what can be opened by its whole name."""
    with Landing(inbox) as place:
        monkeypatch.setattr(landing, "MAX_FILES", 10)
        for number in range(11):
            (place.path / f"folder-{number}").mkdir()
        assert place.is_overfull()
    with Landing(inbox) as place:
        here = os.open(place.path, os.O_RDONLY)
        for _ in range(20):
            os.mkdir("d" * 250, dir_fd=here)
            deeper = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
        os.close(here)
        assert place.is_overfull()
        assert place.take_in() == []
    assert not place.path.exists()


def test_what_a_killed_gate_left_goes_a_day_later(inbox: Inbox):
    old = inbox.path / "tmp" / f"{landing.PREFIX}{int(NOW - 2 * landing.ABANDONED_S)}-aa"
    young = inbox.path / "tmp" / f"{landing.PREFIX}{int(NOW)}-bb"
    for folder in (old, young):
        folder.mkdir(parents=True)
    with Landing(inbox):
        assert (old.exists(), young.exists()) == (False, True)

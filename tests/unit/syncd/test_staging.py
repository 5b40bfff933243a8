"""What a contributor's rsync left behind: segments reach the inbox, the rest goes."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from as_user import UID, as_ordinary_user, ordinary_folder

from syncd.access import staging
from syncd.access.staging import Staging
from syncd.errors import StorageError, UnreachableError
from syncd.shared.inbox import MAX_SEGMENT_BYTES, STAGING_PREFIX, Inbox, InboxLimits
from syncd.shared.pruning import ABANDONED_S, prune
from syncd.store import Shared

RUN = "mt10-0a1b2c3d"
NOW = time.time()


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def a_shared_folder(folder: Path) -> Shared:
    shared = Shared(folder)
    shared.slot(RUN, 0).path.mkdir(parents=True)
    return shared


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox.of(a_shared_folder(tmp_path), "alice")


def put(place: Staging, data: bytes, name: str | None = None, folder: str = f"{RUN}/0") -> str:
    path = place.path / folder / (name or hashlib.sha256(data).hexdigest())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path.name


def test_segments_go_in_and_the_rest_is_told_and_goes(inbox: Inbox, tmp_path: Path):
    (tmp_path / "secret").write_text("x")
    with Staging(inbox) as place:
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
    with Staging(inbox) as place:
        put(place, b"honest")
        assert [refusal.reason for _, refusal in place.take_in()] == ["dropped"]


def test_too_much_is_noticed_while_it_comes(inbox: Inbox):
    with Staging(inbox, most_files=3) as place:  # two are folders
        put(place, b"honest")
        assert not place.is_overfull()
        put(place, b"")
        assert place.is_overfull()
    with Staging(replace(inbox, limits=InboxLimits(waiting_bytes=5))) as place:
        put(place, b"honest")
        assert place.is_overfull()


def test_folders_count_and_deep_ones_are_too_much(inbox: Inbox):
    """A path of rsync's may be 4,095 bytes long below the staging: longer than what can be opened by its whole name."""
    with Staging(inbox, most_files=10) as place:
        for number in range(11):
            (place.path / f"folder-{number}").mkdir()
        assert place.is_overfull()
    with Staging(inbox) as place:
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


def test_what_a_killed_gate_left_here_goes_with_the_next_transfer_and_elsewhere_a_day_later(inbox: Inbox):
    day_s = 2 * ABANDONED_S
    ours = inbox.path / "tmp" / f"{STAGING_PREFIX}{staging._host()}-{int(NOW)}-aa"
    others = inbox.path / "tmp" / f"{STAGING_PREFIX}elsewhere-{int(NOW)}-bb"
    for folder in (ours, others):
        (folder / RUN).mkdir(parents=True)
    with Staging(inbox) as place:
        assert (ours.exists(), others.exists(), place.path.exists()) == (False, True, True)
    prune(inbox, now=NOW)
    assert others.exists()
    prune(inbox, now=NOW + day_s)
    assert not others.exists()


def test_another_transfer_of_the_same_contributor_is_kept_out(inbox: Inbox):
    with Staging(inbox) as first:
        put(first, b"honest")
        with pytest.raises(UnreachableError, match="alice brings segments now: try again"), Staging(inbox):
            pass
        assert first.take_in() == []
        with Staging(Inbox.of(Shared(inbox.path.parents[2]), "bob")):
            pass  # everybody else's may come meanwhile
    with Staging(inbox):
        pass


def test_what_another_machines_transfer_brought_counts(inbox: Inbox):
    others = inbox.path / "tmp" / f"{STAGING_PREFIX}elsewhere-{int(NOW)}-bb" / RUN / "0"
    others.mkdir(parents=True)
    (others / "x").write_bytes(bytes(1_000))
    for most, is_overfull in ((2_000, False), (1_999, True)):
        with Staging(replace(inbox, limits=InboxLimits(waiting_bytes=most))) as place:
            put(place, bytes(1_000))
            assert place.is_overfull() == is_overfull


def test_a_file_that_rsync_renames_while_it_is_looked_for_is_no_reason_to_refuse(tmp_path: Path):
    (tmp_path / ".part.Xy").write_bytes(b"123")
    (tmp_path / "whole").write_bytes(b"12345")
    walked = staging._walk(tmp_path)
    seen = [entry for _, entry in walked]
    (tmp_path / ".part.Xy").unlink()
    assert sum(staging._size_of(entry) for entry in seen) == 5


def test_what_a_stranger_closed_goes_as_well_and_what_cannot_go_keeps_the_next_one_out() -> None:
    with ordinary_folder() as above:

        def work() -> None:
            os.environ["XDG_STATE_HOME"] = str(above / "state")
            inbox = Inbox.of(a_shared_folder(above), "alice")
            with Staging(inbox) as place:
                put(place, b"honest")
                put(place, b"closed", folder=f"{RUN}/0/deep/deeper")
                for mode, folder in ((0o555, "deep/deeper"), (0o000, "deep")):
                    (place.path / RUN / "0" / folder).chmod(mode)
            assert os.listdir(inbox.path / "tmp") == []

        as_ordinary_user(work)
        if os.geteuid() == 0:  # what belongs to another account
            left = above / "v1" / "inbox" / "alice" / "tmp" / f"{STAGING_PREFIX}{staging._host()}-1-aa" / "theirs"
            (left / "inner").mkdir(parents=True)
            os.chown(left.parent, UID, UID)

            def blocked() -> None:
                os.environ["XDG_STATE_HOME"] = str(above / "state")
                with pytest.raises(StorageError, match="cannot be removed"), Staging(Inbox.of(Shared(above), "alice")):
                    pass

            as_ordinary_user(blocked)

"""What the disk tells of changes is looked at at once; where it tells nothing, or not all, the server polls."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import shutil
import time
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from policies import RUN, publish_one
from test_feed import Clock, changes, names

from syncd import store
from syncd.wire import events as events_module
from syncd.wire.events import Events, type_of
from syncd.wire.feed import FULL_EVERY_S, HINT_EVERY_S, MISSES, SCAN_EVERY_S, Feed
from syncd.wire.tree import Folder


@pytest.fixture
def shared(tmp_path: Path) -> store.Shared:
    return store.Shared(tmp_path)


@pytest.fixture(autouse=True)
def looks_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a look costs lengthens the pause to the next one, by the processor's clock and not by the test's."""
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def feed(shared, clock):
    publish_one(shared, 1, 1)
    feed = Feed(shared.path, clock)
    changes(feed)
    yield feed
    feed.close()


def rings(feed: Feed, timeout_s: float = PATIENCE_S) -> bool:
    """Whether the disk tells of something that nobody has looked at."""
    poll = select.poll()
    poll.register(feed.bell(), select.POLLIN)
    return bool(poll.poll(1000 * timeout_s))


def rung(feed: Feed, clock: Clock) -> list[str]:
    """What is told as soon as the bell rings: less time goes by than any look waits for."""
    assert rings(feed)
    feed.ring()
    assert feed.next_at() == feed.quiet_until
    clock.now = max(clock.now, feed.quiet_until)
    assert clock.now < feed._hints.next_at
    return names(changes(feed))


def test_a_new_policy_is_told_when_the_disk_tells_of_it(shared, feed, clock):
    assert feed.polls_because == ""
    assert feed.next_at() >= clock.now + FULL_EVERY_S
    for seq in range(2, 5):
        publish_one(shared, 1, seq)
        assert rung(feed, clock) == [f"000001-00000000{seq}.json"]
    assert not rings(feed, 0)


def test_new_runs_slots_and_curves_are_told_as_well(shared, feed, clock):
    publish_one(shared, 1, 1, slot=3)
    assert rung(feed, clock) == ["000001-000000001.json"]
    for step in range(3):
        clock.now += SCAN_EVERY_S
        store.write_metrics(shared.slot(RUN, 3), "metrics", [{"step": step}])
        assert rung(feed, clock) == ["metrics-000000.jsonl"]
    clock.now += SCAN_EVERY_S
    copied = shared.slot("other-0123abcd", 0)
    shutil.copytree(shared.slot(RUN, 0).path, copied.path)  # another run's name: its manifests are not its own
    assert rung(feed, clock) == []
    store.write_metrics(copied, "metrics", [{"step": 1}])
    assert rung(feed, clock) == ["metrics-000000.jsonl"]


def test_curves_that_change_all_the_time_are_told_once_a_second(shared, feed, clock):
    publish_one(shared, 1, 2)
    store.write_metrics(shared.slot(RUN, 0), "metrics", [{"step": 0}])
    assert rung(feed, clock) == ["000001-000000002.json", "metrics-000000.jsonl"]
    store.write_metrics(shared.slot(RUN, 0), "metrics", [{"step": 1}])
    publish_one(shared, 1, 3)
    assert rung(feed, clock) == ["000001-000000003.json"]
    assert clock.now < feed.next_at() <= clock.now + SCAN_EVERY_S
    clock.now = feed.next_at()
    assert names(changes(feed)) == ["metrics-000000.jsonl"]


@pytest.mark.parametrize("above", [0, 1, 2, 3])
def test_a_folder_that_another_takes_the_place_of_is_watched(shared, feed, clock, tmp_path_factory, above):
    folder = [shared.slot(RUN, 0).path, *shared.slot(RUN, 0).path.parents][above]
    away = tmp_path_factory.mktemp("away") / "it"
    shutil.copytree(folder, away)
    folder.rename(away.with_name("old"))
    away.rename(folder)
    assert rung(feed, clock) == []
    publish_one(shared, 1, 2)
    assert rung(feed, clock) == ["000001-000000002.json"]


def test_a_policy_without_its_blob_is_followed_as_where_nothing_is_told(shared, feed, clock):
    manifest = publish_one(shared, 1, 2)
    blob = shared.slot(RUN, 0).blob(manifest.blob.sha256)
    away = blob.rename(blob.with_name("away"))
    assert rings(feed)
    assert changes(feed) == []
    away.rename(blob)
    assert feed.next_at() <= clock.now + HINT_EVERY_S
    clock.now = feed.next_at()
    assert names(changes(feed)) == ["000001-000000002.json"]
    assert feed.next_at() > clock.now + HINT_EVERY_S


def test_a_disk_that_does_not_tell_all_is_polled(shared, feed, clock):
    """As another machine changes it: what was renamed here is put back in place, and the file is written into."""
    latest = shared.slot(RUN, 0).latest
    for seq in range(2, 2 + MISSES):
        before = latest.read_bytes()
        publish_one(shared, 1, seq)
        after = latest.read_bytes()
        latest.write_bytes(before)
        changes(feed)
        latest.write_bytes(after)
        assert not rings(feed, 0)
        assert feed.polls_because == ""
        clock.now += FULL_EVERY_S
        changes(feed)
    assert feed.polls_because == "events did not tell of all changes"
    assert feed.bell() == -1
    assert feed.next_at() <= clock.now + HINT_EVERY_S


def test_what_the_kernel_could_not_keep_for_us_is_looked_for(shared, feed, clock, monkeypatch):
    publish_one(shared, 1, 2)
    feed._events.read()  # lost
    overflow = events_module._EVENT.pack(-1, events_module._OVERFLOW, 0, 0)
    monkeypatch.setattr(feed._events, "read", lambda: list(feed._events._parsed(overflow)))
    assert names(changes(feed)) == ["000001-000000002.json"]
    assert feed.polls_because == ""


def refuses(code: int):
    def call(*words: object) -> int:
        ctypes.set_errno(code)
        return -1

    return call


def test_too_many_watches_of_the_account_are_a_reason_to_poll_until_there_are_fewer(shared, clock, monkeypatch):
    publish_one(shared, 1, 1)
    feed = Feed(shared.path, clock)
    with monkeypatch.context() as full:
        full.setattr(feed._events, "_add", refuses(errno.ENOSPC))
        changes(feed)
    assert feed.polls_because == f"inotify: {os.strerror(errno.ENOSPC)}"
    assert feed.next_at() <= clock.now + HINT_EVERY_S
    clock.now += FULL_EVERY_S
    changes(feed)
    assert feed.polls_because == ""
    feed.close()


@pytest.mark.parametrize(
    ("unfit", "why"),
    [({"most": 3}, "more than 3 folders"), ({"type_of": lambda _: "nfs4"}, "a file system of type nfs4")],
    ids=["too many", "of the network"],
)
def test_folders_that_cannot_be_watched_are_polled(shared, clock, unfit, why):
    publish_one(shared, 1, 1)
    feed = Feed(shared.path, clock, Events(**unfit))
    assert names(changes(feed)) == ["000001-000000001.json"]
    assert feed.polls_because == why
    assert feed.next_at() <= clock.now + HINT_EVERY_S
    feed.close()


def test_no_runs_yet_is_looked_for_until_there_are(shared, clock):
    feed = Feed(shared.path / "nowhere", clock)
    assert changes(feed) == []
    assert feed.polls_because == "no runs there yet"
    assert feed.next_at() <= clock.now + HINT_EVERY_S
    feed.close()


def test_where_there_is_no_inotify_it_says_so(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda *words, **more: object())
    assert Events().why == "this system has no inotify"


@pytest.mark.parametrize(("mount", "says"), [("31", "ext4"), ("41", "nfs4"), ("7", "unknown")])
def test_the_type_is_that_of_the_mount(tmp_path, mount, says):
    (tmp_path / "mountinfo").write_text(
        "31 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "41 31 0:52 / /gpfs\\040home rw,relatime shared:20 master:3 - nfs4 server:/home rw,vers=4.2\n"
    )
    (tmp_path / "fdinfo").mkdir()
    with Folder.root(tmp_path) as folder:
        (tmp_path / "fdinfo" / str(folder.fileno())).write_text(f"pos:\t0\nflags:\t02100000\nmnt_id:\t{mount}\n")
        assert type_of(folder, tmp_path) == says
        assert type_of(folder) != "unknown"

"""What is on offer: the newest whole policy, once; and nothing that a link points at."""

from __future__ import annotations

import errno
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leftovers import descriptors_below
from policies import RUN, publish_one

from syncd import store
from syncd.wire.feed import FULL_EVERY_S, HINT_EVERY_S, RETRIES, Feed, PolicyNews, _Told
from syncd.wire.outgoing import news_frames
from syncd.wire.pacing import Bandwidth
from syncd.wire.protocol import Decoder, File, PublishedPolicy
from syncd.wire.tree import Folder, open_file


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shared(tmp_path: Path) -> store.Shared:
    return store.Shared(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["told", "polled"])
def feed(request, shared, clock):
    """Where the disk tells of changes, and where it does not."""
    feed = Feed(shared.path, clock)
    if request.param == "polled":
        feed._events.give_up("this is a test")
    yield feed
    feed.close()


def test_what_is_done_between_two_steps_puts_off_no_look(shared, clock, monkeypatch):
    """Files leave while a large folder is looked at: their cost is not the look's."""
    for slot in range(4):
        publish_one(shared, 1, 1, slot=slot)
    spent = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: spent[0])
    feed = Feed(shared.path, clock)
    feed._events.give_up("this is a test")
    for _ in feed.changes():
        spent[0] += 1.0
    assert feed._full.next_at == clock.now + FULL_EVERY_S
    assert feed.next_at() == clock.now + HINT_EVERY_S
    feed.close()


def changes(feed: Feed) -> list[PolicyNews | File]:
    """All of one look."""
    return [news for news in feed.changes() if news is not None]


def after(feed: Feed, clock: Clock, seconds: float = 4.1) -> list[PolicyNews | File]:
    """What is new `seconds` later (a look may be put off to four times its interval)."""
    clock.now += seconds
    return changes(feed)


def names(news: list[PolicyNews | File]) -> list[str]:
    return [one.path.rpartition("/")[2] for one in news]


def test_each_policy_is_told_once_and_only_the_newest(shared, feed, clock):
    assert after(feed, clock) == []
    publish_one(shared, 1, 1)
    publish_one(shared, 1, 2)
    assert names(after(feed, clock)) == ["000001-000000002.json"]
    assert after(feed, clock) == []
    assert after(feed, clock, 5 * FULL_EVERY_S) == []
    publish_one(shared, 2, 1)
    assert names(after(feed, clock)) == ["000002-000000001.json"]
    publish_one(shared, 1, 99)  # a ghost of the older attempt
    assert after(feed, clock) == after(feed, clock, 5 * FULL_EVERY_S) == []
    feed.forget()
    assert names(after(feed, clock)) == ["000002-000000001.json"]


def test_averaged_policies_are_news_of_their_own_and_are_never_pushed(shared, feed, clock):
    publish_one(shared, 1, 1)
    assert [one.is_averaged for one in after(feed, clock)] == [False]
    publish_one(shared, 1, 1, averaged=True)
    (news,) = after(feed, clock)
    assert news.path == f"v1/runs/{RUN}/0/averaged/manifests/000001-000000001.json"
    assert news.is_averaged
    os.close(open_file(shared.path, news.blob_path))
    assert pushed(news, shared) == [False]
    assert pushed(replace(news, is_averaged=False), shared) == [True]
    publish_one(shared, 1, 2, averaged=True)
    assert names(after(feed, clock)) == ["000001-000000002.json"]
    shutil.rmtree(shared.slot(RUN, 0).averaged.path)
    assert after(feed, clock, FULL_EVERY_S) == []


def pushed(news, shared):
    """Of each policy whether its weights follow unasked."""
    frames = Decoder().feed(b"".join(news_frames(shared.path, [news], Bandwidth(0), eager=True)))
    return [frame.message.eager for frame in frames if isinstance(frame.message, PublishedPolicy)]


def test_a_policy_waits_for_its_blob(shared, feed, clock):
    publish_one(shared, 1, 1)
    after(feed, clock)
    manifest = publish_one(shared, 1, 2)
    blob = shared.slot(RUN, 0).blob(manifest.blob.sha256)
    away = blob.rename(blob.with_name("away"))
    assert after(feed, clock) == []
    away.rename(blob)
    assert names(after(feed, clock)) == ["000001-000000002.json"]
    away = blob.rename(blob.with_name("away"))
    publish_one(shared, 1, 3)
    assert names(after(feed, clock)) == ["000001-000000003.json"]


def test_a_blob_that_is_too_short_leaves_the_policy_before_on_offer(shared, feed, clock):
    publish_one(shared, 1, 1)
    manifest = publish_one(shared, 1, 2)
    blob = shared.slot(RUN, 0).blob(manifest.blob.sha256)
    content = blob.read_bytes()
    blob.write_bytes(content[:10])
    assert names(after(feed, clock)) == ["000001-000000001.json"]
    blob.write_bytes(content)
    assert names(after(feed, clock, 5 * FULL_EVERY_S)) == ["000001-000000002.json"]


def test_one_that_never_becomes_whole_is_looked_at_less_often(shared, feed, clock, monkeypatch):
    publish_one(shared, 1, 1)
    after(feed, clock)
    manifest = publish_one(shared, 1, 2)
    shared.slot(RUN, 0).blob(manifest.blob.sha256).unlink()
    looks = []
    monkeypatch.setattr(feed, "_newer", looks.append)
    for _ in range(3 * RETRIES):
        after(feed, clock, 1.01)
    assert RETRIES <= len(looks) < 2 * RETRIES


def test_a_torn_manifest_leaves_the_one_before_on_offer(shared, feed, clock):
    publish_one(shared, 1, 1)
    torn = shared.slot(RUN, 0).manifest(store.Version(1, 2))
    torn.write_bytes(shared.slot(RUN, 0).manifest(store.Version(1, 1)).read_bytes()[:200])
    assert names(after(feed, clock)) == ["000001-000000001.json"]


def test_curves_are_told_when_their_content_changes(shared, feed, clock):
    place = shared.slot(RUN, 0)
    publish_one(shared, 1, 1)
    store.write_metrics(place, "metrics", [{"step": 1}])
    assert names(after(feed, clock)) == ["000001-000000001.json", "metrics-000000.jsonl"]
    assert after(feed, clock) == []
    store.write_metrics(place, "metrics", [{"step": 1}, {"step": 2}])
    assert names(after(feed, clock)) == ["metrics-000000.jsonl"]
    os.utime(place.metrics / "metrics-000000.jsonl")
    assert after(feed, clock, 5 * FULL_EVERY_S) == []


def test_a_curve_that_cannot_be_read_hides_no_other(shared, feed, clock, monkeypatch):
    publish_one(shared, 1, 1)
    for name in ("board", "evaluations", "metrics"):
        store.write_metrics(shared.slot(RUN, 0), name, [{"step": 1}])
    read = Folder.read

    def closed(folder, name, most):
        if name.startswith("board"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return read(folder, name, most)

    with monkeypatch.context() as umask:
        umask.setattr(Folder, "read", closed)
        told = ["000001-000000001.json", "evaluations-000000.jsonl", "metrics-000000.jsonl"]
        assert names(after(feed, clock)) == told
        assert after(feed, clock, 5 * FULL_EVERY_S) == []
    assert names(after(feed, clock, 5 * FULL_EVERY_S)) == ["board-000000.jsonl"]


def test_a_second_listing_reads_only_the_curves_that_changed(shared, feed, clock, monkeypatch):
    publish_one(shared, 1, 1)
    for name in ("evaluations", "metrics"):
        store.write_metrics(shared.slot(RUN, 0), name, [{"step": 1}])
    reads, read = [], Folder.read
    monkeypatch.setattr(Folder, "read", lambda *args: (reads.append(args[1]), read(*args))[1])

    def curves_read():
        found = [name for name in reads if name.endswith(".jsonl")]
        reads.clear()
        return found

    first = after(feed, clock)
    assert curves_read() == ["evaluations-000000.jsonl", "metrics-000000.jsonl"]
    feed.forget()
    assert after(feed, clock) == first
    assert curves_read() == []
    store.write_metrics(shared.slot(RUN, 0), "metrics", [{"step": 1}, {"step": 2}])
    feed.forget()
    assert names(after(feed, clock)) == names(first)
    assert curves_read() == ["metrics-000000.jsonl"]


def test_a_slot_may_go_and_come_again(shared, feed, clock):
    publish_one(shared, 1, 1)
    after(feed, clock)
    shutil.rmtree(shared.slot(RUN, 0).path)
    assert after(feed, clock) == []
    publish_one(shared, 1, 1)
    assert names(after(feed, clock)) == ["000001-000000001.json"]


@pytest.mark.parametrize("what", ["slot", "manifests", "blob", "curve", "run"])
def test_links_are_not_followed(shared, feed, clock, tmp_path_factory, what):
    manifest = publish_one(shared, 1, 1)
    place = shared.slot(RUN, 0)
    store.write_metrics(place, "metrics", [{"step": 1}])
    path = {
        "run": place.path.parent,
        "slot": place.path,
        "manifests": place.manifests,
        "blob": place.blob(manifest.blob.sha256),
        "curve": place.metrics / "metrics-000000.jsonl",
    }[what]
    away = tmp_path_factory.mktemp("away") / "it"
    path.rename(away)
    path.symlink_to(away)
    told = names(after(feed, clock))
    assert told == (
        ["000001-000000001.json"]
        if what == "curve"
        else ["metrics-000000.jsonl"]
        if what in {"manifests", "blob"}
        else []
    )


PARTS = st.sampled_from(["v1", "runs", "inbox", "r", "0", "file", "link", "up", "pipe", "..", ".", "", "secret"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    top = tmp_path_factory.mktemp("top")
    slot = top / "v1/runs/r/0"
    slot.mkdir(parents=True)
    (slot / "file").write_text("for you")
    for path in (top / "secret", top / "v1/secret", top / "v1/runs/../secret"):
        path.write_text("not for you")
    (top / "v1/inbox").mkdir()
    (top / "v1/inbox/file").write_text("not for you")
    (slot / "link").symlink_to(top / "secret")
    (slot / "up").symlink_to(top)
    os.mkfifo(slot / "pipe")
    return top


@given(st.lists(PARTS, max_size=8).map("/".join) | st.text(max_size=30))
def test_no_path_leads_out_of_what_is_on_offer(tree, path):
    try:
        fd = open_file(tree, path)
    except (OSError, ValueError):
        return
    with open(fd) as file:
        assert file.read() == "for you"


def test_of_an_inbox_only_what_may_be_watched_is_on_offer(tree):
    shown = tree / "v1/inbox/ben/live/run/0"
    for folder in (shown, tree / "v1/inbox/ben/verdicts", tree / "v1/inbox/ben/new/live"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("for you")
    os.close(open_file(tree, "v1/inbox/ben/live/run/0/file"))
    for path in ("v1/inbox/ben/verdicts/file", "v1/inbox/ben/new/live/file", "v1/inbox/live", "v1/inbox/ben/live"):
        with pytest.raises(FileNotFoundError):
            open_file(tree, path)


def test_more_slots_than_a_process_may_have_open_files(shared, feed, clock):
    for slot in range(30):
        publish_one(shared, 1, 1, slot=slot)
    before = descriptors_below(shared.path)
    assert len(after(feed, clock)) == 30
    assert descriptors_below(shared.path) == before


def test_a_slot_that_was_deleted_and_put_back_is_told_again(shared, feed, clock):
    publish_one(shared, 1, 1)
    assert names(after(feed, clock)) == ["000001-000000001.json"]
    shutil.rmtree(shared.slot(RUN, 0).path)  # between two looks: the feed never sees it absent
    publish_one(shared, 1, 2)
    assert names(after(feed, clock)) == ["000001-000000002.json"]


def test_who_watches_is_no_reason_to_list_the_folders() -> None:
    told = _Told()
    for name in ("live.json", ".live.json.12.abcd.tmp"):
        told.note((("v1", "runs", RUN), "above"), name)
    assert not told.folders
    told.note((("v1", "runs", RUN), "above"), "7")
    assert told.folders

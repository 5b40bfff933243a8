"""What is on offer: the newest whole policy, once; and nothing that a link points at."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leftovers import descriptors_below
from policies import RUN, publish_one

from syncd import store
from syncd.wire.feed import FULL_EVERY_S, IDLE_SHARE, LOOK_EVERY_S, MOST_PAUSE_S, Feed, open_file
from syncd.wire.protocol import File


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


@pytest.fixture
def feed(shared: store.Shared, clock: Clock) -> Feed:
    return Feed(shared.path, clock)


def changes(feed: Feed) -> list[File]:
    """All of one look."""
    return [news for news in feed.changes() if news is not None]


def after(feed: Feed, clock: Clock, seconds: float = 1.1) -> list[File]:
    """What is new `seconds` later."""
    clock.now += seconds
    return changes(feed)


def names(news: list[File]) -> list[str]:
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


def test_averaged_policies_are_news_of_their_own(shared, feed, clock):
    publish_one(shared, 1, 1)
    after(feed, clock)
    publish_one(shared, 1, 1, averaged=True)
    (news,) = after(feed, clock)
    assert news.path == f"v1/runs/{RUN}/0/averaged/manifests/000001-000000001.json"
    publish_one(shared, 1, 2, averaged=True)
    assert names(after(feed, clock)) == ["000001-000000002.json"]
    shutil.rmtree(shared.slot(RUN, 0).averaged.path)
    assert after(feed, clock, FULL_EVERY_S) == []


@pytest.mark.parametrize(("step_s", "pause_s"), [(0.0, LOOK_EVERY_S), (0.1, 0.9 * IDLE_SHARE), (9.0, MOST_PAUSE_S)])
def test_a_look_that_takes_long_is_taken_less_often(shared, feed, clock, monkeypatch, step_s, pause_s):
    """And what its caller does between two steps puts off nothing."""
    for slot in range(9):
        publish_one(shared, 1, 1, slot=slot)
    find_slot = Feed._find_slot

    def slowly(*words):
        clock.now += step_s
        return find_slot(*words)

    monkeypatch.setattr(Feed, "_find_slot", slowly)
    for _ in feed.changes():
        clock.now += 100.0
    assert feed.next_at - clock.now == pytest.approx(pause_s)


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


def test_more_slots_than_a_process_may_have_open_files(shared, feed, clock):
    for slot in range(30):
        publish_one(shared, 1, 1, slot=slot)
    before = descriptors_below(shared.path)
    assert len(after(feed, clock)) == 30
    assert descriptors_below(shared.path) == before

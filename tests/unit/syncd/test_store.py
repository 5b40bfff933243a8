"""The store: published whole or not at all, read whole or not at all, cleared away from the old end."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import a_draft, publish_one, tensors
from refused import refused

from anchorleg.files import LEFT_BEHIND_S
from syncd import store
from syncd.shared import curves
from syncd.shared.layout import Shared
from syncd.shared.retention import UNLISTED_S, Keep, collect, kept
from syncd.store import Version

RUN = "demo-0123abcd"
DAY = 86_400.0


@pytest.fixture
def shared(tmp_path):
    return Shared(tmp_path)


@pytest.fixture
def place(shared):
    return shared.slot(RUN, 0)


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


class TestReading:
    def test_what_was_published_is_read_rounded(self, shared, place):
        manifest = publish_one(shared, 0, 1)
        assert store.newest(place) == manifest
        assert same(store.read(place, manifest), store.rounded(tensors(1)))

    def test_a_later_attempt_is_newer_whatever_its_count(self, shared, place):
        publish_one(shared, 0, 9)
        second = publish_one(shared, 1, 0)
        publish_one(shared, 0, 10)  # a ghost of the first attempt
        assert store.newest(place) == second
        assert store.hinted(place) == (1, 0)

    @pytest.mark.parametrize("hint", [None, b"", b"{", b'{"attempt": 7, "seq": 7}', b'{"attempt": 0, "seq": 0}', b"[]"])
    def test_the_hint_may_be_wrong_torn_or_absent(self, shared, place, hint):
        publish_one(shared, 0, 0)
        newest = publish_one(shared, 0, 1)
        place.latest.unlink()
        if hint is not None:
            place.latest.write_bytes(hint)
        assert store.newest(place) == newest

    @pytest.mark.parametrize(
        ("damage", "name"),
        [
            (lambda data: data[:-1], "blob.wrong-length"),
            (lambda data: data + b"\0", "blob.wrong-length"),
            (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "blob.other-sum"),
        ],
    )
    def test_a_damaged_blob_says_how(self, shared, place, damage, name):
        manifest = publish_one(shared, 0, 0)
        path = place.blob(manifest.blob.sha256)
        path.write_bytes(damage(path.read_bytes()))
        with refused(name):
            store.read(place, manifest)

    def test_a_stale_handle_is_looked_at_again(self, shared, place, monkeypatch):
        manifest = publish_one(shared, 0, 0)
        real, failures = open, [errno.ESTALE, errno.ENOENT]

        def flaky(path, *args, **more):
            if failures and Path(path).parent.parent == place.blobs:
                raise OSError(failures.pop(), "as NFS does")
            return real(path, *args, **more)

        monkeypatch.setattr("builtins.open", flaky)
        assert same(store.read(place, manifest), store.rounded(tensors(0)))
        assert failures == []


class TestPublishing:
    def test_one_version_is_never_rewritten(self, shared, place):
        first = publish_one(shared, 0, 0)
        with pytest.raises(FileExistsError, match="other content"):
            store.publish(place, a_draft(place, 0, 0), store.rounded(tensors(99)))
        assert store.newest(place) == first

    def test_the_callers_last_word_comes_before_it_is_visible(self, shared, place):
        def superseded():
            assert len(files_below(place.blobs)) == 1
            raise InterruptedError

        with pytest.raises(InterruptedError):
            store.publish(place, a_draft(place, 0, 0), store.rounded(tensors(0)), before_manifest=superseded)
        assert store.newest(place) is None
        assert files_below(place.manifests) == []


class TestClearingAway:
    VERSIONS = st.dictionaries(
        st.builds(Version, st.integers(0, 3), st.integers(0, 300)), st.floats(0, 2 * DAY), max_size=60
    )

    @given(VERSIONS, st.integers(0, 20), st.floats(0, 2 * DAY), st.floats(0, DAY))
    def test_what_stays(self, made_at, newest, now, thinned_s):
        keep = Keep(newest=newest, thinned_s=thinned_s, every_s=60.0)
        staying = kept(made_at, keep, now)
        ascending = sorted(made_at)
        assert staying <= set(made_at)
        assert set(ascending[-max(newest, 1) :]) <= staying
        others = staying - set(ascending[-max(newest, 1) :])
        assert all(made_at[version] >= now - thinned_s for version in others)
        assert len({(version.attempt, made_at[version] // 60) for version in others}) == len(others)  # one a minute
        assert kept({version: made_at[version] for version in staying}, keep, now) == staying  # and so it stays

    def test_an_attempts_last_stays_where_the_next_one_publishes_within_the_minute(self):
        made_at = {Version(attempt, seq): 5.0 * seq + 20 * attempt for attempt in (3, 4) for seq in range(4)}
        made_at |= {Version(4, seq): 60 + 15.0 * seq for seq in range(4, 30)}
        staying = kept(made_at, Keep(newest=10, thinned_s=DAY), now=600.0)
        assert sorted(version.seq for version in staying if version.attempt == 3) == [3]

    def age(self, place, version, seconds, now):
        manifest = store.read_manifest(place, version)
        for path in (place.manifest(version), place.blob(manifest.blob.sha256)):
            os.utime(path, (now - seconds, now - seconds))

    def test_a_dropped_policys_blob_stays_for_those_who_have_its_manifest(self, shared, place):
        now = time.time()
        manifests = [publish_one(shared, 0, seq) for seq in range(5)]
        for manifest in manifests:
            self.age(place, manifest.version, 2 * UNLISTED_S, now)
        assert collect(place, now=now, keep=Keep(newest=2)) == []
        assert store.versions(place) == [(0, 3), (0, 4)]
        assert collect(place, now=now + UNLISTED_S / 2, keep=Keep(newest=2)) == []
        assert same(store.read(place, manifests[0]), store.rounded(tensors(0)))
        assert collect(place, now=now + UNLISTED_S + 1, keep=Keep(newest=2)) == []
        assert len(files_below(place.blobs)) == 2
        assert same(store.read(place, manifests[4]), store.rounded(tensors(4)))

    def test_where_a_training_is_over_the_last_day_goes_with_its_blobs(self, shared, place):
        now = time.time()
        manifests = [publish_one(shared, 0, seq) for seq in range(6)]
        for manifest in manifests:
            self.age(place, manifest.version, 60.0 * (10 - manifest.version.seq), now)
        begun = place.blob("ab" * 32)  # a newer attempt's, whose manifest comes
        begun.parent.mkdir(exist_ok=True)
        begun.write_bytes(b"weights")
        keep = Keep(newest=2, thinned_s=DAY)
        assert collect(place, now=now, keep=keep) == []
        assert len(store.versions(place)) == 6
        assert collect(place, now=now, keep=keep.last()) == []
        assert store.versions(place) == [(0, 4), (0, 5)]
        assert len(files_below(place.blobs)) == 3
        assert begun.exists()
        assert same(store.read(place, manifests[4]), store.rounded(tensors(4)))

    def test_unfinished_files_go_once_their_writer_must_be_dead(self, shared, place):
        manifest = publish_one(shared, 0, 0)
        left = [place.path.parent, place.path, place.manifests, place.blob(manifest.blob.sha256).parent]
        for folder in left:
            (folder / ".LATEST.json.77.abcd.tmp").write_bytes(b"half")
        foreign = place.path / "notes.txt"
        foreign.write_text("mine")
        collect(place, now=time.time())
        assert all((folder / ".LATEST.json.77.abcd.tmp").exists() for folder in left)
        collect(place, now=time.time() + LEFT_BEHIND_S + 5)
        assert not any((folder / ".LATEST.json.77.abcd.tmp").exists() for folder in left)
        assert foreign.exists()
        assert store.newest(place) == manifest


class TestCurves:
    @given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
    def test_the_rows_are_those_written_last(self, tmp_path_factory, first, second, changed):
        place = Shared(tmp_path_factory.mktemp("s")).slot(RUN, 0)
        rows = [{"step": step, "loss": step / 3} for step in range(first)]
        store.write_metrics(place, "metrics", rows)
        rows = rows[:changed] + [{"step": -step} for step in range(second)]
        store.write_metrics(place, "metrics", rows)
        assert store.read_metrics(place, "metrics") == rows

    def test_rows_are_added_to_the_last_file_and_to_new_ones(self, place):
        rows = [{"step": step} for step in range(700)]
        curve, done = store.GrowingCurve(place, "metrics"), 0
        assert not curve.is_as_left()
        for until in (0, 100, 128, 128, 129, 300, 512, 700):
            curve.write(rows[done:until], anew=done == 0)
            assert store.read_metrics(place, "metrics") == rows[:until]
            assert curve.is_as_left() == (until > 0)
            done = until

    @pytest.mark.parametrize("rows", [300, 384, 500, 640])
    def test_whenever_a_writer_of_a_shorter_history_dies_one_history_is_seen(self, place, monkeypatch, rows):
        old = [{"step": step} for step in range(640)]
        new = [{"step": step if step < 200 else -step} for step in range(rows)]
        store.write_metrics(place, "metrics", old)
        seen = []

        def watched(act):
            def acting(*args, **more):
                seen.append(store.read_metrics(place, "metrics"))
                return act(*args, **more)

            return acting

        monkeypatch.setattr(curves, "put", watched(curves.put))
        monkeypatch.setattr(Path, "unlink", watched(Path.unlink))
        store.write_metrics(place, "metrics", new)
        assert store.read_metrics(place, "metrics") == new
        assert len(seen) > 2
        assert all(each in (old[: len(each)], new[: len(each)]) for each in seen)

    def test_who_adds_hears_that_a_file_is_not_the_one_that_was_written(self, place):
        curve = store.GrowingCurve(place, "metrics")
        curve.write([{"step": step} for step in range(300)], anew=True)
        path = place.metrics / "metrics-000001.jsonl"
        path.with_name("other").write_bytes(path.read_bytes())  # as a ghost's comes: by a rename
        path.with_name("other").rename(path)
        assert not curve.is_as_left()


class TestPlaces:
    def test_all_slots_that_exist_are_listed_and_nothing_else(self, shared):
        for run, slot in (("b", 10), ("b", 2), ("a", 0)):
            shared.slot(run, slot).path.mkdir(parents=True)
        (shared.runs / "b" / "007").mkdir()
        (shared.runs / ".hidden" / "0").mkdir(parents=True)
        (shared.runs / "b" / "3").symlink_to("/etc")
        assert [(place.run_id, place.slot) for place in shared.slots()] == [("a", 0), ("b", 2), ("b", 10)]

    @pytest.mark.parametrize("run", ["", ".", "..", "a/b", "/etc", ".x", "a b", "a\n", "é", "a" * 82])
    def test_no_name_leads_elsewhere(self, shared, run):
        with pytest.raises(ValueError, match="run id"):
            shared.slot(run, 0)
        with pytest.raises(ValueError, match="contributor"):
            store.Inbox.of(shared, run)

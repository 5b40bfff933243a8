"""The box of outgoing segments: nothing is lost, nothing half written is seen, verdicts count once."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from disk_order import disk_order
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from syncd.outbox import ABANDONED_AFTER_S, MAX_PLAYED, Contributions, Outbox, note_played, read_played
from syncd.wire.protocol import SegmentVerdict

RUN = "demo-0123abcd"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_is_offered_waits_in_order_under_its_sum(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    data = [f"segment {k}".encode() for k in range(5)]
    for k, each in enumerate(data):
        assert box.offer(RUN, k % 2, each)
        os.utime(box.path / "new" / RUN / str(k % 2) / sha(each), (k, k))
    assert [w.path.name for w in box.waiting()] == [sha(each) for each in data]
    assert [w.slot for w in box.waiting(3)] == [0, 1, 0]
    assert {w.path.read_bytes() for w in box.waiting()} == set(data)
    assert (box.count(), box.bytes()) == (5, sum(map(len, data)))
    assert (box.waiting()[0].path.stat().st_mode & 0o777) == 0o600


def test_a_full_box_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    box = Outbox(tmp_path, max_segments=3, max_bytes=40)
    assert [box.offer(RUN, 0, bytes([k]) * 10) for k in range(4)] == [True, True, True, False]
    assert not Outbox(tmp_path, max_bytes=40).offer(RUN, 0, b"x" * 11)
    box.sent([box.waiting()[0].path])
    assert box.offer(RUN, 0, b"later")
    assert box.count() == 3


def test_a_full_disk_is_one_sentence_and_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Outbox(tmp_path)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused("storage.unwritable", why="No space left on device"):
        box.offer(RUN, 0, b"data")
    assert [path for path in (tmp_path / "outbox").rglob("*") if path.is_file()] == []


def test_a_segment_is_durable_when_it_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = disk_order(monkeypatch, tmp_path / "outbox")
    assert Outbox(tmp_path).offer(RUN, 0, b"data")
    assert [each.partition(" ")[0] for each in asked] == ["fsync", "replace", "fsync"]
    assert asked[-1] == f"fsync new/{RUN}/0"


def test_tidying_removes_only_what_lost_its_writer(tmp_path: Path) -> None:
    now = 1_000_000.0
    box = Outbox(tmp_path, clock=lambda: now)
    box.offer(RUN, 0, b"good")
    old, young = box.path / "tmp" / "old", box.path / "tmp" / "young"
    for path, age_s in ((old, ABANDONED_AFTER_S + 1), (young, 5.0)):
        path.write_bytes(b"part")
        os.utime(path, (now - age_s, now - age_s))
    box.tidy()
    assert not old.exists()
    assert young.exists()
    assert box.count() == 1


@given(
    st.lists(st.integers(0, 30), unique=True),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "stale", "duplicate"])), max_size=60),
)
def test_verdicts_count_once_each_and_only_for_what_was_sent(sent: list[int], told: list[tuple[int, str]]) -> None:
    counts = Contributions().with_sent([sha(bytes([k])) for k in sent], 1.0)
    for k, reason in told:
        verdict = SegmentVerdict(sha256=sha(bytes([k])), accepted=not reason, reason=reason)
        counts = counts.with_verdicts([verdict], 2.0)
    first: dict[int, str] = {}
    for k, reason in told:
        first.setdefault(k, reason)
    judged = {k: first[k] for k in sent if k in first}
    assert counts.accepted == sum(reason == "" for reason in judged.values())
    assert counts.refused == {r: n for r in ("stale", "duplicate") if (n := list(judged.values()).count(r))}
    assert len(counts.unjudged) == len(sent) - len(judged)


def test_actors_words_are_kept_one_a_slot_and_bounded(tmp_path: Path) -> None:
    for k in range(MAX_PLAYED + 3):
        assert note_played(tmp_path, SimpleNamespace(run_id=RUN, slot=k), "1-1", True, now=float(k))
    note_played(tmp_path, SimpleNamespace(run_id=RUN, slot=9), "1-2", False, "golden actions differ", now=1e9)
    known = read_played(tmp_path)
    assert len(known) == MAX_PLAYED
    assert f"{RUN}/0" not in known
    assert (known[f"{RUN}/9"].ok, known[f"{RUN}/9"].version) == (False, "1-2")

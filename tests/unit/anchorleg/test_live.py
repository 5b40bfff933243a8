"""Agents on their way to a watcher: rings that are torn, watchers that go, batches of strangers."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorleg.live import batches, wanted
from anchorleg.live.batches import FACTS, JPEG, POSE, BadBatchError, checked, packed
from anchorleg.live.ring import CELL_BYTES, CELLS, RingReader, RingWriter
from anchorleg.live.wanted import GONE_AFTER_S, LOOK_EVERY_S, RENEW_EVERY_S, Asked, Asking, Wish

HEADER: dict[str, Any] = {
    "at": 1.5, "task": "reach-v3", "episode": 3, "step": 7, "attempt": 0, "origin": "training", "return": -2.5,
    "success": None, "facts": {"badges": 2, "place": "town", "won": False},
}  # fmt: skip
POSED = HEADER | {"scene": "a" * 64, "frames": 2, "bodies": 3, "dt": 0.0125, "place": [0, 1.5, 0], "unit": 1e-4}
BODY = bytes(2 * 2 * 3 * 7)


class TestRing:
    def test_the_first_look_shows_the_newest_and_the_next_ones_what_came_since(self, tmp_path: Path):
        writer, reader = RingWriter(tmp_path / "live" / "any.ring"), RingReader(tmp_path / "live" / "any.ring")
        assert reader.newer() == []
        for number in range(3):
            assert writer.write(FACTS, b"%d" % number)
        assert [cell.payload for cell in reader.newer()] == [b"2"]
        assert reader.newer() == []
        for number in range(3, 5):
            writer.write(JPEG, b"%d" % number)
        assert [(cell.kind, cell.payload) for cell in reader.newer()] == [(JPEG, b"3"), (JPEG, b"4")]

    def test_the_next_job_goes_on_with_the_numbers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        reader = RingReader(tmp_path / "any.ring")
        RingWriter(tmp_path / "any.ring").write(FACTS, b"of the first job")
        (first,) = reader.newer()
        later = time.time() + 3600.0
        monkeypatch.setattr(time, "time", lambda: later)
        RingWriter(tmp_path / "any.ring").write(FACTS, b"of the next job")
        (second,) = reader.newer()
        assert second.number == first.number + 1

    def test_in_a_groups_folder_the_group_may_read_it_whatever_the_umask(self, tmp_path: Path):
        tmp_path.chmod(0o2750)
        path = tmp_path / "live" / "any.ring"
        before = os.umask(0o077)
        try:
            RingWriter(path).write(FACTS, b"1")
        finally:
            os.umask(before)
        assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o2750, 0o640]

    @pytest.mark.long
    @given(at=st.integers(0, 40), value=st.integers(0, 255))
    def test_a_torn_cell_is_none(self, tmp_path_factory: pytest.TempPathFactory, at: int, value: int):
        path = tmp_path_factory.mktemp("ring") / "any.ring"
        RingWriter(path).write(FACTS, bytes(20))
        (whole,) = RingReader(path).newer()
        place = whole.number % CELLS * CELL_BYTES + at
        with open(path, "r+b") as file:
            file.seek(place)
            before = file.read(1)
            file.seek(place)
            file.write(bytes([value]))
        assert RingReader(path).newer() == ([whole] if bytes([value]) == before else [])

    def test_what_is_no_ring_has_nothing(self, tmp_path: Path):
        for make in (
            lambda path: path.mkdir(),
            lambda path: path.write_bytes(os.urandom(CELL_BYTES)),
            lambda path: path.write_bytes(b"x"),
            os.mkfifo,
            lambda path: path.symlink_to("/etc/passwd"),
        ):
            path = tmp_path / os.urandom(4).hex()
            make(path)
            assert RingReader(path).newer() == []


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class TestWanted:
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    def test_a_job_shows_what_is_asked_for_while_somebody_asks(self, tmp_path: Path, clock: Clock):
        path = tmp_path / wanted.FILE
        asking, asked = Asking(path, clock), Asked(path, 1, clock)
        assert asked.lanes() == {}
        asking.renew((Wish(1, "any", 30), Wish(0, "t3", 10)))
        clock.now += LOOK_EVERY_S
        assert asked.lanes() == {"any": 30}
        for _ in range(10):
            clock.now += RENEW_EVERY_S
            asking.renew((Wish(1, "any", 30), Wish(0, "t3", 10)))
            assert asked.lanes() == {"any": 30}
        clock.now += GONE_AFTER_S + LOOK_EVERY_S
        assert asked.lanes() == {}

    def test_who_wanted_first_is_shown_however_often_others_ask(self, tmp_path: Path, clock: Clock):
        path = tmp_path / wanted.FILE
        first, second = ([Wish(0, f"t{task}", 30) for task in tasks] for tasks in (range(3), range(3, 6)))
        one, two, asked = Asking(path, clock), Asking(path, clock), Asked(path, 0, clock)
        for _ in range(4):
            for asking, wishes in ((one, first), (two, second)):
                asking.renew(tuple(wishes))
                clock.now += LOOK_EVERY_S
                assert list(asked.lanes())[:3] == ["t0", "t1", "t2"]
            clock.now += RENEW_EVERY_S
        assert [two.is_beyond(0, wish.lane) for wish in second] == [False, True, True]
        assert not any(one.is_beyond(0, wish.lane) for wish in first)
        one.withdraw()
        two.renew(tuple(second))
        assert not any(two.is_beyond(0, wish.lane) for wish in second)

    @given(
        value=st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["watchers", "0123abcd", "beat", "wishes"]), inner, max_size=3)
            ),
            max_leaves=20,
        )
    )
    def test_no_json_makes_it_fail(self, value: object):
        for entry in wanted.parsed(json.dumps({"watchers": {"0123abcd": value}}).encode()).values():
            assert all(wanted.LANE.fullmatch(wish.lane) for wish in entry.wishes)


class TestBatches:
    def test_what_is_packed_is_what_is_read(self):
        assert checked(POSE, packed(POSED, BODY)) == (POSED, BODY)
        assert checked(JPEG, packed(HEADER, b"\xff\xd8...")) == (HEADER, b"\xff\xd8...")
        assert checked(FACTS, packed(HEADER)) == (HEADER, b"")

    def test_words_of_strangers_are_printable_and_fields_of_nobody_go(self):
        header, _ = checked(FACTS, packed(HEADER | {"task": "a\x1b[2Jb" + "c" * 500, "code": "x"}))
        assert header["task"].startswith("a\\x1b[2Jb")
        assert len(header["task"]) <= batches.MOST_LETTERS
        assert "code" not in header

    @pytest.mark.parametrize(
        "change",
        [
            lambda header: header.pop("at"),
            lambda header: header.update(at=True),
            lambda header: header.update(task=3),
            lambda header: header.update(step=-1),
            lambda header: header.update(step=1.5),
            lambda header: header.update(success=1),
            lambda header: header.update(facts=[1]),
            lambda header: header.update(facts={"x": [1]}),
            lambda header: header.update(scene="../../x"),
            lambda header: header.update(frames=3),
            lambda header: header.update(frames=0, bodies=0),
            lambda header: header.update(place=[0, 0]),
            lambda header: header.update(unit=0),
            lambda header: header.update(dt=1e9),
        ],
    )
    def test_what_nobody_could_draw_is_refused(self, change: Callable[[dict[str, Any]], object]):
        header = json.loads(json.dumps(POSED))
        change(header)
        with pytest.raises(BadBatchError):
            checked(POSE, packed(header, BODY))


def test_two_writers_of_one_ring_are_both_read(tmp_path):
    path = tmp_path / "any.ring"
    one, other, reader = RingWriter(path), RingWriter(path), RingReader(path)
    for number in range(40):
        writer = one if number // 10 % 2 else other
        assert writer.write(FACTS, b"%d" % number)
        assert [cell.payload for cell in reader.newer()] == [b"%d" % number]

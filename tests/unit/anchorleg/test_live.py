"""Agents on their way to a watcher: rings that are torn, watchers that go, batches of strangers."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorleg.live import batches, wanted
from anchorleg.live.batches import FACTS, JPEG, POSE, BadBatchError, checked, packed
from anchorleg.live.ring import CELL_BYTES, CELLS, MAX_PAYLOAD_BYTES, RingReader, RingWriter
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

    def test_who_looks_too_seldom_gets_what_is_left(self, tmp_path: Path):
        writer, reader = RingWriter(tmp_path / "any.ring"), RingReader(tmp_path / "any.ring")
        writer.write(FACTS, b"first")
        reader.newer()
        for number in range(3 * CELLS):
            writer.write(FACTS, b"%d" % number)
        assert [cell.payload for cell in reader.newer()] == [b"%d" % number for number in range(2 * CELLS, 3 * CELLS)]

    def test_the_next_job_goes_on_with_the_numbers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        reader = RingReader(tmp_path / "any.ring")
        RingWriter(tmp_path / "any.ring").write(FACTS, b"of the first job")
        (first,) = reader.newer()
        later = time.time() + 3600.0
        monkeypatch.setattr(time, "time", lambda: later)
        RingWriter(tmp_path / "any.ring").write(FACTS, b"of the next job")
        (second,) = reader.newer()
        assert second.number == first.number + 1

    def test_a_ring_never_grows(self, tmp_path: Path):
        writer = RingWriter(tmp_path / "any.ring")
        assert not writer.write(FACTS, bytes(MAX_PAYLOAD_BYTES + 1))
        for _ in range(3 * CELLS):
            writer.write(FACTS, bytes(MAX_PAYLOAD_BYTES))
        assert (tmp_path / "any.ring").stat().st_size == CELLS * CELL_BYTES

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

    def test_two_watchers_have_what_both_want_and_who_leaves_takes_its_own(self, tmp_path: Path, clock: Clock):
        path = tmp_path / wanted.FILE
        one, two, asked = Asking(path, clock), Asking(path, clock), Asked(path, 0, clock)
        one.renew((Wish(0, "any", 10),))
        two.renew((Wish(0, "any", 30), Wish(0, "t1", 30)))
        assert asked.lanes() == {"any": 30, "t1": 30}
        two.withdraw()
        clock.now += LOOK_EVERY_S
        assert asked.lanes() == {"any": 10}

    def test_a_lost_update_is_there_again(self, tmp_path: Path, clock: Clock):
        path = tmp_path / wanted.FILE
        one, two, asked = Asking(path, clock), Asking(path, clock), Asked(path, 0, clock)
        one.renew((Wish(0, "any", 10),))
        before = path.read_bytes()
        two.renew((Wish(0, "t1", 10),))
        path.write_bytes(before)
        clock.now += RENEW_EVERY_S
        one.renew((Wish(0, "any", 10),))
        two.renew((Wish(0, "t1", 10),))
        assert asked.lanes() == {"any": 10, "t1": 10}

    def test_who_is_dead_is_forgotten_by_the_next_writer(self, tmp_path: Path, clock: Clock):
        path = tmp_path / wanted.FILE
        Asking(path, clock).renew((Wish(0, "t1", 10),))
        alive = Asking(path, clock)
        for _ in range(5):
            alive.renew((Wish(0, "any", 10),))
            clock.now += RENEW_EVERY_S
        assert len(wanted.read(path)) == 1

    def test_nobody_asks_means_no_file_is_written(self, tmp_path: Path, clock: Clock):
        Asking(tmp_path / wanted.FILE, clock).renew(())
        assert list(tmp_path.iterdir()) == []

    def test_what_cannot_be_written_is_tried_again_when_it_is_time_to(
        self, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ):
        asking, tries = Asking(tmp_path / wanted.FILE, clock), []

        def refuse(*_: object, **__: object) -> None:
            tries.append(clock.now)
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as full:
            full.setattr(wanted, "write_bytes", refuse)
            for _ in range(10):
                with contextlib.suppress(OSError):
                    asking.renew((Wish(0, "any", 30),))
                clock.now += RENEW_EVERY_S / 5
            assert len(tries) == 2
            with pytest.raises(OSError, match="No space"):
                asking.renew((Wish(0, "t1", 30),))
        assert not asking.renew((Wish(0, "t1", 30),))
        clock.now += RENEW_EVERY_S
        assert asking.renew((Wish(0, "t1", 30),))

    def test_four_lanes_at_most_and_no_more_pictures_than_a_screen_shows(self, tmp_path: Path, clock: Clock):
        path = tmp_path / wanted.FILE
        for first in (0, 3):
            Asking(path, clock).renew(tuple(Wish(0, f"t{first + task}", 1000) for task in range(3)))
        assert Asked(path, 0, clock).lanes() == {"t0": 60, "t1": 60, "t2": 60, "t3": 60}

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

    @given(data=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
    def test_no_bytes_make_it_fail(self, data: bytes):
        wanted.parsed(data)

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

    def test_numbers_that_are_none_are_refused(self):
        text = json.dumps(POSED | {"place": [float("nan"), 0, 0]}).encode()
        with pytest.raises(BadBatchError):
            checked(POSE, struct.pack(">H", len(text)) + text + BODY)
        with pytest.raises(ValueError, match="JSON"):
            packed(HEADER | {"return": float("inf")})

    def test_a_picture_that_is_none_and_a_kind_of_nobody_are_refused(self):
        for kind, payload in ((JPEG, packed(HEADER, b"GIF89a")), (9, packed(HEADER)), (FACTS, packed(HEADER, b"x"))):
            with pytest.raises(BadBatchError):
                checked(kind, payload)

    @given(kind=st.integers(0, 255), data=st.binary(max_size=300))
    def test_no_bytes_make_it_fail_otherwise(self, kind: int, data: bytes):
        with pytest.raises(BadBatchError):
            checked(kind, data)


def test_two_writers_of_one_ring_are_both_read(tmp_path):
    path = tmp_path / "any.ring"
    one, other, reader = RingWriter(path), RingWriter(path), RingReader(path)
    for number in range(40):
        writer = one if number // 10 % 2 else other
        assert writer.write(FACTS, b"%d" % number)
        assert [cell.payload for cell in reader.newer()] == [b"%d" % number]

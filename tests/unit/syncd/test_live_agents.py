"""Agents at play on a laptop: wishes of its mirror go up, batches come down, and nothing that nobody asked for."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from pathlib import Path

import pytest
from live_rings import HEADER, SCENE, SCENE_SUM, facts, newest_in, pose, ring_of, slot_of, wish_in, write_ring
from policies import RUN
from refused import refused

from anchorleg.live.batches import FACTS, JPEG, MOST_SCENE_BYTES, POSE
from anchorleg.live.ring import Cell
from anchorleg.live.wanted import FILE, GONE_AFTER_S, Asking, Wish
from syncd import store
from syncd.laptop.capacity import CapacityLimits
from syncd.laptop.liveagents import LOOK_EVERY_S, LiveAgents
from syncd.laptop.mirror import Mirror
from syncd.wire.arrivals import Arrivals
from syncd.wire.fields import Message
from syncd.wire.livemessages import LiveBatch, NobodyAsked, SeenLive, ShownAgent, ShownLive, WatchLive, WireWish, shrunk
from syncd.wire.protocol import Data, End, FileGone, Frame, Get
from syncd.wire.scenes import AGAIN_AFTER_S, MOST_SCENES, RING_KEPT_S, SLICE_BYTES, STUCK_AFTER_S
from syncd.wire.viewing import MOST_TOLD, Viewing


class Line:
    """A connection whose server is the test. `files`: what it hands out; `heard`: what the client said."""

    name = "openssh"

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.arrivals, self.heard = Arrivals(), list[Message]()
        self.files = files or {}
        self.numbers = itertools.count(1)
        downloads = self.arrivals.downloads
        self.live = Viewing(self.send, threading.Condition(), downloads, itertools.count(1))

    def send(self, message: Message, payload: bytes = b"", /) -> None:
        self.heard.append(message)

    def show(self, payload: bytes, kind: int = POSE, slot: int = 0, run_id: str = RUN, lane: str = "any") -> None:
        number = next(self.numbers)
        message = LiveBatch(run_id=run_id, slot=slot, lane=lane, number=number, kind=kind)
        assert self.live.put(message, shrunk(Cell(1, kind, payload)))

    def answer(self) -> None:
        """All GETs that were heard."""
        asked = [message for message in self.heard if isinstance(message, Get)]
        self.heard = [message for message in self.heard if not isinstance(message, Get)]
        for get in asked:
            if get.path not in self.files:
                self.arrivals.put(Frame(FileGone(key=get.key, sentence="gone")))
                continue
            data = self.files[get.path][get.offset : get.offset + (get.most or 0)]
            self.arrivals.put(Frame(Data(key=get.key, offset=get.offset), data))
            self.arrivals.put(Frame(End(key=get.key, bytes=get.offset + len(data))))

    def said(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.heard if isinstance(message, kind)]


class Laptop:
    """A mirror, what keeps it, and its clock."""

    def __init__(self, folder: Path, limits: CapacityLimits | None = None) -> None:
        self.folder, self.now = folder, 1000.0
        self.told: list[str] = []
        self.viewers: list[Asking] = []
        self.mirror = Mirror(folder, limits=limits)
        self.agents = LiveAgents(self.mirror, say=self.told.append, monotonic=lambda: self.now)

    def turn(self, line: Line, *, may_fetch: bool = True, times: int = 1) -> None:
        for _ in range(times):
            self.now += LOOK_EVERY_S
            for viewer in self.viewers:
                viewer.renew((Wish(0, "any", 30),))
            self.agents.turn(line, lambda: may_fetch)  # type: ignore[arg-type]

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    slot_of(tmp_path, RUN).mkdir(parents=True)
    return Laptop(tmp_path)


def watched(laptop: Laptop, line: Line) -> None:
    """Somebody looks from now on, and the other side knows."""
    laptop.viewers.append(wish_in(laptop.folder, RUN, clock=lambda: laptop.now))
    laptop.turn(line)


def scene_path(sha256: str = SCENE_SUM) -> str:
    return f"v1/runs/{RUN}/0/live/{sha256}.scene"


def scene_file(laptop: Laptop, sha256: str = SCENE_SUM) -> Path:
    return laptop.folder / scene_path(sha256)


def test_nobody_looks_and_nothing_is_said(laptop):
    line = Line()
    laptop.turn(line, times=30)
    assert (line.heard, laptop.told) == ([], [])


def test_a_wish_of_the_mirror_goes_up_once_and_its_end_too(laptop):
    line = Line()
    viewer = wish_in(laptop.folder, RUN, Wish(2, "t3", 20))
    laptop.turn(line, times=5)
    assert line.heard == [WatchLive(wishes=(WireWish(run_id=RUN, slot=2, lane="t3", fps=20),))]
    viewer.withdraw()
    laptop.turn(line, times=5)
    assert line.heard[1:] == [WatchLive(wishes=())]


def test_a_viewer_that_was_killed_is_gone_soon(laptop):
    line = Line()
    wish_in(laptop.folder, RUN)
    laptop.turn(line, times=int(GONE_AFTER_S / LOOK_EVERY_S) + 1)
    assert line.heard[-1] == WatchLive(wishes=())
    assert len(line.heard) == 2


def test_so_many_wishes_of_all_runs_go_up_and_no_impossible_one(laptop):
    viewers = [wish_in(laptop.folder, f"run-{n:08x}", *(Wish(slot, "any", 9) for slot in range(4))) for n in range(3)]
    wish_in(laptop.folder, RUN, Wish(2**40, "any", 9), Wish(1_000_000, "any", 9))
    line = Line()
    laptop.turn(line)
    (message,) = line.heard
    assert len(message.wishes) == 8
    assert {wish.run_id for wish in message.wishes} == {"run-00000000", "run-00000001"}
    viewers[0].withdraw()
    laptop.turn(line)
    assert {wish.run_id for wish in line.heard[1].wishes} == {"run-00000001", "run-00000002"}


def test_what_comes_lies_in_the_ring_of_the_same_name_and_is_told_as_seen(laptop):
    line = Line()
    watched(laptop, line)
    for step in range(3):
        line.show(facts(step=step), kind=FACTS)
    laptop.turn(line)
    assert newest_in(laptop.folder, RUN) == facts(step=2)
    assert line.said(SeenLive) == [SeenLive(number=3)]
    laptop.turn(line, times=5)
    assert len(line.said(SeenLive)) == 1


def test_after_a_new_connection_the_wish_goes_up_again_and_the_same_batch_is_no_news(laptop):
    first, second = Line(), Line()
    watched(laptop, first)
    first.show(facts(a=1), kind=FACTS)
    laptop.turn(first)
    before = ring_of(laptop.folder, RUN).read_bytes()
    laptop.agents.begin()
    laptop.turn(second)
    assert second.said(WatchLive) == first.said(WatchLive)
    second.show(facts(a=1), kind=FACTS)
    laptop.turn(second)
    assert ring_of(laptop.folder, RUN).read_bytes() == before
    assert second.said(SeenLive)


@pytest.mark.parametrize("how", ["nobody looks", "another slot", "another run"])
def test_what_nobody_asked_for_is_not_written(laptop, how):
    line = Line()
    if how != "nobody looks":
        watched(laptop, line)
    before = laptop.files()
    line.show(pose(1), slot=7 if how == "another slot" else 0, run_id="evil-0" if how == "another run" else RUN)
    laptop.turn(line, times=3)
    assert laptop.files() == before
    assert laptop.told == ["the other side shows agents that nobody here asked for: they are left out"]
    assert line.said(SeenLive), "else an honest server would wait for ever"


def test_what_is_under_way_when_the_wish_ends_is_no_lie(laptop):
    line = Line()
    viewer = wish_in(laptop.folder, RUN)
    laptop.turn(line)
    viewer.withdraw()
    laptop.turn(line)
    line.show(pose(1))
    laptop.turn(line)
    assert laptop.told == []
    assert not ring_of(laptop.folder, RUN).exists()


HOSTILE = {
    "NaN": (POSE, json.dumps(HEADER | {"return": float("nan")}).encode()),
    "no picture": (JPEG, json.dumps(HEADER).encode() + b"GIF89a"),
    "an unknown kind": (77, json.dumps(HEADER).encode()),
    "too few poses": (POSE, pose(1)[2:-2]),
    "nothing": (POSE, b""),
    "too large": (JPEG, json.dumps(HEADER).encode() + b"\xff\xd8" + bytes(100_000)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_no_reader_could_draw_is_not_written(laptop, what):
    line = Line()
    watched(laptop, line)
    kind, content = HOSTILE[what]
    header_bytes = content.find(b"}}") + 2 if b"}}" in content else len(content)
    for _ in range(3):
        line.show(len(content[:header_bytes]).to_bytes(2, "big") + content, kind=kind)
        laptop.turn(line)
    assert newest_in(laptop.folder, RUN) is None
    assert not scene_file(laptop).exists()
    (sentence,) = laptop.told
    assert f"{RUN}/0 any is left out" in sentence
    line.show(facts(a=1), kind=FACTS)
    laptop.turn(line)
    assert newest_in(laptop.folder, RUN) == facts(a=1)


def test_numbers_that_do_not_rise_end_the_connection(laptop):
    line = Line()
    watched(laptop, line)
    line.show(pose(1))
    line.numbers = itertools.count(1)
    with refused("wire.live-count"):
        line.show(pose(2))


def test_a_hostile_server_fills_no_memory(laptop):
    line = Line()
    watched(laptop, line)
    for number in range(2_000):
        line.show(pose(number), run_id=f"evil-{number}")
        line.live.put(NobodyAsked(run_id=RUN, sentence=f"sentence {number}"), b"")
        line.show(pose(number))
    batches, sentences = line.live.take()
    assert (len(batches), len(sentences)) == (1, 16)


def test_a_server_that_says_something_else_each_time_is_told_a_few_times(laptop):
    line = Line()
    watched(laptop, line)
    for number in range(100):
        line.live.put(NobodyAsked(run_id=RUN, sentence=f"sentence {number}"), b"")
        line.show(pose(1) + bytes(number + 1))
        laptop.turn(line)
    assert len([said for said in laptop.told if said.startswith("sentence")]) == MOST_TOLD
    assert len([said for said in laptop.told if "is left out" in said]) == 1


def test_that_nobody_over_there_is_asked_is_said_once_and_of_our_runs_only(laptop):
    line = Line()
    watched(laptop, line)
    for _ in range(3):
        line.live.put(NobodyAsked(run_id=RUN, sentence="nobody is asked"), b"")
        line.live.put(NobodyAsked(run_id="evil-0", sentence="evil"), b"")
        laptop.turn(line)
    assert laptop.told == ["nobody is asked"]


def test_a_scene_comes_in_slices_and_after_policies(laptop):
    line = Line({scene_path(): SCENE})
    watched(laptop, line)
    line.show(pose(1))
    laptop.turn(line, may_fetch=False, times=3)
    assert line.said(Get) == []
    laptop.turn(line)
    assert [(get.path, get.offset, get.most) for get in line.said(Get)] == [(scene_path(), 0, SLICE_BYTES)]
    for _ in range(len(SCENE) // SLICE_BYTES + 1):
        assert len(line.said(Get)) == 1
        line.answer()
        assert bool(line.live), "a waiter for news wakes"
        laptop.turn(line)
    assert scene_file(laptop).read_bytes() == SCENE
    line.show(pose(2))
    laptop.turn(line, times=3)
    assert line.said(Get) == []


def test_a_scene_of_whole_slices_is_whole(laptop):
    scene = bytes(2 * SLICE_BYTES)
    sha256 = hashlib.sha256(scene).hexdigest()
    line = Line({scene_path(sha256): scene})
    watched(laptop, line)
    line.show(pose(1, scene=sha256))
    for _ in range(4):
        laptop.turn(line)
        line.answer()
    laptop.turn(line)
    assert scene_file(laptop, sha256).read_bytes() == scene


@pytest.mark.parametrize(
    ("scene", "words"),
    [(b"another", "another sum"), (bytes(MOST_SCENE_BYTES + 1), "larger than any"), (None, "")],
    ids=["wrong sum", "too large", "gone"],
)
def test_a_scene_that_is_not_what_its_name_says_is_not_written(laptop, scene, words):
    line = Line({} if scene is None else {scene_path(): scene})
    watched(laptop, line)
    before = laptop.files()
    line.show(pose(1))
    asked = 0
    for step in range(2 * MOST_SCENE_BYTES // SLICE_BYTES):
        laptop.turn(line)
        laptop.now -= LOOK_EVERY_S
        asked += len(line.said(Get))
        line.answer()
        line.show(pose(step))
    assert [file for file in laptop.files() if file not in before] == [f"v1/runs/{RUN}/0/live/any.ring"]
    assert all(words in sentence for sentence in laptop.told)
    assert len(laptop.told) == bool(words)
    assert asked <= MOST_SCENE_BYTES // SLICE_BYTES + 1, "not again at once"
    laptop.now += AGAIN_AFTER_S
    line.files = {scene_path(): SCENE}
    line.show(pose(0))
    for _ in range(10):
        laptop.turn(line)
        line.answer()
    assert scene_file(laptop).read_bytes() == SCENE


def test_a_slice_that_does_not_come_is_given_up(laptop):
    line = Line({scene_path(): SCENE})
    watched(laptop, line)
    line.show(pose(1))
    laptop.turn(line)
    line.heard.clear()
    laptop.now += STUCK_AFTER_S
    laptop.turn(line)
    assert line.arrivals.downloads == {}
    laptop.now += AGAIN_AFTER_S
    line.show(pose(2))
    laptop.turn(line)
    assert len(line.said(Get)) == 1


def test_more_than_was_asked_for_is_not_kept(laptop):
    line = Line()
    watched(laptop, line)
    line.show(pose(1))
    laptop.turn(line)
    (get,) = line.said(Get)
    for at in range(0, 10 * SLICE_BYTES, SLICE_BYTES):
        line.arrivals.put(Frame(Data(key=get.key, offset=at), bytes(SLICE_BYTES)))
    assert len(line.live.slice.data) == SLICE_BYTES
    laptop.turn(line)
    assert not scene_file(laptop).exists()


def test_a_slot_keeps_its_newest_scenes(laptop):
    line = Line()
    watched(laptop, line)
    for number in range(MOST_SCENES + 3):
        data = b"scene %d" % number
        sha256 = hashlib.sha256(data).hexdigest()
        line.files = {scene_path(sha256): data}
        line.show(pose(number, scene=sha256))
        laptop.turn(line)
        line.answer()
        laptop.turn(line)
        assert scene_file(laptop, sha256).read_bytes() == data
    assert len([file for file in laptop.files() if file.endswith(".scene")]) == MOST_SCENES


def test_a_full_mirror_takes_neither_rings_nor_scenes_and_says_so(tmp_path):
    slot_of(tmp_path, RUN).mkdir(parents=True)
    laptop = Laptop(tmp_path, CapacityLimits(bytes=1000))
    line = Line({scene_path(): SCENE})
    watched(laptop, line)
    line.show(pose(1))
    laptop.turn(line)
    assert [("the mirror has" in sentence) for sentence in laptop.told] == [True]
    assert laptop.files() == [f"v1/runs/{RUN}/{FILE}"]


def test_a_full_disk_is_said_and_costs_the_picture_alone(laptop, monkeypatch):
    line = Line()
    watched(laptop, line)
    slot_of(laptop.folder, RUN).rmdir()
    slot_of(laptop.folder, RUN).write_bytes(b"in the way")
    for step in range(3):
        line.show(pose(step))
        laptop.turn(line)
    (sentence,) = laptop.told
    assert "cannot be shown" in sentence


def test_what_nobody_looks_through_any_more_is_cleared_away(laptop):
    line = Line()
    watched(laptop, line)
    line.show(facts(a=1), kind=FACTS)
    laptop.turn(line)
    laptop.mirror.tidy()
    assert ring_of(laptop.folder, RUN).exists()
    later = ring_of(laptop.folder, RUN).stat().st_mtime + RING_KEPT_S + 1
    Mirror(laptop.folder, clock=lambda: later).tidy()
    assert not ring_of(laptop.folder, RUN).exists()


def test_who_fetches_nothing_watches_nothing(laptop):
    agents = LiveAgents(laptop.mirror, say=laptop.told.append, pull=False, monotonic=lambda: laptop.now)
    wish_in(laptop.folder, RUN)
    line = Line()
    agents.turn(line)  # type: ignore[arg-type]
    assert line.heard == []


def shown(line: Line, *agents: tuple[int, str], run_id: str = RUN) -> None:
    """The other side says whose agents may be watched."""
    some = tuple(ShownAgent(slot=slot, who=who) for slot, who in agents)
    assert line.live.put(ShownLive(run_id=run_id, agents=some), b"")


def test_contributors_agents_are_offered_here_as_over_there_and_come_where_they_are_wanted(laptop):
    path = f"v1/inbox/ben/live/{RUN}/0/{SCENE_SUM}.scene"
    line = Line({path: SCENE})
    watched(laptop, line)
    shown(line, (0, "ben"), (0, "anna"), (2, "ben"))
    shown(line, (0, "eve"), run_id="other-0")
    laptop.turn(line)
    here = store.Shared(laptop.folder)
    assert store.offered(here, RUN, 0.0) == {0: ("anna", "ben"), 2: ("ben",)}
    assert store.offered(here, "other-0", 0.0) == {}, "of a run that nobody watches"
    line.show(pose(1), lane="any@ben")
    laptop.turn(line)
    assert newest_in(laptop.folder, RUN, lane="any@ben") is None, "nobody wants it"
    viewer = wish_in(laptop.folder, RUN, Wish(0, "any@ben", 30))
    laptop.turn(line)
    line.show(pose(2), lane="any@ben")
    for _ in range(5):
        viewer.renew((Wish(0, "any@ben", 30),))
        laptop.turn(line)
        line.answer()
    assert newest_in(laptop.folder, RUN, lane="any@ben") == pose(2)
    assert (laptop.folder / path).read_bytes() == SCENE
    shown(line)
    laptop.turn(line)
    assert store.offered(here, RUN, 0.0) == {}
    assert not (laptop.folder / path).exists()


def test_a_contributors_leftovers_go_from_the_mirror_too(laptop):
    write_ring(laptop.folder, RUN, pose(1), lane="any@ben")
    ring = ring_of(laptop.folder, RUN, lane="any@ben")
    laptop.mirror.tidy()
    assert ring.exists()
    Mirror(laptop.folder, clock=lambda: ring.stat().st_mtime + RING_KEPT_S + 1).tidy()
    assert not ring.exists()

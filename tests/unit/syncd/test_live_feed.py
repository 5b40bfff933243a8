"""What a server shows of agents at play: little, the newest, and only while somebody takes it."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest
from live_rings import facts, pose, ring_of, slot_of, wish_in, write_ring
from policies import RUN
from refused import refused

from anchorleg.live import wanted
from anchorleg.live.batches import FACTS
from anchorleg.live.wanted import GONE_AFTER_S, MOST_LANES, Asked, Asking, Wish
from syncd import store
from syncd.wire import live
from syncd.wire.live import CHANGE_EVERY_S, GUESTS_FPS, GUESTS_WISHES, LOOK_EVERY_S, OFFERS_EVERY_S, LiveFeed
from syncd.wire.livemessages import LiveBatch, NobodyAsked, SeenLive, ShownAgent, ShownLive, WatchLive, WireWish, grown
from syncd.wire.pacing import MOST_UNSEEN_S
from syncd.wire.protocol import Decoder, Frame

OTHER = "other-0123abcd"


class Scene:
    """A feed, its clock, and what it has sent."""

    def __init__(self, shared: Path, *, is_guest: bool = False) -> None:
        self.now = 1000.0
        self.shared = shared
        self.feed = LiveFeed(shared, lambda: self.now, is_guest=is_guest)
        self.said: list[str] = []
        self.shown: list[ShownLive] = []

    def watch(self, *wishes: WireWish) -> None:
        self.feed.hear(WatchLive(wishes=wishes))
        self.now += CHANGE_EVERY_S
        self.turn()

    def turn(self) -> None:
        found = self.feed.renew()
        self.said += [one.sentence for one in found if isinstance(one, NobodyAsked)]
        self.shown += [one for one in found if isinstance(one, ShownLive)]

    def frames(self, for_s: float = 0.0) -> list[Frame]:
        """What leaves in so long a time, on a connection that takes everything."""
        found: list[Frame] = []
        until = self.now + for_s
        while True:
            self.turn()
            while (data := self.feed.frame()) is not None:
                found += Decoder().feed(data)
            if self.now >= until:
                return found
            self.now += 0.05

    def payloads(self, for_s: float = 0.0) -> list[bytes]:
        return [grown(frame.payload) for frame in self.frames(for_s)]

    def seen(self) -> None:
        self.feed.hear(SeenLive(number=self.feed._credit._number))

    def asked(self, run_id: str = RUN, slot: int = 0) -> dict[str, int]:
        return Asked(slot_of(self.shared, run_id).parent / wanted.FILE, slot, lambda: self.now).lanes()


def a_wish(run_id: str = RUN, slot: int = 0, lane: str = "any", fps: int = 30) -> WireWish:
    return WireWish(run_id=run_id, slot=slot, lane=lane, fps=fps)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    slot_of(tmp_path, RUN).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def scene(shared: Path) -> Scene:
    return Scene(shared)


def test_nobody_watches_and_nothing_is_read_or_written(scene, shared, monkeypatch):
    write_ring(shared, RUN, pose(1))
    monkeypatch.setattr(live, "open_file", lambda *_: pytest.fail("a ring was opened"))
    assert scene.frames(for_s=1.0) == []
    assert scene.feed.next_at() == math.inf
    assert not scene.feed.is_watched
    assert os.listdir(slot_of(shared, RUN).parent) == ["0"]


def test_who_watches_is_shown_what_is_new_and_the_job_is_asked(scene, shared):
    scene.watch(a_wish(fps=20))
    assert scene.asked() == {"any": 20}
    write_ring(shared, RUN, pose(1))
    (frame,) = scene.frames(for_s=1.0)
    assert (frame.message, grown(frame.payload)) == (
        LiveBatch(run_id=RUN, slot=0, lane="any", number=1, kind=1),
        pose(1),
    )
    scene.seen()
    write_ring(shared, RUN, facts(badges=2), kind=FACTS)
    (frame,) = scene.frames(for_s=1.0)
    assert (frame.message.number, frame.message.kind, grown(frame.payload)) == (2, FACTS, facts(badges=2))


def test_a_wish_lives_as_long_as_the_connection_and_is_taken_back_at_once(scene):
    scene.watch(a_wish())
    asked = Asked(slot_of(scene.shared, RUN).parent / wanted.FILE, 0, lambda: scene.now)
    for _ in range(20):
        scene.frames(for_s=2.0)
        assert asked.lanes()
    assert scene.now > 1000 + 2 * GONE_AFTER_S
    scene.watch()
    assert not scene.asked()
    assert (scene.feed.is_watched, scene.feed.next_at()) == (False, math.inf)
    scene.watch(a_wish())
    scene.feed.close()
    assert not scene.asked()


def test_a_ring_is_opened_five_times_a_second_at_most(scene, shared, monkeypatch):
    opened = []
    ours = live.open_file
    monkeypatch.setattr(live, "open_file", lambda *words: opened.append(1) or ours(*words))
    scene.watch(a_wish())
    scene.frames(for_s=10.0)
    assert 40 <= len(opened) <= 10.0 / LOOK_EVERY_S + 1


def test_of_what_nobody_took_the_newest_alone_is_left(scene, shared):
    scene.watch(a_wish())
    write_ring(shared, RUN, pose(1))
    assert scene.payloads() == [pose(1)]
    scene.now += MOST_UNSEEN_S + 0.1
    for step in range(2, 8):
        write_ring(shared, RUN, pose(step))
        assert scene.payloads(for_s=0.5) == []
        assert scene.feed.next_at() == math.inf, "only the client can change that: no wake-up for it"
    scene.seen()
    assert scene.payloads() == [pose(7)]


def test_what_is_under_way_is_bounded_and_each_agent_has_its_turn(scene, shared):
    scene.watch(a_wish(slot=0), a_wish(slot=1))
    large = [pose(step, bodies=3_000) for step in range(4)]  # 42 kB each
    for slot in (0, 1):
        write_ring(shared, RUN, large[slot], slot=slot)
    assert scene.payloads() == [large[0]]
    for slot in (0, 1):
        write_ring(shared, RUN, large[2 + slot], slot=slot)
    scene.now += LOOK_EVERY_S
    assert scene.payloads() == []
    scene.seen()
    assert scene.payloads() == [large[3]], "the newest of the one that waited"
    scene.seen()
    assert scene.payloads() == [large[2]]


def test_who_has_seen_what_was_not_sent_speaks_another_protocol(scene):
    scene.watch(a_wish())
    with refused("wire.seen-unsent"):
        scene.feed.hear(SeenLive(number=1))


def test_a_folder_of_somebody_elses_is_shown_and_nobody_is_asked(scene, shared, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    tried = []
    monkeypatch.setattr(wanted, "write_bytes", lambda *words, **more: tried.append(1) or refuse())
    write_ring(shared, RUN, pose(1))
    scene.watch(a_wish())
    assert scene.payloads(for_s=30.0) == [pose(1)]
    assert scene.said == [f"nobody over there can be asked for agents of {RUN} (Permission denied)"]
    assert len(tried) < 10


def test_a_run_that_is_not_there_is_not_made(scene, shared):
    scene.watch(a_wish(run_id=OTHER))
    scene.frames(for_s=20.0)
    assert scene.said == [f"nobody over there can be asked for agents of {OTHER} (there is no such run)"]
    assert not slot_of(shared, OTHER).parent.exists()


def test_a_link_leads_nowhere(scene, shared, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_ring(elsewhere, RUN, pose(1))
    (shared / "v1" / "runs" / OTHER).symlink_to(slot_of(elsewhere, RUN).parent)
    (slot_of(shared, RUN) / "live").symlink_to(slot_of(elsewhere, RUN) / "live")
    scene.watch(a_wish(run_id=OTHER), a_wish())
    assert scene.frames(for_s=2.0) == []
    assert [OTHER in sentence for sentence in scene.said] == [True]
    assert not (slot_of(elsewhere, RUN).parent / wanted.FILE).exists()


def test_who_changes_its_mind_all_the_time_is_followed_once_a_second(scene, monkeypatch):
    written = []
    ours = wanted.write_bytes
    monkeypatch.setattr(wanted, "write_bytes", lambda *words, **more: written.append(1) or ours(*words, **more))
    for number in range(100):
        scene.feed.hear(WatchLive(wishes=(a_wish(fps=1 + number % 50),)))
        scene.turn()
        scene.now += 0.01
    assert len(written) <= 2
    scene.frames(for_s=CHANGE_EVERY_S)
    assert scene.asked() == {"any": 50}, "the last wish counts"


def test_a_guest_sees_little_and_comes_last(shared):
    """Guests are contributors' keys: what they want costs the owner's job its time."""
    guest = Scene(shared, is_guest=True)
    guest.watch(*[a_wish(slot=slot, fps=60) for slot in range(8)])
    assert [guest.asked(slot=slot) for slot in range(3)] == [{"any": GUESTS_FPS}] * GUESTS_WISHES + [{}]
    owner = Asking(slot_of(shared, RUN).parent / wanted.FILE, lambda: guest.now)
    owner.renew(tuple(Wish(slot, "any", 30) for slot in range(10, 10 + MOST_LANES)))
    guest.frames(for_s=6.0)
    owner.renew(tuple(Wish(slot, "any", 30) for slot in range(10, 10 + MOST_LANES)))
    assert [guest.asked(slot=slot) for slot in (0, 10, 13)] == [{}, {"any": 30}, {"any": 30}]


def test_a_torn_or_planted_ring_shows_nothing(scene, shared):
    path = ring_of(shared, RUN)
    path.parent.mkdir()
    os.mkfifo(path)
    scene.watch(a_wish(), a_wish(lane="t1"))
    ring_of(shared, RUN, lane="t1").write_bytes(b"no ring" * 100_000)
    assert scene.frames(for_s=1.0) == []


def test_wishes_of_two_runs_are_asked_in_both(scene, shared):
    wish_in(shared, OTHER, Wish(3, "any", 5))
    scene.watch(a_wish(), a_wish(run_id=OTHER, slot=2, lane="t4", fps=10))
    assert (scene.asked(), scene.asked(OTHER, 2), scene.asked(OTHER, 3)) == ({"any": 30}, {"t4": 10}, {"any": 5})


def test_contributors_are_told_to_who_watches_the_run_and_shown_where_they_are_wanted(scene, shared):
    write_ring(shared, RUN, pose(1), lane="any@ben")
    write_ring(shared, RUN, pose(2), lane="any@anna", slot=3)
    assert scene.shown == []
    scene.watch(a_wish())
    agents = (ShownAgent(slot=0, who="ben"), ShownAgent(slot=3, who="anna"))
    assert scene.shown == [ShownLive(run_id=RUN, agents=agents)]
    assert scene.payloads(for_s=5.0) == []
    scene.watch(a_wish(lane="any@ben"))
    (frame,) = scene.frames(for_s=5.0)
    assert (frame.message.lane, grown(frame.payload)) == ("any@ben", pose(1))
    assert len(scene.shown) == 1, "nothing changed"
    assert scene.asked() == {}, "no job is asked for a contributor's agent"


def test_who_is_held_is_not_told_of_and_what_it_left_is_not_shown(scene, shared):
    write_ring(shared, RUN, pose(1), lane="any@ben")
    inbox = store.Inbox.of(store.Shared(shared), "ben")
    store.hold(inbox.path, "most of it was refused", now=time.time())
    scene.watch(a_wish(lane="any@ben"))
    assert scene.frames(for_s=5.0) == []
    assert [one.agents for one in scene.shown] == [()], "told at once, for who has heard otherwise before"
    inbox.readmit()
    assert len(scene.payloads(for_s=OFFERS_EVERY_S + 1)) == 1
    inbox.drop(by="anna", now=time.time())
    write_ring(shared, RUN, pose(2), lane="any@ben")
    scene.seen()
    scene.frames(for_s=OFFERS_EVERY_S)
    write_ring(shared, RUN, pose(3), lane="any@ben")
    assert scene.payloads(for_s=OFFERS_EVERY_S) == []
    assert scene.shown[-1].agents == ()

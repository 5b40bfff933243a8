"""A laptop's own agents: offered while they play, sent while somebody watches, after segments and within credit."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from live_rings import HEADER, SCENE, SCENE_SUM, facts, pose
from policies import RUN

from anchorleg.live.batches import FACTS, POSE, packed
from anchorleg.live.ring import RingWriter
from anchorleg.live.wanted import GONE_AFTER_S, Asked
from syncd.errors import ProtocolError
from syncd.laptop.ownagents import LOOK_EVERY_S, RINGS_EVERY_S, TIDY_EVERY_S, OwnAgents
from syncd.streamed import BEAT, BEAT_EVERY_S, StreamedSlot
from syncd.wire.fields import Message
from syncd.wire.livemessages import (
    MOST_OFFERS,
    LiveBatch,
    NeedScene,
    OfferLive,
    OwnWish,
    PlayedSlot,
    SceneSlice,
    SeenLive,
    WantedLive,
    grown,
)
from syncd.wire.pacing import MOST_UNSEEN_BYTES, MOST_UNSEEN_S
from syncd.wire.scenes import SLICE_BYTES
from syncd.wire.viewing import Upward

WISH = OwnWish(run_id=RUN, slot=0, lane="any", fps=30)


class Laptop:
    """A mirror with actors at play for slot 0, its client, its clock, and a server that is the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1000.0
        self.heard: list[tuple[Message, bytes]] = []
        self.told: list[str] = []
        self.upward = Upward(self.hear, threading.Condition(), lambda: self.now)
        self.line = SimpleNamespace(live=SimpleNamespace(upward=self.upward))
        self.agents = OwnAgents(folder, say=self.told.append, monotonic=lambda: self.now)
        self.actor = StreamedSlot(folder, RUN, 0, lambda: self.now)
        self.writer = RingWriter(self.actor.folder / "any.ring")
        self.plays = True
        self.beats = 0

    def hear(self, message: Message, payload: bytes = b"", /) -> None:
        self.heard.append((message, payload))

    def turn(self, *, may_send: bool = True, for_s: float = LOOK_EVERY_S) -> None:
        self.now += for_s
        if self.plays:
            self.actor.beat()
            self.beats += 1  # the file system's clock may be coarser than a test
            os.utime(self.actor.folder / BEAT, ns=(0, self.beats))
        self.agents.turn(self.line, lambda: may_send)  # type: ignore[arg-type]

    def want(self, *wishes: OwnWish, sentence: str = "") -> None:
        self.upward.put(WantedLive(wishes=wishes, sentence=sentence))
        self.turn()

    def said(self, kind: type[Message]) -> list[Message]:
        return [message for message, _ in self.heard if isinstance(message, kind)]

    def payloads(self, kind: type[Message] = LiveBatch) -> list[bytes]:
        found = [payload for message, payload in self.heard if isinstance(message, kind)]
        return [grown(payload) for payload in found] if kind is LiveBatch else found

    def asked(self) -> dict[str, int]:
        return Asked(self.actor.live_file, 0, lambda: self.now).lanes()


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    return Laptop(tmp_path)


def test_without_actors_that_allow_it_nothing_is_said(laptop):
    laptop.plays = False
    for _ in range(30):
        laptop.turn()
    assert (laptop.heard, laptop.told) == ([], [])
    assert not (laptop.folder / "outbox").exists()


def test_they_are_offered_once_and_until_they_end_or_are_killed(laptop):
    for _ in range(5):
        laptop.turn()
    assert laptop.said(OfferLive) == [OfferLive(agents=(PlayedSlot(run_id=RUN, slot=0),))]
    laptop.plays = False
    for _ in range(int(GONE_AFTER_S) + 2):
        laptop.turn()
    assert laptop.said(OfferLive)[1:] == [OfferLive(agents=())]
    for _ in range(int(TIDY_EVERY_S) + 1):
        laptop.turn()
    assert not laptop.actor.folder.exists(), "what a killed actor left is cleared away"
    laptop.plays = True
    laptop.actor = StreamedSlot(laptop.folder, RUN, 0, lambda: laptop.now)
    laptop.turn()
    laptop.actor.close()
    laptop.plays = False
    laptop.turn()
    assert [len(message.agents) for message in laptop.said(OfferLive)] == [1, 0, 1, 0]


def test_no_more_slots_are_offered_than_the_other_side_takes(laptop):
    for slot in range(MOST_OFFERS + 3):
        StreamedSlot(laptop.folder, RUN, slot, lambda: laptop.now).beat()
    laptop.turn()
    assert len(laptop.said(OfferLive)[0].agents) == MOST_OFFERS


def test_unwatched_no_actor_is_told_and_nothing_is_sent(laptop):
    laptop.turn()
    laptop.writer.write(FACTS, facts(a=1))
    for _ in range(5):
        laptop.turn()
    assert laptop.payloads() == []
    assert laptop.asked() == {}
    assert laptop.agents.wait_s == float("inf")
    laptop.want(WISH)
    assert laptop.asked() == {"any": 30}
    assert laptop.payloads() == [facts(a=1)]
    assert laptop.agents.wait_s == pytest.approx(RINGS_EVERY_S)
    laptop.want()
    laptop.writer.write(FACTS, facts(a=2))
    laptop.turn()
    assert laptop.asked() == {}
    assert laptop.payloads() == [facts(a=1)]


def test_a_slot_that_is_not_offered_is_not_sent_whatever_the_other_side_wants(laptop):
    laptop.turn()
    RingWriter(laptop.folder / "outbox" / "live" / RUN / "9" / "any.ring").write(FACTS, facts(a=1))
    laptop.want(WISH.model_copy(update={"slot": 9}), WISH.model_copy(update={"run_id": "other-0"}))
    assert laptop.payloads() == []


def test_segments_go_first(laptop):
    laptop.turn()
    laptop.want(WISH)
    laptop.writer.write(FACTS, facts(a=1))
    for _ in range(3):
        laptop.turn(may_send=False)
    assert laptop.payloads() == []
    laptop.writer.write(FACTS, facts(a=2))
    laptop.turn()
    assert laptop.payloads() == [facts(a=2)], "the newest alone"


def test_no_more_leaves_than_was_taken(laptop):
    laptop.turn()
    laptop.want(WISH)
    sent = 0
    for step in range(10):
        laptop.writer.write(POSE, pose(step, bodies=2_000))
        laptop.turn(for_s=RINGS_EVERY_S / 4)
        laptop.turn(for_s=RINGS_EVERY_S)
        sent = sum(map(len, laptop.payloads()))
    assert 0 < sent < MOST_UNSEEN_BYTES
    laptop.now += MOST_UNSEEN_S
    last = laptop.said(LiveBatch)[-1].number
    laptop.upward.put(SeenLive(number=last))
    laptop.turn()
    assert laptop.payloads()[-1] == pose(9, bodies=2_000)
    laptop.upward.put(SeenLive(number=last + 99))
    laptop.writer.write(FACTS, facts(a=1))
    with pytest.raises(ProtocolError):
        laptop.turn()


def test_what_the_other_side_would_not_take_is_not_sent_and_said_once(laptop):
    laptop.turn()
    laptop.want(WISH)
    for _ in range(3):
        laptop.writer.write(FACTS, packed(HEADER).replace(b"-2.5", b"NaN "))
        laptop.turn()
    assert laptop.payloads() == []
    assert len(laptop.told) == 1


def test_a_scene_is_sent_in_the_slices_that_are_needed(laptop):
    laptop.turn()
    (laptop.actor.folder / f"{SCENE_SUM}.scene").write_bytes(SCENE)
    laptop.want(WISH)
    for offset in (0, SLICE_BYTES, 2 * SLICE_BYTES):
        laptop.upward.put(NeedScene(run_id=RUN, slot=0, sha256=SCENE_SUM, offset=offset))
        laptop.turn()
    assert b"".join(laptop.payloads(SceneSlice)) == SCENE
    laptop.upward.put(NeedScene(run_id=RUN, slot=0, sha256="0" * 64, offset=0))
    laptop.turn()
    assert laptop.payloads(SceneSlice)[-1] == b""


def test_no_link_is_followed_out_of_the_folder(laptop, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"the contributor's own")
    laptop.turn()
    (laptop.actor.folder / f"{SCENE_SUM}.scene").symlink_to(secret)
    laptop.want(WISH)
    laptop.upward.put(NeedScene(run_id=RUN, slot=0, sha256=SCENE_SUM, offset=0))
    laptop.turn()
    assert laptop.payloads(SceneSlice) == [b""]


def test_another_connection_is_told_anew_and_wants_nothing_yet(laptop):
    laptop.turn()
    laptop.want(WISH)
    laptop.agents.begin()
    laptop.writer.write(FACTS, facts(a=1))
    laptop.turn()
    assert len(laptop.said(OfferLive)) == 2
    assert laptop.payloads() == []
    assert laptop.asked() == {}


def test_of_a_server_that_says_something_else_each_time_one_sentence_is_told(laptop):
    laptop.turn()
    for number in range(20):
        laptop.want(sentence=f"reason {number}")
    assert laptop.told == ["reason 0"]
    laptop.agents.begin()
    laptop.want(sentence="another connection")
    assert laptop.told == ["reason 0", "another connection"]


def test_what_a_server_says_of_agents_that_were_not_offered_is_not_kept(laptop):
    needed = NeedScene(run_id=RUN, slot=0, sha256=SCENE_SUM, offset=0)
    for message in (WantedLive(wishes=(WISH,)), needed):
        laptop.upward.put(message)
        assert not laptop.upward, "a wait would never wait again"
    laptop.turn()
    laptop.upward.put(needed)
    assert laptop.upward


def test_a_beat_is_seldom(laptop, monkeypatch):
    actor = StreamedSlot(laptop.folder, RUN, 3, lambda: laptop.now)
    touched: list[object] = []
    real = os.utime
    monkeypatch.setattr(os, "utime", lambda *path: (touched.append(path), real(*path)))
    for _ in range(10):
        actor.beat()
    laptop.now += BEAT_EVERY_S
    actor.beat()
    assert len(touched) == 2

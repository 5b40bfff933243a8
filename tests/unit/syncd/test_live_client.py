"""Agents at play on a laptop: wishes of its mirror go up, batches come down, and nothing that nobody asked for; its own
are offered while they play, sent while somebody watches, after segments and within credit.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from live_rings import HEADER, SCENE, SCENE_SUM, facts, newest_in, pose, ring_of, slot_of, wish_in
from policies import RUN
from refused import refused

from anchorleg.live.batches import FACTS, JPEG, MOST_SCENE_BYTES, POSE, packed
from anchorleg.live.ring import Cell, RingWriter
from anchorleg.live.wanted import FILE, GONE_AFTER_S, Asked, Asking, Wish
from syncd import store
from syncd.errors import ChangedError, GoneError, ProtocolError
from syncd.laptop.capacity import CapacityLimits
from syncd.laptop.liveagents import AGAIN_AFTER_S, LOOK_EVERY_S, RINGS_EVERY_S, TIDY_EVERY_S, LiveAgents
from syncd.laptop.mirror import Mirror
from syncd.shared.offers import RING_KEPT_S
from syncd.streamed import BEAT, StreamedSlot
from syncd.wire.liveline import MOST_UNSEEN_BYTES, MOST_UNSEEN_S, SLICE_BYTES, grown, shrunk
from syncd.wire.protocol import (
    Frame,
    LiveBatch,
    Message,
    NeedScene,
    NobodyAsked,
    OfferLive,
    SceneSlice,
    SeenLive,
    ShownLive,
    WantedLive,
    WatchLive,
    WireWish,
)
from syncd.wire.transport import Offer


class Line:
    """A session whose server is the test. `files`: what it hands out; `heard`: what the client said, with payloads."""

    name = "openssh"

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.heard: list[Message] = []
        self.payloads: list[bytes] = []
        self.files = files or {}
        self.fetched: list[str] = []
        self.numbers = itertools.count(1)
        self._frames: list[Frame] = []

    def say(self, message: Message, payload: bytes = b"") -> None:
        self.heard.append(message)
        self.payloads.append(payload)

    def tell(self, message: Message, payload: bytes = b"") -> None:
        self._frames.append(Frame(message, payload))

    def take_live(self) -> list[Frame]:
        found, self._frames = self._frames, []
        return found

    def show(self, payload: bytes, kind: int = POSE, slot: int = 0, run_id: str = RUN, lane: str = "any") -> None:
        message = LiveBatch(run_id=run_id, slot=slot, lane=lane, number=next(self.numbers), kind=kind)
        self.tell(message, shrunk(Cell(1, kind, payload)))

    def fetch(self, offer: Offer, part: Path) -> None:
        self.fetched.append(offer.path)
        if offer.path not in self.files:
            raise GoneError("file.gone", path=offer.path)
        if len(self.files[offer.path]) > offer.bytes:
            raise ChangedError("file.changed", path=offer.path)
        part.write_bytes(self.files[offer.path])

    def said(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.heard if isinstance(message, kind)]

    def sent(self, kind: type[Message] = LiveBatch) -> list[bytes]:
        """What came with the messages of this kind."""
        found = [data for message, data in zip(self.heard, self.payloads, strict=True) if isinstance(message, kind)]
        return [grown(data) for data in found] if kind is LiveBatch else found


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
    line.show(pose(2))
    with refused("wire.live-count"):
        laptop.turn(line)


def test_that_nobody_over_there_is_asked_is_said_once_and_of_our_runs_only(laptop):
    line = Line()
    watched(laptop, line)
    for _ in range(3):
        line.tell(NobodyAsked(run_id=RUN, sentence="nobody is asked"))
        line.tell(NobodyAsked(run_id="evil-0", sentence="evil"))
        laptop.turn(line)
    assert laptop.told == ["nobody is asked"]


def test_a_scene_comes_once_and_after_policies(laptop):
    line = Line({scene_path(): SCENE})
    watched(laptop, line)
    line.show(pose(1))
    laptop.turn(line, may_fetch=False, times=3)
    assert line.fetched == []
    laptop.turn(line)
    assert scene_file(laptop).read_bytes() == SCENE
    line.show(pose(2))
    laptop.turn(line, times=3)
    assert line.fetched == [scene_path()]


@pytest.mark.parametrize(
    ("scene", "words"),
    [(b"another", "another sum"), (bytes(MOST_SCENE_BYTES + 1), "larger than any"), (None, "")],
    ids=["wrong sum", "too large", "gone"],
)
def test_a_scene_that_is_not_what_its_name_says_is_not_written(laptop, scene, words):
    line = Line({} if scene is None else {scene_path(): scene})
    watched(laptop, line)
    before = laptop.files()
    for step in range(10):
        line.show(pose(step))
        laptop.turn(line)
    assert [file for file in laptop.files() if file not in before] == [f"v1/runs/{RUN}/0/live/any.ring"]
    assert all(words in sentence for sentence in laptop.told)
    assert (len(laptop.told), len(line.fetched)) == (bool(words), 1), "not again at once"
    laptop.now += AGAIN_AFTER_S
    line.files = {scene_path(): SCENE}
    laptop.turn(line)
    assert scene_file(laptop).read_bytes() == SCENE


def test_a_full_mirror_takes_neither_rings_nor_scenes_and_says_so(tmp_path):
    slot_of(tmp_path, RUN).mkdir(parents=True)
    laptop = Laptop(tmp_path, CapacityLimits(bytes=1000))
    line = Line({scene_path(): SCENE})
    watched(laptop, line)
    line.show(pose(1))
    laptop.turn(line)
    assert [("the mirror has" in sentence) for sentence in laptop.told] == [True]
    assert laptop.files() == [f"v1/runs/{RUN}/{FILE}"]


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


def shown(line: Line, *agents: tuple[int, str], run_id: str = RUN) -> None:
    """The other side says whose agents may be watched."""
    line.tell(ShownLive(run_id=run_id, agents=agents))


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
    assert newest_in(laptop.folder, RUN, lane="any@ben") == pose(2)
    assert (laptop.folder / path).read_bytes() == SCENE
    shown(line)
    laptop.turn(line)
    assert store.offered(here, RUN, 0.0) == {}
    assert not (laptop.folder / path).exists()


WISH = WireWish(run_id=RUN, slot=0, lane="any", fps=30)


class Player:
    """A mirror with actors at play for slot 0, its client, its clock, and a server that is the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1000.0
        self.told: list[str] = []
        self.line = Line()
        self.agents = LiveAgents(Mirror(folder), say=self.told.append, monotonic=lambda: self.now)
        self.actor = StreamedSlot(folder, RUN, 0, lambda: self.now)
        self.writer = RingWriter(self.actor.folder / "any.ring")
        self.plays = True
        self.beats = 0

    def turn(self, *, may_send: bool = True, for_s: float = LOOK_EVERY_S) -> None:
        self.now += for_s
        if self.plays:
            self.actor.beat()
            self.beats += 1  # the file system's clock may be coarser than a test
            os.utime(self.actor.folder / BEAT, ns=(0, self.beats))
        self.agents.turn(self.line, may_send=lambda: may_send)  # type: ignore[arg-type]

    def want(self, *wishes: WireWish, sentence: str = "") -> None:
        self.line.tell(WantedLive(wishes=wishes, sentence=sentence))
        self.turn()

    def asked(self) -> dict[str, int]:
        return Asked(self.actor.live_file, 0, lambda: self.now).lanes()


@pytest.fixture
def player(tmp_path: Path) -> Player:
    return Player(tmp_path)


def test_they_are_offered_once_and_until_they_end_or_are_killed(player):
    for _ in range(5):
        player.turn()
    assert player.line.said(OfferLive) == [OfferLive(agents=((RUN, 0),))]
    player.plays = False
    for _ in range(int(GONE_AFTER_S) + 2):
        player.turn()
    assert player.line.said(OfferLive)[1:] == [OfferLive(agents=())]
    for _ in range(int(TIDY_EVERY_S) + 1):
        player.turn()
    assert not player.actor.folder.exists(), "what a killed actor left is cleared away"
    player.plays = True
    player.actor = StreamedSlot(player.folder, RUN, 0, lambda: player.now)
    player.turn()
    player.actor.close()
    player.plays = False
    player.turn()
    assert [len(message.agents) for message in player.line.said(OfferLive)] == [1, 0, 1, 0]


def test_unwatched_no_actor_is_told_and_nothing_is_sent(player):
    player.turn()
    player.writer.write(FACTS, facts(a=1))
    for _ in range(5):
        player.turn()
    assert player.line.sent() == []
    assert player.asked() == {}
    assert player.agents.wait_s == float("inf")
    player.want(WISH)
    assert player.asked() == {"any": 30}
    assert player.line.sent() == [facts(a=1)]
    assert player.agents.wait_s == pytest.approx(RINGS_EVERY_S)
    player.want()
    player.writer.write(FACTS, facts(a=2))
    player.turn()
    assert player.asked() == {}
    assert player.line.sent() == [facts(a=1)]


def test_a_slot_that_is_not_offered_is_not_sent_whatever_the_other_side_wants(player):
    player.turn()
    RingWriter(player.folder / "outbox" / "live" / RUN / "9" / "any.ring").write(FACTS, facts(a=1))
    player.want(WISH.model_copy(update={"slot": 9}), WISH.model_copy(update={"run_id": "other-0"}))
    assert player.line.sent() == []


def test_segments_go_first(player):
    player.turn()
    player.want(WISH)
    player.writer.write(FACTS, facts(a=1))
    for _ in range(3):
        player.turn(may_send=False)
    assert player.line.sent() == []
    player.writer.write(FACTS, facts(a=2))
    player.turn()
    assert player.line.sent() == [facts(a=2)], "the newest alone"


def test_no_more_leaves_than_was_taken(player):
    player.turn()
    player.want(WISH)
    sent = 0
    for step in range(10):
        player.writer.write(POSE, pose(step, bodies=2_000))
        player.turn(for_s=RINGS_EVERY_S / 4)
        player.turn(for_s=RINGS_EVERY_S)
        sent = sum(map(len, player.line.sent()))
    assert 0 < sent < MOST_UNSEEN_BYTES
    player.now += MOST_UNSEEN_S
    last = player.line.said(LiveBatch)[-1].number
    player.line.tell(SeenLive(number=last))
    player.turn()
    assert player.line.sent()[-1] == pose(9, bodies=2_000)
    player.line.tell(SeenLive(number=last + 99))
    player.writer.write(FACTS, facts(a=1))
    with pytest.raises(ProtocolError):
        player.turn()


def test_what_the_other_side_would_not_take_is_not_sent_and_said_once(player):
    player.turn()
    player.want(WISH)
    for _ in range(3):
        player.writer.write(FACTS, packed(HEADER).replace(b"-2.5", b"NaN "))
        player.turn()
    assert player.line.sent() == []
    assert len(player.told) == 1


def test_a_scene_is_sent_in_the_slices_that_are_needed(player):
    player.turn()
    (player.actor.folder / f"{SCENE_SUM}.scene").write_bytes(SCENE)
    player.want(WISH)
    for offset in (0, SLICE_BYTES, 2 * SLICE_BYTES):
        player.line.tell(NeedScene(run_id=RUN, slot=0, sha256=SCENE_SUM, offset=offset))
        player.turn()
    assert b"".join(player.line.sent(SceneSlice)) == SCENE
    player.line.tell(NeedScene(run_id=RUN, slot=0, sha256="0" * 64, offset=0))
    player.turn()
    assert player.line.sent(SceneSlice)[-1] == b""


def test_no_link_is_followed_out_of_the_folder(player, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"the contributor's own")
    player.turn()
    (player.actor.folder / f"{SCENE_SUM}.scene").symlink_to(secret)
    player.want(WISH)
    player.line.tell(NeedScene(run_id=RUN, slot=0, sha256=SCENE_SUM, offset=0))
    player.turn()
    assert player.line.sent(SceneSlice) == [b""]


def test_another_connection_is_told_anew_and_wants_nothing_yet(player):
    player.turn()
    player.want(WISH)
    player.agents.begin()
    player.writer.write(FACTS, facts(a=1))
    player.turn()
    assert len(player.line.said(OfferLive)) == 2
    assert player.line.sent() == []
    assert player.asked() == {}

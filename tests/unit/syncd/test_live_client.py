"""Agents at play on a laptop: wishes of its mirror go up, batches come down, and nothing that nobody asked for; its own
are offered while they play, sent while somebody watches, after segments and within credit.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from live_rings import SCENE, SCENE_SUM, facts, newest_in, pose, ring_of, slot_of, wish_in
from policies import RUN

from anchorleg.live.batches import FACTS, POSE
from anchorleg.live.ring import Cell, RingWriter
from anchorleg.live.wanted import FILE, GONE_AFTER_S, Asked, Asking, Wish
from syncd import store
from syncd.errors import ProtocolError
from syncd.laptop.capacity import CapacityLimits
from syncd.laptop.liveagents import LOOK_EVERY_S, TIDY_EVERY_S, LiveAgents
from syncd.laptop.mirror import Mirror
from syncd.shared.inbox import RING_KEPT_S
from syncd.streamed import BEAT, StreamedSlot
from syncd.wire.liveline import (
    AGAIN_AFTER_S,
    MOST_UNSEEN_BYTES,
    MOST_UNSEEN_S,
    RINGS_EVERY_S,
    SLICE_BYTES,
    grown,
    shrunk,
)
from syncd.wire.protocol import (
    Frame,
    LiveBatch,
    Message,
    NeedScene,
    OfferLive,
    SceneSlice,
    SeenLive,
    ShownLive,
    WatchLive,
    WireWish,
)

WISH = WireWish(run_id=RUN, slot=0, lane="any", fps=30)


class Line:
    """A session whose server is the test. `scene`: what it has where one is needed. `heard`: what the client said."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.payloads: list[bytes] = []
        self.scene: bytes | None = None
        self.numbers = itertools.count(1)
        self._frames: list[Frame] = []

    def say(self, message: Message, payload: bytes = b"") -> None:
        self.heard.append(message)
        self.payloads.append(payload)
        if isinstance(message, NeedScene):
            part = (self.scene or b"")[message.offset : message.offset + SLICE_BYTES]
            self.tell(SceneSlice(sha256=message.sha256, offset=message.offset), part)

    def tell(self, message: Message, payload: bytes = b"") -> None:
        self._frames.append(Frame(message, payload))

    def take_live(self) -> list[Frame]:
        found, self._frames = self._frames, []
        return found

    def show(self, payload: bytes, kind: int = POSE, slot: int = 0, run_id: str = RUN, lane: str = "any") -> None:
        message = LiveBatch(run_id=run_id, slot=slot, lane=lane, number=next(self.numbers), kind=kind)
        self.tell(message, shrunk(Cell(1, kind, payload)))

    def said(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.heard if isinstance(message, kind)]

    def sent(self, kind: type[Message] = LiveBatch) -> list[bytes]:
        """What came with the messages of this kind."""
        found = [data for message, data in zip(self.heard, self.payloads, strict=True) if isinstance(message, kind)]
        return [grown(data) for data in found] if kind is LiveBatch else found


class Laptop:
    """A mirror, what keeps it, the line to the test, and its clock."""

    def __init__(self, folder: Path, limits: CapacityLimits | None = None) -> None:
        self.folder, self.now = folder, 1000.0
        self.told: list[str] = []
        self.viewers: list[Asking] = []
        self.mirror = Mirror(folder, limits=limits)
        self.line = Line()
        self.connect()

    def connect(self) -> None:
        self.agents = LiveAgents(self.line, self.mirror, say=self.told.append, monotonic=lambda: self.now)  # type: ignore[arg-type]

    def turn(self, *, may_fetch: bool = True, times: int = 1) -> None:
        for _ in range(times):
            self.now += LOOK_EVERY_S
            for viewer in self.viewers:
                viewer.renew((Wish(0, "any", 30),))
            self.agents.turn(lambda: may_fetch)

    def watch(self) -> None:
        """Somebody looks from now on, and the other side knows."""
        self.viewers.append(wish_in(self.folder, RUN, clock=lambda: self.now))
        self.turn()

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    slot_of(tmp_path, RUN).mkdir(parents=True)
    return Laptop(tmp_path)


def scene_file(laptop: Laptop) -> Path:
    return slot_of(laptop.folder, RUN) / "live" / f"{SCENE_SUM}.scene"


def test_a_wish_of_the_mirror_goes_up_once_and_its_end_too(laptop):
    laptop.turn(times=5)
    assert laptop.line.heard == []
    viewer = wish_in(laptop.folder, RUN, Wish(2, "t3", 20))
    laptop.turn(times=5)
    assert laptop.line.heard == [WatchLive(wishes=(WireWish(run_id=RUN, slot=2, lane="t3", fps=20),))]
    viewer.withdraw()
    laptop.turn(times=5)
    assert laptop.line.heard[1:] == [WatchLive(wishes=())]


def test_what_comes_lies_in_the_ring_of_the_same_name_and_is_told_as_seen(laptop):
    laptop.watch()
    for step in range(3):
        laptop.line.show(facts(step=step), kind=FACTS)
    laptop.turn(times=5)
    assert newest_in(laptop.folder, RUN) == facts(step=2)
    assert laptop.line.said(SeenLive)[-1] == SeenLive(number=3)


@pytest.mark.parametrize("how", ["nobody looks", "another slot", "another run"])
def test_what_nobody_asked_for_is_not_written(laptop, how):
    if how != "nobody looks":
        laptop.watch()
    before = laptop.files()
    laptop.line.show(pose(1), slot=7 if how == "another slot" else 0, run_id="evil-0" if how == "another run" else RUN)
    laptop.turn(times=3)
    assert laptop.files() == before
    assert laptop.line.said(SeenLive), "else an honest server would wait for ever"


def test_that_nobody_over_there_is_asked_is_said_once_and_of_our_runs_only(laptop):
    laptop.watch()
    for _ in range(3):
        laptop.line.tell(ShownLive(run_id=RUN, agents=(), sentence="nobody is asked"))
        laptop.line.tell(ShownLive(run_id="evil-0", agents=(), sentence="evil"))
        laptop.turn()
    assert laptop.told == ["nobody is asked"]


def test_a_scene_comes_once_and_after_policies(laptop):
    laptop.line.scene = SCENE
    laptop.watch()
    laptop.line.show(pose(1))
    laptop.turn(may_fetch=False, times=3)
    assert laptop.line.said(NeedScene) == []
    laptop.turn(times=5)
    assert scene_file(laptop).read_bytes() == SCENE
    asked = len(laptop.line.said(NeedScene))
    laptop.line.show(pose(2))
    laptop.turn(times=3)
    assert asked == len(laptop.line.said(NeedScene)) == -(-len(SCENE) // SLICE_BYTES)


@pytest.mark.parametrize(("scene", "words"), [(b"another", "checksum"), (None, "")], ids=["wrong sum", "gone"])
def test_a_scene_that_is_not_what_its_name_says_is_not_written(laptop, scene, words):
    laptop.line.scene = scene
    laptop.watch()
    before = laptop.files()
    for step in range(10):
        laptop.line.show(pose(step))
        laptop.turn()
    assert [file for file in laptop.files() if file not in before] == [f"v1/runs/{RUN}/0/live/any.ring"]
    assert all(words in sentence for sentence in laptop.told)
    assert (len(laptop.told), len(laptop.line.said(NeedScene))) == (bool(words), 1), "not again at once"
    laptop.now += AGAIN_AFTER_S
    laptop.line.scene = SCENE
    laptop.turn(times=5)
    assert scene_file(laptop).read_bytes() == SCENE


def test_a_full_mirror_takes_neither_rings_nor_scenes_and_says_so(tmp_path):
    slot_of(tmp_path, RUN).mkdir(parents=True)
    laptop = Laptop(tmp_path, CapacityLimits(bytes=1000))
    laptop.watch()
    laptop.line.show(pose(1))
    laptop.turn()
    assert [("the mirror has" in sentence) for sentence in laptop.told] == [True]
    assert laptop.files() == [f"v1/runs/{RUN}/{FILE}"]


def test_what_nobody_looks_through_any_more_is_cleared_away(laptop):
    laptop.watch()
    laptop.line.show(facts(a=1), kind=FACTS)
    laptop.turn()
    laptop.mirror.tidy()
    assert ring_of(laptop.folder, RUN).exists()
    later = ring_of(laptop.folder, RUN).stat().st_mtime + RING_KEPT_S + 1
    Mirror(laptop.folder, clock=lambda: later).tidy()
    assert not ring_of(laptop.folder, RUN).exists()


def test_contributors_agents_are_offered_here_as_over_there_and_come_where_they_are_wanted(laptop):
    laptop.line.scene = SCENE
    laptop.watch()
    laptop.line.tell(ShownLive(run_id=RUN, agents=((0, "ben"), (0, "anna"), (2, "ben"))))
    laptop.line.tell(ShownLive(run_id="other-0", agents=((0, "eve"),)))
    laptop.turn()
    here = store.Shared(laptop.folder)
    assert store.offered(here, RUN, 0.0) == {0: ("anna", "ben"), 2: ("ben",)}
    assert store.offered(here, "other-0", 0.0) == {}, "of a run that nobody watches"
    viewer = wish_in(laptop.folder, RUN, Wish(0, "any@ben", 30))
    laptop.turn()
    laptop.line.show(pose(2), lane="any@ben")
    for _ in range(5):
        viewer.renew((Wish(0, "any@ben", 30),))
        laptop.turn()
    assert newest_in(laptop.folder, RUN, lane="any@ben") == pose(2)
    scene = ring_of(laptop.folder, RUN, lane="any@ben").with_name(f"{SCENE_SUM}.scene")
    assert scene.read_bytes() == SCENE
    laptop.line.tell(ShownLive(run_id=RUN, agents=()))
    laptop.turn()
    assert store.offered(here, RUN, 0.0) == {}
    assert not scene.exists()


class Player(Laptop):
    """A mirror with actors at play for slot 0."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.actor = StreamedSlot(folder, RUN, 0, lambda: self.now)
        self.writer = RingWriter(self.actor.folder / "any.ring")
        self.plays = True
        self.beats = 0

    def play(self, *, may_send: bool = True, for_s: float = LOOK_EVERY_S) -> None:
        self.now += for_s
        if self.plays:
            self.actor.beat()
            self.beats += 1  # the file system's clock may be coarser than a test
            os.utime(self.actor.folder / BEAT, ns=(0, self.beats))
        self.agents.turn(may_send=lambda: may_send)

    def want(self, *wishes: WireWish) -> None:
        self.line.tell(WatchLive(wishes=wishes))
        self.play()

    def asked(self) -> dict[str, int]:
        return Asked(self.actor.live_file, 0, lambda: self.now).lanes()


@pytest.fixture
def player(tmp_path: Path) -> Player:
    player = Player(tmp_path)
    player.play()
    return player


def test_they_are_offered_once_and_until_they_end_or_are_killed(player):
    for _ in range(5):
        player.play()
    assert player.line.said(OfferLive) == [OfferLive(agents=((RUN, 0),))]
    player.plays = False
    for _ in range(int(GONE_AFTER_S) + 2):
        player.play()
    assert player.line.said(OfferLive)[1:] == [OfferLive(agents=())]
    for _ in range(int(TIDY_EVERY_S) + 1):
        player.play()
    assert not player.actor.folder.exists(), "what a killed actor left is cleared away"


def test_unwatched_no_actor_is_told_and_nothing_is_sent(player):
    player.writer.write(FACTS, facts(a=1))
    for _ in range(5):
        player.play()
    assert (player.line.sent(), player.asked(), player.agents.wait_s) == ([], {}, float("inf"))
    player.want(WISH, WISH.model_copy(update={"slot": 9}))
    assert player.asked() == {"any": 30}
    assert player.line.sent() == [facts(a=1)]
    assert player.agents.wait_s == RINGS_EVERY_S
    player.want()
    player.writer.write(FACTS, facts(a=2))
    player.play()
    assert player.asked() == {}
    assert player.line.sent() == [facts(a=1)]


def test_a_slot_that_is_not_offered_is_not_sent_whatever_the_other_side_wants(player):
    RingWriter(player.folder / "outbox" / "live" / RUN / "9" / "any.ring").write(FACTS, facts(a=1))
    player.want(WISH.model_copy(update={"slot": 9}), WISH.model_copy(update={"run_id": "other-0"}))
    assert player.line.sent() == []


def test_segments_go_first(player):
    player.want(WISH)
    player.writer.write(FACTS, facts(a=1))
    for _ in range(3):
        player.play(may_send=False)
    assert player.line.sent() == []
    player.writer.write(FACTS, facts(a=2))
    player.play()
    assert player.line.sent() == [facts(a=2)], "the newest alone"


def test_no_more_leaves_than_was_taken(player):
    player.want(WISH)
    for step in range(10):
        player.writer.write(POSE, pose(step, bodies=2_000))
        player.play(for_s=RINGS_EVERY_S / 4)
        player.play(for_s=RINGS_EVERY_S)
    assert 0 < sum(map(len, player.line.sent())) < MOST_UNSEEN_BYTES
    player.now += MOST_UNSEEN_S
    last = player.line.said(LiveBatch)[-1].number
    player.line.tell(SeenLive(number=last))
    player.play()
    assert player.line.sent()[-1] == pose(9, bodies=2_000)
    player.line.tell(SeenLive(number=last + 99))
    with pytest.raises(ProtocolError):
        player.play()


def need(player: Player, sha256: str = SCENE_SUM, offset: int = 0) -> None:
    player.line.tell(NeedScene(run_id=RUN, slot=0, lane="any@ben", sha256=sha256, offset=offset))
    player.play()


def test_a_scene_is_sent_in_the_slices_that_are_needed_and_no_link_is_followed(player, tmp_path):
    (player.actor.folder / f"{SCENE_SUM}.scene").write_bytes(SCENE)
    secret, other = tmp_path / "secret", "1" * 64
    secret.write_bytes(b"the contributor's own")
    (player.actor.folder / f"{other}.scene").symlink_to(secret)
    player.want(WISH)
    for offset in (0, SLICE_BYTES, 2 * SLICE_BYTES):
        need(player, offset=offset)
    assert b"".join(player.line.sent(SceneSlice)) == SCENE
    for sha256 in (other, "0" * 64):
        need(player, sha256)
        assert player.line.sent(SceneSlice)[-1] == b""


def test_another_connection_is_told_anew_and_wants_nothing_yet(player):
    player.want(WISH)
    player.connect()
    player.writer.write(FACTS, facts(a=1))
    player.play()
    assert len(player.line.said(OfferLive)) == 2
    assert player.line.sent() == []

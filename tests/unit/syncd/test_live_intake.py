"""What a server lets in of a contributor's agents: what was asked for, checked, little, and nothing of who is held."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from pathlib import Path

import pytest
from live_rings import HEADER, SCENE, SCENE_SUM, facts, pose, slot_of
from policies import RUN

from anchorleg.live.batches import FACTS, JPEG, POSE, checked, packed
from anchorleg.live.ring import CELL_BYTES, CELLS, Cell, RingReader
from anchorleg.live.wanted import FILE, GONE_AFTER_S, LOOK_EVERY_S, MOST_LANES, Asking, Wish, folder_of
from syncd import store
from syncd.errors import ProtocolError
from syncd.shared.inbox import InboxLimits
from syncd.shared.offers import offered
from syncd.shared.retention import ABANDONED_S, prune
from syncd.wire import intake
from syncd.wire.fields import Message
from syncd.wire.intake import APART_S, CHANGE_EVERY_S, MOST_KIB_S, MOST_SCENES, LiveIntake
from syncd.wire.livemessages import (
    LiveBatch,
    NeedScene,
    OfferLive,
    PlayedSlot,
    SceneSlice,
    SeenLive,
    WantedLive,
    shrunk,
)
from syncd.wire.scenes import SLICE_BYTES

WALL = 1_700_000_000.0


class Far:
    """A server's side for `ben`, its clock, a watcher of his, and what it says to him."""

    def __init__(self, shared: Path) -> None:
        self.now, self.shared = 1000.0, store.Shared(shared)
        self.said: list[Message] = []
        self.inbox = store.Inbox.of(self.shared, "ben")
        self.intake = LiveIntake(self.shared, self.inbox, self.hear, lambda: self.now, self.wall)
        self.watcher = Asking(self.shared.runs / RUN / FILE, lambda: self.now)
        self.wishes: tuple[Wish, ...] = ()
        self.numbers = itertools.count(1)

    def hear(self, message: Message) -> None:
        self.said.append(message)

    def wall(self) -> float:
        return WALL + self.now

    def offer(self, *slots: int, run_id: str = RUN) -> None:
        self.intake.offer(OfferLive(agents=tuple(PlayedSlot(run_id=run_id, slot=slot) for slot in slots)))
        self.turn()

    def watch(self, *lanes: str, slot: int = 0) -> None:
        self.wishes = tuple(Wish(slot, lane, 30) for lane in lanes)
        self.turn()

    def turn(self, for_s: float = LOOK_EVERY_S) -> None:
        self.now += for_s
        self.watcher.renew(self.wishes)
        self.intake.turn()

    def show(self, payload: bytes, kind: int = POSE, slot: int = 0, lane: str = "any", after_s: float = 1.0) -> None:
        self.now += after_s
        said = LiveBatch(run_id=RUN, slot=slot, lane=lane, number=next(self.numbers), kind=kind)
        self.intake.put(said, shrunk(Cell(1, kind, payload)))

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.said if isinstance(message, kind)]

    def folder(self, slot: int = 0, who: str = "ben") -> Path:
        return self.shared.path.joinpath(*folder_of(RUN, slot, f"any@{who}"))

    def files(self) -> list[str]:
        """All that lies in inboxes."""
        top = self.shared.inbox_folder
        return sorted(str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir())

    def shown(self) -> list[bytes]:
        return [cell.payload for cell in RingReader(self.folder() / "any.ring").newer()]


@pytest.fixture
def far(tmp_path: Path) -> Far:
    for slot in (0, 1):
        slot_of(tmp_path, RUN, slot).mkdir(parents=True)
    return Far(tmp_path)


@pytest.fixture
def watched(far: Far) -> Far:
    """Somebody watches ben's agents of slot 0."""
    far.offer(0)
    far.watch("any@ben")
    assert far.of(WantedLive)[-1].wishes  # type: ignore[attr-defined]
    return far


def test_it_is_offered_and_asked_for_only_while_somebody_watches_him(far):
    far.offer(0, 7)
    assert offered(far.shared, RUN, far.wall()) == {0: ("ben",)}, "of a slot that is not there nothing is made"
    far.watch("any", "any@anna")
    assert far.of(WantedLive) == []
    far.watch("any@ben", "t1@ben")
    (said,) = far.of(WantedLive)
    assert [(wish.slot, wish.lane) for wish in said.wishes] == [(0, "any"), (0, "t1")]
    far.watch()
    assert far.of(WantedLive)[-1].wishes == ()
    far.offer()
    far.turn(CHANGE_EVERY_S)
    assert offered(far.shared, RUN, far.wall()) == {}


def test_a_watcher_that_was_killed_is_gone_soon(watched):
    for _ in range(int(GONE_AFTER_S / LOOK_EVERY_S) + 1):
        watched.now += LOOK_EVERY_S
        watched.intake.turn()
    assert watched.of(WantedLive)[-1].wishes == ()


def test_a_batch_has_the_contributors_own_name_and_this_sides_clock(watched):
    """Whatever it says: in training, another contributor, an hour ago, and what is no field."""
    for said in ({"origin": "training"}, {"origin": "anna"}, {"at": 1e300, "more": "x" * 999}):
        watched.show(packed(HEADER | said), FACTS, after_s=5.0)
        header, _ = checked(FACTS, watched.shown()[-1])
        assert (header["origin"], header["at"]) == ("ben", watched.wall())
    assert b"more" not in watched.shown()[-1]
    assert [seen.number for seen in watched.of(SeenLive)] == [1, 2, 3]


def test_moments_keep_their_distances_while_the_clocks_agree(watched):
    moments = []
    for k in range(4):
        watched.show(packed(HEADER | {"at": 50.0 + 0.2 * k}), FACTS, after_s=0.2 + 0.05 * (k == 1))
        moments.append(checked(FACTS, watched.shown()[-1])[0]["at"])
    apart = [round(after - before, 6) for before, after in itertools.pairwise(moments)]
    assert apart == [0.2, 0.2, 0.2]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (POSE, packed(HEADER)[:-3] + b"NaN"),
        (FACTS, packed(HEADER).replace(b'"return":-2.5', b'"return":NaN ')),
        (FACTS, packed(HEADER).replace(b'"at":1.5', b'"at":1e999')),
        (POSE, pose(1)[:-1]),
        (JPEG, packed(HEADER, b"no picture")),
        (POSE, packed(HEADER, b"\xff\xd8 a picture that says that it is poses")),
        (77, facts(a=1)),
        (FACTS, b""),
        (FACTS, b"\xff" * 70_000),
        (POSE, pose(1, scene="../../../../etc/passwd")),
    ],
    ids=["torn", "nan", "infinite", "short", "no jpeg", "lying kind", "no kind", "nothing", "too large", "a path"],
)
def test_what_cannot_be_shown_is_left_out_and_the_next_good_one_is_there(watched, kind, payload):
    watched.show(payload, kind)
    assert watched.files() == []
    watched.show(facts(a=1), FACTS)
    assert len(watched.shown()) == 1


def test_too_fast_and_too_much_is_passed_over(watched):
    watched.show(facts(), FACTS)
    ring = RingReader(watched.folder() / "any.ring")
    ring.newer()
    for k in range(25):
        watched.show(facts(k=k), FACTS, after_s=APART_S / 10)
    assert len(ring.newer()) == 2
    large = pose(1, bodies=4_000)
    watched.now += 60
    taken, began = 0, watched.now
    while watched.now < began + 10:
        watched.show(large, after_s=APART_S * 1.01)
        taken += len(ring.newer())
    assert taken * len(large) <= (10 + 1) * MOST_KIB_S * 1024 + 2 * len(large)
    assert taken > 10


def test_of_a_thousand_lanes_and_slots_those_are_let_in_that_are_watched(watched):
    for number in range(1_000):
        watched.show(facts(a=1), FACTS, slot=number % 50 + 1, lane=f"t{number}")
    assert watched.files() == []
    watched.watch(*(f"t{number}@ben" for number in range(50)))
    assert len(watched.of(WantedLive)[-1].wishes) == MOST_LANES


def test_numbers_that_do_not_rise_end_the_connection(watched):
    said = LiveBatch(run_id=RUN, slot=0, lane="any", number=5, kind=FACTS)
    watched.intake.put(said, facts())
    with pytest.raises(ProtocolError):
        watched.intake.put(said, facts())


def send_scene(far: Far, data: bytes) -> int:
    """Answer all that is needed; how many slices were asked for."""
    count = 0
    while True:
        asked = far.of(NeedScene)
        far.said = [message for message in far.said if not isinstance(message, NeedScene)]
        for need in asked:
            count += 1
            part = data[need.offset : need.offset + SLICE_BYTES]
            far.intake.put_slice(SceneSlice(sha256=need.sha256, offset=need.offset), part)
        if not asked:
            return count
        far.turn(0.5)


def test_a_scene_is_fetched_once_a_batch_names_it(watched):
    watched.intake.put_slice(SceneSlice(sha256=SCENE_SUM, offset=0), SCENE[:100])
    assert watched.of(NeedScene) == []
    watched.show(pose(1))
    watched.turn()
    assert send_scene(watched, SCENE) == -(-len(SCENE) // SLICE_BYTES)
    assert (watched.folder() / f"{SCENE_SUM}.scene").read_bytes() == SCENE
    watched.show(pose(2))
    watched.turn()
    assert watched.of(NeedScene) == []


def test_a_scene_that_never_ends_is_given_up(watched, monkeypatch):
    monkeypatch.setattr("syncd.wire.scenes.MOST_SCENE_BYTES", 10 * SLICE_BYTES)
    watched.show(pose(1))
    watched.turn()
    assert send_scene(watched, bytes(1000 * SLICE_BYTES)) == 11
    assert [name for name in watched.files() if name.endswith(".scene")] == []


def test_scenes_are_few_and_count_against_the_quota(watched):
    for number in range(MOST_SCENES + 5):
        data = number.to_bytes(4, "big") * 100
        watched.show(pose(number, scene=hashlib.sha256(data).hexdigest()))
        watched.turn()
        assert send_scene(watched, data) == 1
    assert len(list(watched.folder().glob("*.scene"))) == MOST_SCENES
    ring = CELLS * CELL_BYTES
    assert ring // 2 < watched.inbox.claimed().bytes < ring + 2 * MOST_SCENES * 400


def test_who_fills_the_quota_shows_nothing(watched):
    watched.intake._inbox = store.Inbox("ben", watched.inbox.path, InboxLimits(waiting_bytes=100))
    segment = watched.inbox.place("new", RUN, 0) / ("0" * 64)
    segment.parent.mkdir(parents=True)
    segment.write_bytes(bytes(101))
    watched.show(facts(a=1), FACTS)
    assert [name for name in watched.files() if "/live/" in name] == []


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_lies_in_a_rings_place_is_neither_followed_nor_waited_for(watched, tmp_path, what):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"the owner's")
    ring = watched.folder() / "any.ring"
    if what == "link":
        ring.symlink_to(elsewhere)
    elif what == "pipe":
        os.mkfifo(ring)
    else:
        ring.mkdir()
    watched.show(facts(a=1), FACTS)
    assert elsewhere.read_bytes() == b"the owner's"
    assert watched.shown() == []


def test_a_link_among_the_folders_leads_nowhere(far, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (far.inbox.path).mkdir(parents=True)
    (far.inbox.path / "live").symlink_to(elsewhere)
    far.offer(0)
    far.watch("any@ben")
    far.show(facts(a=1), FACTS)
    assert list(elsewhere.iterdir()) == []
    assert far.of(WantedLive) == []
    far.intake.close()
    assert offered(far.shared, RUN, far.wall()) == {}


@pytest.mark.parametrize("how", ["held", "dropped"])
def test_who_is_held_or_dropped_is_not_shown(watched, how):
    watched.show(facts(a=1), FACTS)
    assert watched.files()
    if how == "held":
        store.hold(watched.inbox.path, "most of it was refused", now=watched.wall())
    else:
        watched.inbox.drop(by="anna", now=watched.wall())
    assert offered(watched.shared, RUN, watched.wall()) == {}
    watched.turn()
    assert watched.of(WantedLive)[-1].wishes == ()
    watched.show(facts(a=2), FACTS)
    assert not watched.folder().exists()


def test_the_end_of_the_connection_takes_all_away(watched):
    watched.show(facts(a=1), FACTS)
    (watched.folder() / f".{SCENE_SUM}.scene.17.0a0b0c0d.tmp").write_bytes(b"half")  # of one that was killed
    watched.intake.close()
    assert not watched.folder().exists()


def test_what_a_killed_server_left_is_pruned(watched):
    watched.show(facts(a=1), FACTS)
    prune(watched.inbox, now=time.time() + ABANDONED_S / 2)
    assert watched.folder().exists()
    prune(watched.inbox, now=time.time() + 2 * ABANDONED_S)
    assert not watched.folder().exists()


def test_another_connection_of_the_same_one_that_ends_does_not_end_this_one(watched):
    other = LiveIntake(watched.shared, watched.inbox, lambda _: None, lambda: watched.now, watched.wall)
    other.offer(OfferLive(agents=(PlayedSlot(run_id=RUN, slot=0),)))
    other.turn()
    other.close()
    watched.show(facts(a=1), FACTS)
    assert len(watched.shown()) == 1


def test_who_changes_what_it_offers_all_the_time_is_followed_once_a_second(far, monkeypatch):
    made: list[Path] = []
    monkeypatch.setattr(intake, "make_shared_folder", made.append)
    for _ in range(100):
        far.intake.offer(OfferLive(agents=(PlayedSlot(run_id=RUN, slot=0),)))
        far.intake.turn()
        far.intake.offer(OfferLive(agents=()))
        far.intake.turn()
    assert len(made) <= 1

"""Agents at play on a server's side: little, the newest, behind all else, and only while somebody takes it; of a
contributor's what was asked for, checked, and nothing of who is held.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import wait_for
from hypothesis import given
from hypothesis import strategies as st
from live_rings import HEADER, SCENE, SCENE_SUM, facts, pose, slot_of, write_ring
from policies import RUN, publish_one
from served import HELLO, Connection

from anchorleg.live import wanted
from anchorleg.live.batches import FACTS, JPEG, POSE, checked, packed
from anchorleg.live.ring import CELL_BYTES, CELLS, MAX_PAYLOAD_BYTES, Cell, RingReader
from anchorleg.live.wanted import FILE, LOOK_EVERY_S, MOST_LANES, Asked, Asking, Wish, folder_of
from syncd import store
from syncd.shared.inbox import MOST_SCENES, InboxLimits, offered
from syncd.wire import live, protocol
from syncd.wire.live import (
    CHANGE_EVERY_S,
    GUESTS_FPS,
    GUESTS_WISHES,
    OFFERS_EVERY_S,
    LiveFeed,
    LiveIntake,
)
from syncd.wire.liveline import RINGS_EVERY_S, SLICE_BYTES, grown, shrunk
from syncd.wire.protocol import (
    Decoder,
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
        self.said += [one.sentence for one in found if one.sentence]
        self.shown += found

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
        self.feed.hear(SeenLive(number=self.feed._showing._number))

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


def test_what_is_under_way_is_bounded_and_each_agent_has_its_turn(scene, shared):
    scene.watch(a_wish(slot=0), a_wish(slot=1))
    large = [pose(step, bodies=3_000) for step in range(4)]  # 42 kB each
    for slot in (0, 1):
        write_ring(shared, RUN, large[slot], slot=slot)
    assert scene.payloads() == [large[0]]
    for slot in (0, 1):
        write_ring(shared, RUN, large[2 + slot], slot=slot)
    scene.now += RINGS_EVERY_S
    assert scene.payloads() == []
    scene.seen()
    assert scene.payloads() == [large[3]], "the newest of the one that waited"
    scene.seen()
    assert scene.payloads() == [large[2]]


def test_a_run_that_is_not_there_is_not_made(scene, shared):
    scene.watch(a_wish(run_id=OTHER))
    scene.frames(for_s=20.0)
    assert scene.said == [f"agents of {OTHER} cannot be requested (there is no such run)"]
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


def test_contributors_are_told_to_who_watches_the_run_and_shown_where_they_are_wanted(scene, shared):
    write_ring(shared, RUN, pose(1), lane="any@ben")
    write_ring(shared, RUN, pose(2), lane="any@anna", slot=3)
    assert scene.shown == []
    scene.watch(a_wish())
    agents = ((0, "ben"), (3, "anna"))
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
        self.intake.offer(OfferLive(agents=tuple((run_id, slot) for slot in slots)))
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
        self.intake.hear(said, shrunk(Cell(1, kind, payload)))

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
    assert far.of(WatchLive)[-1].wishes  # type: ignore[attr-defined]
    return far


def test_it_is_offered_and_asked_for_only_while_somebody_watches_him(far):
    far.offer(0, 7)
    assert offered(far.shared, RUN, far.wall()) == {0: ("ben",)}, "of a slot that is not there nothing is made"
    far.watch("any", "any@anna")
    assert far.of(WatchLive) == []
    far.watch("any@ben", "t1@ben")
    (said,) = far.of(WatchLive)
    assert [(wish.slot, wish.lane) for wish in said.wishes] == [(0, "any"), (0, "t1")]
    far.watch()
    assert far.of(WatchLive)[-1].wishes == ()
    far.offer()
    far.turn(CHANGE_EVERY_S)
    assert offered(far.shared, RUN, far.wall()) == {}


def test_a_batch_has_the_contributors_own_name_and_this_sides_clock(watched):
    """Whatever it says: in training, another contributor, an hour ago, and what is no field."""
    for said in ({"origin": "training"}, {"origin": "anna"}, {"at": 1e300, "more": "x" * 999}):
        watched.show(packed(HEADER | said), FACTS, after_s=5.0)
        header, _ = checked(FACTS, watched.shown()[-1])
        assert (header["origin"], header["at"]) == ("ben", watched.wall())
    assert b"more" not in watched.shown()[-1]
    assert [seen.number for seen in watched.of(SeenLive)] == [1, 2, 3]


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


def test_too_much_is_passed_over(watched):
    watched.show(facts(), FACTS)
    ring = RingReader(watched.folder() / "any.ring")
    ring.newer()
    large = pose(1, bodies=4_000)
    watched.now += 60
    taken, began = 0, watched.now
    while watched.now < began + 10:
        watched.show(large, after_s=0.05)
        taken += len(ring.newer())
    assert 10 < taken <= ((10 + 1) * live.MOST_KIB_S * 1024) / len(large) + 2


def test_of_a_thousand_lanes_and_slots_those_are_let_in_that_are_watched(watched):
    for number in range(1_000):
        watched.show(facts(a=1), FACTS, slot=number % 50 + 1, lane=f"t{number}")
    assert watched.files() == []
    watched.watch(*(f"t{number}@ben" for number in range(50)))
    assert len(watched.of(WatchLive)[-1].wishes) == MOST_LANES


def send_scene(far: Far, data: bytes) -> int:
    """Answer all that is needed; how many slices were asked for."""
    count = 0
    while True:
        asked = far.of(NeedScene)
        far.said = [message for message in far.said if not isinstance(message, NeedScene)]
        for need in asked:
            count += 1
            part = data[need.offset : need.offset + SLICE_BYTES]
            far.intake.hear(SceneSlice(sha256=need.sha256, offset=need.offset), part)
        if not asked:
            return count
        far.turn(0.5)


def test_a_scene_is_fetched_once_a_batch_names_it(watched):
    watched.intake.hear(SceneSlice(sha256=SCENE_SUM, offset=0), SCENE[:100])
    assert watched.of(NeedScene) == []
    watched.show(pose(1))
    watched.turn()
    assert send_scene(watched, SCENE) == -(-len(SCENE) // SLICE_BYTES)
    assert (watched.folder() / f"{SCENE_SUM}.scene").read_bytes() == SCENE
    watched.show(pose(2))
    watched.turn()
    assert watched.of(NeedScene) == []


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


def test_a_link_among_the_folders_leads_nowhere(far, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (far.inbox.path).mkdir(parents=True)
    (far.inbox.path / "live").symlink_to(elsewhere)
    far.offer(0)
    far.watch("any@ben")
    far.show(facts(a=1), FACTS)
    assert list(elsewhere.iterdir()) == []
    assert far.of(WatchLive) == []
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
    assert watched.of(WatchLive)[-1].wishes == ()
    watched.show(facts(a=2), FACTS)
    assert not watched.folder().exists()


def test_the_end_of_the_connection_takes_all_away(watched):
    watched.show(facts(a=1), FACTS)
    (watched.folder() / f".{SCENE_SUM}.scene.17.0a0b0c0d.tmp").write_bytes(b"half")  # of one that was killed
    watched.intake.close()
    assert not watched.folder().exists()


#: The least that Linux gives a pipe.
SMALL_PIPE = 4096


@pytest.fixture
def published(tmp_path: Path) -> store.Shared:
    shared = store.Shared(tmp_path)
    publish_one(shared, 1, 1)
    return shared


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., Connection]]:
    opened: list[Connection] = []

    def open_it(contributor: str | None = None) -> Connection:
        client = Connection(tmp_path, contributor)
        opened.append(client)
        client.send(HELLO, protocol.Listing())
        client.receive(protocol.Listed)
        return client

    yield open_it
    for connection in opened:
        connection.close()


def watch(client: Connection, *slots: int) -> None:
    wishes = tuple(WireWish(run_id=RUN, slot=slot, lane="any", fps=30) for slot in slots)
    client.send(protocol.WatchLive(wishes=wishes))


def order(client: Connection, last: type[Message]) -> list[Frame]:
    """The frames until the first of this kind, without pings and without whose agents may be watched."""
    found = []
    while True:
        frame = client.receive(Message)
        if not isinstance(frame.message, protocol.Ping | protocol.ShownLive):
            found.append(frame)
        if isinstance(frame.message, last):
            return found


def test_a_policy_goes_before_the_agents_that_wait(connect, published):
    """Two agents are watched, the line is stuck in the first one's batch; a policy comes, then the line moves."""
    client = connect()
    now = time.monotonic()
    client.clock = lambda: now + client.ahead_s
    fcntl.fcntl(client.inn, fcntl.F_SETPIPE_SZ, SMALL_PIPE)
    large = [pose(slot, bodies=1_500) for slot in (0, 1)]
    for slot in (0, 1):
        write_ring(published.path, RUN, large[slot], slot=slot)
    watch(client, 0, 1)
    beginning = os.read(client.inn, 1)
    wait_for(lambda: client.server._waiting and client.server._live._showing._number == 1, "a line that is stuck")
    publish_one(published, 1, 2)
    client.send(protocol.SeenLive(number=1))
    client.ahead_s += 12.0  # whatever is looked at now and then is due
    client.frames += client.decoder.feed(beginning)
    first, policy, *_, second = order(client, protocol.LiveBatch) + order(client, protocol.LiveBatch)
    assert isinstance(policy.message, protocol.Offered)
    assert "000000002" in policy.message.files[0].path
    assert {grown(first.payload), grown(second.payload)} == set(large)


@given(st.sampled_from((POSE, JPEG, FACTS)), st.binary(max_size=4096))
def test_what_is_packed_comes_back(kind: int, payload: bytes) -> None:
    assert grown(shrunk(Cell(1, kind, payload))) == payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        zlib.compress(bytes(MAX_PAYLOAD_BYTES + 1)),
        zlib.compress(bytes(100 * MAX_PAYLOAD_BYTES)),
        zlib.compress(b"cut off")[:-1],
        zlib.compress(b"with more") + b"!",
    ],
    ids=["nothing", "a byte too many", "a bomb", "torn", "more behind it"],
)
def test_what_is_no_cell_is_no_batch(payload: bytes) -> None:
    assert grown(payload) == b""

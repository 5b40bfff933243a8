"""The client over a scripted other side: what it fetches and sends, when it comes back, and when it gives up."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policies import RUN, publish_one

from syncd import outbox
from syncd.errors import (
    GoneError,
    HostKeyError,
    LoginRefusedError,
    RemoteError,
    SyncError,
    UnreachableError,
)
from syncd.laptop.backoff import DISK_RETRY_S
from syncd.laptop.client import Client, Wishes, sync_once
from syncd.laptop.exchange import Exchange
from syncd.laptop.mirror import Mirror
from syncd.laptop.status import StatusWriter, read_status
from syncd.outbox import Outbox, read_contributions
from syncd.store import Shared, versions
from syncd.wire.arrivals import ConnectionFacts, News, Offer, Receipt
from syncd.wire.protocol import Frame, Message, SegmentVerdict

NOW = 1_790_000_000.0


def away(sentence: str = "it broke") -> UnreachableError:
    return UnreachableError("peer.ends-for-now", sentence=sentence)


def gone() -> GoneError:
    return GoneError("file.gone", path="x")


class Over(BaseException):
    """The script is played."""


@dataclass
class World:
    """Two clocks, which only sleeps and waits move."""

    wall_s: float = NOW
    monotonic_s: float = 50.0
    slept: list[float] = field(default_factory=list)

    def pass_s(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_s(seconds)


Step = News | BaseException | Callable[[], News]


class Scripted:
    """A transport to a folder of this disk that plays one step at each `wait`."""

    name = "openssh"
    tick: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, shared: Shared, world: World, steps: Sequence[Step] = ()) -> None:
        self.shared, self.world, self.steps = shared, world, list(steps)
        self.received: list[str] = []
        self.judged: list[str] = []
        self.receipts: Callable[[str], Receipt] = lambda _: Receipt(True)
        self.fetched: list[str] = []
        self.listings = 0
        self.closed = 0
        self.fetch_errors: list[BaseException] = []

    def news(self) -> News:
        """What a pushed transport lists."""
        offers = []
        for place in self.shared.slots():
            path = place.manifest(versions(place)[-1])
            data = path.read_bytes()
            name = path.relative_to(self.shared.path).as_posix()
            offers.append(Offer(name, len(data), hashlib.sha256(data).hexdigest(), "manifest"))
        return News(tuple(offers))

    def listing(self) -> News:
        self.listings += 1
        return self.news()

    def wait(self, timeout_s: float) -> News:
        step = self.steps.pop(0) if self.steps else Over()
        if isinstance(step, BaseException):
            raise step
        self.world.pass_s(timeout_s)
        return step if isinstance(step, News) else step()

    def take_live(self) -> list[Frame]:
        return []

    def say(self, message: Message) -> None:
        """Nobody watches."""

    def counted(self, verdicts: Sequence[SegmentVerdict]) -> None:
        self.judged += [verdict.sha256 for verdict in verdicts]

    def fetch(self, offer: Offer, part: Path) -> None:
        self.fetched.append(offer.path)
        if self.fetch_errors:
            raise self.fetch_errors.pop(0)
        part.write_bytes((self.shared.path / offer.path).read_bytes())

    def send(self, segments: Sequence[tuple[Path, str, int]]) -> list[Receipt]:
        receipts = [self.receipts(path.name) for path, _, _ in segments]
        self.received += [path.name for (path, _, _), receipt in zip(segments, receipts, strict=True) if receipt.stored]
        return receipts

    def facts(self) -> ConnectionFacts:
        return ConnectionFacts(bytes_in=100, bytes_out=10, rtt_s=0.02, clock_offset_s=0.0, contributor="anna", logins=1)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path / "shared")


class Run:
    """A client whose connections are scripted, one after the other: transports, or errors of connecting."""

    def __init__(
        self, folder: Path, world: World, connections: Sequence[Scripted | SyncError], **wishes: float
    ) -> None:
        self.folder, self.world = folder, world
        self.connections = list(connections)
        self.tries: list[float] = []
        self.said: list[str] = []
        self.writer = StatusWriter(folder, "cluster:/x", pull=True, push=True, clock=lambda: world.wall_s)
        self.client = Client(
            folder,
            self.connect,
            self.writer,
            Wishes(**wishes),  # type: ignore[arg-type]
            say=self.said.append,
            wall=lambda: world.wall_s,
            monotonic=lambda: world.monotonic_s,
            sleep=world.sleep,
            chance=lambda: 0.5,
        )

    def connect(self) -> Scripted:
        self.tries.append(self.world.monotonic_s)
        if not self.connections:
            raise Over
        found = self.connections.pop(0)
        if isinstance(found, SyncError):
            raise found
        return found

    def to_the_end(self) -> None:
        with pytest.raises(Over):
            self.client.watch()


def fill(folder: Path, count: int) -> list[str]:
    box = Outbox(folder)
    for k in range(count):
        assert box.offer(RUN, 0, f"segment {k}".encode())
    return [each.path.name for each in box.waiting()]


def test_one_pass_fetches_what_is_new_and_sends_what_waits(tmp_path: Path, shared: Shared, world: World) -> None:
    publish_one(shared, 1, 1)
    publish_one(shared, 1, 2, slot=1)
    folder = tmp_path / "mirror"
    names = fill(folder, 70)
    transport = Scripted(shared, world)
    counts = sync_once(transport, folder, Wishes())
    assert len(counts.policies) == counts.offered == 2
    assert transport.received == names
    assert Outbox(folder).count() == 0
    assert read_contributions(folder).sent == 70
    assert sync_once(Scripted(shared, world), folder, Wishes()).moved == 0


@pytest.mark.parametrize("publishes", [True, False])
def test_what_is_always_gone_is_a_trouble_unless_newer_files_came(
    tmp_path: Path, shared: Shared, world: World, publishes: bool
) -> None:
    """A publisher that is faster than the line overtakes every fetch."""

    class Overtaken(Scripted):
        def listing(self) -> News:
            if publishes:
                publish_one(shared, 1, self.listings + 1, slot=1)
            return super().listing()

        def fetch(self, offer: Offer, part: Path) -> None:
            if "/0/" in offer.path:
                raise gone()
            super().fetch(offer, part)

    publish_one(shared, 1, 1)
    counts = sync_once(Overtaken(shared, world), tmp_path / "mirror", Wishes())
    assert (len(counts.policies), len(counts.troubles)) == ((5, 0) if publishes else (0, 1))


@pytest.mark.parametrize(
    ("receipt", "stays", "counted"),
    [
        (Receipt(False, "size"), False, {"size": 1}),
        (Receipt(False, "quota", 30.0), True, {}),
        (Receipt(False, "dropped"), True, {}),
        (Receipt(False, "no inbox"), True, {}),
        (Receipt(False, "no inbox", 60.0, "slot 0 takes nothing from other accounts"), True, {}),
        (Receipt(False, "unreadable", 10.0, "Input/output error"), True, {}),
    ],
)
def test_a_refusal_is_told_and_loses_nothing(
    tmp_path: Path, shared: Shared, world: World, receipt: Receipt, stays: bool, counted: dict[str, int]
) -> None:
    folder = tmp_path / "mirror"
    [first, second] = fill(folder, 2)
    transport = Scripted(shared, world)
    transport.receipts = lambda name: receipt if name == first else Receipt(True)
    said: list[str] = []
    counts = sync_once(transport, folder, Wishes(), say=said.append)
    assert transport.received == [second]
    assert [each.path.name for each in Outbox(folder).waiting()] == ([first] if stays else [])
    assert (folder / "outbox" / "refused" / first).exists() is not stays
    assert read_contributions(folder).refused == counted
    assert len(counts.troubles) == len(said) == stays


def test_while_the_other_side_is_away_tries_grow_apart_and_one_line_is_said(tmp_path: Path, world: World) -> None:
    run = Run(tmp_path / "mirror", world, [away("no way")] * 12)
    run.to_the_end()
    gaps = [round(after - before, 3) for before, after in zip(run.tries, run.tries[1:], strict=False)]
    assert gaps[:4] == [0.5, 0.8, 1.28, 2.048]
    assert gaps[-1] == 30.0
    assert run.said == ["offline: no way; trying again"]
    word = read_status(tmp_path / "mirror")
    assert word is not None
    assert (word.state, word.error) == ("stopped", "no way")


@pytest.mark.parametrize(
    "error",
    [
        HostKeyError("host.declined"),
        LoginRefusedError("login.refused", account="me"),
        RemoteError("survey.no-shell"),
    ],
)
def test_what_a_person_must_mend_is_tried_once(tmp_path: Path, world: World, error: SyncError) -> None:
    run = Run(tmp_path / "mirror", world, [error])
    with pytest.raises(type(error)):
        run.client.watch()
    assert len(run.tries) == 1
    assert world.slept == []


def test_one_that_served_before_may_be_broken_for_a_while(tmp_path: Path, shared: Shared, world: World) -> None:
    publish_one(shared, 1, 1)
    live = Scripted(shared, world, [News(), away()])
    run = Run(tmp_path / "mirror", world, [live, RemoteError("survey.no-shell"), Scripted(shared, world)])
    run.to_the_end()
    assert len(run.tries) == 3
    assert live.closed == 1


def failing(number: int, path: Path) -> Callable[..., None]:
    def fail(*_args: object, **_words: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    return fail


class Flaky(Scripted):
    """Takes some segments of a batch, then breaks before it has said so, or after."""

    def __init__(self, shared: Shared, world: World, taken: int, confirmed: bool) -> None:
        super().__init__(shared, world, [away()])
        self.taken, self.confirmed = taken, confirmed

    def send(self, segments: Sequence[tuple[Path, str, int]]) -> list[Receipt]:
        self.received += [path.name for path, _, _ in segments[: self.taken]]
        if self.confirmed and self.taken >= len(segments):
            return [Receipt(True)] * len(segments)
        raise away()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=6), st.integers(0, 60))
def test_however_often_the_line_breaks_every_segment_arrives(
    tmp_path_factory: pytest.TempPathFactory, breaks: list[tuple[int, bool]], count: int
) -> None:
    folder = tmp_path_factory.mktemp("flaky")
    world, shared = World(), Shared(folder / "shared")
    names = fill(folder / "mirror", count)
    connections: list[Scripted] = [Flaky(shared, world, *each) for each in breaks]
    last = Scripted(shared, world, [News()] * 4)
    run = Run(folder / "mirror", world, [*connections, last])
    run.to_the_end()
    arrived = [name for each in [*connections, last] for name in each.received]
    assert set(arrived) == set(names)
    assert Outbox(folder / "mirror").count() == 0
    assert read_contributions(folder / "mirror").sent == count


def test_verdicts_that_a_full_disk_did_not_count_are_listed_again(
    tmp_path: Path, shared: Shared, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the other side keeps them: what is acknowledged is deleted over there."""
    folder = tmp_path / "mirror"
    [sent] = fill(folder, 1)
    transport = Scripted(shared, world)
    exchange = Exchange(transport, Mirror(folder), Outbox(folder), patient=True, monotonic=lambda: world.monotonic_s)
    exchange.send_some()
    told = News(verdicts=(SegmentVerdict(sha256=sent, accepted=True, reason=""),))
    with monkeypatch.context() as full:
        full.setattr(outbox, "write_json", failing(errno.ENOSPC, folder / "state"))
        exchange.take(told, announced=True)
        assert (transport.judged, exchange.counts.accepted, read_contributions(folder).accepted) == ([], 0, 0)
        assert not exchange.must_list()
        world.pass_s(DISK_RETRY_S)
        assert exchange.must_list()
        exchange.take(told, announced=False)
        assert transport.judged == []
    world.pass_s(DISK_RETRY_S)
    assert exchange.must_list()
    exchange.take(told, announced=False)
    assert (transport.judged, exchange.counts.accepted, read_contributions(folder).accepted) == ([sent], 1, 1)
    assert not exchange.something_was_gone


def test_latency_counts_only_what_was_announced(tmp_path: Path, shared: Shared, world: World) -> None:
    publish_one(shared, 1, 1, created_at=NOW - 5000)

    def publish() -> News:
        publish_one(shared, 1, 2, created_at=world.wall_s - 0.4)
        return transport.news()

    transport = Scripted(shared, world, [publish, News()])
    run = Run(tmp_path / "mirror", world, [transport])
    run.to_the_end()
    latency = run.writer.status.latency
    assert (run.writer.status.policies, latency.count) == (2, 1)
    assert latency.quantile(0.5) == pytest.approx(0.4, abs=0.01)

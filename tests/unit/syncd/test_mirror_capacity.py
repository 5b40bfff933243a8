"""A mirror's limits: what is beyond them is passed over and said, what is here stays, and the rest goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from policies import RUN, publish_one
from refused import refused

from syncd.errors import NoRoomError
from syncd.laptop.capacity import MAX_BYTES, MAX_CURVE_BYTES, RECOUNT_S, Capacity, CapacityLimits
from syncd.laptop.exchange import Exchange
from syncd.laptop.mirror import Mirror
from syncd.outbox import Outbox
from syncd.store import Shared, newest, versions, write_metrics
from syncd.wire.transport import MAX_CURVES_BYTES, News, Offer


class Server:
    """A folder that is listed, and fetched from."""

    def __init__(self, folder: Path) -> None:
        self.shared = Shared(folder)

    def listing(self) -> News:
        found = []
        for place in self.shared.slots():
            if known := versions(place):
                found.append(self._offer(place.manifest(known[-1]), "manifest"))
            if place.metrics.exists():
                found += [self._offer(path, "metrics") for path in sorted(place.metrics.iterdir())]
        return News(tuple(found))

    def _offer(self, path: Path, kind: str) -> Offer:
        return Offer(path.relative_to(self.shared.path).as_posix(), path.stat().st_size, None, kind)  # type: ignore[arg-type]

    def fetch(self, offer: Offer, part: Path) -> None:
        part.write_bytes((self.shared.path / offer.path).read_bytes())


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "shared")


def mirrored(server: Server, folder: Path, limits: CapacityLimits) -> list[str]:
    """Fetch all that is on offer; returns what was said."""
    mirror = Mirror(folder, limits=limits)
    exchange = Exchange(server, mirror, Outbox(folder), push=False)  # type: ignore[arg-type]
    exchange.take(server.listing(), announced=False)
    while exchange.wants:
        exchange.fetch_one()
    return exchange.counts.troubles


def runs_in(folder: Path) -> list[str]:
    return sorted({place.run_id for place in Shared(folder).slots() if newest(place) is not None})


def test_so_many_runs_and_no_more(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    for number in range(5):
        publish_one(server.shared, 1, 1, run=f"demo-{number}")
    [said] = mirrored(server, folder, CapacityLimits(runs=3))
    assert said.startswith("the mirror has 3 runs, which is the most: no other run is fetched; delete")
    assert runs_in(folder) == ["demo-0", "demo-1", "demo-2"]
    publish_one(server.shared, 1, 2, run="demo-1")
    publish_one(server.shared, 1, 2, run="demo-4")
    assert len(mirrored(server, folder, CapacityLimits(runs=3))) == 1
    assert runs_in(folder) == ["demo-0", "demo-1", "demo-2"]
    found = newest(Shared(folder).slot("demo-1", 0))
    assert found is not None
    assert str(found.version) == "1-2", "what is here goes on"
    shutil.rmtree(Shared(folder).runs / "demo-0")
    mirrored(server, folder, CapacityLimits(runs=3))
    assert len(runs_in(folder)) == 3, "room that was made is used"


def test_so_many_slots_and_no_more(server: Server, tmp_path: Path) -> None:
    for slot in range(5):
        publish_one(server.shared, 1, 1, slot=slot)
    [said] = mirrored(server, tmp_path / "mirror", CapacityLimits(slots=2))
    assert said.startswith("the mirror has 2 slots, which is the most: no other slot is fetched")
    assert [place.slot for place in Shared(tmp_path / "mirror").slots()] == [0, 1]


def test_so_many_bytes_of_a_slots_curves_and_no_more(server: Server, tmp_path: Path) -> None:
    place = server.shared.slot(RUN, 0)
    write_metrics(place, "train", [{"step": k, "words": "x" * 10_000} for k in range(1_000)])
    publish_one(server.shared, 1, 1, slot=1)
    write_metrics(server.shared.slot(RUN, 1), "train", [{"step": 1}])
    folder = tmp_path / "mirror"
    [said] = mirrored(server, folder, CapacityLimits(curve_bytes=3 * 2**20))
    assert said == "a slot has 3 MiB of curves, which is the most: further parts are left out"
    held = [path.stat().st_size for path in Shared(folder).slot(RUN, 0).metrics.iterdir()]
    assert 2 * 2**20 <= sum(held) <= 3 * 2**20
    assert runs_in(folder) == [RUN]
    assert len(list(Shared(folder).slot(RUN, 1).metrics.iterdir())) == 1, "the next slot's come"


def test_so_many_bytes_of_all_curves_and_then_policies_alone(server: Server, tmp_path: Path) -> None:
    """A mirror whose whole room curves could take would have none for the next policy."""
    for slot in range(6):
        publish_one(server.shared, 1, 1, slot=slot)
        write_metrics(server.shared.slot(RUN, slot), "train", [{"step": k, "words": "x" * 1_000} for k in range(100)])
    folder = tmp_path / "mirror"
    limits = CapacityLimits(curves_bytes=350 * 1024)
    [said] = mirrored(server, folder, limits)
    assert said.startswith("the mirror has 350 KiB of curves, which is the most: no further part of one is fetched")
    slots = Shared(folder).slots()
    assert [(place.metrics / "train-000000.jsonl").exists() for place in slots] == [True] * 3 + [False] * 3
    for slot in range(6):
        publish_one(server.shared, 1, 2, slot=slot)
    mirrored(server, folder, limits)
    assert [str(found.version) for place in slots if (found := newest(place)) is not None] == ["1-2"] * 6


def test_the_whole_curve_of_the_longest_training_has_room(tmp_path: Path) -> None:
    """100,000 rows of MT50, and the policies of as many slots as there may be beside all curves."""
    shared = Shared(tmp_path)
    place = shared.slot(RUN, 0)
    place.metrics.mkdir(parents=True)
    (place.metrics / "metrics-000000.jsonl").touch()
    os.truncate(place.metrics / "metrics-000000.jsonl", 99_000 * 6_400)
    Capacity(shared, tmp_path / "part").check_curve(place, "metrics-000001.jsonl", 128 * 6_400)
    assert MAX_CURVE_BYTES <= MAX_CURVES_BYTES <= MAX_BYTES // 2


@pytest.mark.parametrize("limits", [CapacityLimits(files=12), CapacityLimits(bytes=12_000)])
def test_so_much_in_all_and_no_more(server: Server, tmp_path: Path, limits: CapacityLimits) -> None:
    for slot in range(8):
        publish_one(server.shared, 1, 1, slot=slot)
    [said] = mirrored(server, tmp_path / "mirror", limits)
    assert "which is the most: nothing more is fetched" in said
    held = [path for path in (tmp_path / "mirror" / "v1").rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in held) <= 16_000
    assert len(held) <= 16
    found = [place for place in Shared(tmp_path / "mirror").slots() if newest(place) is not None]
    assert 1 < len(found) < 8


def test_a_disk_that_is_nearly_full_is_left_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_one(server.shared, 1, 1)
    with monkeypatch.context() as patch:
        patch.setattr("syncd.shared.disk.FREE_SHARE", 1.0)
        patch.setattr("syncd.shared.disk.FREE_BYTES", 2**80)
        with refused("mirror.disk-full"):
            mirrored(server, tmp_path / "mirror", CapacityLimits())
    assert runs_in(tmp_path / "mirror") == []
    assert mirrored(server, tmp_path / "mirror", CapacityLimits()) == []
    assert runs_in(tmp_path / "mirror") == [RUN]


def test_room_that_the_user_made_is_seen_a_minute_later(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    now = 1000.0
    room = Capacity(shared, tmp_path / "part", CapacityLimits(runs=1), monotonic=lambda: now)
    publish_one(shared, 1, 1, run="old")
    with pytest.raises(NoRoomError):
        room.check_slot(shared.slot("new", 0))
    shutil.rmtree(shared.runs / "old")
    with pytest.raises(NoRoomError):
        room.check_slot(shared.slot("new", 0))
    now += RECOUNT_S
    room.check_slot(shared.slot("new", 0))


def test_contributors_agents_are_counted_with_the_slot_that_they_play(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    for who, slot in (("ben", 0), ("anna", 0), ("ben", 7)):
        folder = shared.inbox_folder / who / "live" / RUN / str(slot)
        folder.mkdir(parents=True)
        (folder / "any.ring").write_bytes(bytes(1_000))
    (shared.inbox_folder / "ben" / "live" / RUN / "no slot").mkdir()
    publish_one(shared, 1, 1)
    before = Capacity(shared, tmp_path / "part", CapacityLimits(bytes=12_000))
    before.check_live(shared.slot(RUN, 0), 1_000)
    (shared.inbox_folder / "ben" / "live" / RUN / "0" / "x.scene").write_bytes(bytes(9_000))
    after = Capacity(shared, tmp_path / "part", CapacityLimits(bytes=12_000))
    for room in (before, after):
        room.changed(shared.slot(RUN, 0))
        with pytest.raises(NoRoomError, match="nothing more is fetched"):
            room.check_live(shared.slot(RUN, 7), 1_000)

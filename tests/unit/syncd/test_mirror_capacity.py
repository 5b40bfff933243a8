"""A mirror's limits: what is beyond them is passed over and said, what is here stays, and the rest goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from policies import publish_one
from refused import refused

from syncd.errors import NoRoomError
from syncd.laptop.capacity import RECOUNT_S, Capacity, CapacityLimits
from syncd.laptop.exchange import Exchange
from syncd.laptop.mirror import Mirror
from syncd.outbox import Outbox
from syncd.store import Shared, newest, versions
from syncd.wire.arrivals import News, Offer


class Server:
    """A folder that is listed, and fetched from."""

    def __init__(self, folder: Path) -> None:
        self.shared = Shared(folder)

    def listing(self) -> News:
        paths = [place.manifest(versions(place)[-1]) for place in self.shared.slots()]
        return News(tuple(Offer(self._name(path), path.stat().st_size, None, "manifest") for path in paths))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.shared.path).as_posix()

    def fetch(self, offer: Offer, part: Path) -> None:
        part.write_bytes((self.shared.path / offer.path).read_bytes())


@pytest.fixture
def server(tmp_path: Path) -> Server:
    server = Server(tmp_path / "shared")
    for slot in range(8):
        publish_one(server.shared, 1, 1, slot=slot)
    return server


def mirrored(server: Server, folder: Path, limits: CapacityLimits) -> list[str]:
    """Fetch all that is on offer; returns what was said."""
    mirror = Mirror(folder, limits=limits)
    exchange = Exchange(server, mirror, Outbox(folder), push=False)  # type: ignore[arg-type]
    exchange.take(server.listing(), announced=False)
    while exchange.wants:
        exchange.fetch_one()
    return exchange.counts.troubles


def here(folder: Path) -> list[str]:
    found = {place.slot: newest(place) for place in Shared(folder).slots()}
    return [f"{slot}: {manifest.version}" for slot, manifest in found.items() if manifest is not None]


def test_so_many_slots_and_no_more(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    [said] = mirrored(server, folder, CapacityLimits(slots=2))
    assert said.startswith("the mirror has reached its limit of 2 slots")
    publish_one(server.shared, 1, 2, slot=1)
    mirrored(server, folder, CapacityLimits(slots=2))
    assert here(folder) == ["0: 1-1", "1: 1-2"], "what is here goes on"
    shutil.rmtree(Shared(folder).slots()[0].path)
    mirrored(server, folder, CapacityLimits(slots=2))
    assert len(here(folder)) == 2, "room that was made is used"


@pytest.mark.parametrize("limits", [CapacityLimits(files=12), CapacityLimits(bytes=12_000)])
def test_so_much_in_all_and_no_more(server: Server, tmp_path: Path, limits: CapacityLimits) -> None:
    [said] = mirrored(server, tmp_path / "mirror", limits)
    assert "so nothing more is fetched" in said
    held = [path for path in (tmp_path / "mirror" / "v1").rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in held) <= 16_000
    assert len(held) <= 18  # of a policy also the hint, which is counted the next time
    assert 1 < len(here(tmp_path / "mirror")) < 8


def test_a_disk_that_is_nearly_full_is_left_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("syncd.shared.layout.FREE_SHARE", 1.0)
        patch.setattr("syncd.shared.layout.FREE_BYTES", 2**80)
        with refused("mirror.disk-full"):
            mirrored(server, tmp_path / "mirror", CapacityLimits())
    assert here(tmp_path / "mirror") == []
    assert mirrored(server, tmp_path / "mirror", CapacityLimits()) == []
    assert len(here(tmp_path / "mirror")) == 8


def test_room_that_the_user_made_is_seen_a_minute_later(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    now = 1000.0
    room = Capacity(shared, tmp_path / "part", CapacityLimits(slots=1), monotonic=lambda: now)
    publish_one(shared, 1, 1, run="old")
    for _ in range(2):
        with pytest.raises(NoRoomError):
            room.check_slot(shared.slot("new", 0))
        shutil.rmtree(shared.runs / "old", ignore_errors=True)
    now += RECOUNT_S
    room.check_slot(shared.slot("new", 0))

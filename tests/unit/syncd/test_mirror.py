"""What a laptop lets in: whole policies only, in an order that no kill can spoil; what is bad stays out for good."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policies import RUN, a_draft, publish_one, tensors
from refused import refused

from syncd.errors import DamagedPolicyError, StorageError
from syncd.laptop.mirror import FETCHES, Mirror
from syncd.shared import codec
from syncd.shared.manifest import MAX_MANIFEST_BYTES, Blob, Manifest
from syncd.store import Shared, Version, newest, packed, publish, read, read_metrics, versions, write_metrics
from syncd.wire.arrivals import Offer

NOW = 1_790_000_000.0


class Server:
    """The other side as a folder, whose files can be swapped on their way."""

    def __init__(self, folder: Path) -> None:
        self.shared = Shared(folder)
        self.swapped: dict[str, bytes] = {}
        self.fetched: list[str] = []

    def offers(self) -> list[Offer]:
        """The newest manifest of each slot and all metrics, as a pushed transport offers them."""
        found = []
        for place in (each for slot in self.shared.slots() for each in (slot, slot.averaged)):
            paths = [place.manifest(versions(place)[-1])] if versions(place) else []
            paths += sorted(place.metrics.iterdir()) if place.metrics.exists() else []
            for path in paths:
                kind = "manifest" if path.parent == place.manifests else "metrics"
                data = path.read_bytes()
                found.append(self.offer(path, data, kind))
        return found

    def offer(self, path: Path, data: bytes, kind: str) -> Offer:
        name = path.relative_to(self.shared.path).as_posix()
        return Offer(name, len(data), hashlib.sha256(data).hexdigest(), kind)  # type: ignore[arg-type]

    def fetch(self, offer: Offer, part: Path) -> None:
        self.fetched.append(offer.path)
        path = self.shared.path / offer.path
        part.write_bytes(self.swapped.get(offer.path, path.read_bytes() if path.exists() else b""))

    def plant(self, manifest: Manifest, blob: bytes) -> Offer:
        """A policy as no honest publisher makes it; returns its manifest's offer."""
        place = self.shared.slot(manifest.run_id, manifest.slot)
        sealed = manifest.sealed().to_bytes()
        for path, data in ((place.manifest(manifest.version), sealed), (place.blob(manifest.blob.sha256), blob)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return self.offer(place.manifest(manifest.version), sealed, "manifest")


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "shared")


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path / "mirror")


def bring_all(mirror: Mirror, server: Server) -> int:
    wanted = mirror.wanted(server.offers(), changed=False)
    for offer in wanted:
        mirror.bring(offer, server.fetch)
    return len(wanted)


def files_of(mirror: Mirror) -> set[str]:
    runs = mirror.shared.runs
    return {str(path.relative_to(runs)) for path in runs.rglob("*") if path.is_file()}


def test_a_published_policy_becomes_readable_and_is_not_fetched_twice(server: Server, mirror: Mirror) -> None:
    publish_one(server.shared, 1, 1)
    publish_one(server.shared, 1, 2)
    publish_one(server.shared, 3, 1, slot=4)
    assert bring_all(mirror, server) == 2
    place = mirror.shared.slot(RUN, 0)
    found = newest(place)
    assert found is not None
    assert found.version == Version(1, 2)
    np.testing.assert_array_equal(read(place, found)["out.bias"], codec.rounded(tensors(1002))["out.bias"])
    assert newest(mirror.shared.slot(RUN, 4)) is not None
    assert bring_all(mirror, server) == 0
    assert list((mirror.folder / "part").iterdir()) == []


def test_averaged_policies_lie_beside_the_others_which_nobody_meets_by_chance(server: Server, mirror: Mirror) -> None:
    publish_one(server.shared, 1, 1)
    for seq in range(1, 6):
        publish_one(server.shared, 1, seq, averaged=True)
        bring_all(mirror, server)
    place = mirror.shared.slot(RUN, 0)
    assert versions(place) == [Version(1, 1)]
    assert versions(place.averaged) == [Version(1, 3), Version(1, 4), Version(1, 5)]
    found = newest(place.averaged)
    assert found is not None
    np.testing.assert_array_equal(read(place.averaged, found)["out.bias"], codec.rounded(tensors(1005))["out.bias"])
    assert [each.path for each in mirror.shared.slots()] == [place.path]
    assert bring_all(mirror, server) == 0
    (place.averaged.path / ".x.tmp").write_text("")
    mirror.tidy()
    assert not (place.averaged.path / ".x.tmp").exists()


def test_an_encoder_crosses_the_line_once_for_both(server: Server, mirror: Mirror) -> None:
    slot, encoder = server.shared.slot(RUN, 0), packed(codec.rounded(tensors(7)))
    for place in (slot, slot.averaged):
        publish(place, a_draft(place, 1, 1), codec.rounded(tensors(1)), encoder=encoder)
    here, there = (each.slot(RUN, 0) for each in (mirror.shared, server.shared))
    sha256 = encoder.blob.sha256
    assert there.blob(sha256).samefile(there.averaged.blob(sha256))
    assert bring_all(mirror, server) == 2
    assert sum(sha256 in path for path in server.fetched) == 1
    assert here.blob(sha256).samefile(here.averaged.blob(sha256))


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_the_bytes_only_whole_policies_become_visible(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    server, mirror = Server(folder / "shared"), Mirror(folder / "mirror")
    good = publish_one(server.shared, 1, 1, created_at=NOW)
    bring_all(mirror, server)
    before = files_of(mirror)
    manifest = publish_one(server.shared, 1, 2, created_at=NOW)
    place = server.shared.slot(RUN, 0)
    victim = data.draw(st.sampled_from([place.manifest(manifest.version), place.blob(manifest.blob.sha256)]))
    content = victim.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    change = data.draw(st.sampled_from(["cut", "flip", "grow", "swap"]))
    if change == "cut":
        damaged = content[:cut]
    elif change == "flip":
        at = min(cut, len(content) - 1)
        damaged = content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
    elif change == "grow":
        damaged = content + data.draw(st.binary(min_size=1, max_size=9))
    else:
        damaged = data.draw(st.binary(max_size=200))
    offers = server.offers()
    if damaged == content:
        return
    server.swapped[victim.relative_to(server.shared.path).as_posix()] = damaged
    wanted = mirror.wanted(offers, changed=True)
    assert len(wanted) == 1
    with refused("policy.left-out", policy="demo-0123abcd/0 1-2"):
        mirror.bring(wanted[0], server.fetch)
    assert files_of(mirror) == before
    assert newest(mirror.shared.slot(RUN, 0)) == good
    assert len([path for path in server.fetched if path.endswith(victim.name)]) == FETCHES
    assert mirror.wanted(offers, changed=True) == mirror.wanted(offers, changed=False) == []
    server.swapped.clear()
    publish_one(server.shared, 1, 3)
    assert bring_all(mirror, server) == 1


def changed_blob(manifest: Manifest, data: bytes, **more: object) -> Manifest:
    fields = manifest.blob.model_dump() | {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} | more
    return manifest.model_copy(update={"seq": 2, "blob": Blob.model_validate(fields)})


def a_bomb(shapes: dict[str, tuple[int, ...]]) -> bytes:
    import zstandard

    table = json.dumps([[n, list(shapes[n])] for n in sorted(shapes)], separators=(",", ":")).encode()
    return b"ANCHPOL1" + len(table).to_bytes(4, "big") + table + zstandard.compress(b"\0" * 50_000_000)


def poisoned(manifest: Manifest) -> bytes:
    """Right in everything but one number, which is infinite."""
    import zstandard

    shapes = manifest.blob.tensors
    table = json.dumps([[n, list(shapes[n])] for n in sorted(shapes)], separators=(",", ":")).encode()
    half = manifest.blob.raw_bytes // 2
    planes = b"\x7f" + b"\0" * (half - 1) + b"\x80" + b"\0" * (half - 1)
    return b"ANCHPOL1" + len(table).to_bytes(4, "big") + table + zstandard.compress(planes)


def hostile(name: str, server: Server) -> Offer:
    """A policy whose sums are all right, and which must not be let in."""
    manifest = publish_one(server.shared, 1, 1, slot=9)
    shapes = dict(manifest.blob.tensors)
    blob = server.shared.slot(RUN, 9).blob(manifest.blob.sha256).read_bytes()
    match name:
        case "a bomb":
            return server.plant(changed_blob(manifest, a_bomb(shapes)), a_bomb(shapes))
        case "an infinite weight":
            return server.plant(changed_blob(manifest, poisoned(manifest)), poisoned(manifest))
        case "other tensors":
            other = codec.encode(
                codec.rounded({"hidden.weight": np.zeros((16, 39), np.float32), "evil": np.zeros(8, np.float32)})
            )
            return server.plant(changed_blob(manifest, other), other)
        case "another encoding":
            return server.plant(changed_blob(manifest, blob, encoding="pickle"), blob)
        case "another slot's manifest":
            data = manifest.to_bytes()
            path = server.shared.slot(RUN, 8).manifest(manifest.version)
            path.parent.mkdir(parents=True)
            path.write_bytes(data)
            copy = server.shared.slot(RUN, 8).blob(manifest.blob.sha256)
            copy.parent.mkdir(parents=True)
            copy.write_bytes(blob)
            return server.offer(path, data, "manifest")
        case "a huge manifest":
            path = server.shared.slot(RUN, 8).manifest(manifest.version)
            return Offer(path.relative_to(server.shared.path).as_posix(), MAX_MANIFEST_BYTES + 1, "a" * 64, "manifest")
    raise AssertionError(name)


@pytest.mark.parametrize(
    "name",
    ["a bomb", "an infinite weight", "other tensors", "another encoding", "another slot's manifest", "a huge manifest"],
)
def test_a_bad_servers_policy_is_left_out_once_and_for_all(server: Server, mirror: Mirror, name: str) -> None:
    offer = hostile(name, server)
    [wanted] = mirror.wanted([offer], changed=True)
    with pytest.raises(DamagedPolicyError):
        mirror.bring(wanted, server.fetch)
    assert files_of(mirror) == set()
    assert mirror.wanted([offer], changed=True) == []


@pytest.mark.parametrize(
    "path",
    [
        "v1/runs/../../etc/0/manifests/000001-000000001.json",
        "/v1/runs/demo/0/manifests/000001-000000001.json",
        "v1/runs/demo/0/manifests/../../../../x",
        "v1/runs/demo/00/manifests/000001-000000001.json",
        "v1/runs/demo/0/manifests/000001-000000001.json\n",
        "v1/runs/.demo/0/manifests/000001-000000001.json",
        "v1/runs/demo/0/blobs/000001-000000001.json",
        "v1/inbox/demo/0/manifests/000001-000000001.json",
        "v1/runs/demo/0/LATEST.json",
        "v1/runs/demo/0/metrics/train.jsonl",
    ],
)
def test_paths_that_lead_elsewhere_are_never_wanted(mirror: Mirror, path: str) -> None:
    for kind in ("manifest", "metrics", "blob"):
        assert mirror.wanted([Offer(path, 10, None, kind)], changed=True) == []  # type: ignore[arg-type]


def test_curves_come_along_and_only_their_last_part_again(server: Server, mirror: Mirror) -> None:
    place = server.shared.slot(RUN, 0)
    rows = [{"step": k, "success": 0.5} for k in range(300)]
    write_metrics(place, "evaluations", rows)
    assert bring_all(mirror, server) == 3
    assert read_metrics(mirror.shared.slot(RUN, 0), "evaluations") == rows
    assert bring_all(mirror, server) == 0
    rows[-1] = {"step": 298, "success": 0.4}  # a slot that went back: as long as before
    write_metrics(place, "evaluations", rows)
    assert bring_all(mirror, server) == 1
    assert read_metrics(mirror.shared.slot(RUN, 0), "evaluations") == rows
    without_sums = [replace(offer, sha256=None) for offer in server.offers()]
    assert len(mirror.wanted(without_sums, changed=False)) == 1  # the last one may differ without having grown
    assert len(mirror.wanted(without_sums, changed=True)) == 3


@pytest.mark.parametrize("content", [b'{"a": 1}', b"[1]\n", b"{\n", b"\xff\n", b"[" * 100_000 + b"\n", b"{}\n" * 129])
def test_a_curve_that_is_none_is_left_out(server: Server, mirror: Mirror, content: bytes) -> None:
    path = server.shared.slot(RUN, 0).metrics / "train-000000.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(DamagedPolicyError):
        bring_all(mirror, server)
    assert files_of(mirror) == set()
    assert bring_all(mirror, server) == 0


def test_a_curve_that_changed_on_its_way_is_left_out(server: Server, mirror: Mirror) -> None:
    write_metrics(server.shared.slot(RUN, 0), "metrics", [{"step": 1}])
    [offer] = mirror.wanted(server.offers(), changed=True)
    server.swapped[offer.path] = b'{"step":2}\n'
    with refused("policy.left-out"):
        mirror.bring(offer, server.fetch)
    assert (files_of(mirror), len(server.fetched)) == (set(), FETCHES)


class Dead(BaseException):
    """A kill."""


def die_at(monkeypatch: pytest.MonkeyPatch, call: int, error: BaseException) -> Callable[[], int]:
    """From here on the `call`-th durable step raises; returns how many there were."""
    made = 0

    def guard(name: str) -> None:
        real = getattr(os, name)

        def step(*args: object, **more: object) -> object:
            nonlocal made
            made += 1
            if made == call:
                raise error
            return real(*args, **more)

        monkeypatch.setattr(os, name, step)

    for name in ("replace", "fsync", "link", "mkdir"):
        guard(name)
    return lambda: made


@pytest.mark.parametrize("error", [Dead(), OSError(errno.ENOSPC, "No space left on device")])
def test_at_every_step_of_an_acceptance_a_kill_or_a_full_disk_costs_nothing(
    tmp_path: Path, error: BaseException
) -> None:
    call, steps = 0, 1
    while call <= steps:
        call += 1
        server, mirror = Server(tmp_path / f"shared-{call}"), Mirror(tmp_path / f"mirror-{call}")
        first = publish_one(server.shared, 1, 1)
        bring_all(mirror, server)
        second = publish_one(server.shared, 1, 2)
        with pytest.MonkeyPatch.context() as patch:
            count = die_at(patch, call, error)
            with contextlib.suppress(Dead, StorageError):
                bring_all(mirror, server)
            steps = count()
        seen = newest(mirror.shared.slot(RUN, 0))
        assert seen in (first, second)
        assert seen is not None
        assert read(mirror.shared.slot(RUN, 0), seen)
        bring_all(mirror, server)
        assert newest(mirror.shared.slot(RUN, 0)) == second
    assert steps >= 8

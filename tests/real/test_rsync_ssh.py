"""What rsync's way has of its own: one login for many looks, no orphan, whole folders that go on where they broke."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from daemons import wait_for
from needs import need
from policies import publish_one
from sshd import Sshd

from syncd.errors import RemoteError, StorageError, TooMuchError, UnreachableError
from syncd.remote import Remote
from syncd.store import Shared, SlotPlace, Version
from syncd.transports import bringing, master, rsync
from syncd.transports.bulk import bring_tree, saved_there
from syncd.transports.rsync import RsyncTransport
from syncd.transports.runner import Runner
from syncd.wire.transport import Offer


@pytest.fixture
def remote(sshd: Sshd, tmp_path: Path) -> Remote:
    need("rsync", [] if shutil.which("rsync") else ["rsync"])
    laptop = sshd.new_client("anna")
    shared = Shared(tmp_path / "run" / "shared")
    publish_one(shared, 1, 1)
    return Remote(
        path=str(shared.path), host="127.0.0.1", user=sshd.user, port=sshd.port,
        key=laptop.key, known_hosts=laptop.known_hosts, ssh_config=laptop.config,
    )  # fmt: skip


def test_many_looks_are_one_login_and_nothing_stays(remote: Remote, sshd: Sshd):
    transport = RsyncTransport(remote, "anna")
    folder = transport._runner.folder
    for _ in range(4):
        assert transport.listing().offers
    transport.close()
    transport.close()
    assert sshd.logins() == 1
    assert not folder.exists()
    wait_for(lambda: not sshd.processes(), "the end of the session")
    with pytest.raises(UnreachableError):
        transport.listing()


def test_two_policies_of_one_second_are_told_apart(remote: Remote):
    """Their hints have the same size; rsync alone would take the second for the first."""
    shared = Shared(Path(remote.path))
    [place] = shared.slots()
    transport = RsyncTransport(remote, "anna")
    try:
        assert transport.listing().offers
        before = place.latest.stat()
        newer = publish_one(shared, 1, 2)
        assert place.latest.stat().st_size == before.st_size
        os.utime(place.latest, ns=(before.st_atime_ns, before.st_mtime_ns))
        offered = transport.listing().offers
    finally:
        transport.close()
    assert place.manifest(newer.version).name in {Path(offer.path).name for offer in offered}


def test_a_connection_keeps_no_files_of_what_was_overtaken(remote: Remote, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rsync, "LOOK_EVERY_S", 0)
    shared = Shared(Path(remote.path))
    [place] = shared.slots()
    verdicts = shared.inbox_folder / "anna" / "verdicts"
    verdicts.mkdir(parents=True)
    transport = RsyncTransport(remote, "anna")
    try:
        for seq in (2, 3):
            for old in verdicts.iterdir():
                old.unlink()
            (verdicts / f"{seq:064x}.json").write_text('{"accepted": true}')
            newest = publish_one(shared, 1, seq)
            news = transport.wait(0)
            assert [verdict.sha256 for verdict in news.verdicts] == [f"{seq:064x}"]
        kept = {file.name for file in transport._runner.folder.rglob("*.json")}
    finally:
        transport.close()
    assert kept == {place.latest.name, place.manifest(newest.version).name, f"{3:064x}.json"}


def test_a_connection_whose_owner_waits_for_its_next_round_stays(remote: Remote, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(master, "IDLE_S", 15)
    with closing(Runner(remote)) as runner:
        forgotten = master.Master(remote)

        def other_has_ended() -> bool:
            runner.beat()
            return not forgotten.is_alive()

        try:
            wait_for(other_has_ended, "the end of ssh of one that nobody keeps")
            assert runner.run([runner.there("")]).returncode == 0
        finally:
            forgotten.close()


def test_a_connection_whose_owner_was_killed_ends_by_itself(
    remote: Remote, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as hasty:
        hasty.setattr(master, "IDLE_S", 5)
        forgotten = master.Master(remote)
    try:
        assert forgotten.is_alive()
        wait_for(lambda: not sshd.processes(), "the end of the session")
        wait_for(lambda: not forgotten.is_alive(), "the end of ssh")
        # Not a shorter limit: that would clear away what other connections of this machine use.
        long_ago = time.time() - 2 * master.ABANDONED_S
        os.utime(forgotten.folder, (long_ago, long_ago))
        successor = master.Master(remote)
        assert not forgotten.folder.exists()
        successor.close()
    finally:
        forgotten.close()


def checkpoint(folder: Path) -> None:
    folder.mkdir(parents=True)
    files = {name: random.Random(name).randbytes(300_000) for name in ("nets.safetensors", "state.json")}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    records = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()}
    (folder / "manifest.json").write_text(json.dumps({"files": records}))


@pytest.fixture
def runner(remote: Remote, tmp_path: Path) -> Iterator[Runner]:
    """At the run folder."""
    runner = Runner(remote.model_copy(update={"path": str(tmp_path / "run")}))
    yield runner
    runner.close()


def test_a_checkpoint_goes_on_where_it_broke(runner: Runner, tmp_path: Path):
    there = tmp_path / "run" / "slots" / "0" / "attempts" / "1" / "checkpoints" / "500"
    checkpoint(there)
    arriving = tmp_path / "laptop" / "500.part"
    begun = arriving / ".part"
    begun.mkdir(parents=True)
    shutil.copyfile(there / "nets.safetensors", begun / "nets.safetensors")  # all of it came before the line broke
    assert bring_tree(runner, str(there), arriving)
    assert {path.name: path.read_bytes() for path in arriving.iterdir() if path.is_file()} == {
        path.name: path.read_bytes() for path in there.iterdir()
    }
    assert runner.bytes["received"] < 400_000
    assert not bring_tree(runner, str(there.with_name("501")), tmp_path / "laptop" / "501.part")


def test_the_checkpoints_of_a_run_are_found_by_one_login(runner: Runner, sshd: Sshd, tmp_path: Path):
    with pytest.raises(RemoteError, match="no checkpoints can be looked for"):
        saved_there(runner)
    slots = tmp_path / "run" / "slots"
    for name in ("1/attempts/0/checkpoints/500", "0/attempts/9/checkpoints/9000", "0/attempts/10/checkpoints/1000"):
        checkpoint(slots / name)
    checkpoint(slots / "0" / "attempts" / "10" / "checkpoints" / ".2000.unfinished")
    assert saved_there(runner) == {0: [(10, 1000), (9, 9000)], 1: [(0, 500)]}
    assert sshd.logins() == 1


def test_files_that_are_larger_than_any_of_ours_are_not_fetched(remote: Remote):
    shared = Shared(Path(remote.path))
    [place] = shared.slots()
    transport = RsyncTransport(remote, "anna")
    verdicts = shared.path / "v1" / "inbox" / "anna" / "verdicts"
    verdicts.mkdir(parents=True)
    place.metrics.mkdir()
    large = bytes(5 * 2**20)
    (verdicts / f"{'a' * 64}.json").write_bytes(large)
    (place.metrics / "train-000000.jsonl").write_bytes(large)
    other = shared.slot("other-00000000", 0)
    other.manifests.mkdir(parents=True)
    other.latest.write_text('{"attempt": 1, "seq": 1}')
    other.manifest(Version(1, 1)).write_bytes(large)
    try:
        offered = transport.listing()
        sizes = [path.stat().st_size for path in transport._runner.folder.rglob("*") if path.is_file()]
    finally:
        transport.close()
    assert {offer.path.split("/")[2] for offer in offered.offers} == {place.run_id}
    assert max(sizes) < 2**20


def test_a_tree_that_is_larger_than_any_of_ours_ends_the_connection(remote: Remote):
    for slot in range(1, 15):
        publish_one(Shared(Path(remote.path)), 1, 1, slot=slot)
    with (
        closing(RsyncTransport(remote, "anna", stage_files=20)) as transport,
        pytest.raises(TooMuchError, match="more than 20 files"),
    ):
        transport.listing()


def more_of_curves(place: SlotPlace, count: int) -> set[str]:
    """So many parts more, an hour old; the names of all."""
    place.metrics.mkdir(exist_ok=True)
    before = len(list(place.metrics.iterdir()))
    for number in range(before, before + count):
        (place.metrics / f"train-{number:06d}.jsonl").write_bytes(b"{}\n")
    return {file.name for file in place.metrics.iterdir()}


def curves_in(offers: Sequence[Offer]) -> set[str]:
    return {offer.path.split("/")[-1] for offer in offers if offer.kind == "metrics"}


def test_too_many_curves_keep_no_policy_back(remote: Remote, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rsync, "LOOK_EVERY_S", 0)
    shared = Shared(Path(remote.path))
    [place] = shared.slots()
    first = more_of_curves(place, 30)
    with closing(RsyncTransport(remote, "anna", stage_files=20)) as transport:
        news = transport.listing()
        assert [offer.kind for offer in news.offers].count("manifest") == 1
        assert curves_in(news.offers) <= first
        assert "curves some are left out" in news.left_out
        newer = publish_one(shared, 1, 2)
        more_of_curves(place, 30)
        (place.metrics / min(first)).write_bytes(b"{}\n{}\n")
        news = transport.wait(0)
        assert place.manifest(newer.version).name in {offer.path.split("/")[-1] for offer in news.offers}
        assert curves_in(news.offers) == {min(first)}, "what came of them grows, and no other part comes"
        assert news.left_out
        for file in place.metrics.iterdir():
            file.write_bytes(bytes(2**20))
        monkeypatch.setattr(bringing, "MAX_CURVES_BYTES", 2**20)
        with pytest.raises(TooMuchError, match="more than 2 MiB of small files"):
            transport.wait(0)


def test_curves_leave_the_disk_some_room_for_policies(remote: Remote, monkeypatch: pytest.MonkeyPatch):
    """While it is nearly full no curve comes, and once there is room again all do."""
    monkeypatch.setattr(rsync, "LOOK_EVERY_S", 0)
    shared = Shared(Path(remote.path))
    [place] = shared.slots()
    more_of_curves(place, 3)
    with closing(RsyncTransport(remote, "anna")) as transport:
        with monkeypatch.context() as full:
            full.setattr(bringing, "SPARE_BYTES", 2**60)
            news = transport.listing()
            assert [offer.kind for offer in news.offers].count("manifest") == 1
            assert "nearly full" in news.left_out
            newer = publish_one(shared, 1, 2)
            names = more_of_curves(place, 3)
            news = transport.wait(0)
            assert {offer.path.split("/")[-1] for offer in news.offers} == {place.manifest(newer.version).name}
            assert "nearly full" in news.left_out
        news = transport.listing()
    assert curves_in(news.offers) == names
    assert news.left_out == ""


def test_curves_come_a_part_at_each_look_and_policies_at_every_one(remote: Remote, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bringing, "FIRST_SLICE_S", 0.5)
    shared = Shared(Path(remote.path))
    [place] = shared.slots()
    place.metrics.mkdir()
    parts = {f"train-{number:06d}.jsonl": random.Random(number).randbytes(1_000_000) for number in range(6)}
    for name, data in parts.items():
        (place.metrics / name).write_bytes(data)
    came: list[set[str]] = []
    with closing(RsyncTransport(remote, "anna", bwlimit=1000)) as transport:
        news = transport.listing()
        while news.more:
            came.append(curves_in(news.offers))
            newer = publish_one(shared, 1, 1 + len(came))
            news = transport.wait(0)
            assert place.manifest(newer.version).name in {offer.path.split("/")[-1] for offer in news.offers}
        came.append(curves_in(news.offers))
        assert len(came) > 2
        stage = transport._curves.shared.slots()[0].metrics
        assert {file.name: file.read_bytes() for file in stage.glob("*.jsonl")} == parts
        received = transport.facts().bytes_in
    assert set().union(*came) == set(parts)
    assert sum(map(len, came)) == len(parts), "what came once does not come again"
    assert 6_000_000 < received < 8_000_000


def test_a_checkpoint_leaves_the_disk_some_room(runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    there = tmp_path / "run" / "slots" / "0" / "attempts" / "1" / "checkpoints" / "500"
    checkpoint(there)
    arriving = tmp_path / "laptop" / "500.part"
    arriving.mkdir(parents=True)
    monkeypatch.setattr("syncd.shared.space.FREE_SHARE", 1.0)
    monkeypatch.setattr("syncd.shared.space.FREE_BYTES", 2**80)
    with pytest.raises(StorageError, match="nearly full"):
        bring_tree(runner, str(there), arriving)

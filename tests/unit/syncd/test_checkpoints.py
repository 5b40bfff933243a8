"""Whole checkpoints on request: which ones, and whose they are. Our server runs, on this machine alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from disk_order import disk_order
from policies import publish_one

from syncd.laptop.checkpoints import ServedCheckpoints, fetch_newest
from syncd.remote import Remote
from syncd.store import Shared
from syncd.transports import LocalTransport
from syncd.wire.protocol import SavedSlot, SavedThere

RUN = "mine-11111111"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "mine" / "shared" / "v1").mkdir(parents=True)
    (tmp_path / "mine" / "run.json").write_text(json.dumps({"run_id": RUN, "env": {"TOKEN": "secret"}}))
    return tmp_path / "mine"


@pytest.fixture
def session(run: Path) -> Iterator[LocalTransport]:
    with closing(LocalTransport(Remote(path=f"{run}/shared"), "anna")) as session:
        yield session


@pytest.fixture
def pull(session: LocalTransport, tmp_path: Path) -> Callable[..., tuple[list[str], list[str], set[str]]]:
    """`--checkpoints`, once: its lines, its troubles, and which checkpoints are here then."""

    def pull_it() -> tuple[list[str], list[str], set[str]]:
        troubles: list[str] = []
        lines = fetch_newest(ServedCheckpoints(session), tmp_path / "mirror", trouble=troubles.append)
        here = tmp_path / "mirror" / "checkpoints"
        return lines, troubles, {path.parent.relative_to(here).as_posix() for path in here.rglob("manifest.json")}

    return pull_it


def save(run: Path, where: str, *, whole: bool = True, kind: str = "exact") -> Path:
    """A checkpoint `<slot>/<attempt>/<step>`."""
    slot, attempt, step = where.split("/")
    folder = run / "slots" / slot / "attempts" / attempt / "checkpoints" / step
    folder.mkdir(parents=True)
    nets = f"nets of {where}".encode()
    (folder / "nets.safetensors").write_bytes(nets if whole else nets[:3])
    record = {"bytes": len(nets), "sha256": hashlib.sha256(nets).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps({"kind": kind, "files": {"nets.safetensors": record}}))
    return folder


def test_the_newest_of_each_slot_comes_whichever_policy_is_the_newest(run, pull, tmp_path):
    """A running training: its newest policies belong to no checkpoint, and the mirror has the newest alone."""
    for where in ("0/0/9000", "0/1/2000", "0/1/000000010000", "1/0/500"):
        save(run, where)
    save(run, "0/1/.99000.unfinished")
    mirror = Shared(tmp_path / "mirror")
    publish_one(mirror, 1, 4, run=RUN)
    lines, troubles, here = pull()
    assert (here, troubles) == ({f"{RUN}/0/1/10000", f"{RUN}/1/0/500"}, [])
    assert lines[0] == f"checkpoint of step 10,000 of {RUN}/0 → {tmp_path}/mirror/checkpoints/{RUN}/0/1/10000"
    save(run, "0/1/20000")
    assert pull()[2] == here | {f"{RUN}/0/1/20000"}


def test_one_that_is_not_whole_is_a_trouble_of_its_slot(run, pull):
    save(run, "0/0/1000")
    save(run, "1/0/3000", whole=False)
    save(run, "2/0/1000", kind="policy")
    _, troubles, here = pull()
    assert here == {f"{RUN}/0/0/1000"}
    assert [trouble.partition(" arrived complete")[0] for trouble in troubles] == [
        f"no checkpoint of {RUN}/{slot}" for slot in (1, 2)
    ]


@pytest.mark.parametrize(
    "files",
    [{"../../../stolen": 5}, {"/etc/passwd": 5}, {"nets.safetensors": -1}, {"nets.safetensors": 2**60}, {"a/b": 5}],
)
def test_a_manifest_that_names_what_is_no_file_of_a_checkpoint_brings_nothing(run, session, tmp_path, files):
    folder = save(run, "0/0/1000")
    listed = {name: {"bytes": size, "sha256": "0" * 64} for name, size in files.items()}
    (folder / "manifest.json").write_text(json.dumps({"files": listed}))
    troubles: list[str] = []
    assert fetch_newest(ServedCheckpoints(session), tmp_path / "mirror", trouble=troubles.append) == []
    assert len(troubles) == 1
    assert not [path for path in (tmp_path / "mirror").rglob("*") if path.is_file()]


def test_one_that_came_in_part_is_gone_on_with(run, session, tmp_path):
    folder = save(run, "0/0/1000")
    part = tmp_path / "mirror" / "checkpoints" / RUN / "0" / "0" / "1000.part" / "nets.safetensors"
    part.parent.mkdir(parents=True)
    part.write_bytes((folder / "nets.safetensors").read_bytes()[:5])
    asked = []
    fetch = session.fetch
    session.fetch = lambda offer, here: (asked.append(here.exists() and here.stat().st_size), fetch(offer, here))
    [line] = fetch_newest(ServedCheckpoints(session), tmp_path / "mirror", trouble=print)
    assert asked == [False, 5]
    assert (part.parents[1] / "1000" / "nets.safetensors").read_bytes() == b"nets of 0/0/1000"
    assert line.startswith("checkpoint of step 1,000")


def test_a_checkpoint_is_durable_before_it_has_its_name(run, pull, tmp_path, monkeypatch):
    there = save(run, "0/0/200")
    above = tmp_path / "mirror" / "checkpoints" / RUN / "0" / "0"
    (above / "200.part").mkdir(parents=True)
    asked = disk_order(monkeypatch, above)
    assert pull()[2] == {f"{RUN}/0/0/200"}
    files = {f"fsync 200.part/{path.name} ({path.stat().st_size})" for path in there.iterdir()}
    assert files <= set(asked[:-3])
    assert asked[-3:] == ["fsync 200.part", "replace 200.part → 200", "fsync ."]


def test_a_server_that_names_the_same_slots_again_keeps_nobody(session, monkeypatch):
    asked = []
    assert not session.saved(1_000_000).slots  # behind the last there may be

    def saved(slot):
        asked.append(slot)
        assert len(asked) < 9
        return SavedThere(run_id=RUN, slots=(SavedSlot(slot=999_999, saved=((0, "10", 5),)),))

    monkeypatch.setattr(session, "saved", saved)
    assert list(ServedCheckpoints(session).saved()) == [999_999]
    assert asked == [0, 1_000_000]

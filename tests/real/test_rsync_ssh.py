"""`syncd pull --rsync`: the real rsync and a real sshd, and nothing of ours over there."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from daemons import wait_for
from needs import need
from policies import RUN, publish_one
from refused import refused
from sshd import Laptop, Sshd
from watching import client_env, seen, syncd, watching

from syncd.laptop import rsync
from syncd.laptop.rsync import RsyncPull
from syncd.outbox import Outbox
from syncd.remote import Remote, Settings, store_settings
from syncd.store import Inbox, Shared, SlotPlace, Version, write_metrics

#: What the rsync of macOS 15 and later (openrsync, Apple's sources of 2026-04) does not know.
LACKS = (
    "--append-verify", "--protect-args", "--secluded-args", "--compress-choice", "--zc", "--checksum-choice", "--cc",
    "--ignore-missing-args", "--mkpath", "--fsync", "--info", "-s",
)  # fmt: skip


@dataclass
class Site:
    """A login node where no program of ours may run, and a laptop."""

    server: Sshd
    laptop: Laptop
    shared: Shared
    folder: Path
    env: dict[str, str]

    def remote(self, **changes: object) -> Remote:
        values = {
            "path": str(self.shared.path), "host": "127.0.0.1", "user": self.server.user, "port": self.server.port,
            "key": self.laptop.key, "known_hosts": self.laptop.known_hosts, "ssh_config": self.laptop.config,
            "command": "/nowhere/syncd",
        }  # fmt: skip
        return Remote.model_validate(values | changes)

    def store(self, **changes: object) -> None:
        store_settings(Settings(remote=self.remote(**changes), name="anna"), self.env)

    def pull(self, *words: str) -> subprocess.CompletedProcess[str]:
        return syncd("pull", "", str(self.folder), "--rsync", *words, env=self.env)

    def report(self, *words: str) -> dict[str, object]:
        done = self.pull("--json", *words)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def has(self, seq: int) -> bool:
        manifest = seen(self.folder, RUN)
        return manifest is not None and manifest.version == Version(1, seq)

    def visible(self) -> set[str]:
        """What a reader of the mirror finds."""
        runs = self.folder / "v1" / "runs"
        return {path.relative_to(runs).as_posix() for path in runs.rglob("*") if path.is_file()}


@pytest.fixture
def site(sshd: Sshd, tmp_path: Path) -> Site:
    need("rsync", [] if shutil.which("rsync") else ["rsync"])
    laptop = sshd.new_client("anna")
    shared = Shared(tmp_path / "run" / "shared")
    shared.path.mkdir(parents=True)
    site = Site(sshd, laptop, shared, tmp_path / "mirror", client_env(laptop.home))
    site.store()
    return site


def curve(place: SlotPlace, number: int, rows: int = 1) -> Path:
    place.metrics.mkdir(exist_ok=True)
    path = place.metrics / f"train-{number:06d}.jsonl"
    path.write_text('{"step": 1}\n' * rows)
    return path


@pytest.mark.long
def test_what_is_new_comes_once_and_nothing_goes(site: Site) -> None:
    assert site.report()["policies"] == []
    publish_one(site.shared, 1, 1)
    publish_one(site.shared, 1, 2, averaged=True)
    place = site.shared.slot(RUN, 0)
    write_metrics(place, "train", [{"step": 1}])
    Outbox(site.folder).offer(RUN, 0, b"a segment")
    first = site.report()
    assert ([each["version"] for each in first["policies"]], first["curves"]) == (["1-1"], 1)
    assert first["transport"] == "rsync"
    assert site.has(1)
    assert (site.folder / "v1" / "runs" / RUN / "0" / "averaged" / "LATEST.json").exists()
    again = site.report()
    assert ([*again["policies"]], again["curves"], again["offered"], again["bytes"]) == ([], 0, 1, 0)
    before = place.latest.stat()
    publish_one(site.shared, 1, 3)
    os.utime(place.latest, ns=(before.st_atime_ns, before.st_mtime_ns))  # as large and as old: rsync alone sees none
    write_metrics(place, "train", [{"step": 1}, {"step": 2}])
    newer = site.report()
    assert ([each["version"] for each in newer["policies"]], newer["curves"]) == (["1-3"], 1)
    assert site.has(3)
    theirs = {path.name: path.read_bytes() for path in place.metrics.iterdir()}
    assert {
        path.name: path.read_bytes() for path in (site.folder / "v1" / "runs" / RUN / "0" / "metrics").iterdir()
    } == theirs
    assert Outbox(site.folder).count() == 1
    assert list(Inbox.all_of(site.shared)) == []


@pytest.mark.long
def test_a_pull_that_is_killed_shows_nobody_a_part_and_is_gone_on_with(site: Site) -> None:
    publish_one(site.shared, 1, 1)
    assert site.pull().returncode == 0
    before = site.visible()
    newer = publish_one(site.shared, 1, 2, wide=100_000)
    weights = site.folder / "part" / "rsync" / "stage"
    program = site.folder.parent / "bin" / "rsync"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shutil.which("rsync")} --bwlimit=2000 "$@"\n')
    program.chmod(0o755)
    slow = {**site.env, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    with watching(site.folder, "--rsync", "", env=slow, seconds="0") as pulling:
        wait_for(lambda: any(path.stat().st_size > 200_000 for path in weights.rglob(".*") if path.is_file()), "a part")
        assert site.visible() == before
        pulling.end(signal.SIGKILL)
    assert site.visible() == before
    assert site.has(1)
    assert [each["version"] for each in site.report()["policies"]] == [str(newer.version)]
    assert not list(weights.rglob("*"))


def no_folder(site: Site) -> None:
    site.store(path="/none/shared")


def no_rsync_there(site: Site) -> None:
    site.server.authorized_keys.write_text("")
    site.server.add_key(site.laptop.public_key, 'command="PATH=/none; eval \\"$SSH_ORIGINAL_COMMAND\\""')


def the_key_is_refused(site: Site) -> None:
    site.server.authorized_keys.write_text("")


def the_host_key_is_unknown(site: Site) -> None:
    site.laptop.known_hosts.write_text("")


def the_server_is_away(site: Site) -> None:
    site.server.stop()


def only_a_gate(site: Site) -> None:
    site.server.authorized_keys.write_text("")
    words = "echo syncd gate: a restricted key gets no rsync >&2; exit 126"
    site.server.add_key(site.laptop.public_key, f'restrict,command="{words}"')


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (no_folder, 6), (no_rsync_there, 6), (the_key_is_refused, 5), (the_host_key_is_unknown, 4),
        (the_server_is_away, 3), (only_a_gate, 6),
    ],
)  # fmt: skip
def test_what_does_not_go_is_one_sentence(site: Site, spoil: Callable[[Site], None], code: int) -> None:
    publish_one(site.shared, 1, 1)
    spoil(site)
    done = site.pull()
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr


@pytest.mark.long
def test_what_no_run_of_ours_has_is_not_fetched(site: Site, tmp_path: Path) -> None:
    """Files that are too large, links, and folders where files should be; what is right beside them comes."""
    publish_one(site.shared, 1, 1)
    place = site.shared.slot(RUN, 0)
    good = curve(place, 0)
    (place.metrics / "train-000001.jsonl").write_bytes(bytes(5 * 2**20))
    secret = tmp_path / "secret"
    secret.write_text('{"step": 1}\n')
    (place.metrics / "train-000002.jsonl").symlink_to(secret)
    (place.metrics / "train-000003.jsonl").mkdir()
    large, folder = site.shared.slot("other-00000000", 0), site.shared.slot("third-00000000", 0)
    for other in (large, folder):
        other.manifests.mkdir(parents=True)
        other.latest.write_text('{"attempt": 1, "seq": 1}')
    large.manifest(Version(1, 1)).write_bytes(bytes(5 * 2**20))
    folder.manifest(Version(1, 1)).mkdir()
    done = site.pull()
    assert (done.returncode, "[sync.left-out]" in done.stderr) == (6, True), done.stderr
    assert site.has(1)
    here = site.folder / "v1" / "runs"
    assert {path.name for path in here.rglob("*.jsonl")} == {good.name}
    assert {path.name for path in here.iterdir()} == {RUN}
    assert max(path.stat().st_size for path in site.folder.rglob("*") if path.is_file()) < 2**20


def test_a_tree_that_is_larger_than_any_of_ours_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for slot in range(15):
        publish_one(site.shared, 1, 1, slot=slot)
    bring = rsync.Rsync.bring
    monkeypatch.setattr(rsync.Rsync, "bring", lambda *words, **more: bring(*words, **{**more, "files": 20}))
    with refused("rsync.too-much", files=20):
        RsyncPull(site.remote(), site.folder).look()


def test_too_many_curves_keep_no_policy_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_one(site.shared, 1, 1)
    for number in range(30):
        curve(site.shared.slot(RUN, 0), number)
    bring = rsync.Rsync.bring
    monkeypatch.setattr(rsync.Rsync, "bring", lambda *words, **more: bring(*words, **{**more, "files": 20}))
    pull = RsyncPull(site.remote(), site.folder)
    pull.look()
    assert site.has(1)
    assert len(pull.counts.troubles) == 1


def test_a_disk_that_is_nearly_full_takes_nothing_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_one(site.shared, 1, 1)
    monkeypatch.setattr("syncd.shared.layout.FREE_SHARE", 1.0)
    monkeypatch.setattr("syncd.shared.layout.FREE_BYTES", 2**80)
    with refused("mirror.disk-full"):
        RsyncPull(site.remote(), site.folder).look()


def test_a_path_of_several_words_is_one(site: Site, tmp_path: Path) -> None:
    spaced = Shared(tmp_path / "my run $(touch stolen)" / "shared")
    publish_one(spaced, 1, 1)
    site.store(path=str(spaced.path))
    assert site.pull().returncode == 0
    assert site.has(1)


def save(run: Path, where: str) -> Path:
    slot, attempt, step = where.split("/")
    folder = run / "slots" / slot / "attempts" / attempt / "checkpoints" / step
    folder.mkdir(parents=True)
    data = random.Random(where).randbytes(300_000)
    (folder / "nets.safetensors").write_bytes(data)
    record = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps({"kind": "exact", "files": {"nets.safetensors": record}}))
    return folder


@pytest.mark.long
def test_whole_checkpoints_come_on_request_and_are_gone_on_with(site: Site) -> None:
    run = site.shared.path.parent
    publish_one(site.shared, 1, 1)
    none = site.pull("--checkpoints")
    assert (none.returncode, none.stderr.count("\n")) == (6, 1), none.stderr
    there = save(run, "0/1/000000000500")
    save(run, "0/0/9000")
    save(run, "1/0/700")
    (run / "run.json").write_text(json.dumps({"run_id": RUN, "env": {"TOKEN": "secret"}}))
    begun = site.folder / "checkpoints" / RUN / "0" / "1" / "500.part" / ".part"
    begun.mkdir(parents=True)
    shutil.copyfile(there / "nets.safetensors", begun / "nets.safetensors")  # all of it came before the line broke
    done = site.pull("--checkpoints")
    assert done.returncode == 0, done.stderr
    here = site.folder / "checkpoints" / RUN
    assert {path.parent.relative_to(here).as_posix() for path in here.rglob("manifest.json")} == {"0/1/500", "1/0/700"}
    assert {path.name: path.read_bytes() for path in (here / "0/1/500").iterdir() if path.is_file()} == {
        path.name: path.read_bytes() for path in there.iterdir()
    }
    assert not [path for path in site.folder.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]
    elsewhere = site.shared.path.rename(run / "elsewhere")
    site.store(path=str(elsewhere))
    refused = site.pull("--checkpoints")
    assert (refused.returncode, "[sync.left-out]" in refused.stderr) == (6, True)


@pytest.mark.long
def test_an_rsync_that_knows_only_what_macs_does_is_enough(site: Site, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "rsync"
    program.parent.mkdir()
    unknown = "|".join(f"{word}|{word}=*" for word in LACKS)
    program.write_text(
        f'#!/bin/sh\nfor word; do case "$word" in {unknown}) exit 1;; esac; done\necho "$@" >> {tmp_path}/calls\n'
        f'exec {shutil.which("rsync")} "$@"\n'
    )
    program.chmod(0o755)
    site.env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    publish_one(site.shared, 1, 1)
    curve(site.shared.slot(RUN, 0), 0)
    save(site.shared.path.parent, "0/1/500")
    (site.shared.path.parent / "run.json").write_text(json.dumps({"run_id": RUN}))
    done = site.pull("--checkpoints")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) >= 4


def test_by_rsync_it_pulls_once(site: Site) -> None:
    done = syncd("pull", "--rsync", "", "", "5", env=site.env)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "--rsync" in done.stderr

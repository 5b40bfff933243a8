"""A disk that is full to the last byte, on the laptop or where the run publishes: nothing is lost, and it goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from daemons import wait_for
from full_disk import fill
from policies import RUN, publish_one
from watching import client_env, seen, syncd, watching

from syncd.commands.service import run_agent
from syncd.laptop.client import Client
from syncd.outbox import Outbox, read_contributions
from syncd.store import Shared, Version


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return client_env(tmp_path / "home")


def version_of(folder: Path) -> Version | None:
    manifest = seen(folder, RUN)
    return None if manifest is None else manifest.version


@pytest.mark.long
def test_a_watching_laptop_whose_disk_is_full_keeps_its_policy_and_goes_on_when_there_is_room(
    tmp_path: Path, small_disk: Path, env: dict[str, str]
) -> None:
    shared, folder = Shared(tmp_path / "shared"), tmp_path / "mirror"
    publish_one(shared, 1, 1)
    (small_disk / "mirror").mkdir()
    folder.symlink_to(small_disk / "mirror")  # so that the watcher's output lies where there is room
    with watching(folder, str(shared.path), env=env) as watcher:
        wait_for(lambda: version_of(folder) == Version(1, 1), "the first policy")
        ballast = fill(small_disk)
        publish_one(shared, 1, 2, wide=20_000)
        wait_for(lambda: "the disk is nearly full" in watcher.said(), "its word on the disk")
        assert version_of(folder) == Version(1, 1)
        ballast.unlink()
        wait_for(lambda: version_of(folder) == Version(1, 2), "the policy that there was no room for")
        assert watcher.said().count("the disk is nearly full") == 1
        assert "Traceback" not in watcher.said()


def test_a_log_on_a_full_disk_ends_no_watch(tmp_path: Path, env: dict[str, str]) -> None:
    shared, folder = Shared(tmp_path / "shared"), tmp_path / "mirror"
    publish_one(shared, 1, 1)
    with open("/dev/full", "wb") as full, open(tmp_path / "said", "wb") as said:
        watch = subprocess.Popen(
            [sys.executable, "-P", "-m", "syncd", "watch", str(shared.path), str(folder)],
            env=env, stdin=subprocess.DEVNULL, stdout=full, stderr=said,
        )  # fmt: skip
        try:
            for seq in (2, 3):
                wait_for(
                    lambda seq=seq: watch.poll() is not None or version_of(folder) == Version(1, seq - 1), "the policy"
                )
                publish_one(shared, 1, seq)
            wait_for(lambda: watch.poll() is not None or version_of(folder) == Version(1, 3), "the last policy")
            assert watch.poll() is None, (tmp_path / "said").read_text()
        finally:
            watch.kill()
            watch.wait()


def test_a_service_begins_on_a_full_disk_and_waits_for_room(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (small_disk / "mirror" / "state").mkdir(parents=True)
    (small_disk / "mirror" / "state" / "lock").touch()
    fill(small_disk)
    lived: list[str] = []
    monkeypatch.setattr(Client, "watch", lambda client: lived.append(client.writer.status.state))
    run_agent(str(tmp_path / "shared"), small_disk / "mirror")
    assert lived == ["connecting"]


@pytest.mark.long
def test_where_the_owners_disk_is_full_segments_wait_in_the_outbox(
    tmp_path: Path, small_disk: Path, env: dict[str, str]
) -> None:
    shared, folder = Shared(small_disk / "shared"), tmp_path / "mirror"
    publish_one(shared, 1, 1)
    assert Outbox(folder).offer(RUN, 0, b"experience")
    ballast = fill(small_disk)
    done = syncd("push", str(shared.path), str(folder), env=env)
    assert "Traceback" not in done.stderr
    assert 'says "the disk there is nearly full" (storage)' in done.stdout + done.stderr
    assert (Outbox(folder).count(), read_contributions(folder).sent) == (1, 0)
    assert not list(shared.path.rglob("inbox/*/new/*/*/*"))
    ballast.unlink()
    assert syncd("push", str(shared.path), str(folder), env=env).returncode == 0
    assert (Outbox(folder).count(), read_contributions(folder).sent) == (0, 1)

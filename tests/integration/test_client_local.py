"""`syncd` as a person starts it, with the real server behind a folder of this machine: kills, stops, bad servers."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S, started_at, wait_for
from policies import RUN, publish_one
from watching import Watcher, client_env, is_kept, seen, syncd, watching

from syncd.commands import default_name
from syncd.shared.inbox import Inbox
from syncd.store import Shared, Version, versions

#: More than the server pushes unasked: it is fetched in several frames.
WIDE = 20_000
PUBLISHER = Path(__file__).parents[1] / "support" / "publish_often.py"


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    (tmp_path / "shared" / "v1").mkdir(parents=True)
    return Shared(tmp_path / "shared")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return client_env(tmp_path / "home")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


@pytest.fixture
def watcher(shared: Shared, folder: Path, env: dict[str, str]) -> Iterator[Watcher]:
    with watching(folder, str(shared.path), env=env) as started:
        started.live()
        yield started


def is_here(folder: Path, version: Version) -> bool:
    manifest = seen(folder, RUN)
    return manifest is not None and manifest.version == version


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_told_to_end_it_ends_and_leaves_nobody_behind(
    watcher: Watcher, folder: Path, number: signal.Signals, code: int
) -> None:
    servers = watcher.servers()
    assert len(servers) == 1
    assert watcher.end(number) == code
    wait_for(lambda: not any(map(started_at, servers)), "the end of the server")
    assert not is_kept(folder)
    assert "Traceback" not in watcher.said()


@pytest.mark.long
def test_who_only_looks_at_the_other_side_takes_no_verdict_away(
    shared: Shared, folder: Path, env: dict[str, str]
) -> None:
    inbox = Inbox.of(shared, default_name())
    inbox.write_verdict("a" * 64, accepted=True, now=1.0)
    looked = syncd("doctor", "--json", str(shared.path), str(folder), env=env)
    assert json.loads(looked.stdout)["facts"]["visit"]["contributor"] == inbox.who
    assert len(inbox.verdicts()) == 1
    counted = syncd("pull", str(shared.path), str(folder), env=env)
    assert "1 accepted" in counted.stdout
    wait_for(lambda: inbox.verdicts() == [], "the acknowledgement")


@pytest.mark.long
def test_whoever_is_killed_nobody_sees_a_torn_policy(
    shared: Shared, folder: Path, env: dict[str, str], tmp_path: Path
) -> None:
    """The client dies at random moments, mid-blob too; so does the publisher. A reader looks all the time."""
    chance = random.Random(20)
    looked = 0
    last = Version(0, 0)
    with watching(folder, str(shared.path), env=env) as watcher:
        for attempt in range(1, 7):
            publisher = subprocess.Popen(
                [sys.executable, str(PUBLISHER), str(shared.path), str(attempt), str(WIDE)], env=env
            )
            try:
                wait_for(lambda attempt=attempt: publisher_began(shared, attempt), "a publication")
                wait_for(lambda: watcher.word() is not None and watcher.word().policies > 0, "a policy")  # type: ignore[union-attr]
                until = time.monotonic() + chance.uniform(0.0, 0.4)
                while time.monotonic() < until:
                    manifest = seen(folder, RUN)
                    assert manifest is not None
                    assert manifest.version >= last
                    last = manifest.version
                    looked += 1
                watcher.end(signal.SIGKILL)
            finally:
                publisher.kill()
                publisher.wait(PATIENCE_S)
            manifest = seen(folder, RUN)
            assert manifest is not None
            assert manifest.version >= last
            watcher.start()
        newest = versions(shared.slot(RUN, 0))[-1]
        wait_for(lambda: is_here(folder, newest), "the newest policy")
        # The last hint may be on its way yet; what the killed ones left is gone for good.
        wait_for(lambda: not list((folder / "v1").rglob("*.tmp")), "nothing unfinished in the mirror")
    assert looked > 0


def publisher_began(shared: Shared, attempt: int) -> bool:
    known = versions(shared.slot(RUN, 0))
    return bool(known) and known[-1].attempt == attempt


@pytest.mark.parametrize("inner", ["", "shared"])
def test_a_learners_own_folder_is_never_made_a_mirror(tmp_path: Path, env: dict[str, str], inner: str) -> None:
    """A mirror keeps three policies; there it would clear the learner's away."""
    run = tmp_path / "run"
    publish_one(Shared(run / "shared"), 1, 1)
    publish_one(Shared(tmp_path / "other"), 1, 1)
    before = sorted(run.rglob("*"))
    for remote in (run, tmp_path / "other"):
        refused = syncd("pull", str(remote / inner if remote == run else remote), str(run / "shared"), env=env)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert "[mirror.is-a-runs]" in refused.stderr
    assert sorted(run.rglob("*")) == before

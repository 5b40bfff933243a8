"""`syncd pull "" DIR 5`: for ever, by hand, in the background, and as a LaunchAgent that a user wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from keepalive import LABEL, PLIST, Agent, install_launchctl
from policies import RUN, publish_one
from watching import client_env, seen, syncd, watching

from syncd.laptop.lock import holder
from syncd.store import Shared, Version


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    shared = Shared(tmp_path / "shared")
    publish_one(shared, 1, 1)
    return shared


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return client_env(tmp_path / "home")


def is_here(folder: Path, seq: int) -> bool:
    manifest = seen(folder, RUN)
    return manifest is not None and manifest.version == Version(1, seq)


@pytest.mark.long
def test_the_third_word_is_seconds_and_0_is_once(tmp_path: Path, shared: Shared, env: dict[str, str]) -> None:
    folder = tmp_path / "mirror"
    once = syncd("pull", str(shared.path), str(folder), "0", env=env)
    assert (once.returncode, once.stderr) == (0, "")
    assert is_here(folder, 1)
    with watching(folder, str(shared.path), env=env, seconds="0.3") as pulling:
        pulling.live()
        for seq in (2, 3):
            publish_one(shared, 1, seq)
            wait_for(lambda seq=seq: is_here(folder, seq), "the policy")
        assert "live" in syncd("status", str(folder), env=env).stdout.splitlines()[0]
        assert pulling.end(signal.SIGTERM) == 0
        assert "told to end (SIGTERM)" in pulling.said()


@pytest.mark.long
def test_an_empty_folder_is_the_one_that_is_stored_and_no_number_is_refused(
    tmp_path: Path, shared: Shared, env: dict[str, str]
) -> None:
    done = syncd("pull", str(shared.path), "", "0", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert is_here(tmp_path / "home" / "shared_weights", 1)
    for word in ("nan", "-1", "soon"):
        refused = syncd("pull", str(shared.path), "", word, env=env, cwd=tmp_path)
        assert refused.returncode == 2
        assert "SECONDS" in refused.stderr
    refused = syncd("pull", str(shared.path), "", "5", "--json", env=env, cwd=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


@pytest.mark.long
def test_a_second_one_waits_and_goes_on_where_the_first_one_ends(
    tmp_path: Path, shared: Shared, env: dict[str, str]
) -> None:
    folder = tmp_path / "mirror"
    with (
        watching(folder, str(shared.path), env=env, seconds="5") as first,
        watching(folder, str(shared.path), env=env, seconds="5") as second,
        watching(folder, str(shared.path), env=env, seconds="5") as third,
    ):
        keeper, *waiting = sorted((first, second, third), key=lambda each: not waits_not(each))
        for each in waiting:
            said = f"{folder} is kept by `syncd pull` (pid {keeper.pid}) already: waiting until that one ends"
            wait_for(lambda each=each, said=said: said in each.said(), "its word")
            assert each.said().count("\n") == 1
        leaves, takes = waiting
        assert leaves.end(signal.SIGTERM) == 0
        assert "told to end (SIGTERM)" in leaves.said()
        keeper.end(signal.SIGKILL)
        takes.live()
        assert takes.said().count("waiting") == 1
        busy = syncd("push", str(shared.path), str(folder), env=env)
        assert busy.returncode == 2
        assert f"`syncd pull` (pid {takes.pid})" in busy.stderr
        assert "[mirror.only-fetched]" in busy.stderr


def waits_not(watcher) -> bool:
    """Whether it keeps the mirror; looked at once one of them has said that it waits."""
    wait_for(lambda: watcher.word() is not None or "waiting" in watcher.said(), "it to keep the mirror or to wait")
    return "waiting" not in watcher.said()


class Launchd:
    """A home with the user's agent in it, and a launchctl."""

    def __init__(self, tmp_path: Path, env: dict[str, str]) -> None:
        self.home = Path(env["HOME"])
        self.plist = self.home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self.plist.parent.mkdir(parents=True)
        self.plist.write_text(PLIST)
        (self.home / "anchorleg").mkdir()
        (self.home / "anchorleg" / ".venv").symlink_to(sys.prefix)
        install_launchctl(tmp_path / "bin", tmp_path / "launchd")
        self.env = {**env, "PATH": f"{tmp_path / 'bin'}:{env['PATH']}"}
        self.agent = Agent(tmp_path / "launchd", self.plist)

    def ctl(self, verb: str) -> None:
        subprocess.run(["launchctl", verb, str(self.plist)], env=self.env, check=True, timeout=PATIENCE_S)

    def said(self) -> str:
        return self.agent.log.read_text() if self.agent.log.exists() else ""


@pytest.fixture
def launchd(tmp_path: Path, shared: Shared, env: dict[str, str]) -> Iterator[Launchd]:
    config = Path(env["HOME"]) / ".config" / "anchorleg"
    config.mkdir(parents=True)
    (config / "syncd.json").write_text(json.dumps({"remote": {"path": str(shared.path)}}))
    launchd = Launchd(tmp_path, env)
    yield launchd
    if launchd.agent.state.exists():
        launchd.ctl("unload")


@pytest.mark.long
def test_an_agent_that_a_user_wrote_runs_for_ever_and_ends_with_its_unload(launchd: Launchd, shared: Shared) -> None:
    mirror = launchd.home / "shared_weights"
    launchd.ctl("load")
    wait_for(lambda: is_here(mirror, 1), "the first policy")
    keeper = holder(mirror)
    assert keeper is not None
    os.kill(keeper.pid, signal.SIGKILL)  # launchd starts it again
    publish_one(shared, 1, 2)
    wait_for(lambda: is_here(mirror, 2), "the next policy")
    assert len(launchd.agent.codes()) == 1
    launchd.ctl("unload")
    assert launchd.agent.codes()[-1] in {0, -signal.SIGTERM}  # syncd's own, or bash's where bash stays in between
    assert holder(mirror) is None, "nothing is left behind"
